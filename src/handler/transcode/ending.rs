//! From what went wrong to what becomes of the job. What each code means for it is a row of `euterpe.error_codes`.

use std::time::Duration;

use crate::crypto::OpenError;
use crate::domain::{JobFailure, ReleaseReason};
use crate::media::{self, MediaError};
use crate::storage::{Cause, Doing, StorageError};
use crate::store::StoreError;
use crate::worker::{JobEnding, Jobs, Lane};

/// Room may come when another job ends.
const NO_ROOM: Duration = Duration::from_secs(15);
/// A key that this process does not have will not be here sooner; another process may take the job meanwhile.
const NO_KEY: Duration = Duration::from_secs(30);

/// The work stops here, with this ending.
#[derive(Debug, Clone)]
pub(super) struct Stop(pub(super) JobEnding);

impl Stop {
    /// With a code of `euterpe.error_codes`.
    pub(super) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self(JobEnding::Failed(JobFailure {
            code: code.into(),
            message: message.into(),
            ..JobFailure::default()
        }))
    }

    /// Back to the line, nobody is to blame.
    pub(super) fn released(reason: ReleaseReason, delay: Duration) -> Self {
        Self(JobEnding::Released(reason, delay))
    }

    /// The job is somebody else's now: whatever is said of it is refused.
    pub(super) fn not_ours() -> Self {
        Self(Jobs::shut_down())
    }

    /// Trouble with storage. For keys that are not good, `Access` knows better.
    pub(super) fn storage(error: &StorageError, doing: Doing) -> Self {
        match error.cause {
            Cause::NoRoom => Self::released(ReleaseReason::Disk, NO_ROOM),
            Cause::NotOurs => Self::not_ours(),
            _ => Self(JobEnding::Failed(JobFailure {
                code: error.code(doing).into(),
                message: error.message.clone(),
                http_status: error.http_status,
                provider_code: error.provider_code.clone(),
                retry_after_seconds: error
                    .retry_after
                    .map(|wait| i32::try_from(wait.as_secs()).unwrap_or(i32::MAX)),
                ..JobFailure::default()
            })),
        }
    }
}

impl From<MediaError> for Stop {
    fn from(error: MediaError) -> Self {
        if error.code == media::NO_ROOM {
            return Self::released(ReleaseReason::Disk, NO_ROOM);
        }
        Self::failed(error.code, error.message)
    }
}

/// An answer that is no answer. While the database is away nobody gets here: those calls are made again.
impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = crate::domain::causes(&error), "the queue refused a call");
        Self::failed("internal", "our fault")
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::StorageFull {
            return Self::released(ReleaseReason::Disk, NO_ROOM);
        }
        tracing::error!(%error, "the work directory failed");
        Self::failed("internal", "the worker's own disk failed")
    }
}

/// An unknown key is not the job's fault: another process has it, or this one will after its next start.
impl From<OpenError> for Stop {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::UnknownKek(_) => Self::released(ReleaseReason::UnknownKek, NO_KEY),
            OpenError::Failed => Self::failed("decrypt_failed", "its sealed credentials do not open"),
        }
    }
}
