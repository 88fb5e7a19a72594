//! What a running process says of itself: numbers for machines, lines for people (docs/logging.md).

use std::collections::BTreeSet;
use std::sync::OnceLock;

use euterpe::domain::{Delivery, JobFailure, JobStatus, NewJob};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use crate::house_style::rust_files;
use crate::support::api::{Api, add_key, request};
use crate::support::receiver::Receiver;
use crate::support::webhooks::{Postman, hooked};
use crate::support::{TestDb, WEBHOOKS, until, with_webhook, worker};

/// The number behind `name` with all these labels; 0 when there is none yet.
fn number(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let all = |line: &&str| {
        let (series, _) = line.rsplit_once(' ').unwrap();
        series.split('{').next() == Some(name)
            && labels.iter().all(|(name, value)| series.contains(&format!("{name}=\"{value}\"")))
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).filter(all);
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_of_requests_lines_connections_and_jobs() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let job_id = api.enqueue().await["job_id"].clone();
    api.enqueue().await;
    api.status(&job_id).await;
    api.post("/transcode/cancel", &json!({"job_id": job_id})).send().await.unwrap();
    api.get("/nowhere/at-all").send().await.unwrap();
    for word in ["BREW", "WHEN"] {
        api.request(word.parse().unwrap(), "/transcode").send().await.unwrap();
    }
    let page =
        api.client.get(format!("{}/metrics", api.metrics_url)).send().await.unwrap().text().await.unwrap();
    let requests = "euterpe_http_request_seconds_count";
    let posted = [("method", "POST"), ("route", "/transcode"), ("status", "202")];
    assert!((number(&page, requests, &posted) - 2.0).abs() < 0.1, "{page}");
    let bucket = [("route", "/transcode"), ("status", "202"), ("le", "60")];
    assert!((number(&page, "euterpe_http_request_seconds_bucket", &bucket) - 2.0).abs() < 0.1, "{page}");
    for (labels, at_least) in [
        (vec![("method", "GET"), ("route", "/transcode/status"), ("status", "200")], 1.0),
        (vec![("route", "none"), ("status", "404")], 1.0),
        (vec![("method", "other"), ("status", "405")], 2.0),
    ] {
        assert!(number(&page, requests, &labels) >= at_least, "{labels:?}: {page}");
    }
    assert!(!page.contains("BREW") && !page.contains("at-all"), "labels are ours alone: {page}");
    for name in ["ready", "delayed", "leased", "paused", "oldest_ready_seconds"] {
        assert!(page.contains(&format!("euterpe_queue_{name}{{queue=\"transcode\"}}")), "{name}: {page}");
    }
    assert!(number(&page, "euterpe_pool_connections", &[("state", "open")]) >= 1.0, "{page}");
    assert!(page.contains("euterpe_pool_connections{state=\"waited_for\"}"), "{page}");
    assert!(
        (number(&page, "euterpe_job_transitions_total", &[("to", "queued")]) - 2.0).abs() < 0.1,
        "{page}"
    );
    let cancelled = [("code", "cancelled"), ("to", "failed")];
    assert!((number(&page, "euterpe_job_endings_total", &cancelled) - 1.0).abs() < 0.1, "{page}");
}

