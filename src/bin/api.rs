//! `euterpe-api`: HTTP in front of the inbox.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use euterpe::boot::{self, Service};
use euterpe::config;
use euterpe::crypto::{Keyring, Peppers};
use euterpe::face::serve::serve;
use euterpe::face::transcode::{Face, router};
use euterpe::store::surface::Role;
use tokio::net::TcpListener;

/// HTTP in front of the inbox. Every setting comes from the environment: docs/deployment.md.
#[derive(Parser)]
#[command(name = "euterpe-api", version)]
struct Arguments {}

#[tokio::main]
async fn main() -> ExitCode {
    Arguments::parse();
    boot::report("euterpe-api", run().await)
}

async fn run() -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let (keys, peppers) = (Arc::new(Keyring::from_env(env)?), Peppers::from_env(env)?);
    let (policy, http) =
        (config::policy(env)?, config::listen(env, "EUTERPE_HTTP_LISTEN", "127.0.0.1:8080")?);
    let (connections, limits) = (config::api_connections(env)?, config::http_limits(env)?);
    // Before anything is told of it: who cannot listen was never there.
    let listener = TcpListener::bind(http)
        .await
        .with_context(|| format!("cannot listen on EUTERPE_HTTP_LISTEN={http}"))?;
    let service = Service::start(
        env,
        "euterpe-api",
        Role::Api,
        "127.0.0.1:9464",
        connections,
        &policy.queues,
        boot::nothing_more(),
    )
    .await?;

    tracing::info!(listen = %listener.local_addr()?, "serving");
    let face = Face::new(service.store.clone(), &service.wakeups, keys, peppers, policy)
        .within(limits.body, service.stop.clone());
    serve(listener, router(Arc::new(face)), limits, service.stop.clone()).await;
    service.end().await
}
