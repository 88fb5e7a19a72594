//! The lane of events: first attempts and retries of webhooks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Answer, Claimed, Lane, Lease};
use crate::domain::{Delivery, EventClaim, EventRef, EventReleaseReason, Outcome, WorkerId, causes};
use crate::store::{ClaimedEvent, Result, Store};

const FIRST: &str = "webhook";
const RETRY: &str = "webhook_retry";

/// Claims events from the line of first attempts and from that of retries.
///
/// The two take turns at being asked first, so that neither starves the other; and retries never take the last free
/// hand, so that an endpoint that hangs does not keep everybody else's news waiting.
pub struct Events {
    store: Store,
    worker: WorkerId,
    lease: Lease,
    kept_for_first: usize,
    is_turn_of_retries: AtomicBool,
}

/// What came of an event.
#[derive(Debug, Clone)]
pub enum EventEnding {
    /// A delivery was tried.
    Tried(Delivery),
    /// Back to the line after a while, untried.
    Released(EventReleaseReason, Duration),
}

impl Events {
    /// The queues it claims from, for wake-ups.
    pub const QUEUES: [&'static str; 2] = [FIRST, RETRY];

    /// For a loop of `concurrency` hands.
    #[must_use]
    pub fn new(store: Store, worker: WorkerId, lease: Lease, concurrency: usize) -> Self {
        let kept_for_first = usize::from(concurrency > 1);
        Self { store, worker, lease, kept_for_first, is_turn_of_retries: AtomicBool::new(false) }
    }

    /// Adds to `claimed` at most `limit` from `queue`.
    async fn add_from(&self, queue: &str, limit: usize, claimed: &mut Claimed<ClaimedEvent>) -> Result<()> {
        let limit = u16::try_from(limit).unwrap_or(u16::MAX).min(1000);
        if limit > 0 {
            let events = self.store.claim_events(queue, &self.worker, limit, Some(self.lease.length)).await?;
            claimed.are_more |= events.len() == usize::from(limit);
            claimed.items.extend(events);
        }
        Ok(())
    }
}

impl Lane for Events {
    type Item = ClaimedEvent;
    type Claim = EventClaim;
    type About = EventRef;
    type Ending = EventEnding;

    fn claim_of(item: &ClaimedEvent) -> EventClaim {
        item.claim
    }

    fn about(claim: EventClaim) -> EventRef {
        claim.event
    }

    fn name_of(claim: EventClaim) -> String {
        claim.event.to_string()
    }

    async fn claim(&self, room: usize) -> Result<Claimed<ClaimedEvent>> {
        let mut claimed = Claimed { items: Vec::new(), are_more: false };
        let for_retries = room.saturating_sub(self.kept_for_first);
        let mut turns = [(FIRST, room), (RETRY, for_retries)];
        if self.is_turn_of_retries.fetch_not(Ordering::Relaxed) {
            turns.reverse();
        }
        for (queue, most) in turns {
            let limit = most.saturating_sub(claimed.items.len());
            if let Err(error) = self.add_from(queue, limit, &mut claimed).await {
                if claimed.items.is_empty() {
                    return Err(error);
                }
                // What the first line gave is in hand and must not be dropped.
                tracing::warn!(error = causes(&error), queue, "claim failed; will ask again");
            }
        }
        Ok(claimed)
    }

    async fn heartbeat(&self, beats: &[(EventClaim, Option<Value>)]) -> Result<Vec<Outcome>> {
        let claims: Vec<_> = beats.iter().map(|(claim, _)| *claim).collect();
        let answered = self.store.heartbeat_events(&self.worker, &claims, Some(self.lease.length)).await?;
        Ok(answered.iter().map(|answer| answer.outcome).collect())
    }

    async fn settle(&self, endings: &[(EventClaim, EventEnding)]) -> Result<Vec<Answer>> {
        let (mut tried, mut released) = (Vec::new(), Vec::new());
        for (claim, ending) in endings {
            match ending {
                EventEnding::Tried(delivery) => tried.push((*claim, delivery.clone())),
                EventEnding::Released(reason, delay) => released.push((*claim, *reason, *delay)),
            }
        }
        let mut answered: Vec<(EventRef, Answer)> = Vec::new();
        if !tried.is_empty() {
            let settled = self.store.settle_events(&self.worker, &tried).await?;
            answered.extend(
                settled.iter().map(|s| (s.event, Answer { outcome: s.outcome, released: s.released })),
            );
        }
        if !released.is_empty() {
            let freed = self.store.release_events(&self.worker, &released).await?;
            answered.extend(freed.iter().map(|f| (f.event, Answer { outcome: f.outcome, released: false })));
        }
        let stale = Answer { outcome: Outcome::Stale, released: false };
        let answer_to = |claim: &EventClaim| {
            answered.iter().find(|(event, _)| *event == claim.event).map_or(stale, |(_, answer)| *answer)
        };
        Ok(endings.iter().map(|(claim, _)| answer_to(claim)).collect())
    }

    async fn tick(&self) -> Result<()> {
        for queue in Self::QUEUES {
            self.store.tick(queue).await?;
        }
        Ok(())
    }

    fn not_started() -> EventEnding {
        EventEnding::Released(EventReleaseReason::NotStarted, Duration::ZERO)
    }

    fn shut_down() -> EventEnding {
        EventEnding::Released(EventReleaseReason::WorkerShutdown, Duration::ZERO)
    }

    fn broken(why: &str) -> EventEnding {
        EventEnding::Tried(Delivery { answer: Some(why.into()), ..Delivery::failed("internal") })
    }
}
