//! S3: signatures and messages by `object_store`, connections by our guard. The crate's own retries are off: it would
//! ask again with keys that are dead.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::{Method, Response};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, RetryConfig, StaticCredentialProvider};
use tokio::time::timeout;
use url::Url;

use super::answers::{is_error, refusal};
use super::download::Opened;
use super::{Cause, Keys, StorageError};
use crate::domain::transcode::StorageSpec;
use crate::egress::{Arriving, Egress, Sending, Streamed};

/// More of an answer that is not an object is not read.
const ANSWER_BYTES: usize = 64 * 1024;

/// A bucket, and how it is reached.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    name: String,
    region: String,
    /// With the bucket's name in the host, unless it goes into the path.
    endpoint: Option<String>,
    path_style: bool,
}

impl Bucket {
    pub(super) fn of(storage: &StorageSpec, name: &str) -> Self {
        // An address has no names below it: there the bucket goes into the path, whatever was asked for.
        let endpoint = storage.endpoint.as_deref();
        let hosted = endpoint.filter(|_| !storage.path_style).and_then(|endpoint| in_host(endpoint, name));
        Self {
            name: name.to_owned(),
            region: storage.region.clone(),
            path_style: storage.path_style || endpoint.is_some() && hosted.is_none(),
            endpoint: hosted.or_else(|| storage.endpoint.clone()),
        }
    }

    /// A client for one request, with the keys of this moment. It costs an allocation, no connection.
    pub(super) fn client(
        &self,
        egress: &Arc<Egress>,
        idle: Duration,
        keys: &Keys,
    ) -> Result<AmazonS3, StorageError> {
        let no_keys = |why| StorageError::new(Cause::Auth, why);
        let keys = keys.secret.credentials.as_ref().ok_or_else(|| no_keys("there are no keys to storage"))?;
        // Exposed to be signed with; `object_store` never prints them, and drops them with the request.
        let credential = AwsCredential {
            key_id: keys.access_key_id.expose().to_owned(),
            secret_key: keys.secret_access_key.expose().to_owned(),
            token: keys.session_token.as_ref().map(|token| token.expose().to_owned()),
        };
        // In a header they would not be valid; `object_store` takes that for granted.
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_plain(&credential.key_id) || !credential.token.as_deref().is_none_or(is_plain) {
            return Err(no_keys("the keys to storage hold characters that no key has"));
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.name)
            .with_region(&self.region)
            .with_virtual_hosted_style_request(!self.path_style)
            .with_credentials(Arc::new(StaticCredentialProvider::new(credential)))
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(Door { egress: Arc::clone(egress), idle });
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder.build().map_err(error_of)
    }

    /// Where an object is, for people.
    pub(super) fn uri(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }
}

/// `https://host:port` → `https://bucket.host:port`, if it is a name.
fn in_host(endpoint: &str, bucket: &str) -> Option<String> {
    let mut url = Url::parse(endpoint).ok()?;
    let name = url.domain()?.to_owned();
    url.set_host(Some(&format!("{bucket}.{name}"))).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// The key as it is, percent and all.
pub(super) fn path(key: &str) -> Result<Path, StorageError> {
    Path::parse(key).map_err(|_| StorageError::new(Cause::Refused, "the key is none that storage takes"))
}

/// Reads an object from byte `at` on, as long as it is `etag`.
pub(super) async fn open(
    client: &AmazonS3,
    key: &str,
    at: u64,
    etag: Option<String>,
) -> Result<Opened, StorageError> {
    let range = (at > 0).then_some(GetRange::Offset(at));
    let options = GetOptions { if_match: etag, range, ..GetOptions::default() };
    let got = client.get_opts(&path(key)?, options).await.map_err(error_of)?;
    Ok(Opened {
        at: got.range.start,
        total: Some(got.meta.size),
        etag: got.meta.e_tag.clone(),
        body: got.into_stream().map_err(error_of).boxed(),
    })
}

/// What went wrong, from wherever in the chain it was said.
#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
pub(super) fn error_of(error: object_store::Error) -> StorageError {
    let mut link: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = link {
        if let Some(ours) = error.downcast_ref::<StorageError>() {
            return ours.clone();
        }
        link = error.source();
    }
    StorageError::new(Cause::Refused, "storage gave an answer that is not S3: check the endpoint")
}

/// `object_store`'s requests, through our guard.
#[derive(Clone)]
struct Door {
    egress: Arc<Egress>,
    idle: Duration,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl HttpConnector for Door {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Door {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.answer(request).await.map_err(http_error) })
    }
}

impl Door {
    /// An object is handed on as it comes; any other answer is read whole, because an error may be in it.
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, StorageError> {
        let (head, body) = request.into_parts();
        let (url, is_get) = (head.uri.to_string(), head.method == Method::GET);
        let sending = Sending { method: head.method, url: &url, headers: head.headers, body };
        let got = self.egress.stream(sending, self.idle).await?;
        if !got.status.is_success() {
            return Err(refused(got, self.idle).await);
        }
        let body = if is_get {
            HttpResponseBody::new(got.body.map_err(|failure| http_error(failure.into())))
        } else {
            let (body, end) = beginning(got.body).await;
            if is_error(&body) {
                return Err(refusal(got.status, &got.headers, &body));
            }
            end?;
            body.into()
        };
        let mut response = Response::new(body);
        *response.status_mut() = got.status;
        *response.headers_mut() = got.headers;
        Ok(response)
    }
}

/// Why we were refused. The status stands, whatever becomes of the words after it.
pub(super) async fn refused(got: Streamed, patience: Duration) -> StorageError {
    let words = timeout(patience, beginning(got.body)).await.map(|(words, _)| words);
    refusal(got.status, &got.headers, &words.unwrap_or_default())
}

/// As much of an answer as is looked at, and how it ended.
async fn beginning(mut body: Arriving) -> (Bytes, Result<(), StorageError>) {
    let mut kept = BytesMut::new();
    while kept.len() < ANSWER_BYTES {
        match body.frame().await {
            None => break,
            Some(Err(failure)) => return (kept.freeze(), Err(failure.into())),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                kept.extend_from_slice(&data[..data.len().min(ANSWER_BYTES - kept.len())]);
            }
        }
    }
    (kept.freeze(), Ok(()))
}

fn http_error(error: StorageError) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}
