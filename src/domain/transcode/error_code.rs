//! Every code that an HTTP answer of the transcode face may carry, once. `docs/errors.md` shows this list; a test
//! compares them. The codes of jobs are another list: `euterpe.error_codes`.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One place for code, status and meaning: a row per code. (`tt`, because utoipa does not see a rename to a `literal`.)
macro_rules! error_codes {
    ($($variant:ident = $code:tt, $status:literal, $meaning:literal;)+) => {
        /// Why a call was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum ErrorCode {
            $(#[doc = $meaning] #[serde(rename = $code)] $variant,)+
        }

        impl ErrorCode {
            /// All of them, by status.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// What stands in the answer.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The status of the answer.
            #[must_use]
            pub fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// In words.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

error_codes! {
    InvalidJson = "invalid_json", 400, "The body is not JSON in UTF-8.";
    BadRequest = "bad_request", 400, "The request line or a header cannot be used; the message names it.";
    Unauthorized = "unauthorized", 401, "No API key, or one that is not valid.";
    Forbidden = "forbidden", 403, "The key lacks the scope for this call, or its requester is disabled.";
    NotFound = "not_found", 404, "There is no such job, event or path, or it is not yours.";
    MethodNotAllowed = "method_not_allowed", 405, "The path exists and takes another method.";
    RequestTimeout = "request_timeout", 408, "The request did not arrive in time.";
    IdempotencyConflict = "idempotency_conflict", 409, "The Idempotency-Key was used for another request.";
    StateConflict = "state_conflict", 409, "The job's status does not allow this; the message says which it is.";
    CredentialVersionConflict = "credential_version_conflict", 409,
        "The credentials have been replaced since that version was read.";
    CredentialsRequired = "credentials_required", 409,
        "The job's credentials are gone and it has no refresh_url: send new ones with the retry.";
    Gone = "gone", 410, "The job existed and its history has been dropped.";
    BodyTooLarge = "body_too_large", 413, "The body has more than 256 KiB.";
    UnsupportedMediaType = "unsupported_media_type", 415, "The body is not application/json, or is compressed.";
    InvalidRequest = "invalid_request", 422, "The body is JSON and not acceptable; details name every fault.";
    RateLimited = "rate_limited", 429, "Too many calls; Retry-After says when to come back.";
    TooManyOpenJobs = "too_many_open_jobs", 429, "As many jobs are unfinished as this requester may have.";
    Internal = "internal", 500, "Our fault. The request id finds it in our logs.";
    // Not "nothing was accepted": the connection may have gone between commit and answer.
    Unavailable = "unavailable", 503,
        "The queue cannot be reached or is overloaded. Try again with the same Idempotency-Key: there will be one job.";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
