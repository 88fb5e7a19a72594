//! What every program does when it starts, and when it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use metrics_exporter_prometheus::PrometheusHandle;
use rand::RngExt;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::{WorkerId, causes};
use crate::store::surface::Role;
use crate::store::{Store, StoreError, Wakeups};
use crate::telemetry::Readiness;
use crate::worker::Events;
use crate::{config, telemetry};

/// What a service says of itself beyond its name: in `/readyz` and in `live_workers`. Asked again and again.
pub type About = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// For a service that has nothing to add.
#[must_use]
pub fn nothing_more() -> About {
    Arc::new(|| None)
}

/// A service that runs: its store, its name, its stop, and what it does on the side.
pub struct Service {
    /// With wake-ups.
    pub store: Store,
    /// The one connection on which it listens.
    pub wakeups: Wakeups,
    /// Who it is.
    pub worker: WorkerId,
    /// Comes with SIGTERM or SIGINT.
    pub stop: CancellationToken,
    _aside: [AbortOnDropHandle<()>; 2],
}

/// A core dump would hold the keys in clear. No reason not to start: a system that refuses this dumps as it likes.
fn no_core_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(error = error.to_string(), "cannot forbid core dumps");
    }
}

impl Service {
    /// Looks before it starts: are settings, database, functions and the lines of jobs that it was told of as they must be?
    /// Then serves health and metrics, and keeps house.
    pub async fn start(
        env: impl Fn(&str) -> Option<String> + Copy,
        program: &str,
        role: Role,
        metrics_listen: &str,
        connections: usize,
        queues: &[String],
        about: About,
    ) -> anyhow::Result<Self> {
        telemetry::log(config::log_form(env)?);
        no_core_dumps();
        let (database, direct) = (config::database(env, program)?, config::direct_database(env, program)?);
        let metrics_listen = config::listen(env, "EUTERPE_METRICS_LISTEN", metrics_listen)?;
        let may_be_unsafe = config::allows_unsafe_durability(env)?;
        let answers_in = config::database_patience(env)?;
        let stop = stop_on_signal().context("cannot listen for signals")?;

        let wakeups = Wakeups::connect(direct);
        // Callers of the HTTP tier are told at once when it is overloaded; workers can wait.
        let patience = Duration::from_millis(if role == Role::Api { 500 } else { 5000 });
        let store = Store::with_patience(database, connections, patience)
            .answering_in(answers_in)
            .with_wakeups(wakeups.clone());
        store.check_surface(role).await.map_err(explained)?;
        store.check_durability(may_be_unsafe).await?;
        insist_on_queues(&store, queues).await?;
        let listener = TcpListener::bind(metrics_listen)
            .await
            .with_context(|| format!("cannot listen on EUTERPE_METRICS_LISTEN={metrics_listen}"))?;
        let worker = WorkerId::of_this_boot(env);
        store.worker_seen(&worker, role.as_str(), about().as_ref()).await.with_context(|| {
            format!("is the login of EUTERPE_DATABASE_URL a member of euterpe_{}?", role.as_str())
        })?;

        tracing::info!(listen = %listener.local_addr()?, "health and metrics");
        let numbers = telemetry::count()?;
        let ready =
            telemetry::Ready { readiness: Readiness::of(store.clone(), role), about: Arc::clone(&about) };
        let health = telemetry::serve_health(listener, ready, numbers.clone(), stop.clone());
        let house = keep_house(store.clone(), worker.clone(), role, about, numbers);
        let aside = [tokio::spawn(health), tokio::spawn(house)].map(AbortOnDropHandle::new);
        tracing::info!(worker.id = worker.as_str(), release = env!("CARGO_PKG_VERSION"), "{program} started");
        Ok(Self { store, wakeups, worker, stop, _aside: aside })
    }

    /// Says goodbye.
    pub async fn end(self) -> anyhow::Result<()> {
        tracing::info!("ended");
        Ok(self.store.worker_stopped(&self.worker).await?)
    }
}

/// Every ten seconds: this process is there, the slower things are done by whoever comes first, and the metrics say how
/// full the lines are.
async fn keep_house(store: Store, worker: WorkerId, role: Role, about: About, numbers: PrometheusHandle) {
    loop {
        numbers.run_upkeep(); // else samples pile up wherever nobody scrapes
        let done = async {
            store.upkeep().await?;
            store.worker_seen(&worker, role.as_str(), about().as_ref()).await?;
            telemetry::tell_depths(&store.queue_depths().await?);
            Ok::<(), StoreError>(())
        };
        if let Err(error) = done.await {
            tracing::warn!(error = causes(&error), "upkeep failed; will try again");
        }
        let jitter = rand::rng().random_range(8_000..12_000);
        sleep(Duration::from_millis(jitter)).await;
    }
}

/// A line that is not there would be a WARN a second to a worker, and to a requester a 500.
async fn insist_on_queues(store: &Store, queues: &[String]) -> anyhow::Result<()> {
    const SETTINGS: &str = "EUTERPE_QUEUE (of a worker) or EUTERPE_QUEUES (of the api)";
    for queue in queues {
        if Events::QUEUES.contains(&queue.as_str()) {
            bail!("the queue {queue} holds webhooks, not jobs: set {SETTINGS} right");
        }
        // Every service may give a line its tick, and that does no harm.
        match store.tick(queue).await {
            Err(StoreError::NoSuchQueue(says)) => {
                let name = queue.replace('\'', "''");
                bail!(
                    "{says}: as an operator, select euterpe.create_queue_v1('{name}'), or set {SETTINGS} right"
                );
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// At boot, somebody is there to set it right.
fn explained(error: StoreError) -> anyhow::Error {
    let is_away = matches!(error, StoreError::Unavailable(_));
    let error = anyhow::Error::from(error);
    if !is_away {
        return error;
    }
    error.context(
        "cannot use the database that EUTERPE_DATABASE_URL names; is it right, and is the server up?",
    )
}

/// The last word of a program.
#[must_use]
pub fn report(program: &str, ended: anyhow::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A stop that comes with SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// When signals cannot be listened to.
pub fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        for is_last in [false, true] {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if is_last {
                tracing::warn!(signal = name, "stopping at once; leases will lapse");
                std::process::exit(130);
            }
            tracing::info!(signal = name, "stopping; work in hand may finish");
            told.cancel();
        }
    });
    Ok(stop)
}
