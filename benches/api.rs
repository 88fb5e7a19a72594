//! `make bench`: `POST /transcode` beside pgbench calling the same function, on the same server, in the same run.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod bare;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use euterpe::crypto::{ApiKey, Peppers};
use euterpe::dev::Cluster;
use euterpe::store::{NewApiKey, NewRequester, Store, migrate};
use serde_json::json;
use tokio_postgres::Config;

const KEKS: &str = "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const PEPPER: &str = "MTIzNDU2Nzg5MGFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const LISTEN: &str = "127.0.0.1:18080";

#[tokio::main]
async fn main() {
    let bench = bare::Bench::start();
    run(&bench.cluster).await;
    bench.end();
}

async fn run(cluster: &Cluster) {
    let url = cluster.url("postgres");
    let config: Config = url.parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config, 2);
    let acme = "acme".parse().unwrap();
    let limits = NewRequester {
        requests_per_second: 100_000,
        request_burst: 100_000,
        max_open_jobs: 100_000_000,
        ..NewRequester::named(acme)
    };
    store.add_requester(&limits).await.unwrap();
    let key = add_key(&store).await;
    let mut api = start(&url);
    let client = reqwest::Client::builder().pool_max_idle_per_host(64).build().unwrap();
    while client.get(format!("http://{LISTEN}/readyz")).send().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let idle = memory(&api);

    let script = "select job_id from euterpe.enqueue_job_v1('acme', '{\"source\": {\"uri\": \"s3://in/clip.mov\"}}');\n";
    println!(
        "{:<14}{:>14}{:>12}{:>8}{:>10}{:>10}",
        "connections", "pgbench/s", "POST/s", "ratio", "p50 ms", "p99 ms"
    );
    for connections in [1, 8, 64] {
        let bare = bare::pgbench(&url, connections, script);
        let (speed, mut waits) = posts(&client, &key, connections).await;
        waits.sort_by(f64::total_cmp);
        println!(
            "{connections:<14}{bare:>14.0}{speed:>12.0}{:>8.2}{:>10.1}{:>10.1}",
            speed / bare,
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100]
        );
    }
    println!("\nResident memory of euterpe-api: {idle} KiB idle, {} KiB after the load", memory(&api));
    api.kill().unwrap();
    api.wait().unwrap();
}

async fn add_key(store: &Store) -> String {
    let env = |name: &str| (name == "EUTERPE_KEY_PEPPER").then(|| PEPPER.to_owned());
    let key = ApiKey::generate();
    let hash = Peppers::from_env(env).unwrap().hash(&key);
    let new = NewApiKey {
        requester_id: "acme".parse().unwrap(),
        key_id: key.id().to_owned(),
        key_hash: hash.hash.to_vec(),
        pepper_version: hash.pepper_version,
        scopes: vec!["transcode:write".into()],
        expires_at: None,
    };
    store.add_api_key(&new).await.unwrap();
    key.expose().expose_str().unwrap().to_owned()
}

fn start(url: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_euterpe-api"))
        .env("EUTERPE_DATABASE_URL", url)
        .env("EUTERPE_KEKS", KEKS)
        .env("EUTERPE_KEY_PEPPER", PEPPER)
        .env("EUTERPE_HTTP_LISTEN", LISTEN)
        .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
        .env("EUTERPE_HTTP_CONNECTIONS_PER_IP", "1024") // all of them come from here
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Five seconds of requests, each with credentials to seal; posts per second, and how long each took.
async fn posts(client: &reqwest::Client, key: &str, connections: usize) -> (f64, Vec<f64>) {
    let body = Arc::new(
        json!({
            "source": {"uri": "s3://media-in/clip.mov"},
            "storage": {"output_prefix": "s3://media-out/",
                        "credentials": {"access_key_id": "AKIA", "secret_access_key": "secret"}},
            "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}]
        })
        .to_string(),
    );
    let (begun, keys) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let posting: Vec<_> = (0..connections)
        .map(|_| {
            let (client, key, body, keys) =
                (client.clone(), key.to_owned(), Arc::clone(&body), Arc::clone(&keys));
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while begun.elapsed() < Duration::from_secs(5) {
                    let number = keys.fetch_add(1, Ordering::Relaxed);
                    let asked = Instant::now();
                    let answer = client
                        .post(format!("http://{LISTEN}/transcode"))
                        .bearer_auth(&key)
                        .header("content-type", "application/json")
                        .header("idempotency-key", format!("{connections}-{number}"))
                        .body(body.as_str().to_owned())
                        .send()
                        .await
                        .unwrap();
                    assert_eq!(answer.status(), 202);
                    answer.bytes().await.unwrap();
                    waits.push(asked.elapsed().as_secs_f64() * 1000.0);
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for posting in posting {
        waits.extend(posting.await.unwrap());
    }
    (waits.len() as f64 / begun.elapsed().as_secs_f64(), waits)
}

fn memory(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
