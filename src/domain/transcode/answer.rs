//! What we answer (design §6). Statuses are handed through as text: an old pod must be able to report a status that it
//! has never heard of.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::ErrorCode;
use super::fault::{Fault, Rejection};
use crate::domain::JobId;

/// A time as SQL's `_utc` writes it, always with six digits: so equal times are equal texts, whoever wrote them.
fn written<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{at:.6}"))
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn written_or_null<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => written(at, to),
        None => to.serialize_none(),
    }
}

/// `202` of `POST /transcode`: the job is kept, whatever happens to us now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedAnswer {
    /// Its id.
    pub job_id: JobId,
    /// `queued`.
    #[schema(example = "queued")]
    pub status: String,
    /// Your own name for it.
    pub external_id: Option<String>,
    /// When it was accepted.
    #[serde(serialize_with = "written")]
    pub created_at: Timestamp,
    /// Where to ask about it.
    #[schema(example = "/transcode/status?job_id=01939f6e-8f00-7c3a-b2d1-0242ac120042")]
    pub status_url: String,
}

/// `200` of `GET /transcode/status`: what is happening, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusDocument {
    /// Which job.
    pub job_id: JobId,
    /// Your own name for it.
    pub external_id: Option<String>,
    /// `queued`, `claimed`, `fetching`, `processing`, `uploading`, `succeeded`, `failed` or `dead_letter`.
    #[schema(example = "processing")]
    pub status: String,
    /// Executions started so far.
    pub attempt_count: i32,
    /// Budget of executions.
    pub max_attempts: i32,
    /// Rises with each claim.
    pub claim_version: i64,
    /// Who works on it; null: nobody.
    pub worker_id: Option<String>,
    /// Version of the stored credentials; 0: none.
    pub credential_version: i32,
    /// How far it is; null before it started.
    pub progress: Option<Progress>,
    /// What the source turned out to be; null before it was probed.
    pub source: Option<SourceFacts>,
    /// What was made; empty before it succeeded.
    pub outputs: Vec<OutputFacts>,
    /// What last went wrong, also while it is being retried; null: nothing.
    pub error: Option<JobError>,
    /// When it is tried again; null: now, or never.
    pub next_attempt_at: Option<Timestamp>,
    /// How long each phase took.
    pub timings_ms: Timings,
    /// As you sent it.
    pub metadata: BTreeMap<String, String>,
    /// The job that was made of it, when it was given up and redriven.
    pub redriven_as: Option<JobId>,
    /// The dead letter that it was made of.
    pub redrive_of: Option<JobId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its first execution started.
    pub started_at: Option<Timestamp>,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Of the phase.
    #[schema(minimum = 0, maximum = 100, example = 42.5)]
    pub percent: f64,
    /// Which phase.
    #[schema(example = "processing")]
    pub phase: String,
    /// Which output, where one is singled out.
    pub output: Option<String>,
    /// Times real time.
    #[schema(example = 1.93)]
    pub speed: Option<f64>,
    /// How long it may still take.
    pub eta_seconds: Option<f64>,
    /// When this was heard.
    pub updated_at: Timestamp,
}

/// What a source turned out to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourceFacts {
    /// Its size.
    pub size_bytes: u64,
    /// What it is wrapped in.
    pub container: Option<String>,
    /// Its length.
    pub duration_seconds: Option<f64>,
    /// Its pictures, if any.
    pub video: Option<VideoFacts>,
    /// Its sound, if any.
    pub audio: Option<AudioFacts>,
}

/// What an output turned out to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutputFacts {
    /// What the request calls it.
    pub name: String,
    /// Where it is. Of a signed url only the origin.
    pub uri: String,
    /// Its size; of several files, all of them.
    pub size_bytes: u64,
    /// Its hash; null for several files.
    pub sha256: Option<String>,
    /// What it is wrapped in.
    pub container: String,
    /// Its length.
    pub duration_seconds: Option<f64>,
    /// Average over pictures and sound.
    pub bitrate_kbps: Option<u32>,
    /// Its pictures, if any.
    pub video: Option<VideoFacts>,
    /// Its sound, if any.
    pub audio: Option<AudioFacts>,
    /// How many files it is.
    pub file_count: u32,
}

