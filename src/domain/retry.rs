//! Contract §5: what a failure means.

use serde_json::{Value, json};

/// What object storage or an endpoint answered, sorted by what helps against it.
///
/// A wider table, with the provider's own codes, belongs to the transcode handler; this is the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFailure {
    /// 423, 500, 502, 503, 504: try again later.
    Retry,
    /// 429: try again much later.
    RetrySlow,
    /// 401, 403: ask for new credentials first.
    RefreshCredentials,
    /// Anything else: trying again changes nothing.
    GiveUp,
}

impl HttpFailure {
    /// What the contract makes of a status code that is no success.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            423 | 500 | 502 | 503 | 504 => Self::Retry,
            429 => Self::RetrySlow,
            401 | 403 => Self::RefreshCredentials,
            _ => Self::GiveUp,
        }
    }
}

/// Why a job failed, as `fail_jobs_v1` takes it. What follows is looked up in `euterpe.error_codes`.
#[derive(Debug, Clone, Default)]
pub struct JobFailure {
    /// A code of `error_codes`; an unknown one is retried as class `internal`.
    pub code: String,
    /// In words, for the requester. No secret may be in it.
    pub message: String,
    /// What the job was doing; default: its status.
    pub phase: Option<String>,
    /// What the other side answered.
    pub http_status: Option<u16>,
    /// The other side's own code.
    pub provider_code: Option<String>,
    /// Wait at least so long.
    pub retry_after_seconds: Option<i32>,
}

impl JobFailure {
    pub(crate) fn detail(&self) -> Value {
        json!({
            "message": self.message,
            "phase": self.phase,
            "http_status": self.http_status,
            "provider_code": self.provider_code,
        })
    }
}

/// Why a worker hands a job back without blaming it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReason {
    /// It was claimed and not begun.
    NotStarted,
    /// The worker is being shut down; the attempt is given back, three times at most.
    WorkerShutdown,
    /// New credentials must come first; the attempt is given back.
    Credentials,
    /// No room here; the attempt is given back.
    Disk,
    /// This worker does not know the key the credentials are sealed with; the attempt is given back.
    UnknownKek,
}

impl ReleaseReason {
    /// The word SQL uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::WorkerShutdown => "worker_shutdown",
            Self::Credentials => "credentials",
            Self::Disk => "disk",
            Self::UnknownKek => "unknown_kek",
        }
    }
}
