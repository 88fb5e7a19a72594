//! The one door to the database. Every method is one SQL function of the same name; SQL text is nowhere else.
//!
//! Statements are prepared once per connection, name their arguments and name the columns they read, so that
//! a function may gain a newer sibling while this binary runs.

mod api_key;
mod count;
mod error;
mod facts;
mod functions;
mod inbox;
mod line;
pub mod migrate;
pub mod online;
mod outbox;
mod people;
mod read;
mod requester;
pub mod retain;
mod secret;
mod signing;
pub mod surface;
mod tls;
mod upkeep;
mod wake;
mod worker;

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use scopeguard::{ScopeGuard, guard};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};

pub use api_key::{ApiKey, ListedApiKey, NewApiKey};
pub use error::{Result, StoreError};
pub use facts::{GroupRole, ServerFacts};
pub use functions::Functions;
pub use inbox::{Advanced, Answered, ClaimedJob, Enqueued, EnqueuedItem, Failed, Renewed};
pub use line::QueueDepth;
pub use outbox::{ClaimedEvent, EventAnswered, Redeliver, Settled};
pub use people::{DeadLetter, Explained, Health, Orphan, Steer, Steered, TimelineStep};
pub use read::{Found, JobDocument, JobFilter, ListedJob, StoredAnswer};
pub use requester::{NewRequester, Requester};
pub use secret::{JobSecret, Refresh, StoredSecret};
pub use signing::{KekUsage, NewlyWrapped, StoredSigningSecret, Wrapped, WrappedKey};
pub use upkeep::UpkeepStep;
pub use wake::{Wakeup, Wakeups};

/// A call that is given up after less than this was not hanging: its connection is kept, so that callers who come and go
/// do not cost a connection each.
const HANGS: Duration = Duration::from_secs(1);

/// The queue, as the rest of the program sees it. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: Pool,
    answers_in: Duration,
    wakeups: Option<Wakeups>,
}

impl Store {
    /// A store over at most `connections` connections, opened when they are needed.
    ///
    /// A connection that died (server restart, failover) is replaced at its next use.
    #[must_use]
    pub fn connect(config: Config, connections: usize) -> Self {
        Self::with_patience(config, connections, Duration::from_secs(5))
    }

    /// The same; a call that finds no free connection within `patience` is refused as unavailable, and so is one that
    /// cannot open its own in that time, or in two seconds.
    ///
    /// # Panics
    /// Never: a runtime is given with the timeouts.
    #[must_use]
    pub fn with_patience(config: Config, connections: usize, patience: Duration) -> Self {
        let (config, tls) = tls::over_tls(config);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, tls, recycling);
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(patience))
            .create_timeout(Some(patience.max(Duration::from_secs(2))))
            .build()
            .expect("a runtime is given, which is all that build() checks");
        // Beyond the longest statement_timeout of our roles, the operators' minute.
        Self { pool, answers_in: Duration::from_secs(90), wakeups: None }
    }

    /// The same store; a call that has no answer by then is given up, and its connection with it.
    ///
    /// A server that has stopped without closing its connections (a host gone, a process paused, a full disk) answers
    /// nobody; neither its timeouts nor the kernel's end such a call.
    #[must_use]
    pub fn answering_in(self, answers_in: Duration) -> Self {
        Self { answers_in, ..self }
    }

    /// The same store; from now on whoever waits for what it commits is told.
    #[must_use]
    pub fn with_wakeups(self, wakeups: Wakeups) -> Self {
        Self { wakeups: Some(wakeups), ..self }
    }

    /// How the connections are used: all, idle, and callers that wait for one.
    #[must_use]
    pub fn pool_status(&self) -> (usize, usize, usize) {
        let status = self.pool.status();
        (status.size, status.available, status.waiting)
    }

    /// After a commit: there is work in `queues`.
    fn tell(&self, queues: &[&str]) {
        if let Some(wakeups) = &self.wakeups {
            wakeups.tell(queues);
        }
    }

    async fn client(&self) -> Result<Object> {
        Ok(self.pool.get().await?)
    }

    /// Runs one prepared statement and gives back its rows.
    async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let (client, asked) = (self.client().await?, Instant::now());
        // Given up, here or by whoever waits for us, as a heartbeat is: the next caller would stand behind this call.
        let client = guard(client, |client| {
            if asked.elapsed() >= HANGS {
                drop(Object::take(client));
            }
        });
        match timeout(self.answers_in, ask(&client, sql, params)).await {
            Ok(answer) => {
                drop(ScopeGuard::into_inner(client)); // back to the pool
                answer
            }
            Err(_) => Err(StoreError::Unavailable("no answer in time".into())),
        }
    }
}

async fn ask(client: &Object, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    let statement = client.prepare_cached(sql).await?;
    let answer = client.query(&statement, params).await;
    if answer.as_ref().is_err_and(error::met_a_reload) {
        return Ok(client.query(&statement, params).await?);
    }
    Ok(answer?)
}
