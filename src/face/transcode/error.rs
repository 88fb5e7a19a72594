//! The way this face says no: one shape, one table.

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::limits::Rate;
use crate::domain::causes;
use crate::domain::transcode::{ErrorBody, ErrorCode, ErrorDetail, Rejection};
use crate::store::StoreError;

/// Why a call was refused, and what its answer carries.
#[derive(Debug)]
pub struct ApiError {
    body: ErrorDetail,
    retry_after: Option<Duration>,
    pub(super) rate: Option<Rate>,
    /// For the log, when it is our fault.
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ApiError {
    /// A refusal that explains itself.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let body = ErrorDetail { code, message: message.into(), details: Vec::new() };
        Self { body, retry_after: None, rate: None, cause: None }
    }

    /// The refusal in its own words.
    #[must_use]
    pub fn of(code: ErrorCode) -> Self {
        Self::new(code, code.meaning())
    }

    /// Come back then.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What is told to programs.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.body.code
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        Self { body: ErrorBody::from(rejection).error, retry_after: None, rate: None, cause: None }
    }
}

impl From<StoreError> for ApiError {
    /// What the database refuses, as this face calls it. Its words are for the caller only where it can act on them.
    fn from(error: StoreError) -> Self {
        use StoreError as S;
        match error {
            S::IllegalState(why) => Self::new(ErrorCode::StateConflict, why),
            S::IdempotencyConflict(why) => Self::new(ErrorCode::IdempotencyConflict, why),
            S::NotFound(_) => Self::of(ErrorCode::NotFound),
            S::RequesterRefused(_) => Self::of(ErrorCode::Forbidden),
            S::CredentialsRequired(_) => Self::of(ErrorCode::CredentialsRequired),
            S::CredentialVersionMoved(why) => Self::new(ErrorCode::CredentialVersionConflict, why),
            S::BadArgument(why) => Self::new(ErrorCode::InvalidRequest, why),
            unavailable @ (S::Unavailable(_) | S::PartitionMissing(_)) => Self {
                cause: Some(unavailable.into()),
                ..Self::of(ErrorCode::Unavailable).retry_after(Duration::from_secs(1))
            },
            ours @ (S::NoSuchQueue(_)
            | S::WrongIsolation(_)
            | S::UnexpectedAnswer(_)
            | S::FunctionsMissing(_)
            | S::NotPermitted { .. }
            | S::NotDurable(_)
            | S::Unexpected(_)) => Self { cause: Some(ours.into()), ..Self::of(ErrorCode::Internal) },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.body.code;
        // Logged once, here, with its causes; the caller is told only what it can act on.
        if let Some(cause) = &self.cause {
            tracing::error!(error = causes(&**cause), "request failed: {code}");
        }
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(ErrorBody { error: self.body })).into_response();
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: a client that obeys must not come too early.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if let Some(rate) = self.rate {
            response = rate.shown_on(response);
        }
        if code == ErrorCode::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
