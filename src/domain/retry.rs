//! Contract §5: what a failure means.

use serde_json::{Value, json};

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
