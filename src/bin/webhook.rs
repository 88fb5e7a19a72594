//! `euterpe-webhook`: tells requesters what became of their jobs.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use euterpe::boot::{self, Service};
use euterpe::config;
use euterpe::crypto::Keyring;
use euterpe::egress::Egress;
use euterpe::handler::webhook::{PerHost, Webhooks};
use euterpe::store::surface::Role;
use euterpe::worker::{self, Events};

/// Tells requesters what became of their jobs. Every setting comes from the environment: docs/webhooks.md.
#[derive(Parser)]
#[command(name = "euterpe-webhook", version)]
struct Arguments {}

#[tokio::main]
async fn main() -> ExitCode {
    Arguments::parse();
    boot::report("euterpe-webhook", run().await)
}

async fn run() -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let (keys, pace) = (Arc::new(Keyring::from_env(env)?), config::outbox_pace(env)?);
    let egress = Egress::new(config::policy(env)?.egress, config::webhook_limits(env)?);
    let per_host = PerHost::of(config::webhooks_per_host(env)?, pace.concurrency);
    // One per delivery that is being read, and some for claims, beats and endings.
    let connections = pace.concurrency.min(16) + 3;
    let service = Service::start(
        env,
        "euterpe-webhook",
        Role::Webhook,
        "127.0.0.1:9465",
        connections,
        &[],
        boot::nothing_more(),
    )
    .await?;

    let (store, worker) = (service.store.clone(), service.worker.clone());
    let lane = Events::new(store.clone(), worker.clone(), pace.lease, pace.concurrency);
    let handler = Webhooks::new(store, worker, keys, egress, per_host);
    let wakeup = service.wakeups.hear(&Events::QUEUES);
    worker::run(lane, handler, pace, wakeup, service.stop.clone()).await;
    service.end().await
}
