//! Contract §5, §8, §12: every transition of a job arrives, in order, at least once, whatever dies in between; and what
//! becomes of a delivery that meets a bad receiver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use euterpe::domain::{JobId, NewJob};
use euterpe::egress::{Egress, Limits};
use euterpe::handler::webhook::PerHost;
use rand::RngExt;
use rustix::process::Signal;
use rustls::RootCertStore;
use serde_json::json;

use crate::crypto::ring;
use crate::egress::{Names, lax};
use crate::support::api::keyring;
use crate::support::lanes::{pace, until_true};
use crate::support::receiver::{Does, Got, Receiver};
use crate::support::webhooks::{Postman, deliver, deliver_as_usual, deliver_by, egress, hooked, hooked_by};
use crate::support::{QUEUE, TestDb, requester, until};

/// One event only: that of the enqueue.
fn once(url: &str) -> NewJob {
    NewJob { event_filter: Some(vec!["transcode.queued".into()]), ..hooked("acme", url) }
}

async fn until_tried(db: &TestDb, id: JobId, attempts: usize) {
    let sql = format!("select count(*) = {attempts} from euterpe.outbox_attempts where job_id = '{id}'");
    until(&db.client().await, &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transition_of_a_job_arrives_in_order_with_all_its_headers() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let id = db.enqueue_for("acme", hooked("acme", &receiver.url())).await;
    let pod = crate::support::worker("pod");
    let job = db.claim(&pod).await;
    db.succeed(&pod, job.claim).await;
    let working = deliver_as_usual(&db);
    let got = receiver.until_got(6).await;
    until(&db.client().await, "select bool_and(status = 'delivered') from euterpe.job_outbox_events").await;
    working.stop().await;

    let statuses = ["queued", "claimed", "fetching", "processing", "uploading", "succeeded"];
    for ((got, status), n) in got.iter().zip(statuses).zip(1_i64..) {
        assert_eq!(got.place(), (id.to_string(), n));
        let body = got.json();
        assert_eq!(body["type"], format!("transcode.{status}"));
        assert_eq!(got.line, "POST /hooks/42?token=s3cr3t-path HTTP/1.1");
        assert_eq!(got.header("content-type"), "application/json");
        assert_eq!(got.header("host"), receiver.address.to_string());
        assert!(got.header("user-agent").starts_with("Euterpe-Webhooks/"));
        for name in ["x-euterpe-event-id", "webhook-id"] {
            assert_eq!(body["event_id"], got.header(name));
        }
        let stored: String =
            db.one(&format!("select payload from euterpe.job_outbox_events where sequence = {n}")).await;
        assert_eq!(got.body, stored.as_bytes(), "byte for byte");
    }
    assert_eq!(receiver.got().len(), 6);
}

/// What a receiver does, and what became of the delivery: class, status, state of the event.
const MANNERS: &[(Does, Option<&str>, Option<i16>, &str)] = &[
    (Does::Answers(200), None, Some(200), "delivered"),
    (Does::Answers(204), None, Some(204), "delivered"),
    (Does::Hangs, Some("timeout"), None, "ready"),
    (Does::HangsUp, Some("closed"), None, "ready"),
    // The status decides: what is missing after it was only for the log.
    (Does::HangsUpMidBody(200), None, Some(200), "delivered"),
    (Does::HangsUpMidBody(500), Some("status"), Some(500), "ready"),
    (Does::TalksForEver(200), None, Some(200), "delivered"),
    (Does::TalksForEver(503), Some("status"), Some(503), "ready"),
    (Does::AnswersWith(302, "location: http://169.254.169.254/"), Some("redirect"), Some(302), "ready"),
    (Does::AnswersWith(429, "retry-after: 7200"), Some("rate_limited"), Some(429), "ready"),
    (Does::AnswersWith(503, "retry-after: 7200"), Some("status"), Some(503), "ready"),
    (Does::Answers(400), Some("status"), Some(400), "ready"),
    (Does::Answers(410), Some("gone"), Some(410), "dead_letter"),
    (Does::HugeHead, Some("protocol"), None, "ready"),
    (Does::SpeaksNoHttp, Some("protocol"), None, "ready"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_a_delivery_is_decided_by_what_the_receiver_did() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let working = deliver(&db, egress(), PerHost::of(20, 20), pace(20));
    let mut sent = Vec::new();
    for row in MANNERS {
        let does = row.0;
        let receiver = Receiver::start(move |_, _| does).await;
        let id = db.enqueue_for("acme", once(&receiver.url())).await;
        sent.push((row, receiver, id));
    }
    for ((does, class, status, state), receiver, id) in &sent {
        until_tried(&db, *id, 1).await;
        let met = db.met(*id).await;
        assert_eq!(met, [(1, class.map(str::to_owned), *status)], "{does:?}");
        assert_eq!(db.deliveries(*id).await[0], *state, "{does:?}");
        assert_eq!(receiver.got().len(), 1, "{does:?}");
        if matches!(does, Does::AnswersWith(429 | 503, _)) {
            let wait = format!(
                "select extract(epoch from run_at - euterpe._now())::float8 from euterpe.job_outbox_events where job_id = '{id}'"
            );
            let wait: f64 = db.one(&wait).await;
            assert!(wait > 7190.0, "{does:?}: {wait}");
        }
    }
    working.stop().await;
}

/// The answer is an order to go elsewhere; a listener is there, and hears nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let elsewhere = Receiver::kind().await;
    let location: &str = Box::leak(format!("location: {}", elsewhere.url()).into_boxed_str());
    let working = deliver_as_usual(&db);
    for status in [301, 302, 303, 307, 308] {
        let receiver = Receiver::start(move |_, _| Does::AnswersWith(status, location)).await;
        let id = db.enqueue_for("acme", once(&receiver.url())).await;
        until_tried(&db, id, 1).await;
        assert_eq!(db.met(id).await[0].1.as_deref(), Some("redirect"));
    }
    working.stop().await;
    assert_eq!(elsewhere.connections(), 0);
}

/// Nobody there, no TLS, a place that is not allowed, a name that means another place the second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_reached_is_retried_and_what_must_not_be_reached_is_given_up() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::start(|_, _| Does::Answers(500)).await;
    let port = receiver.address.port();
    let names = Names::default().with("turncoat.example", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let limits = Limits { connect: Duration::from_millis(500), ..Limits::default() };
    let egress = Egress::with(lax(&["127.0.0.1/32"]), limits, Arc::new(names), RootCertStore::empty());
    let inside = Receiver::at("127.0.0.2:0", None, |_, _| Does::Answers(200)).await;
    let working = deliver(&db, egress, PerHost::of(5, 5), pace(5));
    for (url, class, state) in [
        (format!("https://127.0.0.1:{port}/"), "tls", "ready"),
        ("http://127.0.0.1:1/".to_owned(), "connect", "ready"),
        ("http://unknown.example/".to_owned(), "dns", "ready"),
        (format!("http://127.0.0.2:{}/", inside.address.port()), "blocked", "dead_letter"),
    ] {
        let id = db.enqueue_for("acme", once(&url)).await;
        until_tried(&db, id, 1).await;
        assert_eq!(db.met(id).await, [(1, Some(class.to_owned()), None)], "{url}");
        assert_eq!(db.deliveries(id).await[0], state, "{url}");
    }
    let id = db.enqueue_for("acme", once(&format!("http://turncoat.example:{port}/"))).await;
    until_tried(&db, id, 1).await;
    db.wind(Duration::from_secs(10)).await;
    until_tried(&db, id, 2).await;
    let met = db.met(id).await;
    assert_eq!(met, [(1, Some("status".into()), Some(500)), (1, Some("blocked".into()), None)]);
    assert_eq!(db.deliveries(id).await[0], "dead_letter");
    working.stop().await;
    assert_eq!(inside.connections(), 0, "nothing was ever sent there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_has_the_same_id_and_bytes_and_a_fresh_nonce_and_signature() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::start(|n, _| Does::Answers(if n == 0 { 500 } else { 200 })).await;
    let working = deliver_as_usual(&db);
    let id = db.enqueue_for("acme", once(&receiver.url())).await;
    until_tried(&db, id, 1).await;
    db.wind(Duration::from_secs(10)).await;
    until_tried(&db, id, 2).await;
    working.stop().await;
    let got = receiver.got();
    let [first, second] = got.as_slice() else { panic!("two requests, not {}", got.len()) };
    assert_eq!(first.body, second.body);
    for name in ["x-euterpe-event-id", "webhook-id"] {
        assert_eq!(first.header(name), second.header(name));
    }
    for name in ["x-euterpe-nonce", "x-euterpe-signature"] {
        assert_ne!(first.header(name), second.header(name));
    }
    assert_eq!(db.met(id).await, [(1, Some("status".into()), Some(500)), (1, None, Some(200))]);
    assert_eq!(db.deliveries(id).await, ["delivered"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_were_not_asked_for_are_in_the_timeline_as_skipped_and_never_sent() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let filter = Some(vec!["transcode.failed".to_owned()]);
    let id = db.ended(NewJob { event_filter: filter, ..hooked("acme", &receiver.url()) }).await;
    let working = deliver_as_usual(&db);
    let got = receiver.until_got(1).await;
    until_tried(&db, id, 1).await;
    working.stop().await;
    assert_eq!(got[0].json()["type"], "transcode.failed");
    assert_eq!(db.deliveries(id).await, ["skipped", "skipped", "delivered"]);
    assert_eq!(receiver.got().len(), 1);
}

/// One host answers nobody, and has twenty events before everybody else's: two deliveries hang, and that is all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_hangs_holds_two_hands_and_nobody_else() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let (hanging, sound) = (Receiver::start(|_, _| Does::Hangs).await, Receiver::kind().await);
    let names = Names::default().with("hangs.example", &[&["127.0.0.1"]]);
    let names = names.with("sound.example", &[&["127.0.0.1"]]);
    for _ in 0..20 {
        let url = format!("http://hangs.example:{}/", hanging.address.port());
        db.ended(hooked("acme", &url)).await;
    }
    for _ in 0..20 {
        let url = format!("http://sound.example:{}/", sound.address.port());
        db.ended(hooked("acme", &url)).await;
    }
    let limits = Limits { total: Duration::from_secs(600), ..Limits::default() };
    let egress = Egress::with(lax(&["127.0.0.1/32"]), limits, Arc::new(names), RootCertStore::empty());
    let working = deliver(&db, egress, PerHost::of(2, 5), pace(5));
    // What was handed back comes again a second later, by the database's clock.
    let winding = async {
        while sound.got().len() < 60 {
            db.wind(Duration::from_secs(2)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), winding).await.expect("sixty arrive");
    let settled = "select count(*) = 60 from euterpe.job_outbox_events where status = 'delivered'";
    until(&db.client().await, settled).await;
    assert_in_order(&sound.got(), 20, 3);
    assert_eq!(sound.got().len(), 60, "each once");
    assert_eq!(hanging.connections(), 2, "as many as one host may have, and never more");
    let uncounted = "select count(*) from euterpe.outbox_attempts where http_status is null";
    assert_eq!(db.one::<i64>(uncounted).await, 0, "waiting for a place costs no attempt");
    working.stop().await;
}

/// Of every job all events, none before the one before it.
fn assert_in_order(got: &[Got], jobs: usize, events: i64) {
    let mut last: HashMap<String, i64> = HashMap::new();
    for got in got {
        let (job, sequence) = got.place();
        let before = last.insert(job.clone(), sequence).unwrap_or(0);
        assert!(sequence == before || sequence == before + 1, "{job}: {sequence} after {before}");
    }
    assert_eq!(last.len(), jobs);
    assert!(last.values().all(|sequence| *sequence == events));
}

/// The real process, killed wherever it happens to be, ten times in 501 events. Proxies in its environment are not asked,
/// and it says nothing secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_again_and_again_loses_no_event_and_no_order() {
    const JOBS: usize = 167;
    let db = TestDb::fresh().await;
    let secret = db.add_signing_secret("acme").await;
    let (receiver, proxy) = (Receiver::kind().await, Receiver::kind().await);
    let jobs: Vec<_> = (0..JOBS).map(|_| hooked("acme", &receiver.url())).collect();
    db.store().enqueue_jobs(&requester("acme"), QUEUE, &jobs).await.unwrap();
    for job in &jobs {
        db.store().cancel_job(job.job_id.unwrap(), None, None).await.unwrap();
    }
    let proxy_url = format!("http://{}", proxy.address);
    let settings = [
        ("EUTERPE_OUTBOX_CONCURRENCY", "8"),
        ("EUTERPE_WEBHOOKS_PER_HOST", "8"),
        ("EUTERPE_LEASE_SECONDS", "5"),
        ("EUTERPE_DRAIN_SECONDS", "5"),
        ("http_proxy", proxy_url.as_str()),
        ("HTTP_PROXY", &proxy_url),
        ("ALL_PROXY", &proxy_url),
    ];
    let mut said = String::new();
    for _ in 0..10 {
        let mut postman = Postman::start(&db, &settings);
        let more = receiver.got().len() + rand::rng().random_range(1..40);
        receiver.until_got(more).await;
        tokio::time::sleep(Duration::from_micros(rand::rng().random_range(0..5000))).await;
        postman.signal(Signal::KILL);
        said += &postman.said();
        // Nobody is there until its leases have lapsed.
        db.wind(Duration::from_secs(6)).await;
    }
    let all = "select count(*) filter (where status = 'delivered') = 501 and count(*) = 501 from euterpe.job_outbox_events";
    let unfinished = "select count(*) > 0 from euterpe.job_outbox_events where status <> 'delivered'";
    assert!(db.one::<bool>(unfinished).await, "it was killed in the middle");
    let mut postman = Postman::start(&db, &settings);
    until(&db.client().await, all).await;
    assert!(postman.signal(Signal::TERM).success(), "{}", postman.said());
    said += &postman.said();

    let got = receiver.got();
    assert_in_order(&got, JOBS, 3);
    let settled = "select count(*) = 501 from euterpe.outbox_attempts where error_class is null";
    assert!(db.one::<bool>(settled).await, "each was settled once, however often it was sent");
    assert_eq!(proxy.connections(), 0);
    let key = secret.expose();
    for never in ["s3cr3t-path", "/hooks/42", key.as_str(), "whsec_"] {
        assert!(!said.contains(never), "the log holds {never}");
    }
    assert!(said.contains("\"outcome\":\"delivered\""), "and says what it does: {said}");
}

/// Another process has the key, or this one will: nobody is blamed, nothing is sent, and it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_key_costs_no_attempt_and_the_event_waits_for_somebody_who_has_it() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let other = ring(&[("other", 7)]);
    let job = NewJob {
        event_filter: Some(vec!["transcode.queued".into()]),
        ..hooked_by(&other, "acme", &receiver.url())
    };
    let id = db.enqueue_for("acme", job).await;
    let working = deliver_as_usual(&db);
    let released = format!(
        "select exists (select from euterpe.job_outbox_events
           where job_id = '{id}' and last_error ->> 'class' = 'unknown_kek' and attempt_count = 0 and worker_id is null
             and run_at > euterpe._now() + interval '20 s')"
    );
    until(&db.client().await, &released).await;
    working.stop().await;
    assert_eq!(receiver.connections(), 0);

    let keys = Keyrings(keyring(), other);
    let working = deliver_by(Arc::new(keys), &db, egress(), PerHost::of(2, 5), pace(5));
    db.wind(Duration::from_secs(31)).await;
    receiver.until_got(1).await;
    until_tried(&db, id, 1).await;
    working.stop().await;
    assert_eq!(db.met(id).await, [(1, None, Some(200))]);
}

/// Every event under that key meets it every 30 seconds; the log says it once, the number counts them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_key_is_logged_once_and_counted_each_time() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    for n in 0..12 {
        let other = ring(&[(if n % 2 == 0 { "other" } else { "another" }, 7)]);
        db.enqueue_for("acme", hooked_by(&other, "acme", "http://127.0.0.1:9/")).await;
    }
    let mut postman = Postman::start(&db, &[]);
    let released = "select count(*) = 12 from euterpe.job_outbox_events
                     where last_error ->> 'class' = 'unknown_kek' and worker_id is null";
    until(&db.client().await, released).await;
    let said = postman.said();
    let numbers = format!("http://{}/metrics", postman.metrics());
    let numbers = reqwest::get(numbers).await.unwrap().text().await.unwrap();
    assert!(postman.signal(Signal::TERM).success());
    for kek_id in ["other", "another"] {
        let line = format!("\"kek_id\":\"{kek_id}\"");
        assert_eq!(said.lines().filter(|said| said.contains(&line)).count(), 1, "{said}");
        let counted = format!("euterpe_unknown_kek_total{{kek_id=\"{kek_id}\"}} 6");
        assert!(numbers.contains(&counted), "{numbers}");
    }
}

