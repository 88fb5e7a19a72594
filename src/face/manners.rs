//! What holds for every request, whatever it asks: a name for it, a head without tricks, headers that protect, a line in
//! the log, a number in the metrics.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;
use uuid::Uuid;

use crate::domain::transcode::ErrorCode;
use crate::face::transcode::ApiError;
use crate::face::unread::watched;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_URI: usize = 2048;
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// On every answer, errors included.
const PROTECTING: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
];

/// Around everything.
pub async fn keep(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (request, body) = watched(request);
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route =
        request.extensions().get::<MatchedPath>().map_or("none".to_owned(), |path| path.as_str().to_owned());
    let name = id.to_str().unwrap_or_default();
    let span = tracing::info_span!("request", request.id = name, http.method = %method, http.route = route);

    let answered = async {
        match head_complaint(&request) {
            Some(complaint) => ApiError::new(ErrorCode::BadRequest, complaint).into_response(),
            None => next.run(request).await,
        }
    };
    let mut response = answered.instrument(span.clone()).await;

    let (status, took) = (response.status().as_u16(), begun.elapsed());
    span.in_scope(|| tracing::info!(http.status = status, http.duration_ms = took.as_millis(), "answered"));
    // A method may be any word: whoever sends made-up ones must not fill our memory with numbers about them.
    let is_known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"].contains(&method.as_str());
    let method = if is_known { method.to_string() } else { "other".to_owned() };
    let labels = [("method", method), ("route", route), ("status", status.to_string())];
    metrics::histogram!("euterpe_http_request_seconds", &labels).record(took);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if !body.has_ended() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in PROTECTING {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// The caller's, if it is fit for a log; else one of ours.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_fit = |id: &&HeaderValue| {
        (1..=64).contains(&id.len())
            && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
    };
    headers.get(REQUEST_ID).filter(is_fit).cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&Uuid::now_v7().to_string()).expect("a uuid is visible ASCII")
    })
}

/// What two servers behind one another may read differently, and what is too long.
fn head_complaint(request: &Request) -> Option<&'static str> {
    let (headers, uri): (&HeaderMap, &Uri) = (request.headers(), request.uri());
    let hosts = headers.get_all(header::HOST).iter().count();
    if request.version() >= Version::HTTP_11 && hosts != 1 {
        return Some("send the Host header once");
    }
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Some("name a path, not a whole url, in the request line");
    }
    if uri.to_string().len() > MAX_URI {
        return Some("the path and query may have at most 2048 bytes");
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Some("send at most 64 headers, and at most 16 KiB of them");
    }
    None // where a body ends was settled before: `framing`
}
