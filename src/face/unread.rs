//! Knowing whether a body was read to its end.
//!
//! What is left of it stands before the next request, so the connection has to end with the answer. A client that is
//! not told would send its next request there, and lose it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

/// Says whether the body came to its end.
pub(super) struct Watch(Arc<AtomicBool>);

impl Watch {
    pub(super) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The same request, and somebody who watches its body.
pub(super) fn watched(request: Request) -> (Request, Watch) {
    let ended = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let watch = Watch(Arc::clone(&ended));
    (request.map(|body| Body::new(Watched { body, ended })), watch)
}

struct Watched {
    body: Body,
    ended: Arc<AtomicBool>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.ended.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