/// Ten deliveries at once, and one call for the urls of nine of them; each gets its own, also when that call breaks off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_are_read_for_many_by_one_call_and_each_gets_its_own() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let mut jobs = HashMap::new();
    for n in 0..10 {
        let path = format!("/own/{n}");
        let url = format!("http://{}{path}", receiver.address);
        jobs.insert(db.enqueue_for("acme", once(&url)).await.to_string(), path);
    }
    let (holder, looker) = (db.client().await, db.client().await);
    holder.batch_execute("begin; lock table euterpe.job_secrets in access exclusive mode").await.unwrap();
    let per_host = PerHost { deliveries: 10, waiting: 0, patience: Duration::from_secs(1) };
    let working = deliver(&db, egress(), per_host, pace(10));
    until(&looker, "select count(*) = 10 from euterpe.job_outbox_events where worker_id is not null").await;
    let readers = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                    and query like '%read_event_secrets_v1%'";
    for _ in 0..2 {
        until(&looker, &format!("select count(*) > 0 {readers}")).await;
        let count: i64 = looker.query_one(&format!("select count(*) {readers}"), &[]).await.unwrap().get(0);
        assert_eq!(count, 1, "those who wait make no calls of their own");
        looker.execute(&format!("select pg_terminate_backend(pid) {readers}"), &[]).await.unwrap();
        until(&looker, &format!("select count(*) > 0 {readers}")).await;
    }
    holder.batch_execute("rollback").await.unwrap();
    let got = receiver.until_got(10).await;
    until(&looker, "select bool_and(status = 'delivered') from euterpe.job_outbox_events").await;
    working.stop().await;
    for got in got {
        let (job, _) = got.place();
        assert_eq!(got.line, format!("POST {} HTTP/1.1", jobs[&job]));
    }
}

