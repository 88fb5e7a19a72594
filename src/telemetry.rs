//! What a process says of itself: logs on stderr, metrics and health on a port of their own.
#![expect(clippy::cast_precision_loss, reason = "metrics are floats, and no queue holds 2^53 jobs")]

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
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

/// How long an answer of `/readyz` is good for.
const READY_FOR: Duration = Duration::from_secs(1);

/// Is everything there that a role needs? Anybody may ask, without a key, so the database is asked once a second at most
/// and by one caller at a time: its connections are for work.
#[derive(Clone)]
pub struct Readiness {
    store: Store,
    role: Role,
    last: Remembered,
}

impl Readiness {
    /// Of what `role` calls in `store`.
    #[must_use]
    pub fn of(store: Store, role: Role) -> Self {
        Self { store, role, last: Remembered::default() }
    }

    /// What `/readyz` says.
    pub async fn look(&self) -> Result<(), String> {
        // In a task of its own: of who asks and hangs up nothing would be remembered, and the next would ask again.
        let this = self.clone();
        let looked = tokio::spawn(async move { this.last.or_ask(this.ask()).await });
        looked.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn ask(&self) -> Answer {
        match tokio::time::timeout(Duration::from_secs(2), self.store.check_surface(self.role)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the database does not answer".into()),
        }
    }
}

/// Ready, or why not.
type Answer = Result<(), String>;

/// An answer, for as long as it is good. Who comes while somebody asks gets that one's.
#[derive(Clone, Default)]
struct Remembered(Arc<Mutex<Option<(Instant, Answer)>>>);

impl Remembered {
    async fn or_ask(&self, ask: impl Future<Output = Answer>) -> Answer {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < READY_FOR
        {
            return answer.clone();
        }
        let answer = ask.await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// What `/readyz` looks at, and what it adds.
#[derive(Clone)]
pub struct Ready {
    /// Is it there, with everything we need?
    pub readiness: Readiness,
    /// Beyond that.
    pub about: About,
}

impl Ready {
    async fn answer(self) -> (StatusCode, String) {
        let more = (self.about)().map(|about| format!("{about:#}\n")).unwrap_or_default();
        match self.readiness.look().await {
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
    let pool = ready.readiness.store.clone();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Whoever asks without a key costs the database no more than one question a second.
    #[tokio::test]
    async fn many_who_ask_at_once_cost_one_question_and_its_answer_is_not_kept_for_long() {
        let (remembered, asked) = (Remembered::default(), AtomicU32::new(0));
        let ask = || {
            remembered.or_ask(async {
                tokio::task::yield_now().await;
                if asked.fetch_add(1, Ordering::SeqCst) == 0 { Ok(()) } else { Err("away".into()) }
            })
        };
        let answers = futures_util::future::join_all((0..100).map(|_| ask())).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        if let Some((at, _)) = &mut *remembered.0.lock().await {
            *at = at.checked_sub(READY_FOR).expect("a second ago");
        }
        assert_eq!(ask().await, Err("away".to_owned()));
    }
}
