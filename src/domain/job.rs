//! Contract §3: jobs and their statuses.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::RequesterId;

/// A job's id: a UUIDv7 whose last byte is the bucket of its requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(examples("01939f6e-8f00-7c3a-b2d1-0242ac120042"))]
pub struct JobId(pub Uuid);

impl JobId {
    /// A new id for a job of `requester`, made now.
    #[must_use]
    pub fn new(requester: &RequesterId) -> Self {
        let mut bytes = *Uuid::now_v7().as_bytes();
        bytes[15] = requester.bucket();
        Self(Uuid::from_bytes(bytes))
    }
}

impl JobId {
    /// The time inside, which is when it was made.
    #[must_use]
    pub fn created_at(self) -> Timestamp {
        let bytes = self.0.as_bytes();
        let millis = bytes[..6].iter().fold(0_i64, |so_far, byte| so_far << 8 | i64::from(*byte));
        Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Waiting in the line, or for its time.
    Queued,
    /// A worker took it.
    Claimed,
    /// The source is on its way.
    Fetching,
    /// The encoder runs.
    Processing,
    /// The outputs are on their way.
    Uploading,
    /// Done.
    Succeeded,
    /// Ended; may be retried by hand while there is budget.
    Failed,
    /// Ended for good.
    DeadLetter,
}

/// A word that is no status of ours.
#[derive(Debug, thiserror::Error)]
#[error("unknown job status {0:?}")]
pub struct BadStatus(String);

impl JobStatus {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Claimed,
        Self::Fetching,
        Self::Processing,
        Self::Uploading,
        Self::Succeeded,
        Self::Failed,
        Self::DeadLetter,
    ];

    /// The contract's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Fetching => "fetching",
            Self::Processing => "processing",
            Self::Uploading => "uploading",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::DeadLetter => "dead_letter",
        }
    }
}

impl FromStr for JobStatus {
    type Err = BadStatus;

    fn from_str(text: &str) -> Result<Self, BadStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| BadStatus(text.to_owned()))
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A secret as SQL may see it: sealed (contract §10).
#[derive(Debug, Clone, Serialize)]
pub struct Sealed {
    /// Ciphertext under a key of its own, as `\x…`.
    pub encrypted: String,
    /// That key, wrapped, as `\x…`.
    pub dek_wrapped: String,
    /// Which key wrapped it.
    pub kek_id: String,
    /// Format of the ciphertext.
    pub encryption_version: i16,
    /// Of a callback: a refresh_url is among what is sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_refresh: Option<bool>,
}

/// A job to be accepted. Only `request` is needed; the rest has defaults.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewJob {
    /// What is asked, without any secret.
    pub request: Value,
    /// Its id; made in the database when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// 0 to 1000, default 100, higher first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Budget of executions; default that of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// The requester's own name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Handed back in every event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Which events go to the webhook; `None`: no webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_filter: Option<Vec<String>>,
    /// Scheme, host and port of the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_origin: Option<String>,
    /// Sealed secrets by purpose: `storage`, `callback`.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub sealed: std::collections::BTreeMap<String, Sealed>,
    /// Contract §9: what makes a retry harmless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// SHA-256 of the canonical request.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_bytea")]
    pub request_hash: Option<Vec<u8>>,
    /// Which canonical form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_version: Option<i16>,
    /// The answer to keep, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_bytea")]
    pub response: Option<Vec<u8>>,
    /// How long the key lives; default 7 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_ttl_seconds: Option<i32>,
}

/// Bytes as Postgres reads them from text.
#[expect(clippy::ref_option, reason = "serde hands the field over as it is")]
fn as_bytea<S: serde::Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&format!("\\x{}", hex::encode(bytes))),
        None => serializer.serialize_none(),
    }
}
