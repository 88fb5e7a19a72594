//! Sealed callbacks, read for several events by one call.
//!
//! Whoever asks while nobody reads is served at once; those who ask meanwhile share the next call. So a quiet worker
//! waits for nobody, and a busy one makes few calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex as Turn, oneshot};

use crate::domain::{EventClaim, Outcome, WorkerId};
use crate::store::{Store, StoreError, StoredSecret};

/// Events in one call.
const MOST: usize = 100;

type Found = (Outcome, Option<StoredSecret>);

/// Reads callbacks for the events of one worker.
pub(super) struct Callbacks {
    store: Store,
    worker: WorkerId,
    asked: Mutex<Vec<Asked>>,
    /// Who has it makes the calls.
    turn: Turn<()>,
}

struct Asked {
    claim: EventClaim,
    tell: oneshot::Sender<Found>,
}

impl Callbacks {
    pub(super) fn new(store: Store, worker: WorkerId) -> Self {
        Self { store, worker, asked: Mutex::default(), turn: Turn::new(()) }
    }

    /// The callback of the event that `claim` is for, behind its fence.
    pub(super) async fn of(&self, claim: EventClaim) -> Result<Found, StoreError> {
        loop {
            let (tell, mut told) = oneshot::channel();
            self.asked().push(Asked { claim, tell });
            let _turn = self.turn.lock().await;
            loop {
                match told.try_recv() {
                    Ok(found) => return Ok(found),
                    Err(TryRecvError::Empty) => self.read_some().await?,
                    // Whoever had asked for us failed or was stopped: again, by ourselves.
                    Err(TryRecvError::Closed) => break,
                }
            }
        }
    }

    /// One call, for those who have waited longest.
    async fn read_some(&self) -> Result<(), StoreError> {
        let batch = self.next_batch();
        let claims: Vec<_> = batch.iter().map(|asked| asked.claim).collect();
        let rows = self.store.read_event_secrets(&self.worker, &claims).await?;
        // One row per claim, in order. With fewer, somebody would ask for ever.
        if rows.len() != batch.len() {
            return Err(StoreError::UnexpectedAnswer("not one row per event".into()));
        }
        for (asked, (_, outcome, sealed)) in batch.into_iter().zip(rows) {
            let _ = asked.tell.send((outcome, sealed)); // who has gone meanwhile needs no answer
        }
        Ok(())
    }

    /// An event that was lost and claimed again may ask twice; one call takes it once.
    fn next_batch(&self) -> Vec<Asked> {
        let mut asked = self.asked();
        let (mut batch, mut later): (Vec<Asked>, Vec<Asked>) = (Vec::new(), Vec::new());
        for one in asked.drain(..).filter(|one| !one.tell.is_closed()) {
            let is_there = batch.iter().any(|other| other.claim.event == one.claim.event);
            if is_there || batch.len() == MOST { later.push(one) } else { batch.push(one) }
        }
        *asked = later;
        batch
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
