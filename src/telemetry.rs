//! What a process says of itself: logs on stderr, metrics and health on a port of their own.
#![expect(clippy::cast_precision_loss, reason = "metrics are floats, and no queue holds 2^53 jobs")]

use std::io::IsTerminal;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::boot::About;
use crate::config::{BadSetting, LogForm};
use crate::face::serve::{Limits, serve};
use crate::store::surface::Role;
use crate::store::{QueueDepth, Store};

/// Logs to stderr from now on: `RUST_LOG` says how much, `EUTERPE_LOG` in which form.
pub fn log(form: LogForm) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second subscriber in one process is refused; the first one stays.
    let _ = match form {
        LogForm::Text => subscriber.try_init(),
        LogForm::Json => subscriber.json().flatten_event(true).try_init(),
    };
}

/// Counts from now on.
///
/// # Errors
/// When somebody else counts already.
pub fn count() -> Result<PrometheusHandle, BadSetting> {
    // From a millisecond to the longest wait= there is.
    let seconds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
    PrometheusBuilder::new().set_buckets(&seconds).and_then(PrometheusBuilder::install_recorder).map_err(
        |error| BadSetting::Unusable { name: "metrics", value: String::new(), problem: error.to_string() },
    )
}

/// Is everything there that `role` needs? What `/readyz` says.
pub async fn is_ready(store: &Store, role: Role) -> Result<(), String> {
    match tokio::time::timeout(Duration::from_secs(2), store.check_surface(role)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the database does not answer".into()),
    }
}

/// What `/readyz` looks at, and what it adds.
#[derive(Clone)]
pub struct Ready {
    /// Is it there?
    pub store: Store,
    /// With everything this one needs?
    pub role: Role,
    /// Beyond that.
    pub about: About,
}

impl Ready {
    async fn answer(self) -> (StatusCode, String) {
        let more = (self.about)().map(|about| format!("{about:#}\n")).unwrap_or_default();
        match is_ready(&self.store, self.role).await {
            Ok(()) => (StatusCode::OK, format!("ok\n{more}")),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{more}")),
        }
    }
}

/// `/healthz`, `/readyz` and `/metrics`, on the port for people who run this.
pub async fn serve_health(
    listener: TcpListener,
    ready: Ready,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let pool = ready.store.clone();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || ready.clone().answer()))
        .route(
            "/metrics",
            get(move || {
                tell_pool(pool.pool_status()); // as it is now: in an outage nobody else would tell
                std::future::ready(metrics.render())
            }),
        );
    // Who collects numbers comes from one address, and nobody else should.
    let limits = Limits { connections: 64, connections_per_ip: 64, ..Limits::default() };
    serve(listener, router, limits, stop).await;
}

/// How full the lines are.
pub fn tell_depths(depths: &[QueueDepth]) {
    for depth in depths {
        let queue = || depth.queue.clone();
        metrics::gauge!("euterpe_queue_ready", "queue" => queue()).set(depth.ready as f64);
        metrics::gauge!("euterpe_queue_delayed", "queue" => queue()).set(depth.delayed as f64);
        metrics::gauge!("euterpe_queue_leased", "queue" => queue()).set(depth.leased as f64);
        metrics::gauge!("euterpe_queue_paused", "queue" => queue()).set(f64::from(u8::from(depth.is_paused)));
        let oldest = depth.oldest_ready_age_ms.unwrap_or(0) as f64 / 1000.0;
        metrics::gauge!("euterpe_queue_oldest_ready_seconds", "queue" => queue()).set(oldest);
    }
}

/// How the connections are used.
pub fn tell_pool((size, available, waiting): (usize, usize, usize)) {
    for (state, count) in [("open", size), ("idle", available), ("waited_for", waiting)] {
        metrics::gauge!("euterpe_pool_connections", "state" => state).set(count as f64);
    }
}
