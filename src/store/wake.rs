//! Wake-ups: one connection per process, on which it hears of work and tells others of it.
//!
//! `pg_notify` inside an enqueue or a transition would serialize commits, so whoever has committed tells afterwards,
//! here: the first time at once, then at most every 20 ms, merged into one. A wake-up is a hint and may be lost; the
//! poll is the floor under it.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config};
use tokio_util::task::AbortOnDropHandle;

use super::tls::connect;
use crate::domain::causes;

/// Its payload is names of queues, separated by commas.
const CHANNEL: &str = "euterpe";
/// The queue in which the events of a transition wait.
pub(super) const EVENTS: &str = "webhook";
/// Stands for every queue: for what happens rarely and may go anywhere.
pub(super) const ALL: &str = "*";
/// How long wake-ups are gathered after one was sent.
const MERGE: Duration = Duration::from_millis(20);
/// How often a silent connection is asked whether it is still there.
const ARE_YOU_THERE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells others of work, and hears of it. Cheap to clone; the connection ends with the last clone.
#[derive(Clone)]
pub struct Wakeups {
    shared: Arc<Shared>,
    _session: Arc<AbortOnDropHandle<()>>,
}

/// Hears of work in some queues.
pub struct Wakeup(watch::Receiver<()>);

#[derive(Default)]
struct Shared {
    to_tell: Mutex<BTreeSet<String>>,
    something_to_tell: Notify,
    hearers: Mutex<Vec<Hearer>>,
}

struct Hearer {
    queues: Vec<String>,
    ring: watch::Sender<()>,
}

impl Wakeups {
    /// Listens on a connection of its own, and connects again whenever it is lost. Behind a transaction pooler
    /// `config` must lead around it: LISTEN belongs to a session.
    #[must_use]
    pub fn connect(config: Config) -> Self {
        let shared = Arc::new(Shared::default());
        let session = tokio::spawn(keep_listening(config, Arc::clone(&shared)));
        Self { shared, _session: Arc::new(AbortOnDropHandle::new(session)) }
    }

    /// There is work in these queues: lets everybody know, in a moment, without waiting for it.
    pub fn tell(&self, queues: &[&str]) {
        locked(&self.shared.to_tell).extend(queues.iter().map(|&queue| queue.to_owned()));
        self.shared.something_to_tell.notify_one();
    }

    /// Hears of work in any of `queues` from now on.
    #[must_use]
    pub fn hear(&self, queues: &[&str]) -> Wakeup {
        let (ring, heard) = watch::channel(());
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        locked(&self.shared.hearers).push(Hearer { queues, ring });
        Wakeup(heard)
    }
}

impl Wakeup {
    /// One that never rings, for whoever only polls.
    #[must_use]
    pub fn never() -> Self {
        Self(watch::channel(()).1)
    }

    /// Waits until there may be work. What rang since the last call counts.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await; // nobody is left to ring
        }
    }
}

impl Shared {
    fn heard(&self, payload: &str) {
        let named = |queue: &String| payload.split(',').any(|name| name == ALL || name == queue);
        locked(&self.hearers).retain(|hearer| {
            if hearer.queues.iter().any(named) {
                hearer.ring.send_replace(());
            }
            !hearer.ring.is_closed()
        });
    }

    fn take_payload(&self) -> Option<String> {
        let queues = std::mem::take(&mut *locked(&self.to_tell));
        let payload = queues.into_iter().collect::<Vec<_>>().join(",");
        // A payload has at most 7,999 bytes.
        match payload.len() {
            0 => None,
            1..=7_000 => Some(payload),
            _ => Some(ALL.into()),
        }
    }
}

/// Nobody panics while holding one of these; and if: a set of names is never half written.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn keep_listening(config: Config, shared: Arc<Shared>) {
    let mut wait = Duration::from_millis(100);
    loop {
        let connected = match session(&config, &shared).await {
            Ok(connected) => connected,
            Err(error) => {
                tracing::warn!(error = causes(&*error), "no wake-ups for now; polling goes on");
                false
            }
        };
        wait = if connected { Duration::from_millis(100) } else { (wait * 2).min(Duration::from_secs(10)) };
        let jitter = rand::rng().random_range(0.5..1.5);
        sleep(wait.mul_f64(jitter)).await;
    }
}

/// One connection's life; `true`: it had been there.
async fn session(
    config: &Config,
    shared: &Arc<Shared>,
) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let (client, mut connection) = timeout(PATIENCE, connect(config)).await??;
    let hears = Arc::clone(shared);
    let mut driver = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                hears.heard(notification.payload());
            }
        }
    }));
    timeout(PATIENCE, client.batch_execute(&format!("listen {CHANNEL}"))).await??;
    shared.heard(ALL); // whatever was told while nobody listened

    loop {
        tokio::select! {
            _ = &mut driver => {
                tracing::warn!("the connection for wake-ups was lost; polling goes on");
                return Ok(true);
            }
            () = shared.something_to_tell.notified() => {
                let Some(payload) = shared.take_payload() else { continue };
                let params: [&(dyn ToSql + Sync); 2] = [&CHANNEL, &payload];
                timeout(PATIENCE, client.execute("select pg_notify($1, $2)", &params)).await??;
                sleep(MERGE).await;
            }
            () = sleep(ARE_YOU_THERE) => timeout(PATIENCE, client.batch_execute("")).await??,
        }
    }
}
