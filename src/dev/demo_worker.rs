//! A worker that moves jobs through their phases and waits where ffmpeg would work.

use std::time::Duration;

use rand::RngExt;
use serde_json::json;
use tokio::time::sleep;

use super::demo::QUEUE;
use crate::boot;
use crate::config;
use crate::domain::{JobStatus, Outcome, ReleaseReason, WorkerId};
use crate::store::surface::Role;
use crate::store::{ClaimedJob, Store, Wakeups};
use crate::worker::{self, Handler, Held, JobEnding, Jobs};

struct Waiting {
    store: Store,
    worker: WorkerId,
    phase: Duration,
}

impl Handler<Jobs> for Waiting {
    async fn handle(&self, job: ClaimedJob, held: &Held<Jobs>) -> JobEnding {
        for (nth, phase) in
            [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading].into_iter().enumerate()
        {
            let steps = [(job.claim, phase)];
            match held.insist(|| self.store.advance_jobs(&self.worker, &steps)).await {
                Ok(answers) if answers.iter().all(|answer| answer.outcome == Outcome::Ok) => {}
                // Somebody else does it now; what is answered here is refused.
                Ok(_) | Err(_) => return JobEnding::Released(ReleaseReason::WorkerShutdown, Duration::ZERO),
            }
            held.report(json!({"phase": phase.as_str(), "percent": 33 * nth}));
            let jitter = rand::rng().random_range(0.5..1.5);
            sleep(self.phase.mul_f64(jitter)).await;
        }
        JobEnding::Succeeded(None, json!([]))
    }
}

/// Works until it is told to stop; each phase takes about `phase`.
pub async fn demo_worker(env: impl Fn(&str) -> Option<String> + Copy, phase: Duration) -> anyhow::Result<()> {
    let (database, direct) =
        (config::database(env, "euterpe-demo-worker")?, config::direct_database(env, "euterpe-demo-worker")?);
    let pace = config::transcode_pace(env)?;
    let wakeups = Wakeups::connect(direct);
    let store = Store::connect(database, 4).with_wakeups(wakeups.clone());
    store.check_surface(Role::Transcode).await?;
    let worker = WorkerId::of_this_boot(env);
    store.worker_seen(&worker, "other", None).await?;
    let lane = Jobs { store: store.clone(), worker: worker.clone(), queue: QUEUE.into(), lease: pace.lease };
    let waiting = Waiting { store: store.clone(), worker: worker.clone(), phase };
    worker::run(lane, waiting, pace, wakeups.hear(&[QUEUE]), boot::stop_on_signal()?).await;
    store.worker_stopped(&worker).await?;
    Ok(())
}