/// By reason, and never by key: whoever guesses keys must not fill our memory, nor find them in a graph.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_authentications_are_counted_by_reason() {
    let db = TestDb::fresh().await;
    let reader = add_key(&db, "acme", &["transcode:read"]).await;
    let revoked = add_key(&db, "acme", &["transcode:read"]).await;
    let api = Api::start(&db).await;
    let unknown = euterpe::crypto::ApiKey::generate().expose().expose_str().unwrap().to_owned();
    let id = revoked.split('_').nth(1).unwrap().to_owned();
    db.run(&format!("update euterpe.api_keys set revoked_at = euterpe._now() where key_id = '{id}'")).await;
    let ask = async |header: &str, value: &str, wanted: u16| {
        let sent = api.client.post(format!("{}/transcode", api.url)).header(header, value).json(&request());
        assert_eq!(sent.send().await.unwrap().status(), wanted, "{header}: {value}");
    };
    ask("x-other", "-", 401).await;
    ask("x-api-key", "eut_nonsense", 401).await;
    ask("authorization", "Basic YTpi", 401).await;
    ask("x-api-key", &unknown, 401).await;
    ask("x-api-key", &revoked, 401).await;
    ask("x-api-key", &reader, 403).await;
    db.run("update euterpe.requesters set disabled_at = euterpe._now() where requester_id = 'acme'").await;
    for _ in 0..2000 {
        if api.get("/transcode").send().await.unwrap().status() == 403 {
            break;
        }
    }
    let page = api.client.get(format!("{}/metrics", api.metrics_url)).send().await.unwrap();
    let page = page.text().await.unwrap();
    for (reason, count) in
        [("no_key", 1), ("no_such_form", 2), ("unknown", 1), ("revoked", 1), ("scope", 1), ("disabled", 1)]
    {
        let counted = number(&page, "euterpe_auth_failures_total", &[("reason", reason)]);
        assert!((counted - f64::from(count)).abs() < 0.1, "{reason}: {page}");
    }
    assert!(!page.contains(&id), "{page}");
}

/// Other tests of this process count too, so only what has been added is looked at.
fn numbers() -> &'static PrometheusHandle {
    static NUMBERS: OnceLock<PrometheusHandle> = OnceLock::new();
    NUMBERS.get_or_init(|| euterpe::telemetry::count().unwrap())
}

#[tokio::test]
async fn endings_are_counted_by_code_and_deliveries_by_outcome() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let before = numbers().render();
    let more = |name: &str, labels: &[(&str, &str)], count: f64| {
        let now = number(&numbers().render(), name, labels);
        assert!(now >= number(&before, name, labels) + count, "{name} {labels:?}: {now}");
    };
    for code in ["media_drm", "storage_locked", "egress_blocked"] {
        let job = db.running_with(with_webhook(), &pod, JobStatus::Processing).await;
        let failure = JobFailure { code: code.into(), ..JobFailure::default() };
        store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    }
    let job = db.running(&pod, JobStatus::Claimed).await;
    db.succeed(&pod, job.claim).await;
    let endings = "euterpe_job_endings_total";
    more(endings, &[("code", "media_drm"), ("to", "failed")], 1.0);
    more(endings, &[("code", "storage_locked"), ("to", "queued")], 1.0);
    more(endings, &[("code", "egress_blocked"), ("to", "dead_letter")], 1.0);
    more(endings, &[("code", "none"), ("to", "succeeded")], 1.0);
    for (to, count) in
        [("queued", 5.0), ("claimed", 4.0), ("processing", 4.0), ("failed", 2.0), ("dead_letter", 1.0)]
    {
        more("euterpe_job_transitions_total", &[("to", to)], count);
    }

    let events = store.claim_events(WEBHOOKS[0], &pod, 2, None).await.unwrap();
    let [arrives, fails] = &events[..] else { panic!("two events are ready") };
    let failed = Delivery { http_status: Some(500), ..Delivery::failed("status") };
    store
        .settle_events(&pod, &[(arrives.claim, Delivery::arrived(200)), (fails.claim, failed)])
        .await
        .unwrap();
    store.settle_events(&pod, &[(arrives.claim, Delivery::arrived(200))]).await.unwrap();
    for outcome in ["delivered", "ready", "stale"] {
        more("euterpe_deliveries_total", &[("outcome", outcome)], 1.0);
    }
}

