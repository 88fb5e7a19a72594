//! Contract §6 while Postgres is away: every call is told so at once, nothing that was accepted is lost, and it goes on
//! by itself. And what a service wants to see before it starts (design §5.17).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::task::{JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::api::{Api, KEK, add_key, code, refusal, request};
use crate::support::{Proxy, TestDb, bare_database, until, url_of};

/// What clients have seen so far.
#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

impl Seen {
    async fn until_more(&self, count: &AtomicUsize, more: usize) {
        let enough = count.load(Ordering::SeqCst) + more;
        for _ in 0..6000 {
            if count.load(Ordering::SeqCst) >= enough {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("accepted {:?}, refused {:?}, and no more", self.accepted, self.refused);
    }
}

/// A refusal as every client should meet it. A second is no measure of speed here: it tells a refusal from a hang.
async fn insist_on_refusal(answer: Response, took: Duration) {
    let wait = answer.headers().get("retry-after").expect("when to come back").to_str().unwrap();
    assert!((1..=5).contains(&wait.parse::<u32>().unwrap()), "Retry-After: {wait}");
    assert_eq!(code(answer).await, (503, "unavailable".into()));
    assert!(took < Duration::from_secs(1), "refused after {took:?}");
}

/// Posts one job after the other, each until it is accepted; says which were.
async fn keep_posting(
    post: impl Fn(&str) -> RequestBuilder,
    name: usize,
    seen: Arc<Seen>,
    stop: CancellationToken,
) -> Vec<Uuid> {
    let mut accepted = Vec::new();
    while !stop.is_cancelled() {
        let key = format!("{name}-{}", accepted.len());
        loop {
            let begun = Instant::now();
            let answer = post(&key).send().await.expect("an answer, whatever happens");
            if answer.status() == 202 {
                seen.accepted.fetch_add(1, Ordering::SeqCst);
                let body: Value = answer.json().await.unwrap();
                accepted.push(body["job_id"].as_str().unwrap().parse().unwrap());
                break;
            }
            insist_on_refusal(answer, begun.elapsed()).await;
            seen.refused.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    accepted
}

/// Once in an orderly way and once by a crash; the same process serves before, in between and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_postgres_stopped_under_load_everybody_is_told_and_nothing_accepted_is_lost() {
    let mut db = TestDb::durable().await;
    db.run("update euterpe.requesters set requests_per_second = 100000, request_burst = 100000, max_open_jobs = 100000")
        .await;
    let api = Api::start_with(&db, &[("EUTERPE_ALLOW_UNSAFE_DURABILITY", "false")]).await;
    let (seen, stop) = (Arc::new(Seen::default()), CancellationToken::new());
    let mut clients = JoinSet::new();
    for name in 0..6 {
        let (client, url, token) = (Client::new(), format!("{}/transcode", api.url), api.key.clone());
        let post = move |key: &str| {
            let post = client.post(&url).bearer_auth(&token).header("idempotency-key", key);
            post.json(&request())
        };
        clients.spawn(keep_posting(post, name, Arc::clone(&seen), stop.clone()));
    }
    for crash in [false, true] {
        seen.until_more(&seen.accepted, 30).await;
        block_in_place(|| if crash { db.server().crash() } else { db.server().stop() });
        seen.until_more(&seen.refused, 30).await;
        let calls =
            ["/transcode", "/transcode/status?job_id=0161c1b0-0000-7000-8000-000000000000", "/readyz"];
        for path in calls {
            let begun = Instant::now();
            let answer = api.get(path).send().await.unwrap();
            insist_on_refusal(answer, begun.elapsed()).await;
        }
        for (url, status) in [
            (format!("{}/healthz", api.url), 200),
            (format!("{}/healthz", api.metrics_url), 200),
            (format!("{}/readyz", api.metrics_url), 503),
            (format!("{}/metrics", api.metrics_url), 200),
        ] {
            assert_eq!(api.client.get(&url).send().await.unwrap().status(), status, "{url}");
        }
        block_in_place(|| db.server().go_on());
    }
    seen.until_more(&seen.accepted, 30).await;
    stop.cancel();
    let accepted: Vec<Uuid> = clients.join_all().await.into_iter().flatten().collect();
    // An answer is good for a second, also the last one of the outage.
    let begun = Instant::now();
    while api.get("/readyz").send().await.unwrap().status() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "never ready again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let looker = db.client().await;
    let there = "select count(*) from euterpe.inbox_jobs where job_id = any ($1)";
    let kept: i64 = looker.query_one(there, &[&accepted]).await.unwrap().get(0);
    assert_eq!(kept, i64::try_from(accepted.len()).unwrap(), "every 202 is a job");
    let all: i64 = db.one("select count(*) from euterpe.inbox_jobs").await;
    assert_eq!(all, kept, "and every call that was repeated is one job");
    let causes = ["terminating connection", "connection closed", "No such file", "Connection refused"];
    assert!(causes.iter().any(|cause| api.said().contains(cause)), "the log says why");
}

/// One connection, and somebody waits on it for a lock: the others are refused at once, and in the end he is too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_connection_taken_calls_are_refused_and_none_hangs() {
    let db = TestDb::fresh().await;
    let api = Api::start_with(&db, &[("EUTERPE_API_CONNECTIONS", "1")]).await;
    let holder = db.client().await;
    holder.batch_execute("begin; lock table euterpe.idempotency_keys in share mode").await.unwrap();
    let post = || api.post("/transcode", &request()).header("idempotency-key", "k").send();
    let stuck = tokio::spawn(post());
    until(
        &db.client().await,
        "select exists (select from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock' and usename = 'euterpe_api')",
    )
    .await;
    let begun = Instant::now();
    for answer in futures_util::future::join_all((0..10).map(|_| api.get("/transcode").send())).await {
        insist_on_refusal(answer.unwrap(), begun.elapsed()).await;
    }
    // Its role's lock_timeout ends it; the lock is still held.
    assert_eq!(code(stuck.await.unwrap().unwrap()).await, (503, "unavailable".into()));
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(post().await.unwrap().status(), 202);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 1);
}

/// Nothing comes through and nothing is closed: no error ever arrives, so only our own patience ends the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_swallows_everything_is_given_up() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(&db.config());
    let key = add_key(&db, "acme", &["transcode:write", "transcode:read"]).await;
    let through = url_of(&proxy.config(&db.config())).replace("user=euterpe_test", "user=euterpe_api");
    let settings = [("EUTERPE_API_CONNECTIONS", "2"), ("EUTERPE_DATABASE_SECONDS", "1")];
    let api = Api::over(&through, key, &settings).await;
    let post = |key: String| api.post("/transcode", &request()).header("idempotency-key", key).send();
    assert_eq!(post("before".into()).await.unwrap().status(), 202);