/// Two rings as one.
struct Keyrings(euterpe::crypto::Keyring, euterpe::crypto::Keyring);

impl euterpe::crypto::KeyProvider for Keyrings {
    fn active_kek(&self, purpose: euterpe::domain::Purpose) -> &str {
        self.0.active_kek(purpose)
    }

    fn wrap(
        &self,
        kek_id: &str,
        dek: &euterpe::crypto::Dek,
        aad: &[u8],
    ) -> Result<Vec<u8>, euterpe::crypto::OpenError> {
        self.0.wrap(kek_id, dek, aad)
    }

    fn unwrap(
        &self,
        kek_id: &str,
        wrapped: &[u8],
        aad: &[u8],
    ) -> Result<euterpe::crypto::Dek, euterpe::crypto::OpenError> {
        self.0.unwrap(kek_id, wrapped, aad).or_else(|_| self.1.unwrap(kek_id, wrapped, aad))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_open_is_given_up_and_nothing_is_sent_unsigned() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let working = deliver_as_usual(&db);
    // Sealed for another job: somebody moved it.
    let (moved, mine) = (once(&receiver.url()), once(&receiver.url()));
    let id = db.enqueue_for("acme", NewJob { sealed: moved.sealed, ..mine }).await;
    until_tried(&db, id, 1).await;
    assert_eq!(db.met(id).await, [(1, Some("decrypt_failed".into()), None)]);
    assert_eq!(db.deliveries(id).await, ["dead_letter"]);

    let job =
        NewJob { event_filter: Some(vec!["transcode.queued".into()]), ..hooked("zenith", &receiver.url()) };
    let id = db.enqueue_for("zenith", job).await;
    until_tried(&db, id, 1).await;
    assert_eq!(db.met(id).await, [(1, Some("internal".into()), None)], "zenith has no signing secret");
    assert_eq!(receiver.connections(), 0);
    db.add_signing_secret("zenith").await;
    db.wind(Duration::from_secs(10)).await;
    assert_eq!(receiver.until_got(1).await[0].json()["data"]["job_id"], json!(id));
    until_tried(&db, id, 2).await;
    working.stop().await;
}

/// A stop lets a delivery under way finish; nothing is in hand afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_deliveries_under_way_finish() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let receiver = Receiver::start(|_, _| {
        std::thread::sleep(Duration::from_millis(300)); // the receiver's own time
        Does::Answers(200)
    })
    .await;
    db.enqueue_for("acme", once(&receiver.url())).await;
    let mut postman = Postman::start(&db, &[]);
    until_true("it is under way", || receiver.connections() == 1).await;
    assert!(postman.signal(Signal::TERM).success(), "{}", postman.said());
    assert_eq!(receiver.got().len(), 1);
    assert!(db.one::<bool>("select bool_and(status = 'delivered') from euterpe.job_outbox_events").await);
}
