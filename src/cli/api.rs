//! `euterpe-api` as the command line sees it: one request, one answer, bounded.
//!
//! This does not go by the egress guard: the url is that of the operator's own service, given by the operator, and
//! usually not public. Nothing that a requester wrote is ever called here.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::{Position, Url};
use zeroize::Zeroizing;

use super::{Context, Failure};
use crate::authorities;
use crate::crypto::ApiKey;

/// For a connection and its TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// For an answer: longer than any `wait=`.
const ANSWER: Duration = Duration::from_secs(75);
/// No answer of ours is longer.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// No key is longer.
const MAX_KEY: usize = 1024;
const HINT: &str = "is euterpe-api there? --api or EUTERPE_API says where";

/// Where the API is, and with which key it is asked.
#[derive(Debug, clap::Args)]
pub struct Where {
    /// Where euterpe-api listens.
    #[arg(long, env = "EUTERPE_API", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    api: Url,
    /// A file with the API key, mode 0600; else it is taken from EUTERPE_API_KEY. Never an argument: those can be seen.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl Where {
    /// The API, with its key at hand.
    pub(super) fn open(&self, context: &Context<'_>) -> Result<Api, Failure> {
        let key = match &self.key_file {
            Some(path) => read_key(path)?,
            None => Zeroizing::new((context.env)("EUTERPE_API_KEY").unwrap_or_default()),
        };
        if key.trim().is_empty() {
            return Err(Failure::Usage(
                "no API key: set EUTERPE_API_KEY or name a --key-file; `euterpe key add REQUESTER` makes one"
                    .into(),
            ));
        }
        let key = ApiKey::parse(key.trim()).map_err(|_| {
            Failure::Usage(
                "that is no API key: it should look like eut_…, and a letter of this one is wrong or missing"
                    .into(),
            )
        })?;
        Ok(Api { base: self.api.clone(), key: Some(key), hint: HINT })
    }
}

/// The open file is asked, not the path: nobody can swap it in between.
fn read_key(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let unreadable = |error| Failure::Usage(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.mode() & 0o077 != 0 {
        return Err(Failure::Usage(format!("{}: others may read it: run chmod 600 on it", path.display())));
    }
    let mut key = Zeroizing::new(String::with_capacity(MAX_KEY));
    file.take(MAX_KEY as u64).read_to_string(&mut key).map_err(unreadable)?;
    Ok(key)
}

/// A service that is asked, with a key or without.
pub(crate) struct Api {
    pub(crate) base: Url,
    pub(crate) key: Option<ApiKey>,
    /// What to do when nobody answers.
    pub(crate) hint: &'static str,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Null: it was no JSON.
    pub(super) body: Value,
}

/// Why there is no answer. Asking again may help.
pub(super) struct NoAnswer(String);

impl From<NoAnswer> for Failure {
    fn from(NoAnswer(says): NoAnswer) -> Self {
        Self::Failed(says)
    }
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Api {
    /// Where it is, to be followed by a path.
    pub(crate) fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Makes one call. `path` begins with a slash and may have a query.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        Ok(self.call(self.request(method, path, headers, body)?).await?)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let bad = || Failure::Usage(format!("{}: is no http:// or https:// url of a service", self.base));
        let url = self.base.join(path).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad());
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(Full::new(Bytes::from(text)));
        *request.method_mut() = method;
        *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| bad())?;
        let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        let sent = request.headers_mut();
        sent.insert(HOST, host.map_err(|_| bad())?);
        if let Some(key) = self.key.as_ref().and_then(|key| key.expose().expose_str()) {
            let bearer = Zeroizing::new(format!("Bearer {key}"));
            let mut value = HeaderValue::from_str(&bearer).map_err(|_| bad())?;
            value.set_sensitive(true);
            sent.insert(AUTHORIZATION, value);
        }
        if body.is_some() {
            sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, text) in headers {
            let value = HeaderValue::from_str(text)
                .map_err(|_| Failure::Usage(format!("{name}: must be visible ASCII")))?;
            sent.insert(HeaderName::from_static(name), value);
        }
        Ok(request)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<Answer, NoAnswer> {
        let lost = |error: &dyn std::error::Error| {
            NoAnswer(format!("no answer from {} ({error}): {}", self.base, self.hint))
        };
        let wire = timeout(CONNECT, self.connect()).await.map_err(|late| lost(&late))?;
        let wire = TokioIo::new(wire.map_err(|error| lost(&error))?);
        let exchange = async {
            let (mut sender, connection) = http1::handshake(wire).await.map_err(|error| lost(&error))?;
            let _driven = AbortOnDropHandle::new(tokio::spawn(connection));
            let (head, body) = sender.send_request(request).await.map_err(|error| lost(&error))?.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| lost(&*error))?;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
            })
        };
        timeout(ANSWER, exchange).await.map_err(|late| lost(&late)).flatten()
    }

    async fn connect(&self) -> std::io::Result<Box<dyn Wire>> {
        let host = self.base.host_str().unwrap_or_default();
        let port = self.base.port_or_known_default().unwrap_or_default();
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        if self.base.scheme() != "https" {
            return Ok(Box::new(stream));
        }
        let name =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(std::io::Error::other)?;
        Ok(Box::new(tls()?.connect(name, stream).await?))
    }
}

fn tls() -> std::io::Result<TlsConnector> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(authorities::of_this_system())
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Answer {
    /// The body of a good answer; of another, what it says and what to do.
    pub(crate) fn good(self) -> Result<Value, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let error = &self.body["error"];
        let says = match (error["code"].as_str(), error["message"].as_str()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            _ => format!("it answered {}: is that euterpe-api?", self.status),
        };
        let faults = error["details"].as_array().into_iter().flatten().map(|fault| {
            let word = |name: &str| fault[name].as_str().unwrap_or_default();
            format!("\n  {} {}", word("pointer"), word("message"))
        });
        let says: String = std::iter::once(says).chain(faults).collect();
        Err(match self.status.as_u16() {
            401 => Failure::Usage(format!("{says}; `euterpe key add REQUESTER` makes a key")),
            400 | 413 | 415 | 422 => Failure::Usage(says),
            404 | 410 => Failure::NotFound(says),
            403 | 409 => Failure::Refused(says),
            _ => Failure::Failed(says),
        })
    }

    /// It says that it would answer later, and when to come back; at most half a minute.
    pub(super) fn come_back_in(&self) -> Option<Duration> {
        let is_later = matches!(self.status.as_u16(), 429 | 502 | 503 | 504);
        let seconds = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        is_later.then(|| Duration::from_secs(seconds.unwrap_or(1).clamp(1, 30)))
    }
}
