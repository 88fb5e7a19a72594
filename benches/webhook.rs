//! `make bench`: deliveries beside a bare HTTP client that posts the same bodies with the same concurrency; how long an
//! event takes from its commit to its receiver when nothing else happens; and how much memory that takes.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::format_push_string, missing_docs)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use euterpe::crypto::{Binding, Keyring, Secret, SigningSecret, new_key, seal};
use euterpe::dev::{Cluster, Durability};
use euterpe::domain::transcode::{CallbackSecret, Hidden};
use euterpe::domain::{JobId, NewJob, RequesterId, origin};
use euterpe::face::serve::{Limits, serve};
use euterpe::store::{NewRequester, Store, Wakeups, migrate};
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;

const EVENTS: usize = 2000;
const QUEUE: &str = "transcode";

#[tokio::main]
async fn main() {
    let dir =
        Cluster::place(&std::env::temp_dir().join(format!("euterpe-{}-bench", std::process::id()))).unwrap();
    let cluster =
        Cluster::start(&dir, Durability::Durable, &["shared_buffers=256MB", "max_wal_size=4GB"]).unwrap();
    run(&cluster).await;
    cluster.stop();
    std::fs::remove_dir_all(&dir).unwrap();
}

struct Bench {
    store: Store,
    acme: RequesterId,
    keys: Keyring,
    kek: String,
    database: String,
    hook: String,
    arrived: mpsc::UnboundedReceiver<(Instant, Bytes)>,
}

async fn run(cluster: &Cluster) {
    let database = cluster.url("postgres");
    let config: Config = database.parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config.clone(), 4).with_wakeups(Wakeups::connect(config));
    let acme: RequesterId = "acme".parse().unwrap();
    store.add_requester(&NewRequester::named(acme.clone())).await.unwrap();
    let kek = format!("bench:{}", *new_key());
    let keys = Keyring::from_env(|name| (name == "EUTERPE_KEKS").then(|| kek.clone())).unwrap();
    let sealed = seal(&keys, &Binding::signing(&acme, 1), SigningSecret::generate().secret());
    store.add_signing_secret(&acme, 1, &sealed, None).await.unwrap();

    let (tells, arrived) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = format!("http://{}/hook", listener.local_addr().unwrap());
    let receive = |State(tells): State<mpsc::UnboundedSender<_>>, body: Bytes| async move {
        tells.send((Instant::now(), body)).unwrap();
    };
    let router = Router::new().fallback(receive).with_state(tells);
    let limits = Limits { connections_per_ip: 1024, ..Limits::default() };
    tokio::spawn(serve(listener, router, limits, CancellationToken::new()));

    let mut bench = Bench { store, acme, keys, kek, database, hook, arrived };
    for (concurrency, per_host) in [(5, 2), (5, 5), (25, 25)] {
        bench.throughput(concurrency, per_host).await;
    }
    bench.lag().await;
}

impl Bench {
    fn job(&self) -> NewJob {
        let job_id = JobId::new(&self.acme);
        let url = Some(Hidden::new(self.hook.clone()));
        let callback = CallbackSecret { status_webhook_url: url, refresh_url: None };
        let secret = Secret::from(callback.write().expose());
        let sealed = seal(&self.keys, &Binding::callback(job_id, &self.acme), &secret);
        NewJob {
            request: json!({}),
            job_id: Some(job_id),
            event_filter: Some(vec!["transcode.queued".into()]),
            callback_origin: Some(origin(&self.hook.parse().unwrap())),
            sealed: [("callback".to_owned(), sealed)].into(),
            ..NewJob::default()
        }
    }

    async fn enqueue(&self, count: usize) {
        let jobs: Vec<_> = (0..count).map(|_| self.job()).collect();
        for jobs in jobs.chunks(500) {
            self.store.enqueue_jobs(&self.acme, QUEUE, jobs).await.unwrap();
        }
    }

    fn postman(&self, concurrency: usize, per_host: usize) -> Child {
        Command::new(env!("CARGO_BIN_EXE_euterpe-webhook"))
            .env_clear()
            .env("EUTERPE_DATABASE_URL", &self.database)
            .env("EUTERPE_KEKS", &self.kek)
            .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
            .env("EUTERPE_ALLOW_HTTP", "true")
            .env("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8")
            .env("EUTERPE_EGRESS_PORTS", "any")
            .env("EUTERPE_OUTBOX_CONCURRENCY", concurrency.to_string())
            .env("EUTERPE_WEBHOOKS_PER_HOST", per_host.to_string())
            .env("EUTERPE_OUTBOX_BATCH", concurrency.max(10).to_string())
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A backlog, delivered; then the same bodies again, posted by a client that does nothing else.
    async fn throughput(&mut self, concurrency: usize, per_host: usize) {
        self.enqueue(EVENTS).await;
        let mut postman = self.postman(concurrency, per_host);
        let (begun, first) = self.arrived.recv().await.unwrap();
        let mut bodies = vec![first];
        let mut last = begun;
        while bodies.len() < EVENTS {
            let (at, body) = self.arrived.recv().await.unwrap();
            last = last.max(at);
            bodies.push(body);
        }
        let ours = EVENTS as f64 / (last - begun).as_secs_f64();
        let memory = peak_memory(&postman);
        end(&mut postman);

        let mut line =
            format!("{concurrency:>3} at once, {per_host:>2} to one host: {ours:>6.0} deliveries per s");
        for (name, idle) in [("a connection each", 0), ("connections kept", concurrency)] {
            let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(idle).build().unwrap();
            let client = Arc::new(client);
            let begun = Instant::now();
            let posts = stream::iter(bodies.clone()).map(|body| {
                let (client, hook) = (Arc::clone(&client), self.hook.clone());
                async move { client.post(hook).body(body).send().await.unwrap().bytes().await.unwrap() }
            });
            posts.buffer_unordered(concurrency).for_each(|_| std::future::ready(())).await;
            let bare = EVENTS as f64 / begun.elapsed().as_secs_f64();
            line += &format!("; bare, {name}: {bare:.0} ({:.2})", ours / bare);
            while self.arrived.try_recv().is_ok() {}
        }
        println!("{line}; peak memory {memory}");
    }

    /// One event after the other, each committed when the last has long arrived.
    async fn lag(&mut self) {
        let mut postman = self.postman(5, 2);
        let mut waits = Vec::new();
        for n in 0..320 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let job = self.job();
            self.store.enqueue_job(&self.acme, QUEUE, &job).await.unwrap();
            let committed = Instant::now();
            let (at, _) = self.arrived.recv().await.unwrap();
            // The first ones wait for the process to start.
            if n >= 20 {
                waits.push(at.saturating_duration_since(committed).as_secs_f64() * 1000.0);
            }
        }
        let memory = peak_memory(&postman);
        end(&mut postman);
        waits.sort_by(f64::total_cmp);
        println!(
            "Idle, from the commit to the receiver: p50 {:.1} ms, p99 {:.1} ms ({} events); peak memory {memory}",
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100],
            waits.len()
        );
    }
}

/// What the kernel saw at most.
fn peak_memory(process: &Child) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    line.trim().to_owned()
}

fn end(process: &mut Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    process.wait().unwrap();
}
