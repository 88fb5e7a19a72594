//! A call whose bodies are too large to hold: sent and received in pieces, for as long as pieces move.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::ext::on_informational;
use hyper::header::{EXPECT, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::call::request_for;
use super::{Egress, Failure};

/// A larger body is announced before it is sent.
const ASK_FIRST: u64 = 1024 * 1024;
/// For a server that does not know the question.
const UNASKED: Duration = Duration::from_secs(1);

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
        let (moved, is_asked) = (Moved::default(), sending.body.size_hint().lower() > ASK_FIRST);
        let mut headers = sending.headers;
        if is_asked {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        let welcome = is_asked.then(|| Arc::new(Welcome::default()));
        let patience = welcome.as_ref().map(|_| Box::pin(sleep(UNASKED)));
        let body = Departing { body: sending.body, moved: moved.clone(), welcome: welcome.clone(), patience };
        let mut request = request_for(&url, sending.method, headers, body)?;
        if let Some(welcome) = welcome {
            on_informational(&mut request, move |_| welcome.say());
        }
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

/// A store's 100 Continue. Whoever would refuse a large body says so before it is sent: one that is refused in the middle
/// meets a closed connection, and its answer is lost with it.
#[derive(Default)]
struct Welcome {
    is_said: AtomicBool,
    waker: AtomicWaker,
}

impl Welcome {
    fn say(&self) {
        self.is_said.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_said.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A body that waits until it is welcome, and notes when it is asked for more.
struct Departing<B> {
    body: B,
    moved: Moved,
    welcome: Option<Arc<Welcome>>,
    /// Not every server says it.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Departing<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(welcome) = self.welcome.clone() {
            let is_late = self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready());
            if !is_late {
                ready!(welcome.poll(cx));
            }
            (self.welcome, self.patience) = (None, None);
        }
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
