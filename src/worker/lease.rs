//! Holding on while working: one heartbeat per process for all items in hand, in a task of its own.
//!
//! At least three beats per lease, so that two may fail before it lapses. Only the database's word ends work early: told
//! that a claim is stale or cancelled, the work is stopped. While the database is away the work goes on and the beats go
//! on trying; but nothing may be published until a claim has been proven again ([`Held::prove`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::Lane;
use crate::domain::{Outcome, causes};
use crate::store::{Result, StoreError};

/// What one call of a heartbeat takes.
const BATCH: usize = 1000;
/// From one try of a call to the next while the database is away.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a claim lasts without a heartbeat, and how often there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Asked for with each claim and each beat.
    pub length: Duration,
    /// From one beat to the next.
    pub beat_every: Duration,
}

impl Lease {
    /// With three beats, the fewest there are.
    #[must_use]
    pub fn of(length: Duration) -> Self {
        Self { length, beat_every: length / 3 }
    }
}

/// The claim is not ours any more: `Stale` or `Cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the claim was lost: {0:?}")]
pub struct Lost(pub Outcome);

/// Keeps the leases of everything in hand. One per lane; its task ends with it.
pub(super) struct Keeper<L: Lane> {
    hands: Arc<Hands<L>>,
    _beats: AbortOnDropHandle<()>,
}

struct Hands<L: Lane> {
    /// By what they are about: of two claims of one thing only the newer can be ours.
    items: Mutex<HashMap<L::About, Item<L>>>,
    beat_now: Notify,
    /// Number of the newest beat that has begun; what is confirmed by a later one was true after now.
    begun: watch::Sender<u64>,
}

struct Item<L: Lane> {
    claim: L::Claim,
    progress: Option<Value>,
    standing: watch::Sender<Standing>,
}

#[derive(Debug, Clone, Copy)]
enum Standing {
    /// Confirmed by the beat of that number; 0: by the claim itself.
    Ours(u64),
    Lost(Lost),
}

/// An item in hand, as its handler sees it. Its lease is kept until this is dropped.
pub struct Held<L: Lane> {
    claim: L::Claim,
    hands: Arc<Hands<L>>,
    standing: watch::Receiver<Standing>,
}

impl<L: Lane> Keeper<L> {
    pub(super) fn start(lane: Arc<L>, lease: Lease) -> Self {
        let hands = Arc::new(Hands {
            items: Mutex::new(HashMap::new()),
            beat_now: Notify::new(),
            begun: watch::Sender::new(0),
        });
        let beats = tokio::spawn(keep_beating(lane, Arc::clone(&hands), lease));
        Self { hands, _beats: AbortOnDropHandle::new(beats) }
    }

    /// From now on the lease of `claim` is kept. An older claim of the same thing is lost: its lease lapsed while we could
    /// not speak, and the thing came back to us. Nobody else would tell whoever works on it.
    pub(super) fn take(&self, claim: L::Claim) -> Held<L> {
        let (standing, receiver) = watch::channel(Standing::Ours(0));
        let older = self.hands.items().insert(L::about(claim), Item { claim, progress: None, standing });
        if let Some(older) = older {
            older.standing.send_replace(Standing::Lost(Lost(Outcome::Stale)));
        }
        Held { claim, hands: Arc::clone(&self.hands), standing: receiver }
    }
}

impl<L: Lane> Held<L> {
    /// The fence for every write about it.
    #[must_use]
    pub fn claim(&self) -> L::Claim {
        self.claim
    }

    /// How far it is; the next beat carries it.
    pub fn report(&self, progress: Value) {
        if let Some(item) = in_hand::<L>(&mut self.hands.items(), self.claim) {
            item.progress = Some(progress);
        }
    }

    /// Waits until the database has confirmed the claim after this call. Ask right before each publish: while the
    /// database is away there is no answer, and so nothing is published.
    pub async fn prove(&self) -> std::result::Result<(), Lost> {
        let asked = *self.hands.begun.borrow();
        self.hands.beat_now.notify_one();
        let mut standing = self.standing.clone();
        let known = standing.wait_for(|standing| match standing {
            Standing::Ours(beat) => *beat > asked,
            Standing::Lost(_) => true,
        });
        match known.await.map(|standing| *standing) {
            Ok(Standing::Ours(_)) => Ok(()),
            Ok(Standing::Lost(lost)) => Err(lost),
            // The keeper has gone: nobody renews the lease, so it is as good as lost.
            Err(_) => Err(Lost(Outcome::Stale)),
        }
    }

