//! Contract §8: events, and what comes of delivering them.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::JobId;

/// Which event: a job and a number within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventRef {
    /// The job.
    pub job_id: JobId,
    /// 1, 2, 3, … without gaps.
    pub sequence: i32,
}

impl fmt::Display for EventRef {
    /// The stable `event_id` that receivers see.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evt_{}_{}", self.job_id.0.simple(), self.sequence)
    }
}

/// A text that is no event's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event id is evt_, 32 hex digits, _ and a number")]
pub struct BadEventId;

impl FromStr for EventRef {
    type Err = BadEventId;

    fn from_str(text: &str) -> Result<Self, BadEventId> {
        let (job, sequence) =
            text.strip_prefix("evt_").and_then(|rest| rest.split_once('_')).ok_or(BadEventId)?;
        let job_id = JobId(Uuid::try_parse(job).map_err(|_| BadEventId)?);
        let event = Self { job_id, sequence: sequence.parse().map_err(|_| BadEventId)? };
        // One spelling per event: no signs, zeros, capitals or dashes.
        if event.sequence > 0 && event.to_string() == text { Ok(event) } else { Err(BadEventId) }
    }
}

/// The right to write about an event: as [`Claim`](super::Claim) for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventClaim {
    /// Which event.
    pub event: EventRef,
    /// Rises by one with each claim.
    pub version: i64,
    /// Random with each claim.
    pub token: Uuid,
}

/// What one delivery attempt met, as `settle_events_v1` takes it.
#[derive(Debug, Clone, Default)]
pub struct Delivery {
    /// A class of `euterpe.delivery_classes`; `None`: delivered. An unknown one is retried.
    pub error_class: Option<String>,
    /// What the endpoint answered.
    pub http_status: Option<u16>,
    /// How long it took.
    pub duration_ms: i32,
    /// The beginning of the answer; 4 KiB are kept.
    pub answer: Option<Vec<u8>>,
    /// Wait at least so long.
    pub retry_after_seconds: Option<i32>,
}

impl Delivery {
    /// It arrived.
    #[must_use]
    pub fn arrived(http_status: u16) -> Self {
        Self { http_status: Some(http_status), ..Self::default() }
    }

    /// It met `error_class`.
    #[must_use]
    pub fn failed(error_class: &str) -> Self {
        Self { error_class: Some(error_class.to_owned()), ..Self::default() }
    }
}

/// Why a worker hands an event back untried. It costs no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventReleaseReason {
    /// It was claimed and not begun.
    NotStarted,
    /// The worker is being shut down.
    WorkerShutdown,
    /// Its host has as many deliveries under way as it may.
    HostBusy,
    /// This worker does not know the key the callback is sealed with.
    UnknownKek,
}

impl EventReleaseReason {
    /// The word SQL uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::WorkerShutdown => "worker_shutdown",
            Self::HostBusy => "host_busy",
            Self::UnknownKek => "unknown_kek",
        }
    }
}
