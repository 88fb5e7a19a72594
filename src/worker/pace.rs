//! How much a worker takes at once, how often it asks, and how long it may take to stop.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt;

use super::Lease;

/// The pace of one lane.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Items at work at once.
    pub concurrency: usize,
    /// Items claimed at once; never more than can be started.
    pub batch: usize,
    /// Milliseconds between two questions to an empty line.
    pub poll_ms: RangeInclusive<u64>,
    /// How long work in hand may take after a stop; then it is handed back.
    pub drain: Duration,
    /// Of every claim.
    pub lease: Lease,
}

impl Pace {
    /// How long to wait before asking an empty line again. Jittered, so that pods do not ask in step.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(rand::rng().random_range(self.poll_ms.clone()))
    }
}

impl Default for Pace {
    /// Contract §12, and the lease every queue has unless told otherwise.
    fn default() -> Self {
        Self {
            concurrency: 5,
            batch: 10,
            poll_ms: 500..=1500,
            drain: Duration::from_secs(30),
            lease: Lease::of(Duration::from_secs(60)),
        }
    }
}