    proxy.stall();
    // Connections that are there are given up after a second, new ones after two; both are far below this.
    let hang = Duration::from_secs(30);
    for _ in 0..2 {
        let posts = futures_util::future::join_all((0..6).map(|n| post(n.to_string())));
        for answer in tokio::time::timeout(hang, posts).await.expect("a hang") {
            assert_eq!(code(answer.unwrap()).await, (503, "unavailable".into()));
        }
    }
    assert_eq!(api.get("/readyz").send().await.unwrap().status(), 503);
    assert_eq!(api.get("/healthz").send().await.unwrap().status(), 200);

    proxy.flow();
    for n in 0..6 {
        let begun = Instant::now();
        while post(n.to_string()).await.unwrap().status() != 202 {
            assert!(begun.elapsed() < hang, "it does not come back");
        }
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 7, "one job for each key");
}

const MARK: &str = "EUTMARKsecret";

/// Each row: what is wrong, and what the refusal must say. No refusal repeats what may be a secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_cannot_work_says_why_and_does_not_start() {
    let (db, bare) = (TestDb::fresh().await, bare_database().await);
    let database = url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_api");
    let empty = url_of(&bare.config()).replace("user=euterpe_test", "user=euterpe_api");
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let secret = |rest: &str| format!("{rest} password={MARK}");
    let unreachable = secret("host=127.0.0.1 port=1 user=euterpe_api dbname=x");
    let nowhere = secret(&database.replace("dbname=", "dbname=no_"));
    let nobody = secret(&database.replace("user=euterpe_api", "user=nobody_here"));
    let reader = secret(&database.replace("user=euterpe_api", "user=euterpe_readonly"));
    let other = secret(&database.replace("user=euterpe_api", "user=euterpe_webhook"));
    let no_url = format!("postgres://u:{MARK}@[");
    let (bad_kek, bad_pepper) = (format!("k1:{MARK}"), format!("1:{MARK}"));
    let is = |name, value| vec![(name, Some(value))];
    let url = "EUTERPE_DATABASE_URL";
    for (wrong, says) in [
        (is("EUTERPE_ALLOW_UNSAFE_DURABILITY", "false"), "fsync = off"),
        (is("EUTERPE_ALLOW_UNSAFE_DURABILITY", "false"), "or say EUTERPE_ALLOW_UNSAFE_DURABILITY=true"),
        (is("EUTERPE_ALLOW_UNSAFE_DURABILITY", "yes"), "must be true or false, default false"),
        (is(url, &empty), "run euterpe-migrate of this release"),
        (is(url, &unreachable), "EUTERPE_DATABASE_URL names; is it right, and is the server up?"),
        (is(url, &unreachable), "Connection refused"),
        (is(url, &nowhere), "does not exist"),
        (is(url, &nobody), "\"nobody_here\" does not exist"),
        (is(url, &reader), "grant euterpe_api to \"euterpe_readonly\""),
        (is(url, &other), "the login euterpe_webhook may not call euterpe."),
        (is(url, &no_url), "EUTERPE_DATABASE_URL=\"…\": has a host that cannot be used"),
        (is("EUTERPE_DIRECT_DATABASE_URL", &no_url), "EUTERPE_DIRECT_DATABASE_URL=\"…\": has a host"),
        (vec![(url, None)], "EUTERPE_DATABASE_URL is not set: say which database"),
        (vec![("EUTERPE_KEKS", None)], "EUTERPE_KEK_FILE"),
        (is("EUTERPE_KEKS", &bad_kek), "EUTERPE_KEKS"),
        (vec![("EUTERPE_KEY_PEPPER", None)], "EUTERPE_KEY_PEPPER"),
        (is("EUTERPE_KEY_PEPPER", &bad_pepper), "EUTERPE_KEY_PEPPER"),
        (is("EUTERPE_API_CONNECTIONS", "0"), "must be in 1..=200, default 16"),
        (is("EUTERPE_HTTP_CONNECTIONS", "lots"), "must be in 1..=65536, default 1024"),
        (is("EUTERPE_HEAD_SECONDS", "0"), "must be in 1..=60, default 10"),
        (is("EUTERPE_BODY_SECONDS", "61"), "must be in 1..=60, default 10"),
        (is("EUTERPE_DATABASE_SECONDS", "0"), "must be in 1..=600, default 12"),
        (is("EUTERPE_HTTP_LISTEN", "8080"), "must be an address and a port, default 127.0.0.1:8080"),
        (is("EUTERPE_HTTP_LISTEN", &taken), "cannot listen on EUTERPE_HTTP_LISTEN"),
        (is("EUTERPE_METRICS_LISTEN", &taken), "cannot listen on EUTERPE_METRICS_LISTEN"),
        (is("EUTERPE_EGRESS_ALLOW", "10.0.0.0/33"), "must be networks such as 10.0.0.0/8"),
        (is("EUTERPE_EGRESS_PORTS", "http"), "must be ports in 1..=65535, separated by commas, or any"),
        (is("EUTERPE_HTTP_CONNECTIONS_PER_IP", "0"), "must be in 1..=65536, default 32"),
        (is("EUTERPE_LOG", "xml"), "must be text or json, default text"),
        (
            is("EUTERPE_QUEUES", "transcode,fast"),
            "there is no queue fast: as an operator, select euterpe.create_queue_v1('fast')",
        ),
        (is("EUTERPE_QUEUES", "webhook"), "the queue webhook holds webhooks, not jobs"),
        (is("EUTERPE_FILE_STORAGE", "media"), "EUTERPE_FILE_STORAGE=\"media\": must be absolute directories"),
    ] {
        let said = block_in_place(|| refusal(&database, &wrong));
        assert!(said.contains(says), "{wrong:?} should say {says:?}: {said}");
        assert!(!said.contains(MARK), "{wrong:?}: {said}");
        assert!(!said.contains("panicked"), "{wrong:?}: {said}");
    }
    db.run("drop function euterpe.count_open_jobs_v1").await;
    let said = block_in_place(|| refusal(&database, &[]));
    assert!(said.contains("this database lacks euterpe.count_open_jobs_v1(text,integer)"), "{said}");
}

