//! `make bench`: what the queue costs, beside bare single-row statements of pgbench on the same cluster.
//!
//! Speed is only ever shown as a ratio within one run: the machine cancels out. Buffers, WAL bytes and the share of
//! heap-only updates do not depend on the machine at all.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod bare;

use std::time::Instant;

use serde_json::{Value, json};
use tokio_postgres::{Client, Config, NoTls};

use euterpe::dev::Cluster;
use euterpe::domain::{Claim, JobStatus, NewJob, RequesterId, WorkerId};
use euterpe::store::{NewRequester, Store, migrate};

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
    let worker = WorkerId::of_this_boot(|_| Some("bench".into()));

    let bare = bare::updates_per_second(&url, &client).await;
    println!("One connection, fsync on. pgbench, bare single-row updates: {bare:.0} per second = 1.00\n");
    println!("{:<10}{:>7}{:>14}{:>10}", "call", "batch", "items per s", "ratio");
    for batch in [1, 10, 100] {
        let calls = if batch == 1 { 300 } else { 100 };
        let speeds = speeds(&store, &acme, &worker, batch, calls).await;
        for (call, speed) in speeds {
            println!("{call:<10}{batch:>7}{speed:>14.0}{:>10.2}", speed / bare);
        }
    }

    println!("\nPer job, in batches of 10 (buffers touched and WAL written by one call, divided by 10):\n");
    println!("{:<22}{:>12}{:>12}", "call", "buffers", "WAL bytes");
    costs(&client, &store, &acme).await;
    hot_ratio(&client).await;
}

/// Items per second of each call, one after the other on one connection.
async fn speeds(
    store: &Store,
    acme: &RequesterId,
    worker: &WorkerId,
    batch: usize,
    calls: usize,
) -> Vec<(&'static str, f64)> {
    let items = (batch * calls) as f64;
    let jobs =
        vec![NewJob { request: json!({"source": {"uri": "s3://in/clip.mov"}}), ..NewJob::default() }; batch];
    let start = Instant::now();
    for _ in 0..calls {
        if batch == 1 {
            store.enqueue_job(acme, QUEUE, &jobs[0]).await.unwrap();
        } else {
            store.enqueue_jobs(acme, QUEUE, &jobs).await.unwrap();
        }
    }
    let enqueue = items / start.elapsed().as_secs_f64();

    let mut claims: Vec<Vec<Claim>> = Vec::new();
    let start = Instant::now();
    for _ in 0..calls {
        let jobs = store.claim_jobs(QUEUE, worker, u16::try_from(batch).unwrap(), None).await.unwrap();
        claims.push(jobs.iter().map(|job| job.claim).collect());
    }
    let claim = items / start.elapsed().as_secs_f64();
    assert!(claims.iter().all(|claims| claims.len() == batch));

    let start = Instant::now();
    for batch in &claims {
        let beats: Vec<_> = batch.iter().map(|&claim| (claim, None)).collect();
        store.heartbeat_jobs(worker, &beats, None).await.unwrap();
    }
    let heartbeat = items / start.elapsed().as_secs_f64();

    let start = Instant::now();
    for status in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
        for batch in &claims {
            let steps: Vec<_> = batch.iter().map(|&claim| (claim, status)).collect();
            store.advance_jobs(worker, &steps).await.unwrap();
        }
    }
    let advance = 3.0 * items / start.elapsed().as_secs_f64();

    let start = Instant::now();
    for batch in &claims {
        let results: Vec<_> = batch.iter().map(|&claim| (claim, None, json!([]))).collect();
        store.complete_jobs(worker, &results).await.unwrap();
    }
    let complete = items / start.elapsed().as_secs_f64();
    vec![
        ("enqueue", enqueue),
        ("claim", claim),
        ("heartbeat", heartbeat),
        ("advance", advance),
        ("complete", complete),
    ]
}

