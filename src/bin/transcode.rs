//! `euterpe-transcode`: does the jobs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use euterpe::boot::{self, About, Service};
use euterpe::config;
use euterpe::crypto::Keyring;
use euterpe::egress::{self, Egress};
use euterpe::handler::transcode::{Refresher, Transcoder, Workshop};
use euterpe::media::{self, Ffmpeg};
use euterpe::storage::{Storage, Transfer};
use euterpe::store::surface::Role;
use euterpe::worker::{self, Jobs};
use serde_json::json;
use tokio::time::timeout;

/// Fetches, encodes and uploads. Every setting comes from the environment: docs/deployment.md.
#[derive(Parser)]
#[command(name = "euterpe-transcode", version)]
struct Arguments {}

/// After the last ending: an ffmpeg that is being stopped has five seconds, an upload that is taken back some more.
const LAST_THINGS: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    // First, while there is but one thread: this may be ffmpeg's launcher.
    media::launch_if_asked();
    Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.context("no runtime").and_then(|runtime| runtime.block_on(run()));
    boot::report("euterpe-transcode", ended)
}

async fn run() -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let (keys, pace, policy) =
        (Arc::new(Keyring::from_env(env)?), config::transcode_pace(env)?, config::policy(env)?);
    config::insist_on_file_roots(&policy)?;
    let max_source_bytes = policy.max_source_bytes.unwrap_or(u64::MAX);
    let (caps, patience) = (config::caps(env)?, config::patience(env)?);
    // An answer may carry credentials and twenty signed urls.
    let limits =
        egress::Limits { kept_bytes: 128 * 1024, read_bytes: 128 * 1024, ..egress::Limits::default() };
    let way_out = Arc::new(Egress::new(policy.egress.clone(), limits));
    let root = config::work_dir(env);
    let workshop = Workshop::open(&root, config::spare(env)?)
        .with_context(|| format!("cannot work in EUTERPE_WORK_DIR={}", root.display()))?;
    let workshop = Arc::new(workshop);
    let tools = config::tools(env, pace.concurrency)?;
    let ffmpeg = Arc::new(Ffmpeg::find(tools, !config::allows_no_cage(env)?, workshop.dir()).await?);

    let connections = pace.concurrency.min(16) + 3;
    let (queue, about) = (config::queue(env), about(&ffmpeg, &workshop));
    let service = Service::start(
        env,
        "euterpe-transcode",
        Role::Transcode,
        "127.0.0.1:9466",
        connections,
        std::slice::from_ref(&queue),
        about,
    )
    .await?;
    tracing::info!(ffmpeg = ffmpeg.version(), cage = ffmpeg.cage(), work_dir = %root.display(), "ready to work");

    let (store, worker) = (service.store.clone(), service.worker.clone());
    let storage =
        Arc::new(Storage::new(Arc::clone(&way_out), policy.file_roots.clone(), Transfer::default()));
    let refresher = Refresher::new(store.clone(), worker.clone(), keys, way_out, policy, patience);
    let wakeup = service.wakeups.hear(&[queue.as_str()]);
    let lane =
        Jobs { store, worker, queue, lease: pace.lease, gate: Some(Arc::<Workshop>::clone(&workshop)) };
    let transcoder = Transcoder {
        refresher,
        storage: Arc::clone(&storage),
        ffmpeg: Arc::clone(&ffmpeg),
        workshop,
        caps,
        max_source_bytes,
    };
    worker::run(lane, transcoder, pace, wakeup, service.stop.clone()).await;
    let last = async { tokio::join!(ffmpeg.idle(), storage.idle()) };
    if timeout(LAST_THINGS, last).await.is_err() {
        tracing::warn!("ending with something half taken back; the kernel stops ffmpeg");
    }
    service.end().await
}

fn about(ffmpeg: &Arc<Ffmpeg>, workshop: &Arc<Workshop>) -> About {
    let (ffmpeg, workshop) = (Arc::clone(ffmpeg), Arc::clone(workshop));
    Arc::new(move || {
        let no_room = workshop.complaint();
        Some(json!({"ffmpeg": ffmpeg.version(), "cage": ffmpeg.cage(), "no_room": no_room}))
    })
}
