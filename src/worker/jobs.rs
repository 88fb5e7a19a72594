//! The lane of jobs: one queue of the inbox.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Answer, Claimed, Lane, Lease};
use crate::domain::{Claim, JobFailure, JobId, Outcome, ReleaseReason, WorkerId};
use crate::store::{Answered, ClaimedJob, Failed, Renewed, Result, Store};

/// Claims jobs from one queue.
pub struct Jobs {
    /// Where they are.
    pub store: Store,
    /// Who claims them.
    pub worker: WorkerId,
    /// From which line.
    pub queue: String,
    /// Of every claim.
    pub lease: Lease,
    /// Whether there is room for more here; `None`: always.
    pub gate: Option<Arc<dyn Gate>>,
}

/// Says whether there is room for more work here. Asked before each claim: what is not claimed, another takes.
pub trait Gate: Send + Sync {
    /// Now.
    fn is_open(&self) -> bool;
}

/// What came of a job.
#[derive(Debug, Clone)]
pub enum JobEnding {
    /// What probing found, and what it made: an array.
    Succeeded(Option<Value>, Value),
    /// `euterpe.error_codes` says what follows.
    Failed(JobFailure),
    /// Back to the line after a while, without being blamed.
    Released(ReleaseReason, Duration),
}

impl Lane for Jobs {
    type Item = ClaimedJob;
    type Claim = Claim;
    type About = JobId;
    type Ending = JobEnding;

    fn claim_of(item: &ClaimedJob) -> Claim {
        item.claim
    }

    fn about(claim: Claim) -> JobId {
        claim.job_id
    }

    fn name_of(claim: Claim) -> String {
        claim.job_id.to_string()
    }

    async fn claim(&self, room: usize) -> Result<Claimed<ClaimedJob>> {
        if self.gate.as_ref().is_some_and(|gate| !gate.is_open()) {
            self.store.tick(&self.queue).await?;
            return Ok(Claimed { are_more: false, items: Vec::new() });
        }
        let limit = u16::try_from(room).unwrap_or(u16::MAX).min(1000);
        let items = self.store.claim_jobs(&self.queue, &self.worker, limit, Some(self.lease.length)).await?;
        Ok(Claimed { are_more: items.len() == room, items })
    }

    async fn heartbeat(&self, beats: &[(Claim, Option<Value>)]) -> Result<Vec<Outcome>> {
        let renewed = self.store.heartbeat_jobs(&self.worker, beats, Some(self.lease.length)).await?;
        let outcome_of = |claim: &Claim| found(&renewed, claim, |r: &Renewed| (r.job_id, r.outcome));
        Ok(beats.iter().map(|(claim, _)| outcome_of(claim)).collect())
    }

    async fn settle(&self, endings: &[(Claim, JobEnding)]) -> Result<Vec<Answer>> {
        let (mut succeeded, mut failed, mut released) = (Vec::new(), Vec::new(), Vec::new());
        for (claim, ending) in endings {
            match ending {
                JobEnding::Succeeded(source, outputs) => {
                    succeeded.push((*claim, source.clone(), outputs.clone()));
                }
                JobEnding::Failed(failure) => failed.push((*claim, failure.clone())),
                JobEnding::Released(reason, delay) => released.push((*claim, *reason, *delay)),
            }
        }
        let mut answered = Vec::new();
        if !succeeded.is_empty() {
            answered.extend(self.store.complete_jobs(&self.worker, &succeeded).await?);
        }
        if !failed.is_empty() {
            let failed = self.store.fail_jobs(&self.worker, &failed).await?;
            let answer = |Failed { job_id, outcome, .. }| Answered { job_id, outcome };
            answered.extend(failed.into_iter().map(answer));
        }
        if !released.is_empty() {
            answered.extend(self.store.release_jobs(&self.worker, &released).await?);
        }
        let outcome_of = |claim: &Claim| found(&answered, claim, |a: &Answered| (a.job_id, a.outcome));
        Ok(endings.iter().map(|(claim, _)| Answer { outcome: outcome_of(claim), released: false }).collect())
    }

    async fn tick(&self) -> Result<()> {
        self.store.tick(&self.queue).await.map(drop)
    }

    fn not_started() -> JobEnding {
        JobEnding::Released(ReleaseReason::NotStarted, Duration::ZERO)
    }

    fn shut_down() -> JobEnding {
        JobEnding::Released(ReleaseReason::WorkerShutdown, Duration::ZERO)
    }

    fn broken(why: &str) -> JobEnding {
        JobEnding::Failed(JobFailure {
            code: "internal".into(),
            message: why.into(),
            ..JobFailure::default()
        })
    }
}

/// The answer about one job, wherever it stands; none means that the database does not know the job.
fn found<T>(answers: &[T], claim: &Claim, read: impl Fn(&T) -> (JobId, Outcome)) -> Outcome {
    let mine = answers.iter().map(read).find(|(job_id, _)| *job_id == claim.job_id);
    mine.map_or(Outcome::Stale, |(_, outcome)| outcome)
}
