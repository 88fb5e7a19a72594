//! Someone takes it: the loop that claims work, keeps its lease, has it done and settles it, for any [`Lane`].
//!
//! A lane is the queue's side of the work (claim, heartbeat, settle), a [`Handler`] does it. The stop is a value that
//! is handed in. Leases are the safety net under everything here: what a process that dies leaves behind comes back by
//! itself.

mod events;
mod jobs;
pub mod lease;
mod pace;
mod run;
mod settle;

use std::hash::Hash;

use serde_json::Value;

use crate::domain::Outcome;
use crate::store::Result;

pub use events::{EventEnding, Events};
pub use jobs::{Gate, JobEnding, Jobs};
pub use lease::{Held, Lease, Lost};
pub use pace::Pace;
pub use run::run;

/// A queue's side of the work. Every method is one call of the store, or a few.
pub trait Lane: Send + Sync + Sized + 'static {
    /// What a claim brings.
    type Item: Send + 'static;
    /// The fence for every write about an item.
    type Claim: Copy + Eq + Send + Sync + 'static;
    /// What a claim is about: two claims of it are an old one and a new one.
    type About: Eq + Hash + Send + Sync + 'static;
    /// What came of an item.
    type Ending: Clone + Send + Sync + 'static;

    /// The fence of `item`.
    fn claim_of(item: &Self::Item) -> Self::Claim;

    /// What `claim` is about.
    fn about(claim: Self::Claim) -> Self::About;

    /// What to call an item in logs.
    fn name_of(claim: Self::Claim) -> String;

    /// At most `room` items, each behind a new fence.
    fn claim(&self, room: usize) -> impl Future<Output = Result<Claimed<Self::Item>>> + Send;

    /// Renews leases and tells progress; answers one outcome per beat, in order.
    fn heartbeat(
        &self,
        beats: &[(Self::Claim, Option<Value>)],
    ) -> impl Future<Output = Result<Vec<Outcome>>> + Send;

    /// Writes endings behind their fences; answers per ending, in order.
    fn settle(
        &self,
        endings: &[(Self::Claim, Self::Ending)],
    ) -> impl Future<Output = Result<Vec<Answer>>> + Send;

    /// Gives the lines their tick, while nobody claims.
    fn tick(&self) -> impl Future<Output = Result<()>> + Send;

    /// It was claimed and not begun: back to the line, nobody is to blame.
    fn not_started() -> Self::Ending;

    /// Its worker is being shut down: back to the line.
    fn shut_down() -> Self::Ending;

    /// Its handler panicked, or its ending could not be written.
    fn broken(why: &str) -> Self::Ending;
}

/// What a claim brought.
#[derive(Debug)]
pub struct Claimed<T> {
    /// In the order of the line.
    pub items: Vec<T>,
    /// The line may hold more.
    pub are_more: bool,
}

/// What the queue answers to an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// `Ok`, or somebody else has it and nothing was written.
    pub outcome: Outcome,
    /// There is something to claim now that was not there before.
    pub released: bool,
}

/// Does the work of a lane.
pub trait Handler<L: Lane>: Send + Sync + 'static {
    /// Does it and says what came of it. It is dropped at its next await when its claim is lost or the drain is over.
    fn handle(&self, item: L::Item, held: &Held<L>) -> impl Future<Output = L::Ending> + Send;
}