/// By a process of its own: the numbers of this one are counted by every test in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_counted_once_by_what_it_met_and_once_by_what_followed() {
    let (db, receiver) = (TestDb::fresh().await, Receiver::kind().await);
    db.add_signing_secret("acme").await;
    let one_event = Some(vec!["transcode.queued".into()]);
    db.enqueue_for("acme", NewJob { event_filter: one_event, ..hooked("acme", &receiver.url()) }).await;
    let mut postman = Postman::start(&db, &[]);
    until(
        &db.client().await,
        "select count(*) = 1 from euterpe.job_outbox_events where status = 'delivered'",
    )
    .await;
    // What followed is counted when the answer of the database has arrived: a moment after others can see it.
    let address = format!("http://{}/metrics", postman.metrics());
    let (followed, mut page) = ("euterpe_deliveries_total", String::new());
    for _ in 0..2000 {
        page = reqwest::get(&address).await.unwrap().text().await.unwrap();
        if number(&page, followed, &[]) > 0.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(postman.signal(rustix::process::Signal::TERM).success());
    for (name, labels) in [
        (followed, &[("outcome", "delivered")][..]),
        (followed, &[]),
        ("euterpe_delivery_attempts_total", &[("met", "delivered")]),
        ("euterpe_delivery_attempts_total", &[]),
        ("euterpe_delivery_seconds_count", &[]),
    ] {
        assert!((number(&page, name, labels) - 1.0).abs() < 0.1, "{name} {labels:?}: {page}");
    }
    assert_eq!(receiver.got().len(), 1);
}

/// Every number that the source keeps is explained.
#[test]
fn every_metric_is_on_the_page() {
    let page = std::fs::read_to_string("docs/logging.md").unwrap();
    let mut names = BTreeSet::new();
    for path in rust_files(std::path::Path::new("src")) {
        let text = std::fs::read_to_string(path).unwrap();
        for kind in ["counter!(", "gauge!(", "histogram!("] {
            for rest in text.split(kind).skip(1) {
                let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                names.insert(name.expect("a metric's name is written where it is counted").to_owned());
            }
        }
    }
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}`")) || page.contains(&format!(", `{name}`")), "{name}");
    }
}

/// Every line is an object, every field is explained in docs/logging.md, and a request is found by its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_json_line_by_line_and_their_fields_are_on_the_page() {
    let db = TestDb::fresh().await;
    let mut api = Api::start_with(&db, &[("RUST_LOG", "debug,hyper=info,tokio_postgres=info")]).await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = api.post("/transcode", &request()).header("x-request-id", "find-me");
    assert_eq!(sent.header("traceparent", traceparent).send().await.unwrap().status(), 202);
    db.run("alter function euterpe.list_jobs_v1 rename to list_jobs_v0").await;
    assert_eq!(api.get("/transcode").header("x-request-id", "broken").send().await.unwrap().status(), 500);
    db.run("alter function euterpe.list_jobs_v0 rename to list_jobs_v1").await;
    api.signal(rustix::process::Signal::TERM);
    assert!(api.wait().success());

    let said = api.said();
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    let page = std::fs::read_to_string("docs/logging.md").unwrap();
    let names =
        |value: &Value| value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect::<Vec<_>>();
    let used: BTreeSet<String> =
        lines.iter().flat_map(|line| [names(line), names(&line["span"])]).flatten().collect();
    for name in &used {
        assert!(page.contains(&format!("`{name}`")), "docs/logging.md does not explain `{name}`");
    }
    let of = |id: &str| lines.iter().filter(|line| line["span"]["request.id"] == id).collect::<Vec<_>>();
    let answered =
        of("find-me").into_iter().find(|line| line["message"] == "answered").expect("one line each");
    assert_eq!((&answered["http.status"], &answered["level"]), (&202.into(), &"INFO".into()));
    let broken =
        of("broken").into_iter().find(|line| line["level"] == "ERROR").expect("our fault is an error");
    assert!(broken["error"].as_str().unwrap().contains("list_jobs_v1"), "with its causes: {broken}");
    for (line, secret) in
        lines.iter().flat_map(|line| [(line, api.key.as_str()), (line, "AKIA"), (line, "clip.mov")])
    {
        assert!(!line.to_string().contains(secret), "{line}");
    }
    let kept: String = db.one("select traceparent from euterpe.job_requests").await;
    assert_eq!(kept, traceparent, "stored with its job");
}
