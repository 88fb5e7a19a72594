//! Contract §6 as a stranger meets it: slow, broken, rude and vanishing clients, by hand over TCP against the real
//! `euterpe-api`. Each is answered in one shape or closed in time, and nobody else notices.

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use euterpe::face::serve::{Limits, serve};
use reqwest::StatusCode;
use rustix::process::Signal;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::support::api::{Api, request};
use crate::support::raw::Raw;
use crate::support::{TestDb, until};

/// Shorter than a test; longer than a machine under load needs for a line.
const SHORT: [(&str, &str); 2] = [("EUTERPE_HEAD_SECONDS", "2"), ("EUTERPE_BODY_SECONDS", "2")];
const LIMIT: Duration = Duration::from_secs(2);

/// The head of a `POST /transcode` with acme's key, and what is said besides.
fn post(api: &Api, more: &str) -> String {
    let key = &api.key;
    format!(
        "POST /transcode HTTP/1.1\r\nHost: euterpe\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n{more}\r\n"
    )
}

/// A chunk of `size` spaces: JSON may begin with as many as it likes.
fn chunk(size: usize) -> String {
    format!("{size:x}\r\n{}\r\n", " ".repeat(size))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_and_half_heads_are_closed_at_the_limit() {
    let db = TestDb::fresh().await;
    let api = Api::start_with(&db, &SHORT).await;
    let begun = Instant::now();
    let (mut idle, mut half, mut again) = (Raw::to(&api).await, Raw::to(&api).await, Raw::to(&api).await);
    assert!(half.send("GET /healthz HTTP/1.1\r\nHost: eut").await);
    assert!(again.send("GET /healthz HTTP/1.1\r\nHost: euterpe\r\n\r\n").await);
    assert_eq!(again.answer().await.unwrap().status, 200);
    // A byte now and then does not help.
    let mut drips = Raw::to(&api).await;
    let dripping = async {
        while drips.send("G").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "a dripping head is never cut off");
        }
    };
    tokio::join!(idle.until_closed(), half.until_closed(), again.until_closed(), dripping);
    assert!(begun.elapsed() >= LIMIT, "not before: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stalls_is_a_408() {
    let db = TestDb::fresh().await;
    let api = Api::start_with(&db, &SHORT).await;
    for (head, part) in [
        ("Content-Length: 100\r\n", r#"{"source""#.to_owned()),
        ("Content-Length: 100\r\n", String::new()),
        ("Transfer-Encoding: chunked\r\n", chunk(10)),
    ] {
        let mut client = Raw::to(&api).await;
        client.send(post(&api, head) + &part).await;
        let answer = client.answer().await.expect(head);
        assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"), "{head}");
        assert!(answer.is_protected());
        client.until_closed().await; // what the rest of the body says is no request
    }
}

/// The answer comes while most of the body has not even been sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_256_kib_is_a_413_before_it_is_all_there() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let declared = "Content-Length: 262145\r\n".to_owned();
    let expects = declared.clone() + "Expect: 100-continue\r\n";
    let gigabyte = "Content-Length: 1000000000\r\n".to_owned();
    let chunked = "Transfer-Encoding: chunked\r\n".to_owned();
    for (head, part) in [
        (declared, String::new()),
        (expects, String::new()),
        (gigabyte, " ".repeat(1000)),
        (chunked.clone(), chunk(200_000) + &chunk(62_145)),
    ] {
        let mut client = Raw::to(&api).await;
        client.send(post(&api, &head) + &part).await;
        let answer = client.answer().await.expect(&head);
        assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"), "{head}");
    }
    // One byte less is read to its end, and found to be no JSON.
    let mut client = Raw::to(&api).await;
    client.send(post(&api, &chunked) + &chunk(200_000) + &chunk(62_144) + "0\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().code(), "invalid_json");

    // Who reads only after having sent everything still finds the answer.
    let mut stubborn = Raw::to(&api).await;
    stubborn.send(post(&api, "Content-Length: 2000000\r\n") + &" ".repeat(2_000_000)).await;
    assert_eq!(stubborn.answer().await.expect("the answer was lost").status, 413);
}

/// Every row: what is sent, and status and code of the answer. All in one shape, protected, and with a request id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_has_one_shape() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let key = api.key.clone();
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: euterpe\r\n{more}\r\n");
    let host = "Host: euterpe\r\n";
    let filler = |count: usize| "X: y\r\n".repeat(count);
    let sent = |more: &str| post(&api, &format!("Content-Length: 2\r\n{more}")) + "{}";
    let typed = |kinds: &str| {
        format!("POST /transcode HTTP/1.1\r\n{host}X-API-Key: {key}\r\nContent-Length: 2\r\n{kinds}\r\n{{}}")
    };
    let rows: Vec<(&str, String, u16, &str)> = vec![
        ("no host", "GET /healthz HTTP/1.1\r\n\r\n".into(), 400, "bad_request"),
        ("two hosts", get("/healthz", host), 400, "bad_request"),
        ("a whole url", get("http://euterpe/healthz", ""), 400, "bad_request"),
        ("another's url", get("http://example.com/transcode", ""), 400, "bad_request"),
        ("connect", format!("CONNECT euterpe:443 HTTP/1.1\r\n{host}\r\n"), 400, "bad_request"),
        ("asterisk", format!("OPTIONS * HTTP/1.1\r\n{host}\r\n"), 404, "not_found"),
        ("a long path", get(&format!("/{}", "x".repeat(2048)), ""), 400, "bad_request"),
        ("a long query", get(&format!("/healthz?{}", "x".repeat(2048)), ""), 400, "bad_request"),
        ("65 headers", get("/healthz", &filler(64)), 400, "bad_request"),
        (
            "17 KiB of headers",
            get("/healthz", &format!("X: {}\r\n", "y".repeat(17 << 10))),
            400,
            "bad_request",
        ),
        ("no such path", get("/nowhere", ""), 404, "not_found"),
        ("below a path", get("/transcode/", ""), 404, "not_found"),
        ("climbing", get("/docs/../transcode", ""), 404, "not_found"),
        ("another method", get("/transcode/cancel", ""), 405, "method_not_allowed"),
        ("no such method", format!("BREW /transcode HTTP/1.1\r\n{host}\r\n"), 405, "method_not_allowed"),
        ("write to health", format!("DELETE /healthz HTTP/1.1\r\n{host}\r\n"), 405, "method_not_allowed"),
        ("write to docs", format!("PUT /openapi.json HTTP/1.1\r\n{host}\r\n"), 405, "method_not_allowed"),
        ("no key", get("/transcode", ""), 401, "unauthorized"),
        ("basic", get("/transcode", "Authorization: Basic YTpi\r\n"), 401, "unauthorized"),
        (
            "a key in both",
            get("/transcode", &format!("Authorization: Bearer {key}\r\nX-API-Key: {key}\r\n")),
            400,
            "bad_request",
        ),
        (
            "a key twice",
            get("/transcode", &format!("X-API-Key: {key}\r\nX-API-Key: {key}\r\n")),
            400,
            "bad_request",
        ),
        ("a key not ascii", get("/transcode", "X-API-Key: eut_\u{e9}\r\n"), 401, "unauthorized"),
        ("gzip", sent("Content-Encoding: gzip\r\n"), 415, "unsupported_media_type"),
        (
            "gzip behind identity",
            sent("Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"),
            415,
            "unsupported_media_type",
        ),
        ("no type", typed(""), 415, "unsupported_media_type"),
        ("text", typed("Content-Type: text/plain\r\n"), 415, "unsupported_media_type"),
        (
            "a form",
            typed("Content-Type: application/x-www-form-urlencoded\r\n"),
            415,
            "unsupported_media_type",
        ),
        ("two types", sent("Content-Type: text/plain\r\n"), 415, "unsupported_media_type"),
        (
            "json, in capitals",
            typed("Content-Type: Application/JSON; charset=utf-8\r\n"),
            422,
            "invalid_request",
        ),
        ("two idempotency keys", sent("Idempotency-Key: a\r\nIdempotency-Key: a\r\n"), 400, "bad_request"),
        ("a long one", sent(&format!("Idempotency-Key: {}\r\n", "k".repeat(256))), 400, "bad_request"),
        ("an empty one", sent("Idempotency-Key: \r\n"), 400, "bad_request"),
        ("one with a space", sent("Idempotency-Key: a b\r\n"), 400, "bad_request"),
        ("one not ascii", sent("Idempotency-Key: \u{e9}\r\n"), 400, "bad_request"),
        (
            "an unknown parameter",
            get("/transcode?nonsense=1", &format!("X-API-Key: {key}\r\n")),
            422,
            "invalid_request",
        ),
    ];
    for (what, bytes, status, code) in rows {
        let mut client = Raw::to(&api).await;
        client.send(bytes).await;
        let answer = client.answer().await.unwrap_or_else(|| panic!("{what}: closed"));
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{what}");
        assert!(answer.is_protected(), "{what}: {answer:?}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{what}");
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{what}");
    }
    let mut client = Raw::to(&api).await;
    client.send(format!("PATCH /transcode HTTP/1.1\r\n{host}\r\n")).await;
    let answer = client.answer().await.unwrap();
    let mut allowed: Vec<_> = answer.header("allow").unwrap().split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_good_answer_is_protected_too() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let body = request().to_string();
    let mut sent = vec![post(&api, &format!("Content-Length: {}\r\n", body.len())) + &body];
    for path in
        ["/healthz", "/readyz", "/openapi.json", "/docs", "/docs/page.js", "/docs/page.css", "/transcode"]
    {
        sent.push(format!("GET {path} HTTP/1.1\r\nHost: euterpe\r\nX-API-Key: {}\r\n\r\n", api.key));
    }
    let mut client = Raw::to(&api).await; // one connection for all: an answer does not end it
    for bytes in sent {
        client.send(&bytes).await;
        let answer = client.answer().await.unwrap();
        assert!([200, 202].contains(&answer.status), "{bytes}: {answer:?}");
        assert!(answer.is_protected(), "{bytes}: {answer:?}");
    }
}

