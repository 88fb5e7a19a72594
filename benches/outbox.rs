//! `make bench`: what events cost beside bare single-row updates, and how long an idle system takes to wake.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod bare;

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;
use tokio_postgres::{Config, NoTls};
use tokio_util::sync::CancellationToken;

use euterpe::dev::Cluster;
use euterpe::domain::{Delivery, JobFailure, NewJob, RequesterId, WorkerId};
use euterpe::store::{ClaimedJob, NewRequester, Store, Wakeups, migrate};
use euterpe::worker::{self, Handler, Held, JobEnding, Jobs, Pace};

const QUEUE: &str = "transcode";

#[tokio::main]
async fn main() {
    let bench = bare::Bench::start();
    run(&bench.cluster).await;
    bench.end();
}

async fn run(cluster: &Cluster) {
    let url = cluster.url("postgres");
    let config: Config = url.parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config.clone(), 4);
    let acme: RequesterId = "acme".parse().unwrap();
    store.add_requester(&NewRequester::named(acme.clone())).await.unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);

    let bare = bare::updates_per_second(&url, &client).await;
    println!("One connection, fsync on. pgbench, bare single-row updates: {bare:.0} per second = 1.00\n");
    println!("{:<28}{:>7}{:>14}{:>10}", "call", "batch", "events per s", "ratio");
    for batch in [1, 10, 25] {
        events(&store, &acme, batch, bare).await;
    }
    wake_ups(&store, &acme, config).await;
}

/// First events of as many jobs, claimed and settled one batch after the other.
async fn events(store: &Store, acme: &RequesterId, batch: u16, bare: f64) {
    let calls = 100;
    let count = usize::from(batch) * calls;
    let job = NewJob {
        request: json!({}),
        event_filter: Some(vec!["transcode.queued".into()]),
        callback_origin: Some("https://example.com".into()),
        ..NewJob::default()
    };
    let jobs = vec![job; 100];
    for _ in 0..count.div_ceil(100) {
        store.enqueue_jobs(acme, QUEUE, &jobs).await.unwrap();
    }
    let postman = WorkerId::of_this_boot(|_| Some("bench".into()));
    let mut claimed = Vec::new();
    let start = Instant::now();
    for _ in 0..calls {
        claimed.push(store.claim_events("webhook", &postman, batch, None).await.unwrap());
    }
    let claims = count as f64 / start.elapsed().as_secs_f64();
    assert!(claimed.iter().all(|events| events.len() == usize::from(batch)));
    let start = Instant::now();
    for (n, events) in claimed.iter().enumerate() {
        // One in ten fails: it is filed again, and its circuit looked at.
        let met = |()| if n % 10 == 9 { Delivery::failed("rate_limited") } else { Delivery::arrived(200) };
        let settled: Vec<_> = events.iter().map(|event| (event.claim, met(()))).collect();
        store.settle_events(&postman, &settled).await.unwrap();
    }
    let settles = count as f64 / start.elapsed().as_secs_f64();
    for (call, speed) in [("claim_events_v1", claims), ("settle_events_v1", settles)] {
        println!("{call:<28}{batch:>7}{speed:>14.0}{:>10.2}", speed / bare);
    }
}

/// Says when it was handed a job.
struct Says(mpsc::UnboundedSender<Instant>);

impl Handler<Jobs> for Says {
    async fn handle(&self, _: ClaimedJob, _: &Held<Jobs>) -> JobEnding {
        self.0.send(Instant::now()).unwrap();
        // Rests: a retry would speak in between.
        JobEnding::Failed(JobFailure { code: "media_unreadable".into(), ..JobFailure::default() })
    }
}

/// From the answer of an enqueue to the handler, in another process as far as Postgres can tell; nothing else happens.
async fn wake_ups(store: &Store, acme: &RequesterId, config: Config) {
    store.create_queue("idle").await.unwrap();
    let (voice, ears) = (Wakeups::connect(config.clone()), Wakeups::connect(config.clone()));
    let pace = Pace { poll_ms: 60_000..=60_000, ..Pace::default() };
    let lane = Jobs {
        store: Store::connect(config, 2),
        worker: WorkerId::of_this_boot(|_| Some("bench".into())),
        queue: "idle".into(),
        lease: pace.lease,
        gate: None,
    };
    let (says, mut said) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker::run(lane, Says(says), pace, ears.hear(&["idle"]), stop.clone()));
    let api = store.clone().with_wakeups(voice);
    let mut waits = Vec::new();
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        api.enqueue_job(acme, "idle", &NewJob { request: json!({}), ..NewJob::default() }).await.unwrap();
        let committed = Instant::now();
        waits.push(said.recv().await.unwrap().saturating_duration_since(committed).as_secs_f64() * 1000.0);
    }
    stop.cancel();
    running.await.unwrap();
    waits.sort_by(f64::total_cmp);
    println!(
        "\nIdle wake-up, from the answer of an enqueue to the handler: p50 {:.1} ms, p99 {:.1} ms, no poll ({} jobs)",
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100],
        waits.len()
    );
}
