//! Closing a connection so that the last answer arrives.
//!
//! Whoever is refused before its body was read (413, 401) is still sending. Closing with its bytes unread makes the
//! kernel send a reset, and a reset destroys the answer on its way: the client would see a broken connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long, and how many bytes, the other side may go on after our last word.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 4 * 1024 * 1024;

/// A connection that, once we have said everything, lets the other side finish, within limits.
pub(super) struct Lingering {
    stream: TcpStream,
    ending: Option<Pin<Box<Sleep>>>,
    thrown_away: usize,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, ending: None, thrown_away: 0 }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Ours is said; what still comes is thrown away until the other side ends, too.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ending.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let patience = this.ending.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        while this.thrown_away < MOST && patience.as_mut().poll(cx).is_pending() {
            let mut waste = [0; 8192];
            let mut waste = ReadBuf::new(&mut waste);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut waste)) {
                Ok(()) if !waste.filled().is_empty() => this.thrown_away += waste.filled().len(),
                _ => break, // it has ended
            }
        }
        Poll::Ready(Ok(()))
    }
}
