//! Signed urls: whoever has one may read, or write, one thing. They are secrets, and taken anew for each request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyDataStream, Empty, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MATCH, RANGE,
};
use hyper::{Method, StatusCode};
use tokio::time::timeout;
use url::Url;

use super::asking::Step;
use super::download::Opened;
use super::reading::Reading;
use super::s3::refused;
use super::{Cause, JobStorage, Keys, Published, StorageError};
use crate::domain::origin;
use crate::domain::transcode::Hidden;
use crate::egress::Sending;

/// How often progress is told.
const TELL: Duration = Duration::from_millis(250);

impl JobStorage<'_> {
    /// Reads the source from byte `at` on, as long as it is `etag`.
    pub(super) async fn open_signed(
        &self,
        keys: Keys,
        at: u64,
        etag: Option<String>,
    ) -> Result<Opened, StorageError> {
        let url = url(keys.secret.source_uri.as_ref())?;
        let mut headers = HeaderMap::new();
        // Compressed on the way, neither its length nor a byte's place in it would be what they seem.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if at > 0 {
            insert(&mut headers, RANGE, &format!("bytes={at}-"))?;
            if let Some(etag) = &etag {
                insert(&mut headers, IF_MATCH, etag)?;
            }
        }
        let sending =
            Sending { method: Method::GET, url: url.expose(), headers, body: Empty::<Bytes>::new() };
        let got = self.carrier.egress.stream(sending, self.carrier.transfer.idle).await?;
        let (start, total) = match got.status {
            StatusCode::OK => (0, number(got.headers.get(CONTENT_LENGTH))),
            StatusCode::PARTIAL_CONTENT => range(got.headers.get(CONTENT_RANGE)).ok_or_else(|| {
                StorageError::new(Cause::Refused, "storage sent a part without saying which")
            })?,
            _ => return Err(refused(got, self.carrier.transfer.idle).await),
        };
        // A weak one says "much the same", which is not enough to join two halves.
        let etag = got.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        let body = BodyDataStream::new(got.body).map_err(StorageError::from).boxed();
        Ok(Opened { at: start, total, etag, body })
    }

    /// Sends `file` to the signed url of the output `name`. With its length: S3 takes no other.
    pub(super) async fn put_signed(
        &self,
        file: &Path,
        name: &str,
        content_type: &str,
        on_bytes: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Published, StorageError> {
        let (size_bytes, sha256) = Reading::open(file).await?.hashed().await?;
        let put = async |keys: Keys| {
            let url = url(keys.secret.upload_urls.get(name))?;
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
            insert(&mut headers, CONTENT_TYPE, content_type)?;
            let (reading, sent) = (Reading::open(file).await?, Arc::new(AtomicU64::new(0)));
            let sending =
                Sending { method: Method::PUT, url: url.expose(), headers, body: body(reading, &sent) };
            let mut exchange = Box::pin(self.carrier.egress.stream(sending, self.carrier.transfer.idle));
            let got = loop {
                let waited = timeout(TELL, &mut exchange).await;
                on_bytes(sent.load(Ordering::Relaxed));
                if let Ok(got) = waited {
                    break got?;
                }
            };
            if !got.status.is_success() {
                return Err(refused(got, self.carrier.transfer.idle).await);
            }
            let url = Url::parse(url.expose()).ok();
            Ok(url.as_ref().map(origin).unwrap_or_default())
        };
        let uri = self.asked(Step::Seen, put).await?;
        Ok(Published { uri, size_bytes, sha256 })
    }
}

/// The file, piece by piece; `sent` says how much was taken.
fn body(
    reading: Reading,
    sent: &Arc<AtomicU64>,
) -> StreamBody<stream::BoxStream<'static, std::io::Result<Frame<Bytes>>>> {
    let sent = Arc::clone(sent);
    let pieces = stream::try_unfold((reading, sent), async |(mut reading, sent)| {
        let Some(piece) = reading.piece().await? else { return Ok(None) };
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(Some((Frame::data(piece), (reading, sent))))
    });
    StreamBody::new(pieces.boxed())
}

/// A refresh may bring what is missing: it is as if it had expired.
fn url(url: Option<&Hidden>) -> Result<&Hidden, StorageError> {
    url.ok_or_else(|| StorageError::new(Cause::Auth, "there is no signed url"))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) -> Result<(), StorageError> {
    let bad =
        |_| StorageError::new(Cause::Refused, format!("{name} cannot be sent: it holds odd characters"));
    let value = HeaderValue::from_str(text).map_err(bad)?;
    headers.insert(name, value);
    Ok(())
}

fn number(header: Option<&HeaderValue>) -> Option<u64> {
    header?.to_str().ok()?.parse().ok()
}

/// `bytes 7-9/10` → 7, and 10.
fn range(header: Option<&HeaderValue>) -> Option<(u64, Option<u64>)> {
    let (range, total) = header?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-')?.0.parse().ok()?;
    Some((start, total.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_read_or_not_at_all() {
        let of = |text: &'static str| range(Some(&HeaderValue::from_static(text)));
        assert_eq!(of("bytes 7-9/10"), Some((7, Some(10))));
        assert_eq!(of("bytes 7-9/*"), Some((7, None)));
        for odd in ["bytes */10", "7-9/10", "bytes 7/10", "bytes 7-9", ""] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
