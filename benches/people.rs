//! `make bench`: what it costs to look, with 100,000 jobs in all states and 8 connections at work.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod bare;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use euterpe::dev::Cluster;
use euterpe::domain::{Claim, Delivery, JobFailure, JobStatus, NewJob, RequesterId, WorkerId};
use euterpe::store::{NewRequester, Store, migrate};

const QUEUE: &str = "transcode";
const JOBS: usize = 100_000;

const PLANS: &str = "# What the ten questions cost, as Postgres tells it\n\n\
    `explain (analyze, buffers)` of each question of [operations.md](operations.md), with 100,000 jobs in all states \
    and 8\nconnections at work. Written by the bench: `EUTERPE_WRITE_PLANS=docs/plans.md cargo bench --bench people`. \
    Milliseconds are\nof that run, on two cores that had the eight connections' work too; buffers are what counts.\n\n";

/// The ten questions of docs/operations.md.
const QUESTIONS: [(&str, &str); 10] = [
    ("1 wrong", "select * from health"),
    ("2 full", "select * from queue_overview"),
    ("3 running", "select * from running_jobs"),
    ("4 pods", "select * from live_workers"),
    ("5 stuck", "select * from stuck_jobs"),
    ("6 why", "select * from explain_job_v1($1)"),
    ("7 happened", "select * from job_timeline where job_id = $1 order by at, sequence"),
    ("8 given up", "select * from dead_letters"),
    ("9 webhooks", "select * from outbox_backlog"),
    ("10 tenants", "select * from tenants"),
];

#[tokio::main]
async fn main() {
    let bench = bare::Bench::start();
    run(&bench.cluster).await;
    bench.end();
}

async fn run(cluster: &Cluster) {
    let config: Config = cluster.url("postgres").parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config.clone(), 10);
    let names = ["acme", "zenith", "orion", "vega"];
    for name in names {
        store.add_requester(&NewRequester::named(name.parse().unwrap())).await.unwrap();
    }
    fill(&store, &names.map(|name| name.parse().unwrap())).await;
    store.upkeep().await.unwrap();
    let client = connect(&config).await;
    for statement in ["vacuum analyze", "alter role euterpe_readonly login"] {
        client.batch_execute(statement).await.unwrap();
    }

    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> =
        (0..8).map(|n| tokio::spawn(work(store.clone(), n, Arc::clone(&is_over)))).collect();
    let mut reader = config.clone();
    reader.user("euterpe_readonly");
    let reader = connect(&reader).await;
    reader.batch_execute("set search_path = euterpe").await.unwrap();
    let job: uuid::Uuid = client
        .query_one(
            "select job_id from euterpe.inbox_jobs where status = 'queued' order by job_id desc limit 1",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    let (mut costs, mut plans) =
        (String::from("| question | rows | buffers | ms |\n|---|---|---|---|\n"), String::new());
    for (name, sql) in QUESTIONS {
        let sql = sql.replace("$1", &format!("'{job}'"));
        reader.query(&sql, &[]).await.unwrap();
        let begun = Instant::now();
        let rows = reader.query(&sql, &[]).await.unwrap().len();
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        // As the superuser: a reader may not explain what he may not read.
        let explain =
            "set search_path = euterpe; explain (analyze, buffers, costs off, timing off, summary off)";
        let plan = client.simple_query(&format!("{explain} {sql}")).await.unwrap();
        let plan = lines(&plan);
        writeln!(costs, "| {name} | {rows} | {} | {took:.0} |", buffers(&plan)).unwrap();
        let statement = sql.replace(&job.to_string(), "…");
        write!(plans, "\n## {name}: `{statement}`\n\n```text\n{}\n```\n", plan.join("\n")).unwrap();
    }
    println!("{JOBS} jobs in all states, 8 connections at work, asked as euterpe_readonly:\n\n{costs}");
    // `EUTERPE_WRITE_PLANS=docs/plans.md make bench` writes the page.
    if let Some(path) = std::env::var_os("EUTERPE_WRITE_PLANS") {
        std::fs::write(path, format!("{PLANS}{costs}{plans}")).unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
}

fn lines(plan: &[SimpleQueryMessage]) -> Vec<&str> {
    plan.iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect()
}

/// Of the whole: the first line that speaks of them, `Buffers: shared hit=171 read=3`.
fn buffers(plan: &[&str]) -> i64 {
    let whole = plan.iter().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).unwrap_or_default();
    let counts = whole.split(' ').filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")));
    counts.map(|count| count.parse::<i64>().unwrap()).sum()
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Half stay queued; the others are spread over every state, half of all with webhooks, some of them dead.
async fn fill(store: &Store, requesters: &[RequesterId]) {
    let pod = WorkerId::of_this_boot(|_| Some("bench".into()));
    for n in 0..JOBS / 500 {
        let job = NewJob {
            request: json!({"source": {"uri": "s3://in/clip.mov"}}),
            event_filter: (n % 2 == 0).then(|| vec!["transcode.*".into()]),
            callback_origin: (n % 2 == 0).then(|| format!("https://hooks-{}.example", n % 7)),
            ..NewJob::default()
        };
        store.enqueue_jobs(&requesters[n % requesters.len()], QUEUE, &vec![job; 500]).await.unwrap();
        let claims: Vec<Claim> =
            store.claim_jobs(QUEUE, &pod, 250, None).await.unwrap().iter().map(|job| job.claim).collect();
        advance(store, &pod, &claims, JobStatus::Fetching).await;
        let (failing, going_on) = claims.split_at(80);
        let codes = ["media_unreadable", "egress_blocked", "storage_unavailable", "source_not_found"];
        let failed: Vec<_> = failing
            .iter()
            .enumerate()
            .map(|(n, &claim)| (claim, JobFailure { code: codes[n % 4].into(), ..JobFailure::default() }))
            .collect();
        store.fail_jobs(&pod, &failed).await.unwrap();
        advance(store, &pod, &going_on[5..], JobStatus::Processing).await;
        advance(store, &pod, &going_on[10..], JobStatus::Uploading).await;
        let done: Vec<_> = going_on[15..].iter().map(|&claim| (claim, None, json!([]))).collect();
        store.complete_jobs(&pod, &done).await.unwrap();
        let events = store.claim_events("webhook", &pod, 100, None).await.unwrap();
        let met =
            |n: usize| if n.is_multiple_of(9) { Delivery::failed("status") } else { Delivery::arrived(200) };
        let settled: Vec<_> = events.iter().enumerate().map(|(n, event)| (event.claim, met(n))).collect();
        if !settled.is_empty() {
            store.settle_events(&pod, &settled).await.unwrap();
        }
    }
}

async fn advance(store: &Store, pod: &WorkerId, claims: &[Claim], to: JobStatus) {
    let steps: Vec<_> = claims.iter().map(|&claim| (claim, to)).collect();
    store.advance_jobs(pod, &steps).await.unwrap();
}

async fn work(store: Store, n: usize, is_over: Arc<AtomicBool>) {
    let pod = WorkerId::of_this_boot(|_| Some(format!("pod-{n}")));
    while !is_over.load(Ordering::SeqCst) {
        let jobs = store.claim_jobs(QUEUE, &pod, 5, None).await.unwrap();
        let claims: Vec<_> = jobs.iter().map(|job| job.claim).collect();
        if claims.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        for to in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
            advance(&store, &pod, &claims, to).await;
        }
        let done: Vec<_> = claims.iter().map(|&claim| (claim, None, json!([]))).collect();
        store.complete_jobs(&pod, &done).await.unwrap();
    }
}