/// Pictures, as probed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VideoFacts {
    /// How they are encoded.
    pub codec: String,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Pictures a second.
    pub fps: Option<f64>,
}

/// Sound, as probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AudioFacts {
    /// How it is encoded.
    pub codec: String,
    /// How many.
    pub channels: Option<u32>,
    /// In Hz.
    pub sample_rate: Option<u32>,
}

/// Why a job failed, or is being tried again. The codes are listed in `docs/errors.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// What happened.
    #[schema(example = "source_not_found")]
    pub code: String,
    /// Group of codes.
    #[schema(example = "source")]
    pub class: String,
    /// In words.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
    /// What the job was doing.
    pub phase: Option<String>,
    /// Which execution.
    pub attempt: i32,
    /// What the other side answered.
    pub http_status: Option<u16>,
    /// The other side's own code.
    pub provider_code: Option<String>,
    /// When.
    pub occurred_at: Timestamp,
}

/// How long was spent in each phase so far, over all attempts; 0: none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timings {
    /// Waiting for a worker.
    pub queued: Option<i64>,
    /// Downloading and probing.
    pub fetching: Option<i64>,
    /// Encoding.
    pub processing: Option<i64>,
    /// Uploading.
    pub uploading: Option<i64>,
}

/// `200` of `GET /transcode`: own jobs, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// One page.
    pub jobs: Vec<JobSummary>,
    /// Send it back as `cursor` for the next page; null: this is the last.
    pub next_cursor: Option<String>,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// Which job.
    pub job_id: JobId,
    /// Your own name for it.
    pub external_id: Option<String>,
    /// Where it stands.
    #[schema(example = "succeeded")]
    pub status: String,
    /// Executions started so far.
    pub attempt_count: i32,
    /// Budget of executions.
    pub max_attempts: i32,
    /// What last went wrong.
    pub error_code: Option<String>,
    /// When it was accepted.
    #[serde(serialize_with = "written")]
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(serialize_with = "written_or_null")]
    pub finished_at: Option<Timestamp>,
}

/// `200` of `GET /transcode/events`: everything that happened, and what became of telling you.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// Which job.
    pub job_id: JobId,
    /// In order.
    pub events: Vec<TimelineEvent>,
}

/// One transition and its webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEvent {
    /// Stable: dedupe on it.
    #[schema(example = "evt_01939f6e8f007c3ab2d10242ac120042_6")]
    pub event_id: String,
    /// 1, 2, 3, … without gaps.
    pub sequence: i32,
    /// `transcode.` and the status.
    #[serde(rename = "type")]
    #[schema(example = "transcode.succeeded")]
    pub event_type: String,
    /// The job's status after it.
    pub status: String,
    /// And before it; null: it was new.
    pub previous_status: Option<String>,
    /// Why, when there is more to say.
    pub reason: Option<String>,
    /// When.
    pub timestamp: Timestamp,
    /// `waiting`, `ready`, `claimed`, `delivered`, `dead_letter` or `skipped`.
    #[schema(example = "delivered")]
    pub delivery: String,
    /// When it is tried next; null: now, or never.
    pub next_attempt_at: Option<Timestamp>,
    /// Each delivery attempt.
    pub attempts: Vec<DeliveryAttempt>,
}

/// What one delivery attempt met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryAttempt {
    /// 1, 2, 3, …
    pub attempt: i32,
    /// When.
    pub at: Timestamp,
    /// What your endpoint answered.
    pub http_status: Option<u16>,
    /// What went wrong; null: it was delivered.
    pub error_class: Option<String>,
    /// How long it took.
    pub duration_ms: i32,
}

/// `200` of `PUT /transcode/credentials`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialVersion {
    /// The version they got.
    pub credential_version: i32,
}

/// `202` of `POST /transcode/events/redeliver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redelivered {
    /// How many events will be sent again.
    pub count: i64,
}

/// Every error over HTTP (design §5.14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// Each fault of a request that is not acceptable, at most 50; absent for other errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Fault>,
}

impl From<Rejection> for ErrorBody {
    fn from(rejection: Rejection) -> Self {
        let Rejection { code, message, faults } = rejection;
        Self { error: ErrorDetail { code, message, details: faults } }
    }
}