    /// Makes a call of the store again and again while the database is away. Only an answer goes on.
    pub async fn insist<T, F>(&self, call: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        loop {
            match call().await {
                Err(StoreError::Unavailable(error)) => {
                    tracing::warn!(error = causes(&*error), "waiting for the database");
                    sleep(AGAIN).await;
                }
                answered => return answered,
            }
        }
    }

    /// Waits until the claim is lost.
    pub(super) async fn lost(&self) -> Lost {
        let mut standing = self.standing.clone();
        match standing.wait_for(|standing| matches!(standing, Standing::Lost(_))).await.map(|found| *found) {
            Ok(Standing::Lost(lost)) => lost,
            Ok(Standing::Ours(_)) | Err(_) => Lost(Outcome::Stale),
        }
    }
}

impl<L: Lane> Drop for Held<L> {
    fn drop(&mut self) {
        let mut items = self.hands.items();
        if in_hand::<L>(&mut items, self.claim).is_some() {
            items.remove(&L::about(self.claim));
        }
    }
}

impl<L: Lane> Hands<L> {
    fn items(&self) -> MutexGuard<'_, HashMap<L::About, Item<L>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One beat for everything in hand; `false`: the database did not answer for some of it.
    async fn beat(&self, lane: &L, lease: Lease) -> bool {
        self.begun.send_modify(|number| *number += 1);
        let number = *self.begun.borrow();
        let beats: Vec<_> = self.items().values().map(|item| (item.claim, item.progress.clone())).collect();
        let (mut all_answered, mut batches) = (true, beats.chunks(BATCH).collect::<VecDeque<_>>());
        while let Some(batch) = batches.pop_front() {
            // A call that hangs is given up, so that the next one may find a better connection.
            match timeout(lease.beat_every.max(Duration::from_secs(1)), lane.heartbeat(batch)).await {
                Ok(Ok(outcomes)) => self.note(number, batch, &outcomes),
                Ok(Err(error)) => {
                    // Refused as a whole because of one: that one alone is to lose its lease.
                    let is_refused = !matches!(error, StoreError::Unavailable(_)) && batch.len() > 1;
                    tracing::warn!(
                        error = causes(&error),
                        items = batch.len(),
                        is_refused,
                        "missed a heartbeat"
                    );
                    batches.extend(batch.chunks(1).filter(|_| is_refused));
                    all_answered &= is_refused;
                }
                Err(_) => {
                    tracing::warn!(items = batch.len(), "missed a heartbeat: no answer in time");
                    all_answered = false;
                }
            }
        }
        all_answered
    }

    fn note(&self, number: u64, batch: &[(L::Claim, Option<Value>)], outcomes: &[Outcome]) {
        let mut items = self.items();
        for ((claim, told), outcome) in batch.iter().zip(outcomes) {
            let Some(item) = in_hand::<L>(&mut items, *claim) else { continue }; // settled or lost meanwhile
            match outcome {
                Outcome::Ok => {
                    if item.progress == *told {
                        item.progress = None;
                    }
                    item.standing.send_replace(Standing::Ours(number));
                }
                Outcome::Stale | Outcome::Cancelled | Outcome::Illegal => {
                    item.standing.send_replace(Standing::Lost(Lost(*outcome)));
                }
            }
        }
    }
}

/// The item of `claim`, unless a newer claim has taken its place.
fn in_hand<L: Lane>(items: &mut HashMap<L::About, Item<L>>, claim: L::Claim) -> Option<&mut Item<L>> {
    items.get_mut(&L::about(claim)).filter(|item| item.claim == claim)
}

async fn keep_beating<L: Lane>(lane: Arc<L>, hands: Arc<Hands<L>>, lease: Lease) {
    let mut next = Instant::now() + lease.beat_every;
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            () = hands.beat_now.notified() => {}
        }
        let begun = Instant::now();
        // After a miss sooner than usual: there are only three per lease.
        next = if hands.beat(&lane, lease).await {
            begun + lease.beat_every
        } else {
            Instant::now() + lease.beat_every / 4
        };
    }
}
