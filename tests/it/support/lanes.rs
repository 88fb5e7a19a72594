//! A real lane whose calls can be watched, and handlers made of closures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use euterpe::domain::{Claim, Delivery, JobStatus, Outcome, WorkerId};
use euterpe::store::{ClaimedEvent, ClaimedJob, Result, Store, StoreError, Wakeup};
use euterpe::worker::{
    Answer, Claimed, EventEnding, Events, Handler, Held, JobEnding, Jobs, Lane, Lease, Pace, run,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{LEASE, QUEUE, worker};

/// Beats often, so that a test need not wait; everything else as in production.
pub const BEATS: Duration = Duration::from_millis(50);

pub fn pace(concurrency: usize) -> Pace {
    Pace {
        concurrency,
        batch: 25,
        poll_ms: 20..=40,
        drain: Duration::ZERO,
        lease: Lease { length: LEASE, beat_every: BEATS },
    }
}

/// What was seen of a lane's calls.
#[derive(Default)]
pub struct Seen {
    pub beats_asked: AtomicUsize,
    pub beats_answered: AtomicUsize,
    pub largest_beat: AtomicUsize,
    /// Set: no beat reaches the database.
    pub is_cut_off: AtomicBool,
    /// Set: a claim that brought something is not answered before `go_on`.
    pub hold_claims: AtomicBool,
    pub claim_held: Notify,
    pub go_on: Notify,
}

/// Calls the real lane, and counts.
pub struct Watched<L> {
    pub lane: L,
    pub seen: Arc<Seen>,
}

impl<L: Lane> Lane for Watched<L> {
    type Item = L::Item;
    type Claim = L::Claim;
    type About = L::About;
    type Ending = L::Ending;

    fn claim_of(item: &L::Item) -> L::Claim {
        L::claim_of(item)
    }

    fn about(claim: L::Claim) -> L::About {
        L::about(claim)
    }

    fn name_of(claim: L::Claim) -> String {
        L::name_of(claim)
    }

    async fn claim(&self, room: usize) -> Result<Claimed<L::Item>> {
        let claimed = self.lane.claim(room).await;
        if self.seen.hold_claims.load(Ordering::SeqCst)
            && claimed.as_ref().is_ok_and(|claimed| !claimed.items.is_empty())
        {
            self.seen.claim_held.notify_one();
            self.seen.go_on.notified().await;
        }
        claimed
    }

    async fn heartbeat(&self, beats: &[(L::Claim, Option<Value>)]) -> Result<Vec<Outcome>> {
        self.seen.beats_asked.fetch_add(1, Ordering::SeqCst);
        self.seen.largest_beat.fetch_max(beats.len(), Ordering::SeqCst);
        let answered = if self.seen.is_cut_off.load(Ordering::SeqCst) {
            Err(StoreError::Unavailable("cut off".into()))
        } else {
            self.lane.heartbeat(beats).await
        };
        self.seen.beats_answered.fetch_add(1, Ordering::SeqCst);
        answered
    }

    async fn settle(&self, endings: &[(L::Claim, L::Ending)]) -> Result<Vec<Answer>> {
        self.lane.settle(endings).await
    }

    async fn tick(&self) -> Result<()> {
        self.lane.tick().await
    }

    fn not_started() -> L::Ending {
        L::not_started()
    }

    fn shut_down() -> L::Ending {
        L::shut_down()
    }

    fn broken(why: &str) -> L::Ending {
        L::broken(why)
    }
}

/// A handler made of a closure.
struct Do<F>(F);

impl<L, F> Handler<L> for Do<F>
where
    L: Lane,
    F: for<'a> Fn(L::Item, &'a Held<L>) -> BoxFuture<'a, L::Ending> + Send + Sync + 'static,
{
    async fn handle(&self, item: L::Item, held: &Held<L>) -> L::Ending {
        (self.0)(item, held).await
    }
}

/// A loop at work, stopped and awaited by [`Working::stop`].
pub struct Working {
    pub seen: Arc<Seen>,
    pub stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Working {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

/// A loop over the jobs of the usual queue.
pub fn work_on_jobs<F>(store: Store, pod: &WorkerId, pace: Pace, wakeup: Wakeup, handle: F) -> Working
where
    F: for<'a> Fn(ClaimedJob, &'a Held<Watched<Jobs>>) -> BoxFuture<'a, JobEnding> + Send + Sync + 'static,
{
    let lane = Jobs { store, worker: pod.clone(), queue: QUEUE.into(), lease: pace.lease, gate: None };
    work_on(lane, pace, wakeup, Do(handle))
}

/// A loop over events.
pub fn work_on_events<F>(store: Store, pace: Pace, wakeup: Wakeup, handle: F) -> Working
where
    F: for<'a> Fn(ClaimedEvent, &'a Held<Watched<Events>>) -> BoxFuture<'a, EventEnding>
        + Send
        + Sync
        + 'static,
{
    let lane = Events::new(store, worker("postman"), pace.lease, pace.concurrency);
    work_on(lane, pace, wakeup, Do(handle))
}

/// Takes every job to its success without a wait.
pub fn simply_do(
    store: &Store,
    pod: &WorkerId,
) -> impl for<'a> Fn(ClaimedJob, &'a Held<Watched<Jobs>>) -> BoxFuture<'a, JobEnding> + Send + Sync + 'static
{
    let (store, pod) = (store.clone(), pod.clone());
    move |job, _| {
        let (store, pod) = (store.clone(), pod.clone());
        async move {
            bring_up(&store, &pod, job.claim).await;
            done()
        }
        .boxed()
    }
}

/// Every event arrives.
pub fn arrives(_: ClaimedEvent, _: &Held<Watched<Events>>) -> BoxFuture<'_, EventEnding> {
    async { EventEnding::Tried(Delivery::arrived(200)) }.boxed()
}

/// Brings a job to `uploading`, from where it may succeed.
pub async fn bring_up(store: &Store, pod: &WorkerId, claim: Claim) {
    for step in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
        store.advance_jobs(pod, &[(claim, step)]).await.unwrap();
    }
}

pub fn done() -> JobEnding {
    JobEnding::Succeeded(None, json!([]))
}

/// A loop over any lane.
pub fn work_on<L: Lane>(lane: L, pace: Pace, wakeup: Wakeup, handler: impl Handler<Watched<L>>) -> Working {
    let (seen, stop) = (Arc::new(Seen::default()), CancellationToken::new());
    let lane = Watched { lane, seen: Arc::clone(&seen) };
    let task = tokio::spawn(run(lane, handler, pace, wakeup, stop.clone()));
    Working { seen, stop, task }
}

/// Polls until `condition` holds.
pub async fn until_true(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

/// Raises its flag when it is dropped: with it the work that held it has ended.
pub struct Dropped(pub Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
