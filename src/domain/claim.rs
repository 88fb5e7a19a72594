//! Contract §4: the fence that a worker carries, and what the queue answers to it.

use uuid::Uuid;

use super::JobId;

/// The right to write about a job: its version and the random token of one claim.
///
/// Every write asks for one, so that forgetting the fence does not compile. A version alone is handed out
/// twice after a lossy failover; the token is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Which job.
    pub job_id: JobId,
    /// Rises by one with each claim.
    pub version: i64,
    /// Random with each claim.
    pub token: Uuid,
}

/// What the queue answers for one item of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Ok,
    /// Somebody else owns the item, or nobody does. Stop: write nothing, publish nothing.
    Stale,
    /// Stale, because somebody cancelled it.
    Cancelled,
    /// The state machine has no such step. A bug in the caller.
    Illegal,
}

impl Outcome {
    /// The outcome that SQL calls `word`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "ok" => Some(Self::Ok),
            "stale" => Some(Self::Stale),
            "cancelled" => Some(Self::Cancelled),
            "illegal" => Some(Self::Illegal),
            _ => None,
        }
    }
}
