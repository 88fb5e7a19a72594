//! A first look: twenty jobs, four workers, one of them killed in the middle, and nothing lost.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rand::RngExt;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio_postgres::Config;

use super::{Cluster, Durability};
use crate::domain::{Claim, JobId, JobStatus, NewJob, Outcome, RequesterId, WorkerId};
use crate::store::surface::Role;
use crate::store::{EnqueuedItem, NewRequester, Store, TimelineStep, migrate};

const QUEUE: &str = "transcode";
const JOBS: usize = 20;
/// Short, so that the demo shows a lease lapse without a long wait. Production has 60 s.
const LEASE: Duration = Duration::from_secs(5);

/// Enqueues twenty jobs, kills a worker that holds some, shows that all are done, and prints the timeline of
/// one that was taken over.
pub async fn demo() -> anyhow::Result<()> {
    let dir = Cluster::scratch("demo");
    let cluster = Cluster::start(&dir, Durability::Durable, &["max_connections=50"])?;
    let shown = tokio::select! {
        shown = show(&cluster) => shown,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    cluster.stop();
    std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    shown
}

async fn show(cluster: &Cluster) -> anyhow::Result<()> {
    println!("A private Postgres runs in {}.", cluster.dir().display());
    let url = cluster.url("postgres");
    let config: Config = url.parse()?;
    let report = migrate::migrate(&config).await?;
    println!(
        "euterpe-migrate applied {} migrations and loaded {} files of sql/.",
        report.migrations.len(),
        report.functions.len()
    );

    let store = Store::connect(config, 4);
    let acme: RequesterId = "acme".parse()?;
    store.add_requester(&NewRequester::named(acme.clone())).await?;
    let jobs: Vec<_> = (1..=JOBS)
        .map(|n| NewJob {
            request: json!({"source": {"uri": format!("s3://media-in/clip-{n}.mov")}}),
            idempotency_key: Some(format!("clip-{n}")),
            ..NewJob::default()
        })
        .collect();
    let mut ids = Vec::new();
    for item in store.enqueue_jobs(&acme, QUEUE, &jobs).await? {
        match item {
            EnqueuedItem::Accepted(job) => ids.push(job.job_id),
            refused => bail!("a job was refused: {refused:?}"),
        }
    }
    store.enqueue_jobs(&acme, QUEUE, &jobs).await?;
    println!("Enqueued {JOBS} jobs, and the same {JOBS} again with the same keys.\n");

    let mut workers = Vec::new();
    for n in 1..=4 {
        workers.push(start_worker(&url, n)?);
    }
    let mut victim = workers.remove(0);
    let killed = kill_while_working(&store, &ids, &mut victim).await?;
    println!("kill -9 of pod-1 while it held job {killed}.");
    println!("Its lease lapses after {} s; another worker takes over.\n", LEASE.as_secs());

    wait_until_done(&store, &ids).await?;
    for mut worker in workers {
        worker.kill().await?;
    }

    println!("\nThe job that was taken over (in psql: the view job_timeline):\n");
    println!("{:>3}  {:<12}  {:<24}{:<15}{:<6} worker", "seq", "time", "step", "reason", "claim");
    for step in store.job_timeline(killed).await? {
        println!(
            "{:>3}  {:<12}  {:<24}{:<15}{:<6} {}",
            step.sequence,
            step.at.strftime("%H:%M:%S%.3f").to_string(),
            step.step,
            step.reason.unwrap_or_default(),
            step.claim_version,
            step.worker_id.unwrap_or_default()
        );
    }

    let orphans = store.orphan_check().await?;
    ensure!(orphans.is_empty(), "the orphan check found {orphans:?}");
    println!("\nAll {JOBS} jobs succeeded, each once. The orphan check found nothing.");
    println!("Look around yourself with: make psql");
    Ok(())
}

fn start_worker(url: &str, n: usize) -> anyhow::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("demo-worker")
        .env("EUTERPE_DATABASE_URL", url)
        .env("POD_NAME", format!("pod-{n}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a worker")
}

/// Waits until pod-1 has started a job, kills it with SIGKILL, and says which job that was.
async fn kill_while_working(store: &Store, ids: &[JobId], victim: &mut Child) -> anyhow::Result<JobId> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        for &id in ids {
            let held = last_step(store, id).await?.is_some_and(|last| {
                last.step.ends_with("fetching") && last.worker_id.unwrap_or_default().starts_with("pod-1#")
            });
            if held {
                victim.kill().await?;
                return Ok(id);
            }
        }
    }
    bail!("pod-1 never started a job")
}

async fn wait_until_done(store: &Store, ids: &[JobId]) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut shown = usize::MAX;
    while Instant::now() < deadline {
        let mut done = 0;
        for &id in ids {
            let last = last_step(store, id).await?;
            done += usize::from(last.is_some_and(|last| last.step.ends_with("succeeded")));
        }
        if done != shown {
            println!("[{}{}] {done}/{JOBS} succeeded", "#".repeat(done), ".".repeat(JOBS - done));
            shown = done;
        }
        if done == JOBS {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("only {shown} of {JOBS} jobs succeeded within a minute")
}

async fn last_step(store: &Store, id: JobId) -> anyhow::Result<Option<TimelineStep>> {
    Ok(store.job_timeline(id).await?.pop())
}

/// A worker that moves jobs through their phases and waits where ffmpeg would work. Runs until it is killed.
pub async fn demo_worker(config: Config) -> anyhow::Result<()> {
    let store = Store::connect(config, 2);
    store.check_surface(Role::Transcode).await?;
    let worker = WorkerId::of_this_boot(|name| std::env::var(name).ok());
    store.worker_seen(&worker, "other", None).await?;
    loop {
        let jobs = store.claim_jobs(QUEUE, &worker, 2, Some(LEASE)).await?;
        if jobs.is_empty() {
            tokio::time::sleep(Duration::from_millis(rand::rng().random_range(200..400))).await;
        }
        for job in jobs {
            work(&store, &worker, job.claim).await?;
        }
    }
}

async fn work(store: &Store, worker: &WorkerId, claim: Claim) -> anyhow::Result<()> {
    for status in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
        let answers = store.advance_jobs(worker, &[(claim, status)]).await?;
        if answers.iter().any(|answer| answer.outcome != Outcome::Ok) {
            return Ok(()); // stale: somebody else does it now
        }
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(50..250))).await;
    }
    store.complete_jobs(worker, &[(claim, None, json!([]))]).await?;
    Ok(())
}