/// Below our routes: hyper's own answer, without a body, and the end of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_http_is_refused_and_closed() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let get = |more: &str| format!("GET /healthz HTTP/1.1\r\nHost: euterpe\r\n{more}\r\n").into_bytes();
    for (what, bytes, status) in [
        ("noise", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400),
        ("a name with a space", get("Bad name: x\r\n"), 400),
        ("a folded header", get("X: y\r\n z\r\n"), 400),
        ("a NUL", get("X: \0\r\n"), 400),
        ("two lengths", get("Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        ("a length that is none", get("Content-Length: -1\r\n"), 400),
        ("an encoding that is not chunked", get("Transfer-Encoding: gzip\r\n"), 400),
        ("70 KiB of headers", get(&format!("X: {}\r\n", "y".repeat(70 << 10))), 431),
        ("300 headers", get(&"X: y\r\n".repeat(300)), 431),
    ] {
        let mut client = Raw::to(&api).await;
        client.send(bytes).await;
        let answer = client.answer().await.unwrap_or_else(|| panic!("{what}: closed without a word"));
        assert_eq!((answer.status, answer.body.len()), (status, 0), "{what}");
        client.until_closed().await;
    }
    let mut http2 = Raw::to(&api).await;
    http2.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(http2.until_closed().await, 0, "there is no HTTP/2 to be flooded by");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_is_echoed_when_it_is_fit_for_a_log() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let (long, longest) = ("x".repeat(65), "x".repeat(64));
    for (id, is_fit) in [
        ("req-42_a.b", true),
        (longest.as_str(), true),
        (long.as_str(), false),
        ("two words", false),
        ("<script>", false),
        ("\u{e9}", false),
        ("", false),
    ] {
        let mut client = Raw::to(&api).await;
        client.send(format!("GET /nowhere HTTP/1.1\r\nHost: euterpe\r\nX-Request-Id: {id}\r\n\r\n")).await;
        let answer = client.answer().await.unwrap();
        let echoed = answer.header("x-request-id").unwrap();
        assert_eq!(echoed == id, is_fit, "{id:?}");
        assert_eq!(echoed.parse::<uuid::Uuid>().is_ok(), !is_fit, "{id:?}: else one of ours");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_slow_clients_keep_nobody_out() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.requesters set request_burst = 1000").await; // they are acme's own
    let api = Api::start(&db).await;
    let mut slow = Vec::new();
    for n in 0..300 {
        let mut client = Raw::to(&api).await;
        let begun = match n % 3 {
            0 => String::new(),
            1 => "POST /transcode HTTP/1.1\r\nHost: eut".to_owned(),
            _ => post(&api, "Content-Length: 1000\r\n") + "{",
        };
        client.send(begun).await;
        slow.push(client);
    }
    assert_eq!(api.enqueue().await["status"], "queued");
    // They are still there: who was quick did not wait for their end.
    let mut one = slow.swap_remove(0);
    assert!(one.send("GET /healthz HTTP/1.1\r\nHost: euterpe\r\n\r\n").await);
    assert_eq!(one.answer().await.unwrap().status, 200);
}

/// With every seat taken the next one waits in the kernel's line, and no longer than the idle ones may sit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_most_connections_the_next_waits_for_a_seat() {
    let db = TestDb::fresh().await;
    let settings = [("EUTERPE_HTTP_CONNECTIONS", "4"), SHORT[0]];
    let api = Api::start_with(&db, &settings).await;
    let ask = "GET /healthz HTTP/1.1\r\nHost: euterpe\r\n\r\n";
    let begun = Instant::now();
    let mut seated = Vec::new();
    for _ in 0..4 {
        let mut client = Raw::to(&api).await;
        client.send(ask).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        seated.push(client);
    }
    let mut fifth = Raw::to(&api).await;
    fifth.send(ask).await;
    assert_eq!(fifth.answer().await.unwrap().status, 200);
    assert!(begun.elapsed() >= LIMIT, "served beside four others: {:?}", begun.elapsed());
}

/// Whoever has enough connections is told so and closed; its own ones go on, and with one less there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_most_connections_of_an_address_the_next_is_told_so_and_closed() {
    let db = TestDb::fresh().await;
    let api = Api::start_with(&db, &[("EUTERPE_HTTP_CONNECTIONS_PER_IP", "3")]).await;
    let ask = "GET /healthz HTTP/1.1\r\nHost: euterpe\r\n\r\n";
    let mut seated = Vec::new();
    for _ in 0..3 {
        let mut client = Raw::to(&api).await;
        client.send(ask).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        seated.push(client);
    }
    for bytes in [ask.to_owned(), post(&api, "Content-Length: 2\r\n") + "{}"] {
        let mut fourth = Raw::to(&api).await;
        fourth.send(bytes).await;
        let answer = fourth.answer().await.expect("closed without a word");
        assert_eq!((answer.status, answer.code().as_str()), (503, "unavailable"));
        assert_eq!((answer.header("connection"), answer.header("retry-after")), (Some("close"), Some("1")));
        assert!(answer.is_protected());
        assert_eq!(fourth.until_closed().await, 0);
    }
    // One that never asks is closed all the same, and a flood of them does not keep the others out.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(Raw::to(&api).await);
    }
    for client in &mut seated {
        client.send(ask).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    for mut client in silent {
        client.until_closed().await;
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 0);
    let numbers = reqwest::get(format!("{}/metrics", api.metrics_url)).await.unwrap().text().await.unwrap();
    let counted = "euterpe_http_refused_total{reason=\"connections_per_ip\"} 102";
    assert!(numbers.contains(counted), "{numbers}");

    seated.pop();
    for _ in 0..2000 {
        let mut client = Raw::to(&api).await;
        client.send(ask).await;
        if client.answer().await.is_some_and(|answer| answer.status == 200) {
            return;
        }
    }
    panic!("there is no room again");
}

