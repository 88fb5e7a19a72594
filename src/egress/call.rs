//! One call, from a url that somebody gave us to what came back.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::connect::Wire;
use super::{Failure, Resolve, System};
use crate::authorities;
use crate::domain::EgressPolicy;

/// How long a call may take, and how much of its answer is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Each of: resolving, connecting to one address, the TLS handshake.
    pub connect: Duration,
    /// From the beginning to the end of the answer's head.
    pub total: Duration,
    /// For the body after it, which changes nothing any more.
    pub body: Duration,
    /// Bytes of the answer's head.
    pub head_bytes: usize,
    /// Bytes of the answer's body that are handed back.
    pub kept_bytes: usize,
    /// Bytes that are read at all; then we hang up. Some: hanging up on a short answer looks like trouble over there.
    pub read_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(15),
            body: Duration::from_secs(2),
            head_bytes: 16 * 1024,
            kept_bytes: 4 * 1024,
            read_bytes: 64 * 1024,
        }
    }
}

/// The guarded client. One per process is enough.
pub struct Egress {
    pub(super) policy: EgressPolicy,
    pub(super) limits: Limits,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) tls: TlsConnector,
}

/// What to send.
pub struct Call<'a> {
    /// How.
    pub method: Method,
    /// Where: as it was given to us, and perhaps a secret.
    pub url: &'a str,
    /// Names in lower case, and values.
    pub headers: &'a [(&'static str, &'a str)],
    /// What.
    pub body: Bytes,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// 200 and so on; 3xx is an answer like any other, and not followed.
    pub status: StatusCode,
    /// As they came.
    pub headers: HeaderMap,
    /// The beginning of the body, or less when the rest did not come.
    pub beginning: Vec<u8>,
}

impl Egress {
    /// By the system's resolver and certificate authorities.
    #[must_use]
    pub fn new(policy: EgressPolicy, limits: Limits) -> Self {
        Self::with(policy, limits, Arc::new(System), authorities::of_this_system())
    }

    /// By any resolver and authorities.
    ///
    /// # Panics
    /// Never: ring speaks TLS 1.2 and 1.3.
    #[must_use]
    pub fn with(
        policy: EgressPolicy,
        limits: Limits,
        resolver: Arc<dyn Resolve>,
        roots: RootCertStore,
    ) -> Self {
        let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { policy, limits, resolver, tls: TlsConnector::from(Arc::new(tls)) }
    }

    /// Makes a call. With the head of the answer it has ended well: how much of the body came changes nothing.
    pub async fn call(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let url = self.policy.check(call.url)?;
        let mut headers = HeaderMap::new();
        for (name, text) in call.headers {
            let value = HeaderValue::from_str(text).map_err(|_| Failure::Protocol)?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let request = request_for(&url, call.method, headers, Full::new(call.body))?;
        let end = Instant::now() + self.limits.total;
        let exchange = async {
            let places = self.places(&url).await?;
            let wire = self.connect(&url, &places).await?;
            self.exchange(wire, request).await
        };
        let (response, _connection) =
            timeout_at(end, exchange).await.map_err(|_| Failure::Timeout).flatten()?;
        let (head, body) = response.into_parts();
        let beginning = self.beginning(body).await;
        Ok(Answer { status: head.status, headers: head.headers, beginning })
    }

    /// The head of the answer, and the task that drives the connection: it ends with its handle.
    pub(super) async fn exchange<B>(
        &self,
        wire: Box<dyn Wire>,
        request: Request<B>,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Failure>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let (mut sender, connection) = http1::Builder::new()
            .max_header_size(self.limits.head_bytes)
            .max_headers(64)
            .max_buf_size(self.limits.head_bytes.max(self.limits.read_bytes))
            .handshake(TokioIo::new(wire))
            .await?;
        let driven = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await; // the sender is told
        }));
        Ok((sender.send_request(request).await?, driven))
    }

    /// What comes of a body within its limits; then we hang up.
    async fn beginning(&self, mut body: Incoming) -> Vec<u8> {
        let (mut kept, mut read) = (Vec::new(), 0);
        let end = Instant::now() + self.limits.body;
        while read < self.limits.read_bytes {
            let Ok(Some(Ok(frame))) = timeout_at(end, body.frame()).await else { break };
            let Ok(data) = frame.into_data() else { continue };
            let room = self.limits.kept_bytes - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
            read += data.len();
        }
        kept
    }
}

/// What goes over the wire to the host of `url`.
pub(super) fn request_for<B>(
    url: &Url,
    method: Method,
    headers: HeaderMap,
    body: B,
) -> Result<Request<B>, Failure> {
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(|_| Failure::Protocol)?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, HeaderValue::from_str(host).map_err(|_| Failure::Protocol)?);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}
