//! A database per test, cloned from a migrated template; a clock that can be wound; workers with names.

mod alone;
pub mod api;
pub mod cli;
mod deliveries;
pub mod hands;
pub mod lanes;
pub mod owner;
mod paused;
pub mod plant;
mod proxy;
pub mod raw;
pub mod receiver;
pub mod s3s;
pub mod scene;
pub mod seaweed;
mod server;
pub mod shelf;
pub mod studio;
pub mod vault;
pub mod webhooks;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls, Row};

use euterpe::dev::Durability;
use euterpe::domain::{Claim, Delivery, EventRef, JobId, JobStatus, NewJob, Outcome, RequesterId, WorkerId};
use euterpe::store::{ClaimedJob, NewRequester, Store};

pub use alone::Alone;
pub use deliveries::{sealed, webhook_at, with_secrets};
pub use paused::{Pause, Pauses, Place};
pub use proxy::Proxy;
pub use server::{load_mutant, make_roles};

pub const QUEUE: &str = "transcode";
/// First attempts, and retries.
pub const WEBHOOKS: [&str; 2] = ["webhook", "webhook_retry"];
/// The lease every queue has unless told otherwise.
pub const LEASE: Duration = Duration::from_secs(60);

/// A database of one's own. When it goes, everything in it must still agree.
pub struct TestDb {
    name: String,
    alone: Option<Alone>,
    /// Made at the first use and kept: a connection costs more than most tests.
    store: OnceLock<Store>,
    looker: OnceCell<Client>,
}

impl TestDb {
    /// A clone of the migrated template, with the requester `acme` in it.
    pub async fn fresh() -> Self {
        let template = server::template().await;
        let name = fresh_name("t");
        connect(&admin_config())
            .await
            .batch_execute(&format!("create database {name} template {template} strategy file_copy"))
            .await
            .unwrap();
        let db = Self::named(name, None);
        db.add_requester("acme", 1).await;
        db
    }

    /// The same on a server of its own, for tests that count what old transactions hold back: xids belong to the
    /// whole server, and other tests have some running.
    pub async fn alone() -> Self {
        Self::alone_with(Durability::Fast, &[]).await
    }

    /// With more settings, of which the last word counts.
    pub async fn alone_with(durability: Durability, settings: &[&str]) -> Self {
        Self::on(Alone::start(&fresh_name("alone"), durability, settings)).await
    }

    /// On a server of its own that keeps what it has acknowledged, and can be stopped and started.
    pub async fn durable() -> Self {
        Self::on(Alone::start(&fresh_name("durable"), Durability::Durable, &[])).await
    }

    /// On a server of its own that listens on 127.0.0.1 too.
    pub async fn listening() -> Self {
        Self::on(Alone::listening(&fresh_name("listening"))).await
    }

    async fn on(server: Alone) -> Self {
        server::prepare(&server.config()).await;
        let db = Self::named("postgres".into(), Some(server));
        db.add_requester("acme", 1).await;
        db
    }

    /// The server of [`TestDb::durable`], to be stopped and started.
    pub fn server(&mut self) -> &mut Alone {
        self.looker = OnceCell::new(); // it will not outlive the server
        self.alone.as_mut().expect("only a server of one's own is stopped")
    }

    fn named(name: String, alone: Option<Alone>) -> Self {
        Self { name, alone, store: OnceLock::new(), looker: OnceCell::new() }
    }

    /// As the superuser, to look and to arrange, on a connection of its own.
    pub async fn client(&self) -> Client {
        connect(&self.config()).await
    }

    /// Where this database is, for the superuser.
    pub fn config(&self) -> Config {
        match &self.alone {
            Some(server) => server.config(),
            None => server::config(&self.name),
        }
    }

    /// The directory with the data and the log of a server of its own.
    pub fn dir(&self) -> &Path {
        &self.alone.as_ref().expect("a server of its own").dir
    }

    /// The store as a login that has our roles and nothing else.
    pub fn store(&self) -> Store {
        self.store.get_or_init(|| self.store_as("euterpe_test", 16)).clone()
    }

    /// The store as any login.
    pub fn store_as(&self, login: &str, connections: usize) -> Store {
        let mut config = self.config();
        config.user(login);
        Store::connect(config, connections)
    }

    pub async fn add_requester(&self, name: &str, weight: i32) {
        let new = NewRequester { weight, ..NewRequester::named(requester(name)) };
        self.store().add_requester(&new).await.unwrap();
    }

