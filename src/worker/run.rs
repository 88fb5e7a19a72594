//! The loop: claim, start, wait; and a good ending.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::lease::Keeper;
use super::settle::Settler;
use super::{Claimed, Handler, Held, Lane, Pace};
use crate::domain::causes;
use crate::store::Wakeup;

/// While all hands are busy nobody claims, and claims are what gives a line its tick.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// With more in the line than hands, a moment's patience lets several hands come free, and one claim serves them all.
const GATHER: Duration = Duration::from_millis(3);
/// After the drain: time to hand back what is left.
const GRACE: Duration = Duration::from_secs(10);

struct Crew<L: Lane, H> {
    lane: Arc<L>,
    handler: H,
    keeper: Keeper<L>,
    settler: Settler<L>,
    /// The drain is over: work in hand is handed back.
    hand_back: CancellationToken,
}

/// Runs `lane` until `stop`, then lets the work in hand finish.
///
/// Claims no more than it can start: a lease must not tick while its item waits in a line of ours. What was claimed and
/// not begun when `stop` came goes back at once; what has not finished when the drain is over is stopped and goes back
/// too. What cannot be handed back within ten seconds more, because the database is away, ends with the process; its
/// lease lapses, another worker takes it, and the fence keeps this one out.
pub async fn run<L: Lane, H: Handler<L>>(
    lane: L,
    handler: H,
    pace: Pace,
    mut wakeup: Wakeup,
    stop: CancellationToken,
) {
    let (lane, released) = (Arc::new(lane), Arc::new(Notify::new()));
    let crew = Arc::new(Crew {
        keeper: Keeper::start(Arc::clone(&lane), pace.lease),
        settler: Settler::start(Arc::clone(&lane), Arc::clone(&released)),
        hand_back: CancellationToken::new(),
        lane,
        handler,
    });
    let hands = Arc::new(Semaphore::new(pace.concurrency));
    let freed = Arc::new(Notify::new());
    let at_work = TaskTracker::new();

    let mut is_backlog = false;
    while let Some(mut room) = free_hands(&hands, &*crew.lane, &stop).await {
        if is_backlog && room < pace.concurrency.div_ceil(2) {
            sleep(GATHER).await;
            room = hands.available_permits();
        }
        let room = room.min(pace.batch);
        // Not raced against the stop: a claim that is cut off may have been committed.
        let Claimed { items, are_more } = claim(&*crew.lane, room).await;
        let is_room_left = items.len() < room;
        is_backlog = are_more;
        for item in items {
            let hand = Hand(Arc::clone(&hands).try_acquire_owned().ok(), Arc::clone(&freed));
            // Whatever is logged on the way says which item it was about.
            let span = tracing::info_span!("item", item = L::name_of(L::claim_of(&item)));
            at_work.spawn(Arc::clone(&crew).see_to(item, hand, stop.is_cancelled()).instrument(span));
        }
        if is_room_left {
            tokio::select! {
                () = stop.cancelled() => {}
                () = wakeup.heard() => {}
                () = released.notified() => {}
                () = freed.notified(), if are_more => {}
                () = sleep(pace.pause()) => {}
            }
        }
    }

    at_work.close();
    if timeout(pace.drain, at_work.wait()).await.is_err() {
        tracing::info!(left = at_work.len(), "the drain is over; handing back what is left");
        crew.hand_back.cancel();
        if timeout(GRACE, at_work.wait()).await.is_err() {
            tracing::warn!(left = at_work.len(), "stopping with work in hand; its leases will lapse");
        }
    }
}

/// Waits for a free hand and says how many there are; `None`: it is time to stop. Only `run` takes hands, so there are
/// still as many when it does.
async fn free_hands<L: Lane>(hands: &Semaphore, lane: &L, stop: &CancellationToken) -> Option<usize> {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            hand = hands.acquire() => {
                drop(hand);
                return Some(hands.available_permits());
            }
            () = sleep(TICK_EVERY) => {
                if let Err(error) = lane.tick().await {
                    tracing::warn!(error = causes(&error), "no tick");
                }
            }
        }
    }
}

/// Bounded by the store, which gives up each of its calls; a lane that asks two lines keeps what the first one gave.
async fn claim<L: Lane>(lane: &L, room: usize) -> Claimed<L::Item> {
    lane.claim(room).await.unwrap_or_else(|error| {
        tracing::warn!(error = causes(&error), "claim failed; will ask again");
        Claimed { items: Vec::new(), are_more: false }
    })
}

/// A hand at work. When it is dropped it is free again, and the loop is told.
struct Hand(Option<OwnedSemaphorePermit>, Arc<Notify>);

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.notify_one();
    }
}

impl<L: Lane, H: Handler<L>> Crew<L, H> {
    /// One item, from its claim to its ending. Its hand is free again when the ending is written.
    async fn see_to(self: Arc<Self>, item: L::Item, _hand: Hand, too_late: bool) {
        let held = self.keeper.take(L::claim_of(&item));
        let work = async {
            let ending = if too_late { L::not_started() } else { self.work(item, &held).await };
            self.settler.settle(held.claim(), ending).await
        };
        // An ending that is written makes the claim stale, too: then it is not lost, but done.
        tokio::select! {
            biased;
            _ = work => {}
            lost = held.lost() => {
                tracing::warn!(item = L::name_of(held.claim()), outcome = ?lost.0, "lost its claim; the work is dropped");
            }
        }
    }

    async fn work(&self, item: L::Item, held: &Held<L>) -> L::Ending {
        // What a handler leaves half done when it panics is its own; here nothing is shared with it but the lease.
        let handled = AssertUnwindSafe(self.handler.handle(item, held)).catch_unwind();
        tokio::select! {
            ending = handled => ending.unwrap_or_else(|_| {
                tracing::error!(item = L::name_of(held.claim()), "its handler panicked");
                L::broken("its handler panicked")
            }),
            () = self.hand_back.cancelled() => L::shut_down(),
        }
    }
}
