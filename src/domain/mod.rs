//! The contract's words as types: parsed at the border, then carried. Nothing here does I/O.

mod causes;
mod claim;
mod egress;
mod event;
mod job;
mod requester;
mod retry;
mod secret;
/// The face `transcode`: requests, answers, error codes.
pub mod transcode;
mod worker_id;

pub use causes::causes;
pub use claim::{Claim, Outcome};
pub use egress::{EgressFault, EgressPolicy, EgressPorts, is_local_name, is_public, origin};
pub use event::{BadEventId, Delivery, EventClaim, EventRef, EventReleaseReason};
pub use job::{BadStatus, JobId, JobStatus, NewJob, Sealed};
pub use requester::{BadRequesterId, RequesterId};
pub use retry::{JobFailure, ReleaseReason};
pub use secret::{Purpose, SealedParts};
pub use worker_id::WorkerId;
