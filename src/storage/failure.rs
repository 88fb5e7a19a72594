//! What storage can answer, sorted by what helps against it.

use std::io;
use std::time::Duration;

use crate::egress::Failure;

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

impl Cause {
    /// Whether the same request may work in a moment.
    pub(super) fn passes(self) -> bool {
        matches!(
            self,
            Self::Locked | Self::RateLimited | Self::Unavailable | Self::Timeout | Self::Connection
        )
    }
}

impl StorageError {
    /// Something that no store has said.
    #[must_use]
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), http_status: None, provider_code: None, retry_after: None }
    }

    /// The code of `euterpe.error_codes`.
    #[must_use]
    pub fn code(&self, doing: Doing) -> &'static str {
        self.cause.code(doing)
    }

    /// Our own disk, while a transfer is read from it or written to it.
    pub(super) fn local(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::new(Cause::NoRoom, "no room left on the worker's disk")
            }
            kind => Self::new(Cause::Local, format!("the worker's disk failed: {kind}")),
        }
    }

    /// The job is no longer ours.
    pub(super) fn not_ours() -> Self {
        Self::new(Cause::NotOurs, "the job has another worker now; nothing was published")
    }
}

impl Cause {
    /// The code of `euterpe.error_codes` for this trouble.
    #[must_use]
    pub fn code(self, doing: Doing) -> &'static str {
        match (self, doing) {
            (Self::Auth, _) => "credential_refresh_exhausted",
            (Self::Clock, _) => "storage_clock",
            (Self::NotFound, Doing::Fetch) => "source_not_found",
            (Self::Changed, Doing::Fetch) => "source_changed",
            (Self::Locked, _) => "storage_locked",
            (Self::RateLimited, _) => "storage_rate_limited",
            (Self::Unavailable, _) | (Self::Conflict, Doing::Fetch) => "storage_unavailable",
            (Self::Timeout, _) => "storage_timeout",
            (Self::Connection, _) => "storage_connection",
            (Self::Blocked, _) => "egress_blocked",
            // There is no such bucket to write to.
            (Self::Refused, _) | (Self::NotFound, Doing::Publish) => "storage_refused",
            (Self::Changed | Self::Conflict, Doing::Publish) => "upload_conflict",
            (Self::TooLarge, Doing::Fetch) => "source_too_large",
            (Self::TooLarge, Doing::Publish) => "output_too_large",
            (Self::Truncated, Doing::Fetch) => "source_truncated",
            (Self::Checksum, Doing::Fetch) => "source_checksum_mismatch",
            (Self::Truncated | Self::Checksum, Doing::Publish) => "upload_failed",
            // Whose job it is not says nothing about it, and whoever has no room hands it back: for a log at most.
            (Self::NotOurs, _) => "lease_expired",
            (Self::NoRoom | Self::Local, _) => "internal",
        }
    }
}

impl From<Failure> for StorageError {
    fn from(failure: Failure) -> Self {
        let cause = match failure {
            Failure::Blocked(_) | Failure::BlockedAddress => Cause::Blocked,
            Failure::Timeout => Cause::Timeout,
            Failure::Dns | Failure::Connect(_) | Failure::Tls(_) | Failure::Closed | Failure::Protocol => {
                Cause::Connection
            }
        };
        Self::new(cause, format!("storage: {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        let of = |kind: io::ErrorKind| StorageError::local(&io::Error::from(kind)).cause;
        assert_eq!(of(io::ErrorKind::StorageFull), Cause::NoRoom);
        assert_eq!(of(io::ErrorKind::QuotaExceeded), Cause::NoRoom);
        assert_eq!(of(io::ErrorKind::PermissionDenied), Cause::Local);
    }
}