/// The same of a worker: without its line it would warn every second, without its directory fail every job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_line_or_directory_is_not_there_does_not_start() {
    let (db, dir) = (TestDb::fresh().await, tempfile::TempDir::new().unwrap());
    let run = |name: &str, value: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_euterpe-transcode"))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env(
                "EUTERPE_DATABASE_URL",
                url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_transcode"),
            )
            .envs([("EUTERPE_KEKS", KEK), ("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")])
            .envs([("EUTERPE_METRICS_LISTEN", "127.0.0.1:0"), (name, value)])
            .env("EUTERPE_WORK_DIR", dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    };
    for (name, value, says) in [
        (
            "EUTERPE_QUEUE",
            "no'pe",
            "there is no queue no'pe: as an operator, select euterpe.create_queue_v1('no''pe')",
        ),
        ("EUTERPE_QUEUE", "webhook_retry", "the queue webhook_retry holds webhooks, not jobs"),
        ("EUTERPE_FILE_STORAGE", "/nope", "EUTERPE_FILE_STORAGE=\"/nope\": is no directory here"),
        ("EUTERPE_FILE_STORAGE", "media", "must be absolute directories"),
    ] {
        let said = block_in_place(|| run(name, value));
        assert!(said.contains(says), "{name}={value}: {said}");
    }
    let known = "select count(*) from euterpe.workers";
    assert_eq!(db.one::<i64>(known).await, 0, "nobody was there who then was not");
}
