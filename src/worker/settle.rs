//! Writing endings: whatever has ended while the last call was under way goes into the next one.
//!
//! An ending is written as long as its claim is ours, however long the database is away: its lease is kept meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Lane};
use crate::domain::{Outcome, causes};
use crate::store::StoreError;

/// Endings in one call.
const BATCH: usize = 100;
/// From one try to the next while the database is away.
const AGAIN: Duration = Duration::from_millis(500);

struct Told<L: Lane> {
    claim: L::Claim,
    ending: L::Ending,
    is_broken: bool,
    written: oneshot::Sender<Outcome>,
}

/// Writes the endings of a lane, in batches. Its task ends with it.
pub(super) struct Settler<L: Lane> {
    endings: mpsc::Sender<Told<L>>,
    _writer: AbortOnDropHandle<()>,
}

impl<L: Lane> Settler<L> {
    /// `released` is notified when an ending let something else into the line.
    pub(super) fn start(lane: Arc<L>, released: Arc<Notify>) -> Self {
        let (endings, told) = mpsc::channel(BATCH);
        let writer = tokio::spawn(keep_writing(lane, told, released));
        Self { endings, _writer: AbortOnDropHandle::new(writer) }
    }

    /// Waits until the ending is written, or refused.
    pub(super) async fn settle(&self, claim: L::Claim, ending: L::Ending) -> Outcome {
        let (written, answer) = oneshot::channel();
        if self.endings.send(Told { claim, ending, is_broken: false, written }).await.is_err() {
            return Outcome::Stale; // the process is going; the lease will lapse
        }
        answer.await.unwrap_or(Outcome::Stale)
    }
}

async fn keep_writing<L: Lane>(lane: Arc<L>, mut told: mpsc::Receiver<Told<L>>, released: Arc<Notify>) {
    let mut batch = Vec::new();
    while told.recv_many(&mut batch, BATCH).await > 0 {
        write(&*lane, std::mem::take(&mut batch), &released).await;
    }
}

/// Writes a batch. Where it is refused as a whole, one of it cannot be written as it is: then each is written alone, and
/// of that one it is said what is wrong with it.
async fn write<L: Lane>(lane: &L, batch: Vec<Told<L>>, released: &Notify) {
    let mut batches = VecDeque::from([batch]);
    while let Some(mut batch) = batches.pop_front() {
        // Whoever stopped waiting has learnt that its claim is lost.
        batch.retain(|told| !told.written.is_closed());
        let endings: Vec<_> = batch.iter().map(|told| (told.claim, told.ending.clone())).collect();
        if endings.is_empty() {
            continue;
        }
        match lane.settle(&endings).await {
            Ok(answers) => {
                for (told, answer) in batch.into_iter().zip(answers) {
                    if answer.outcome == Outcome::Illegal {
                        batches.extend(told.into_broken("it ended where it may not end"));
                    } else {
                        told.answer(answer, released);
                    }
                }
            }
            Err(StoreError::Unavailable(error)) => {
                tracing::warn!(
                    error = causes(&*error),
                    endings = endings.len(),
                    "endings wait for the database"
                );
                batches.push_front(batch);
                sleep(AGAIN).await;
            }
            Err(error) if batch.len() == 1 => {
                let why = format!("its ending could not be written: {error}");
                batches.extend(batch.pop().and_then(|told| told.into_broken(&why)));
            }
            Err(error) => {
                tracing::error!(
                    error = causes(&error),
                    endings = endings.len(),
                    "refused; trying one by one"
                );
                batches.extend(batch.into_iter().map(|told| vec![told]));
            }
        }
    }
}

impl<L: Lane> Told<L> {
    /// The same item, settled as our fault; nothing more can be tried after that, and its lease will lapse.
    fn into_broken(self, why: &str) -> Option<Vec<Self>> {
        tracing::error!(item = L::name_of(self.claim), why, given_up = self.is_broken, "settled as broken");
        let ending = L::broken(why);
        (!self.is_broken).then(|| vec![Self { ending, is_broken: true, ..self }])
    }

    fn answer(self, answer: Answer, released: &Notify) {
        if answer.outcome != Outcome::Ok {
            tracing::warn!(item = L::name_of(self.claim), outcome = ?answer.outcome, "an ending came too late");
        }
        if answer.released {
            released.notify_one();
        }
        let _ = self.written.send(answer.outcome); // nobody may be waiting any more
    }
}