/// Clients that leave in the middle of a head, a body, an answer and a wait: the next one is served, and nothing of
/// theirs is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disappears_harms_nobody() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let job = api.enqueue().await["job_id"].as_str().unwrap().to_owned();
    let waits = format!(
        "GET /transcode/status?job_id={job}&wait=60 HTTP/1.1\r\nHost: euterpe\r\nX-API-Key: {}\r\n\r\n",
        api.key
    );
    let body = request().to_string();
    let whole = post(&api, &format!("Content-Length: {}\r\n", body.len())) + &body;
    // Of its port, by the kernel's list: the descriptors of a process that cannot be dumped are root's to see.
    let served: u16 = api.url.rsplit(':').next().unwrap().parse().unwrap();
    let open = || {
        let list = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let ours = format!(":{served:04X}");
        let is_open = |line: &&str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&ours) && ["01", "08"].contains(&fields[3])
        };
        list.lines().filter(is_open).count()
    };
    for n in 0..100 {
        let mut client = Raw::to(&api).await;
        let part = match n % 4 {
            0 => &whole[..40],
            1 => &whole[..whole.len() - 10],
            2 => &whole[..],
            _ => &waits[..],
        };
        client.send(part).await;
    }
    // Served as soon as its rate allows, and a connection to Postgres: a hundred came at once.
    let mut status = 429;
    for _ in 0..100 {
        status = api.post("/transcode", &request()).send().await.unwrap().status().as_u16();
        if ![429, 503].contains(&status) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, 202);
    // That of the client which asked last may stay.
    for _ in 0..2000 {
        if open() <= 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} connections are still open", open());
}

