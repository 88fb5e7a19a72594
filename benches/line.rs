//! `make bench`: does a claim stay flat? Beside the usual single table with `skip locked`, in the same run.
//!
//! Everything happens under one held snapshot, so that no dead row can be removed: the worst hour of a queue's life.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::time::{Duration, Instant};

use tokio_postgres::{Client, Config, NoTls};

use euterpe::dev::{Cluster, Durability};
use euterpe::domain::{JobFailure, RequesterId, WorkerId};
use euterpe::store::{NewRequester, Store, migrate};

const QUEUE: &str = "transcode";
const JOBS: i64 = 200_000;
const BATCH: u16 = 100;

#[tokio::main]
async fn main() {
    let dir = Cluster::scratch("line");
    let settings = ["shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=30min"];
    let cluster = Cluster::start(&dir, Durability::Fast, &settings).unwrap();
    drain_under_a_held_snapshot(&cluster).await;
    latency_by_depth(&cluster).await;
    cluster.stop();
    std::fs::remove_dir_all(&dir).unwrap();
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn drain_under_a_held_snapshot(cluster: &Cluster) {
    let config: Config = cluster.url("postgres").parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config.clone(), 2);
    let acme: RequesterId = "acme".parse().unwrap();
    store.add_requester(&NewRequester::named(acme)).await.unwrap();
    let client = connect(&config).await;
    seed(&client, JOBS).await;
    client
        .batch_execute(&format!(
            "create table plain (id bigint primary key, status text not null, worker text, request jsonb not null);
             insert into plain select n, 'queued', null, '{{}}' from generate_series(1, {JOBS}) n;
             create index on plain (id) where status = 'queued'; analyze plain"
        ))
        .await
        .unwrap();

    let holder = connect(&config).await;
    holder.batch_execute("begin isolation level repeatable read; select count(*) from plain").await.unwrap();
    println!(
        "{JOBS} jobs drained in batches of {BATCH} by one worker, under a held snapshot; jobs per second:\n"
    );
    println!("{:<28}{:>12}{:>12}{:>10}", "", "first tenth", "last tenth", "ratio");
    let worker = WorkerId::of_this_boot(|_| Some("bench".into()));
    let failure = JobFailure { code: "media_unreadable".into(), ..JobFailure::default() };
    let mut tenths = Vec::new();
    for _ in 0..10 {
        let (start, mut done) = (Instant::now(), 0);
        while done < JOBS / 10 {
            let jobs = store.claim_jobs(QUEUE, &worker, BATCH, None).await.unwrap();
            let failures: Vec<_> = jobs.iter().map(|job| (job.claim, failure.clone())).collect();
            done += i64::try_from(jobs.len()).unwrap();
            store.fail_jobs(&worker, &failures).await.unwrap();
        }
        tenths.push(done as f64 / start.elapsed().as_secs_f64());
    }
    row("euterpe: claim and end", &tenths);

    let claim = client
        .prepare(
            "with c as materialized (select id from plain where status = 'queued' order by id limit $1
                                        for update skip locked)
             update plain p set status = 'running', worker = 'bench' from c where p.id = c.id returning p.id",
        )
        .await
        .unwrap();
    let end = client.prepare("update plain set status = 'done' where id = any ($1)").await.unwrap();
    let mut tenths = Vec::new();
    for _ in 0..10 {
        let (start, mut done) = (Instant::now(), 0);
        while done < JOBS / 10 {
            let rows = client.query(&claim, &[&i64::from(BATCH)]).await.unwrap();
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            done += i64::try_from(ids.len()).unwrap();
            client.execute(&end, &[&ids]).await.unwrap();
        }
        tenths.push(done as f64 / start.elapsed().as_secs_f64());
    }
    row("one table, skip locked", &tenths);
    holder.batch_execute("rollback").await.unwrap();
    println!();
}

fn row(name: &str, tenths: &[f64]) {
    let (first, last) = (tenths[0], tenths[tenths.len() - 1]);
    println!("{name:<28}{first:>12.0}{last:>12.0}{:>10.2}", last / first);
}

async fn latency_by_depth(cluster: &Cluster) {
    println!("Claim of ten by depth of the line, median of 200, against 1,000 queued:\n");
    println!("{:<12}{:>12}{:>10}", "queued", "microseconds", "ratio");
    let admin = connect(&cluster.url("postgres").parse().unwrap()).await;
    let mut first = None;
    for depth in [1_000, 100_000, 1_000_000] {
        let name = format!("depth_{depth}");
        admin.batch_execute(&format!("create database {name}")).await.unwrap();
        let config: Config = cluster.url(&name).parse().unwrap();
        migrate::migrate(&config).await.unwrap();
        let store = Store::connect(config.clone(), 1);
        store.add_requester(&NewRequester::named("acme".parse().unwrap())).await.unwrap();
        let client = connect(&config).await;
        // A few thousand more than asked for: what is claimed below must not empty the shallow line.
        seed(&client, depth + 3000).await;
        client.batch_execute("vacuum analyze").await.unwrap();

        let worker = WorkerId::of_this_boot(|_| Some("bench".into()));
        let mut times = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            let jobs = store.claim_jobs(QUEUE, &worker, 10, None).await.unwrap();
            times.push(start.elapsed());
            assert_eq!(jobs.len(), 10);
        }
        times.sort();
        let median = times[times.len() / 2];
        let base = *first.get_or_insert(median);
        println!("{depth:<12}{:>12}{:>10.2}", micros(median), median.as_secs_f64() / base.as_secs_f64());
        drop(store);
        drop(client);
        admin.batch_execute(&format!("drop database {name} with (force)")).await.unwrap();
    }
}

fn micros(time: Duration) -> u128 {
    time.as_micros()
}

/// `count` queued jobs of acme's, with everything that a claim and an ending touch.
async fn seed(client: &Client, count: i64) {
    client
        .batch_execute(&format!(
            "with made as (
               insert into euterpe.inbox_jobs (job_id, requester_id, queue_id, priority, status, max_attempts, line_key,
                                               line_seq, last_sequence, created_at, updated_at)
               select euterpe._new_id('acme', now()), 'acme', 1, 100, 'queued', 5, 1000 * n, n, 1, now(), now()
                 from generate_series(1, {count}) n
               returning job_id, line_key, line_seq
             ), asked as (
               insert into euterpe.job_requests (job_id, request) select job_id, '{{}}' from made
             ), told as (
               insert into euterpe.job_outbox_events (job_id, sequence, requester_id, type, to_status,
                                                      claim_version_then, status, created_at, finished_at)
               select job_id, 1, 'acme', 'transcode.queued', 'queued', 0, 'skipped', now(), now() from made
             )
             insert into euterpe.ready (queue_id, shard, key, seq, job_id, sequence)
             select 1, 0, line_key, line_seq, job_id, 0 from made;
             select setval('euterpe_line.seq', {count}), setval('euterpe_line.q1_r1', 1000 * {count});"
        ))
        .await
        .unwrap();
}
