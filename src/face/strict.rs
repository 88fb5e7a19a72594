//! Bytes on their way to hyper, until they could be read in two ways.
//!
//! hyper answers 400 to what is no HTTP, and hangs up. So that it does, a CR that no LF follows is put where the bytes
//! become ambiguous: that is an error in a head, and between chunks. Nothing behind that place is ever read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::Framing;

/// Behind that CR: what ends no line, and then an empty line. hyper looks at half a head again only when it sees one.
const NOT_A_LINE_END: &[u8] = b"\0\r\n\r\n";

/// A connection whose requests end where they say, and say it once.
pub(super) struct Strict<S> {
    stream: S,
    state: State,
}

enum State {
    Reading(Framing),
    /// The CR was handed on; this was not yet.
    Refusing(&'static [u8]),
}

impl<S> Strict<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, state: State::Reading(Framing::new()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.state {
            State::Reading(framing) => {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
                if let Err((at, why)) = framing.read(&buffer.filled()[before..]) {
                    metrics::counter!("euterpe_http_refused_total", "reason" => why.as_str()).increment(1);
                    buffer.filled_mut()[before + at] = b'\r';
                    buffer.set_filled(before + at + 1);
                    this.state = State::Refusing(NOT_A_LINE_END);
                }
                Poll::Ready(Ok(()))
            }
            // hyper has all it needs to say no; an end here would look as if the client had gone.
            State::Refusing([]) => Poll::Pending,
            State::Refusing(rest) => {
                let (now, later) = rest.split_at(rest.len().min(buffer.remaining()));
                buffer.put_slice(now);
                *rest = later;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
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

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
