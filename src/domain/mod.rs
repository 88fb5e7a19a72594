//! The contract's words as types: parsed at the border, then carried. Nothing here does I/O.

mod claim;
mod event;
mod job;
mod requester;
mod retry;
mod secret;
mod worker_id;

pub use claim::{Claim, Outcome};
pub use event::{Delivery, EventClaim, EventRef, EventReleaseReason};
pub use job::{BadStatus, JobId, JobStatus, NewJob, Sealed};
pub use requester::{BadRequesterId, RequesterId};
pub use retry::{HttpFailure, JobFailure, ReleaseReason};
pub use secret::{Purpose, SealedParts};
pub use worker_id::WorkerId;
