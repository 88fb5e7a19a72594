//! A call whose bodies are too large to hold: sent and received in pieces, for as long as pieces move.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::call::request_for;
use super::{Egress, Failure};

/// What to send.
pub struct Sending<'a, B> {
    /// How.
    pub method: Method,
    /// Where: as it was given to us, and perhaps a secret.
    pub url: &'a str,
    /// All but host and connection. A body of unknown length needs its `content-length` here.
    pub headers: HeaderMap,
    /// What, piece by piece.
    pub body: B,
}

/// What comes back.
pub struct Streamed {
    /// 200 and so on; 3xx is an answer like any other, and not followed.
    pub status: StatusCode,
    /// As they came.
    pub headers: HeaderMap,
    /// The rest, as it comes.
    pub body: Arriving,
}

impl Egress {
    /// Sends and hands back the head of the answer. There is no limit to the whole: `idle` without a piece moving is
    /// the end, here and while the answer is read.
    pub async fn stream<B>(&self, sending: Sending<'_, B>, idle: Duration) -> Result<Streamed, Failure>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let url = self.policy.check(sending.url)?;
        let places = self.places(&url).await?;
        let wire = self.connect(&url, &places).await?;
        let moved = Moved::default();
        let body = Departing { body: sending.body, moved: moved.clone() };
        let request = request_for(&url, sending.method, sending.headers, body)?;
        let mut exchange = pin!(self.exchange(wire, request));
        let (response, connection) = loop {
            match timeout_at(moved.last() + idle, &mut exchange).await {
                Ok(done) => break done?,
                Err(_) if moved.last() + idle > Instant::now() => {}
                Err(_) => return Err(Failure::Timeout),
            }
        };
        let (head, body) = response.into_parts();
        let body = Arriving { body, idle, patience: None, _connection: connection };
        Ok(Streamed { status: head.status, headers: head.headers, body })
    }
}

/// When a piece was last taken to be sent.
#[derive(Clone)]
struct Moved(Arc<Mutex<Instant>>);

impl Default for Moved {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Moved {
    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A body that notes when it is asked for more.
struct Departing<B> {
    body: B,
    moved: Moved,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Departing<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.moved.now();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Dropping it hangs up.
pub struct Arriving {
    body: Incoming,
    idle: Duration,
    /// Runs while somebody waits for a piece, and not while a slow disk keeps them from asking.
    patience: Option<Pin<Box<Sleep>>>,
    _connection: AbortOnDropHandle<()>,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.patience = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Failure::from)));
        }
        let idle = self.idle;
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Some(Err(Failure::Timeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