/// SIGTERM: what is under way is answered, who waits for a job is answered early, nobody new is let in, exit 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigterm_requests_under_way_finish_and_new_ones_are_refused() {
    let db = TestDb::fresh().await;
    let mut api = Api::start(&db).await;
    let job = api.enqueue().await["job_id"].as_str().unwrap().to_owned();
    let waiting = tokio::spawn(api.get(&format!("/transcode/status?job_id={job}&wait=60")).send());
    let looker = db.client().await;
    until(
        &looker,
        "select exists (select from pg_stat_activity
                         where datname = current_database() and query like '%last_sequences_v1%')",
    )
    .await;
    let holder = db.client().await;
    holder.batch_execute("begin; lock table euterpe.idempotency_keys in share mode").await.unwrap();
    let posting = api.post("/transcode", &request()).header("idempotency-key", "k").send();
    let posting = tokio::spawn(posting);
    until(
        &looker,
        "select exists (select from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock' and usename = 'euterpe_api')",
    )
    .await;
    let mut idle = Raw::to(&api).await;
    idle.send("GET /healthz HTTP/1.1\r\nHost: euterpe\r\n\r\n").await;
    assert_eq!(idle.answer().await.unwrap().status, 200);

    api.signal(Signal::TERM);
    let waited = waiting.await.unwrap().unwrap();
    assert_eq!(waited.status(), 200);
    assert_eq!(waited.json::<serde_json::Value>().await.unwrap()["status"], "queued");
    idle.until_closed().await;
    let address = api.url.trim_start_matches("http://").to_owned();
    let refused = TcpStream::connect(&address).await.expect_err("a new connection while stopping");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(posting.await.unwrap().unwrap().status(), StatusCode::ACCEPTED);
    assert!(api.wait().success(), "{}", api.said());
    assert_eq!(db.one::<i64>("select count(*) from euterpe.live_workers").await, 0, "it has said goodbye");
}

/// A connection that has grown old is closed between two requests, never within one.
#[tokio::test]
async fn an_old_connection_ends_after_its_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, brief) = (CancellationToken::new(), Duration::from_millis(50));
    let router = Router::new().route("/", get(async move || tokio::time::sleep(4 * brief).await));
    let limits = Limits { age: brief, drain: brief, ..Limits::default() };
    let server = tokio::spawn(serve(listener, router, limits, stop.clone()));
    let mut client = Raw::over(TcpStream::connect(address).await.unwrap());
    client.send("GET / HTTP/1.1\r\nHost: euterpe\r\n\r\n").await;
    let answer = client.answer().await.expect("cut off in the middle");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    client.until_closed().await;
    stop.cancel();
    server.await.unwrap();
}
