//! `wait=`: one shared look at the database serves everybody who waits for a job to move.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::domain::{JobId, causes};
use crate::store::{Store, Wakeup};

/// Between two looks, when no wake-up comes.
const EVERY: Duration = Duration::from_millis(500);
/// After a wake-up: others of the same moment are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);
/// What one look takes.
const BATCH: usize = 1000;

type Waiting = HashMap<JobId, watch::Sender<i32>>;

/// Everybody who waits. Its task ends with it.
pub struct Waiters {
    shared: Arc<Shared>,
    _looks: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    somebody: Notify,
}

impl Waiters {
    /// Looks whenever `wakeup` rings, and twice a second.
    #[must_use]
    pub fn start(store: Store, wakeup: Wakeup) -> Self {
        let shared = Arc::new(Shared::default());
        let looks = tokio::spawn(keep_looking(store, wakeup, Arc::clone(&shared)));
        Self { shared, _looks: AbortOnDropHandle::new(looks) }
    }

    /// Waits until the job's last event has a higher number than `seen`, or `most` has passed.
    pub async fn until_moved(&self, job_id: JobId, seen: i32, most: Duration) {
        let mut newest = {
            let mut waiting = self.shared.waiting();
            waiting.entry(job_id).or_insert_with(|| watch::Sender::new(seen)).subscribe()
        };
        self.shared.somebody.notify_one();
        // Either way the caller reads the job again.
        let _ = timeout(most, newest.wait_for(|&newest| newest > seen)).await;
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_looking(store: Store, mut wakeup: Wakeup, shared: Arc<Shared>) {
    loop {
        let jobs: Vec<JobId> = {
            let mut waiting = shared.waiting();
            waiting.retain(|_, newest| newest.receiver_count() > 0);
            waiting.keys().copied().collect()
        };
        if jobs.is_empty() {
            shared.somebody.notified().await;
            continue;
        }
        for batch in jobs.chunks(BATCH) {
            match store.last_sequences(batch).await {
                Ok(found) => {
                    let waiting = shared.waiting();
                    for (job_id, sequence) in found {
                        if let Some(newest) = waiting.get(&job_id) {
                            newest.send_if_modified(|known| {
                                let is_newer = sequence > *known;
                                *known = sequence.max(*known);
                                is_newer
                            });
                        }
                    }
                }
                Err(error) => tracing::warn!(error = causes(&error), "cannot look for those who wait"),
            }
        }
        tokio::select! {
            () = wakeup.heard() => sleep(TOGETHER).await,
            () = sleep(EVERY) => {}
        }
    }
}
