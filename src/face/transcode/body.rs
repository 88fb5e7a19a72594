//! A body, bounded in size and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::error::ApiError;
use crate::domain::transcode::{ErrorCode, MAX_BODY_BYTES};

/// The JSON that a request carries, as it came; the whole of it in time.
pub(super) async fn json(headers: &HeaderMap, body: Body, in_time: Duration) -> Result<Bytes, ApiError> {
    insist_on_json(headers)?;
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: usize| length > MAX_BODY_BYTES) {
        return Err(ApiError::of(ErrorCode::BodyTooLarge));
    }
    match timeout(in_time, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(ApiError::of(ErrorCode::BodyTooLarge))
        }
        Ok(Err(_)) => Err(ApiError::new(ErrorCode::BadRequest, "the body ended early")),
        Err(_) => Err(ApiError::of(ErrorCode::RequestTimeout)),
    }
}

fn insist_on_json(headers: &HeaderMap) -> Result<(), ApiError> {
    // Of two, somebody in front of us may have read the other one.
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().filter(|_| kinds.next().is_none()).and_then(|kind| kind.to_str().ok());
    let essence = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_plain = headers.get_all(header::CONTENT_ENCODING).iter().all(|coding| coding == "identity");
    if essence.eq_ignore_ascii_case("application/json") && is_plain {
        Ok(())
    } else {
        Err(ApiError::of(ErrorCode::UnsupportedMediaType))
    }
}
