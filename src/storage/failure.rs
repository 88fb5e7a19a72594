//! What storage can answer, sorted by what helps against it.

use std::time::Duration;

/// Why a transfer failed. Shows no url and no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StorageError {
    /// What kind of trouble.
    pub cause: Cause,
    /// In words, for the requester.
    pub message: String,
    /// What the store answered.
    pub http_status: Option<u16>,
    /// The store's own code.
    pub provider_code: Option<String>,
    /// Not before.
    pub retry_after: Option<Duration>,
}

impl StorageError {
    /// Trouble that no store told us of.
    #[must_use]
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { cause, message, http_status: None, provider_code: None, retry_after: None }
    }
}

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The keys are not good, or not good any more.
    Auth,
    /// The store says that our clock is wrong.
    Clock,
    /// There is no such thing.
    NotFound,
    /// It is not the one we began to read.
    Changed,
    /// 423.
    Locked,
    /// 429 and its like.
    RateLimited,
    /// 5xx.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// No connection, or it broke.
    Connection,
    /// We do not go there.
    Blocked,
    /// It refuses, and will refuse again.
    Refused,
    /// Another writer was there.
    Conflict,
    /// More than is allowed.
    TooLarge,
    /// It ended early.
    Truncated,
    /// It is not what the request says.
    Checksum,
    /// No room on our disk.
    NoRoom,
    /// The job is somebody else's now: nothing was published.
    NotOurs,
    /// Our own disk failed.
    Local,
}

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Reading the source.
    Fetch,
    /// Writing an output.
    Publish,
}