    async fn looker(&self) -> &Client {
        self.looker.get_or_init(|| self.client()).await
    }

    pub async fn rows(&self, sql: &str) -> Vec<Row> {
        self.looker().await.query(sql, &[]).await.unwrap()
    }

    /// The first column of the first row.
    pub async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.looker().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub async fn run(&self, sql: &str) {
        self.looker().await.batch_execute(sql).await.unwrap();
    }

    /// Time passes while the system lives: every line keeps getting its ticks.
    pub async fn wind(&self, by: Duration) {
        let client = self.looker().await;
        let slice = LEASE / 4;
        let mut left = by;
        while !left.is_zero() {
            let step = left.min(slice);
            wind_once(client, step).await;
            client.batch_execute("select euterpe.tick_v1(q.name) from euterpe.queues q").await.unwrap();
            left -= step;
        }
    }

    /// Time passes while nobody is there: no ticks, as when the database was away.
    pub async fn jump(&self, by: Duration) {
        wind_once(self.looker().await, by).await;
    }

    /// One plain job of acme's.
    pub async fn enqueue(&self) -> JobId {
        self.enqueue_with(NewJob::default()).await
    }

    /// One job of acme's; the request is filled in.
    pub async fn enqueue_with(&self, job: NewJob) -> JobId {
        let job = NewJob { request: json!({"source": {"uri": "s3://in/clip.mov"}}), ..job };
        self.store().enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap().job_id
    }

    /// `count` plain jobs of acme's, by one batch after the other.
    pub async fn enqueue_many(&self, count: usize) {
        let store = self.store();
        let jobs = vec![NewJob { request: json!({}), ..NewJob::default() }; count];
        for batch in jobs.chunks(1000) {
            store.enqueue_jobs(&requester("acme"), QUEUE, batch).await.unwrap();
        }
    }

    /// The next job, in the hands of `worker`.
    pub async fn claim(&self, worker: &WorkerId) -> ClaimedJob {
        let mut jobs = self.store().claim_jobs(QUEUE, worker, 1, None).await.unwrap();
        assert_eq!(jobs.len(), 1, "one job is ready");
        jobs.remove(0)
    }

    /// The same beside a running service, as a worker does it: an empty answer is no error, one comes again.
    pub async fn claim_soon(&self, worker: &WorkerId) -> ClaimedJob {
        for _ in 0..1000 {
            if let Some(job) = self.store().claim_jobs(QUEUE, worker, 1, None).await.unwrap().pop() {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no job became ready");
    }

    /// A fresh job that `worker` has brought to `status`, one of the running ones.
    pub async fn running(&self, worker: &WorkerId, status: JobStatus) -> ClaimedJob {
        self.running_with(NewJob::default(), worker, status).await
    }

    /// `job`, brought to `status` by `worker`.
    pub async fn running_with(&self, job: NewJob, worker: &WorkerId, status: JobStatus) -> ClaimedJob {
        self.enqueue_with(job).await;
        let job = self.claim(worker).await;
        self.advance_to(worker, job.claim, status).await;
        job
    }

    pub async fn advance_to(&self, worker: &WorkerId, claim: Claim, status: JobStatus) {
        use JobStatus::{Fetching, Processing, Uploading};
        let steps: &[JobStatus] = match status {
            JobStatus::Claimed => &[],
            Fetching => &[Fetching],
            Processing => &[Fetching, Processing],
            _ => &[Fetching, Processing, Uploading],
        };
        for &step in steps {
            let answers = self.store().advance_jobs(worker, &[(claim, step)]).await.unwrap();
            assert_eq!(answers[0].outcome, Outcome::Ok, "to {step}");
        }
    }

    pub async fn succeed(&self, worker: &WorkerId, claim: Claim) {
        self.advance_to(worker, claim, JobStatus::Uploading).await;
        let answers = self.store().complete_jobs(worker, &[(claim, None, json!([]))]).await.unwrap();
        assert_eq!(answers[0].outcome, Outcome::Ok);
    }

    /// Delivers every event that may be delivered, and what comes after it; says how many.
    pub async fn deliver_all(&self) -> usize {
        let (store, pod) = (self.store(), worker("webhook"));
        let mut count = 0;
        loop {
            let mut claimed = Vec::new();
            for queue in WEBHOOKS {
                claimed.extend(store.claim_events(queue, &pod, 100, None).await.unwrap());
            }
            if claimed.is_empty() {
                return count;
            }
            count += claimed.len();
            let arrived: Vec<_> = claimed.iter().map(|event| (event.claim, Delivery::arrived(200))).collect();
            let answers = store.settle_events(&pod, &arrived).await.unwrap();
            assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ok));
        }
    }

