//! A requester's own backend: what it does when it is asked for new credentials.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use euterpe::crypto::{SigningSecret, verify};
use euterpe::domain::transcode::{Credentials, Hidden};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// What is answered to the refresh call with this body.
type Manners = Box<dyn Fn(Value) -> BoxFuture<'static, (u16, String)> + Send + Sync>;

struct Inside {
    secret: SigningSecret,
    manners: Manners,
    asked: Mutex<Vec<Value>>,
}

pub struct Owner {
    pub refresh_url: String,
    inside: Arc<Inside>,
    _task: AbortOnDropHandle<()>,
}

impl Owner {
    /// Verifies each call with `secret` before anything else.
    pub async fn start(
        secret: SigningSecret,
        manners: impl Fn(Value) -> BoxFuture<'static, (u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let inside = Arc::new(Inside { secret, manners: Box::new(manners), asked: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inside));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refresh_url = format!("http://{}/refresh?token=1", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { refresh_url, inside, _task: AbortOnDropHandle::new(task) }
    }

    /// The bodies of the calls so far.
    pub fn asked(&self) -> Vec<Value> {
        self.inside.asked.lock().unwrap().clone()
    }
}

async fn answer(State(inside): State<Arc<Inside>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap();
    let (timestamp, nonce) = (header("x-euterpe-timestamp"), header("x-euterpe-nonce"));
    let now = Timestamp::now().as_second();
    verify(&inside.secret, timestamp, nonce, &body, header("x-euterpe-signature"), now)
        .expect("it is signed");
    let asked: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(asked["event_id"], header("x-euterpe-event-id"));
    inside.asked.lock().unwrap().push(asked.clone());
    let (status, text) = (inside.manners)(asked).await;
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

/// As a request or an answer carries them.
pub fn written(credentials: &Credentials) -> Value {
    json!({
        "access_key_id": credentials.access_key_id.expose(),
        "secret_access_key": credentials.secret_access_key.expose(),
        "session_token": credentials.session_token.as_ref().map(Hidden::expose),
    })
}
