//! A queue on an ordinary night: jobs in every state, a dead endpoint, a pod that vanished. For people's views.

use std::time::Duration;

use euterpe::domain::{Delivery, JobFailure, JobId, JobStatus, NewJob, ReleaseReason};
use euterpe::store::Store;
use serde_json::json;
use tokio_postgres::Config;

use super::{QUEUE, TestDb, requester, worker};

/// Jobs by what is up with them.
pub struct Scene {
    pub db: TestDb,
    pub in_line: JobId,
    pub delayed: JobId,
    pub running: JobId,
    pub succeeded: JobId,
    pub failed: JobId,
    pub dead: JobId,
}

fn job(origin: Option<&str>) -> NewJob {
    NewJob {
        request: json!({"source": {"uri": "s3://in/clip.mov"}}),
        event_filter: origin.map(|_| vec!["transcode.*".into()]),
        callback_origin: origin.map(str::to_owned),
        ..NewJob::default()
    }
}

async fn enqueue(store: &Store, who: &str, job: &NewJob) -> JobId {
    store.enqueue_job(&requester(who), QUEUE, job).await.unwrap().job_id
}

fn failure(code: &str, message: &str) -> JobFailure {
    JobFailure { code: code.into(), message: message.into(), ..JobFailure::default() }
}

impl Scene {
    pub async fn new() -> Self {
        Self::on(TestDb::fresh().await).await
    }

    pub async fn on(db: TestDb) -> Self {
        db.add_requester("zenith", 3).await;
        let (store, pod, gone) = (db.store(), worker("transcode-0"), worker("transcode-1"));
        let hooks = worker("webhook-0");
        for (who, kind) in [(&pod, "transcode"), (&gone, "transcode"), (&hooks, "webhook")] {
            store.worker_seen(who, kind, None).await.unwrap();
        }

        // One job to each ending, then one that runs, one that waits for its retry, and some that wait for their turn.
        let succeeded = enqueue(&store, "acme", &job(Some("https://hooks.acme.example"))).await;
        let claim = db.claim(&pod).await.claim;
        db.succeed(&pod, claim).await;
        let failed = enqueue(&store, "acme", &job(None)).await;
        let claim = db.claim(&pod).await.claim;
        db.advance_to(&pod, claim, JobStatus::Fetching).await;
        let met = [(claim, failure("media_unreadable", "no decoder can read it"))];
        store.fail_jobs(&pod, &met).await.unwrap();
        let dead = enqueue(&store, "zenith", &job(Some("https://zenith.example"))).await;
        let claim = db.claim(&pod).await.claim;
        let met = [(claim, failure("egress_blocked", "10.0.0.7 is not public"))];
        store.fail_jobs(&pod, &met).await.unwrap();
        five_deliveries_to_zenith_fail(&db).await;
        enqueue(&store, "acme", &job(None)).await;
        let hour = Some(Duration::from_secs(3600));
        let silent = store.claim_jobs(QUEUE, &gone, 1, hour).await.unwrap()[0].claim;
        db.advance_to(&gone, silent, JobStatus::Processing).await;
        db.wind(Duration::from_secs(2400)).await;

        let delayed = enqueue(&store, "acme", &job(None)).await;
        let claim = db.claim(&gone).await.claim;
        db.advance_to(&gone, claim, JobStatus::Fetching).await;
        let away = [(claim, ReleaseReason::Disk, Duration::from_secs(600))];
        store.release_jobs(&gone, &away).await.unwrap();
        let running = enqueue(&store, "acme", &job(Some("https://hooks.acme.example"))).await;
        let claim = db.claim(&pod).await.claim;
        db.advance_to(&pod, claim, JobStatus::Processing).await;
        let beats = [(claim, Some(json!({"percent": 42, "phase": "processing"})))];
        store.heartbeat_jobs(&pod, &beats, None).await.unwrap();
        let mut in_line = running;
        for _ in 0..3 {
            in_line = enqueue(&store, "acme", &job(None)).await;
        }
        enqueue(&store, "zenith", &job(None)).await;

        deliver_what_is_new(&store).await;
        for who in [&pod, &hooks] {
            let kind = if who == &hooks { "webhook" } else { "transcode" };
            store.worker_seen(who, kind, None).await.unwrap();
        }
        db.wind(Duration::from_secs(15)).await;
        db.run("select euterpe.upkeep_v1()").await;
        Self { db, in_line, delayed, running, succeeded, failed, dead }
    }

    /// As people log in.
    pub fn config_of(&self, login: &str) -> Config {
        let mut config = self.db.config();
        config.user(login);
        config
    }
}

/// Which opens its circuit.
async fn five_deliveries_to_zenith_fail(db: &TestDb) {
    let (store, hooks) = (db.store(), worker("webhook-0"));
    for round in 0..5 {
        let queue = if round == 0 { "webhook" } else { "webhook_retry" };
        let events = store.claim_events(queue, &hooks, 20, None).await.unwrap();
        let failed: Vec<_> = events
            .iter()
            .filter(|event| event.requester_id == "zenith")
            .map(|event| (event.claim, Delivery::failed("connect")))
            .collect();
        store.settle_events(&hooks, &failed).await.unwrap();
        let others: Vec<_> = events
            .iter()
            .filter(|event| event.requester_id != "zenith")
            .map(|event| (event.claim, Delivery::arrived(200)))
            .collect();
        if !others.is_empty() {
            store.settle_events(&hooks, &others).await.unwrap();
        }
        db.wind(Duration::from_secs(7 * 3_u64.pow(round))).await;
    }
}

async fn deliver_what_is_new(store: &Store) {
    let hooks = worker("webhook-0");
    loop {
        let events = store.claim_events("webhook", &hooks, 20, None).await.unwrap();
        if events.is_empty() {
            return;
        }
        let arrived: Vec<_> = events.iter().map(|event| (event.claim, Delivery::arrived(200))).collect();
        store.settle_events(&hooks, &arrived).await.unwrap();
    }
}