    /// A column of one event, as text.
    pub async fn event(&self, event: EventRef, column: &str) -> Option<String> {
        let EventRef { job_id, sequence } = event;
        let sql = format!(
            "select {column}::text from euterpe.job_outbox_events
              where job_id = '{job_id}' and sequence = {sequence}"
        );
        self.one(&sql).await
    }

    /// The job's row as JSON.
    pub async fn job(&self, id: JobId) -> Value {
        self.one(&format!("select to_jsonb(j) from euterpe.inbox_jobs j where job_id = '{id}'")).await
    }

    /// The statuses a job went through, in order.
    pub async fn path(&self, id: JobId) -> Vec<String> {
        let sql = format!(
            "select to_status from euterpe.job_outbox_events where job_id = '{id}' order by sequence"
        );
        self.rows(&sql).await.iter().map(|row| row.get(0)).collect()
    }

    /// How many events there are at all.
    pub async fn event_count(&self) -> i64 {
        self.one("select count(*) from euterpe.job_outbox_events").await
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let (config, name) = (self.config(), std::mem::take(&mut self.name));
        let (failing, shared) = (std::thread::panicking(), self.alone.is_none());
        let orphans = apart(async move {
            let orphans = if failing { Vec::new() } else { orphans_in(&config).await };
            if shared {
                drop_database(&name).await;
            }
            orphans
        });
        drop(self.alone.take());
        assert!(orphans.is_empty(), "the orphan check found: {orphans:#?}");
    }
}

async fn orphans_in(config: &Config) -> Vec<String> {
    let client = connect(config).await;
    let sql = "select trouble || coalesce(': ' || job_id, '') || coalesce(', ' || detail, '')
                 from euterpe.orphan_check_v1() limit 20";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// An empty database, gone when dropped.
pub struct BareDatabase(String);

pub async fn bare_database() -> BareDatabase {
    let name = fresh_name("bare");
    connect(&admin_config()).await.batch_execute(&format!("create database {name}")).await.unwrap();
    BareDatabase(name)
}

impl BareDatabase {
    pub fn config(&self) -> Config {
        server::config(&self.0)
    }
}

impl Drop for BareDatabase {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.0);
        apart(async move { drop_database(&name).await });
    }
}

/// The superuser's way to the server's own database.
pub fn admin_config() -> Config {
    server::config("postgres")
}

fn fresh_name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn drop_database(name: &str) {
    let admin = connect(&admin_config()).await;
    admin.batch_execute(&format!("drop database if exists {name} with (force)")).await.unwrap();
}

/// Runs `work` on a thread with a runtime of its own: in `drop`, the test's may be gone already.
fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run =
        move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(run).join().unwrap()
}

async fn wind_once(client: &Client, by: Duration) {
    client
        .execute(
            "select setval('euterpe_line.test_clock_ms', last_value + $1) from euterpe_line.test_clock_ms",
            &[&i64::try_from(by.as_millis()).unwrap()],
        )
        .await
        .unwrap();
    client
        .batch_execute("set role euterpe_owner; select euterpe._make_partitions(euterpe._now()); reset role")
        .await
        .unwrap();
}

/// Where a database is, for a program that reads its environment.
pub fn url_of(config: &Config) -> String {
    let [Host::Unix(host)] = config.get_hosts() else { panic!("needs a server on a Unix socket") };
    format!("host={} user=euterpe_test dbname={}", host.display(), config.get_dbname().unwrap())
}

/// A plain connection, driven in the background.
pub async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub fn requester(name: &str) -> RequesterId {
    name.parse().unwrap()
}

/// A worker of that name, with a boot of its own.
pub fn worker(name: &str) -> WorkerId {
    let name = name.to_owned();
    WorkerId::of_this_boot(move |variable| (variable == "POD_NAME").then(|| name.clone()))
}

/// Polls until `sql` (one boolean) is true; other people's clocks cannot be wound.
pub async fn until(client: &Client, sql: &str) {
    for _ in 0..1000 {
        if client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never true: {sql}");
}

/// A job with a webhook that wants every event.
pub fn with_webhook() -> NewJob {
    NewJob {
        event_filter: Some(vec!["transcode.*".into()]),
        callback_origin: Some("https://example.com".into()),
        ..NewJob::default()
    }
}
