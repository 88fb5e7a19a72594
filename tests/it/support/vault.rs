//! A store behind signed urls that lets a test hold requests in the middle: `GET` and `PUT` of whole objects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

#[derive(Default)]
struct Inside {
    objects: Mutex<HashMap<String, Bytes>>,
    hold_gets: AtomicUsize,
    hold_puts: AtomicUsize,
    held: AtomicUsize,
    seen: Mutex<Vec<String>>,
}

#[derive(Clone)]
pub struct Vault {
    pub url: String,
    inside: Arc<Inside>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl Vault {
    pub async fn open() -> Self {
        let inside = Arc::new(Inside::default());
        let router =
            Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&inside));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inside, _task: Arc::new(AbortOnDropHandle::new(task)) }
    }

    pub fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.inside.objects.lock().unwrap().insert(path.to_owned(), bytes.into());
    }

    pub fn get(&self, path: &str) -> Option<Bytes> {
        self.inside.objects.lock().unwrap().get(path).cloned()
    }

    /// The next `n` downloads come to a halt in the middle.
    pub fn hold_gets(&self, n: usize) {
        self.inside.hold_gets.store(n, Ordering::SeqCst);
    }

    /// The next `n` uploads are read and never answered; nothing of them is kept.
    pub fn hold_puts(&self, n: usize) {
        self.inside.hold_puts.store(n, Ordering::SeqCst);
    }

    /// How many requests were held so far.
    pub fn held(&self) -> usize {
        self.inside.held.load(Ordering::SeqCst)
    }

    /// Method and path of each request.
    pub fn seen(&self) -> Vec<String> {
        self.inside.seen.lock().unwrap().clone()
    }
}

fn takes_one(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

async fn answer(State(inside): State<Arc<Inside>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    inside.seen.lock().unwrap().push(format!("{} {path}", head.method));
    if head.method == Method::PUT {
        let bytes = body.collect().await.unwrap().to_bytes();
        if takes_one(&inside.hold_puts) {
            inside.held.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        inside.objects.lock().unwrap().insert(path, bytes);
        return StatusCode::OK.into_response();
    }
    let Some(object) = inside.objects.lock().unwrap().get(&path).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let head = Response::builder().header("content-length", object.len()).header("etag", "\"1\"");
    if takes_one(&inside.hold_gets) {
        inside.held.fetch_add(1, Ordering::SeqCst);
        let half = object.slice(..object.len() / 2);
        let halting = stream::iter([Ok::<_, std::io::Error>(half)]).chain(stream::pending());
        return head.body(Body::from_stream(halting)).unwrap();
    }
    head.body(Body::from(object)).unwrap()
}