/// One life in batches of ten, each call explained.
async fn costs(client: &Client, store: &Store, acme: &RequesterId) {
    client.batch_execute("vacuum analyze").await.unwrap();
    let jobs = vec![NewJob { request: json!({}), ..NewJob::default() }; 10];
    // A few rounds first: an empty page must be taken into use once, whoever comes first.
    for _ in 0..20 {
        store.enqueue_jobs(acme, QUEUE, &jobs).await.unwrap();
    }
    // And a life in this session: the first call of a session reads the catalog.
    let ids = "array_agg(job_id), array_agg(claim_version), array_agg(claim_token)";
    let warm_up = format!(
        "select * from euterpe.enqueue_jobs_v1('acme', '[{{\"request\": {{}}}}]');
         create temp table warm as select * from euterpe.claim_jobs_v1('transcode', 'warm', 1);
         select euterpe.heartbeat_jobs_v1('warm', {ids}, array_agg(null::jsonb)) from warm;
         select euterpe.advance_jobs_v1('warm', {ids}, array_agg('fetching'::text)) from warm;
         select euterpe.advance_jobs_v1('warm', {ids}, array_agg('processing'::text)) from warm;
         select euterpe.advance_jobs_v1('warm', {ids}, array_agg('uploading'::text)) from warm;
         select euterpe.complete_jobs_v1('warm', {ids}, array_agg(null::jsonb), array_agg('[]'::jsonb)) from warm"
    );
    client.batch_execute(&warm_up).await.unwrap();
    let ten = "jsonb_agg('{\"request\": {}}'::jsonb) from generate_series(1, 10)";
    explain(
        client,
        "enqueue_jobs_v1",
        &format!("select * from euterpe.enqueue_jobs_v1('acme', (select {ten}))"),
    )
    .await;
    client
        .batch_execute("create temp table held (job_id uuid, claim_version bigint, claim_token uuid)")
        .await
        .unwrap();
    explain(
        client,
        "claim_jobs_v1",
        "insert into held select job_id, claim_version, claim_token from euterpe.claim_jobs_v1('transcode', 'bench', 10)",
    )
    .await;
    let held = "'bench', (select array_agg(job_id) from held), (select array_agg(claim_version) from held),
                (select array_agg(claim_token) from held)";
    let all = |value: &str| format!("(select array_agg({value}) from held)");
    explain(
        client,
        "heartbeat_jobs_v1",
        &format!("select * from euterpe.heartbeat_jobs_v1({held}, {})", all("null::jsonb")),
    )
    .await;
    for to in ["fetching", "processing", "uploading"] {
        let call =
            format!("select * from euterpe.advance_jobs_v1({held}, {})", all(&format!("'{to}'::text")));
        explain(client, &format!("advance -> {to}"), &call).await;
    }
    let call = format!(
        "select * from euterpe.complete_jobs_v1({held}, {}, {})",
        all("null::jsonb"),
        all("'[]'::jsonb")
    );
    explain(client, "complete_jobs_v1", &call).await;
}

async fn explain(client: &Client, call: &str, sql: &str) {
    let before: String =
        client.query_one("select pg_current_wal_insert_lsn()::text", &[]).await.unwrap().get(0);
    let plan: Value = client
        .query_one(&format!("explain (analyze, buffers, format json) {sql}"), &[])
        .await
        .unwrap()
        .get(0);
    let wal: i64 = client
        .query_one(&format!("select (pg_current_wal_insert_lsn() - '{before}'::pg_lsn)::bigint"), &[])
        .await
        .unwrap()
        .get(0);
    let buffers = &plan[0]["Plan"];
    let touched =
        buffers["Shared Hit Blocks"].as_i64().unwrap() + buffers["Shared Read Blocks"].as_i64().unwrap();
    println!("{call:<22}{:>12.1}{:>12.0}", touched as f64 / 10.0, wal as f64 / 10.0);
}

async fn hot_ratio(client: &Client) {
    client.batch_execute("select pg_stat_force_next_flush(); select pg_stat_clear_snapshot()").await.unwrap();
    let row = client
        .query_one(
            "select sum(n_tup_upd)::float8, sum(n_tup_hot_upd)::float8 / sum(n_tup_upd)
               from pg_stat_user_tables where relname like 'inbox\\_jobs\\_p%'",
            &[],
        )
        .await
        .unwrap();
    println!(
        "\nHeap-only updates of inbox_jobs over the whole run: {:.1} % of {:.0} (an ending moves it out of the index of unfinished jobs)",
        row.get::<_, f64>(1) * 100.0,
        row.get::<_, f64>(0)
    );
}
