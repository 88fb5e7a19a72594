//! Contract §10: whatever a requester entrusts to us is found nowhere: not in the database's files, not in its log though
//! that says everything, not in ours, not in a number, not in an answer.
//!
//! Every secret carries a mark, and the bytes of everything we leave behind are searched for it, in the forms it could
//! have taken on the way.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use euterpe::crypto::{Binding, open};
use euterpe::dev::{Cluster, Durability};
use euterpe::domain::{JobFailure, JobId};
use rand::RngExt;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::bad_input::put;
use crate::support::api::{Api, keyring, request};
use crate::support::{TestDb, requester, worker};

/// Postgres at its most talkative: each statement, each parameter in full, also of those that fail.
const TALKATIVE: &[&str] = &[
    "log_statement=all",
    "log_min_duration_statement=0",
    "log_parameter_max_length=-1",
    "log_parameter_max_length_on_error=-1",
    "log_error_verbosity=verbose",
];

/// A family of marks: they begin alike, so that one search finds them all.
struct Marks {
    family: String,
    made: u64,
}

impl Marks {
    fn new() -> Self {
        Self { family: format!("EUTMARK-{:016x}", rand::rng().random::<u64>()), made: 0 }
    }

    /// One more, `EUTMARK-` and 32 hex digits.
    fn next(&mut self) -> String {
        self.made += 1;
        format!("{}{:016x}", self.family, self.made)
    }

    /// What of them can be found in each form.
    fn forms(&self) -> Vec<(&'static str, Vec<u8>)> {
        let raw = self.family.as_bytes();
        let percent = raw.iter().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
        let mut forms = vec![
            ("raw", raw.to_vec()),
            ("hex", hex::encode(raw).into_bytes()),
            ("HEX", hex::encode_upper(raw).into_bytes()),
            ("percent-encoded", self.family.replace('-', "%2D").into_bytes()),
            ("wholly percent-encoded", percent.into_bytes()),
            ("UTF-16LE", self.family.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            ("UTF-16BE", self.family.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        ];
        // Three bytes are four characters: what stands before decides which. The characters at either end, which
        // also depend on the neighbours, are left out.
        for (before, name) in [(0, "base64"), (1, "base64, shifted by one"), (2, "base64, shifted by two")] {
            let bytes = [&vec![0; before][..], raw].concat();
            for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let text = alphabet.encode(&bytes).into_bytes();
                forms.push((name, text[(before * 8).div_ceil(6)..bytes.len() * 8 / 6].to_vec()));
            }
        }
        forms
    }
}

/// Horspool's search: a data directory has many bytes, and tests are not optimized.
fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    let last = wanted.len() - 1;
    let mut skip = [wanted.len(); 256];
    for (n, byte) in wanted[..last].iter().enumerate() {
        skip[usize::from(*byte)] = last - n;
    }
    let mut at = 0;
    while at + last < bytes.len() {
        if bytes[at..=at + last] == *wanted {
            return true;
        }
        at += skip[usize::from(bytes[at + last])];
    }
    false
}

/// Every file below `dir`, with its bytes.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            // A running server removes what it no longer needs.
            let Ok(bytes) = fs::read(entry.path()) else { continue };
            found.push((entry.path().display().to_string(), bytes));
        }
    }
    found
}

/// What a backup would hold. Rows of more than two kilobytes are compressed in the files, where a mark could hide.
fn dump(db: &TestDb) -> Vec<u8> {
    let url = format!("host={} user=postgres dbname=postgres", db.dir().display());
    let dump = Command::new(Cluster::program("pg_dump").unwrap()).args(["-d", &url]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    dump.stdout
}

/// Where `wanted` is, and in which form.
fn search(places: &[(String, Vec<u8>)], wanted: &[(&str, Vec<u8>)]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, bytes) in places {
        for (form, _) in wanted.iter().filter(|(_, form)| has(bytes, form)) {
            found.push(format!("{place}: {form}"));
        }
    }
    found
}

/// A client that keeps everything it hears.
struct Client<'a> {
    api: &'a Api,
    heard: String,
}

impl Client<'_> {
    async fn send(&mut self, request: RequestBuilder) -> (u16, Value) {
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.text().await.unwrap();
        self.heard += &format!("{status} {headers:?} {body}\n");
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(self.api.post(path, body)).await
    }

    /// With an Idempotency-Key.
    async fn enqueue(&mut self, key: &str, body: &Value) -> (u16, Value) {
        self.send(self.api.post("/transcode", body).header("idempotency-key", key)).await
    }

    async fn put(&mut self, body: &Value) -> u16 {
        self.send(self.api.request(Method::PUT, "/transcode/credentials").json(body)).await.0
    }
}

fn keys(marks: &mut Marks) -> Value {
    json!({"access_key_id": marks.next(), "secret_access_key": marks.next(), "session_token": marks.next()})
}

/// A request by keys, everything in it marked that may be secret.
fn by_keys(marks: &mut Marks) -> Value {
    let mut body = request();
    body["storage"]["credentials"] = keys(marks);
    for (field, host) in [("status_webhook_url", "hooks.example.com"), ("refresh_url", "app.example.com")] {
        body[field] = format!("https://{host}/{}?token={}", marks.next(), marks.next()).into();
    }
    body
}

/// The urls of a request by signed urls. A refresh changes nothing but the query.
fn signed(paths: &[String; 2], marks: &mut Marks) -> [String; 2] {
    let [source, upload] = paths;
    [
        format!(
            "https://in.example.com/{source}?X-Amz-Credential={}&X-Amz-Signature={}",
            marks.next(),
            marks.next()
        ),
        format!("https://out.example.com/{upload}?X-Amz-Signature={}", marks.next()),
    ]
}

fn by_urls([source, upload]: [String; 2]) -> Value {
    json!({"source": {"uri": source}, "outputs": [{"name": "a", "upload_url": upload, "preset": "flac"}]})
}

/// Requests that are refused, each with a secret in it, some with it in the wrong place.
fn refused(marks: &mut Marks) -> Vec<Value> {
    let mut bodies = Vec::new();
    for (pointer, value) in [
        ("/priority", json!("high")),
        ("/storage/credentials/access_key_id", json!(format!("{} ", marks.next()))),
        ("/storage/credentials/secret_access_key", json!(format!("{}\n", marks.next()))),
        ("/storage/credentials/session_token", json!([marks.next()])),
        ("/storage/credentials", json!(marks.next())),
        ("/storage/endpoint", json!(format!("https://s3.example.com/?key={}", marks.next()))),
        ("/storage/region", json!(format!("{}!", marks.next()))),
        ("/source/uri", json!(format!("s3://media-in/clip.mov?X-Amz-Signature={}", marks.next()))),
        ("/source/uri", json!(format!("https://user:{}@in.example.com/clip.mov", marks.next()))),
        ("/source/uri", json!(format!("https://127.0.0.1/{}", marks.next()))),
        ("/source/sha256", json!(marks.next())),
        ("/status_webhook_url", json!(format!("https://{}@hooks.example.com/", marks.next()))),
        ("/status_webhook_url", json!(format!("http://hooks.example.com/?token={}", marks.next()))),
        ("/refresh_url", json!(format!("https://10.0.0.1/{}", marks.next()))),
        ("/refresh_url", json!({"url": marks.next()})),
        ("/queue", json!(marks.next())),
        ("/events", json!([marks.next()])),
        ("/run_at", json!(marks.next())),
        ("/outputs/0/preset", json!(marks.next())),
        ("/outputs/0/path", json!(format!("../{}", marks.next()))),
        ("/outputs/0/name", json!(format!("{}/", marks.next()))),
    ] {
        let mut body = by_keys(marks);
        put(&mut body, pointer, value);
        bodies.push(body);
    }
    bodies
}

/// Everything that can happen to a secret over HTTP, with what may be seen of the job as `seen`.
async fn send_everything(client: &mut Client<'_>, db: &TestDb, marks: &mut Marks, seen: &str) {
    // Accepted, asked again with rotated credentials, and confused with another.
    let mut body = by_keys(marks);
    (body["external_id"], body["metadata"]) = (seen.into(), json!({"tenant": seen}));
    let (status, job) = client.enqueue("keys", &body).await;
    assert_eq!(status, 202, "{job}");
    body["storage"]["credentials"] = keys(marks);
    assert_eq!(client.enqueue("keys", &body).await, (202, job.clone()));
    body["priority"] = 7.into();
    assert_eq!(client.enqueue("keys", &body).await.0, 409);
    let paths = [marks.next(), marks.next()];
    let (status, by_url) = client.enqueue("urls", &by_urls(signed(&paths, marks))).await;
    assert_eq!(status, 202, "{by_url}");
    assert_eq!(client.enqueue("urls", &by_urls(signed(&paths, marks))).await.0, 202);

    // Replaced, too late, and for a job that is not there.
    let id = job["job_id"].clone();
    for (id, version, expected) in
        [(&id, 1, 200), (&id, 1, 409), (&json!(JobId::new(&requester("acme"))), 1, 404)]
    {
        let update =
            json!({"job_id": id, "expected_credential_version": version, "credentials": keys(marks)});
        assert_eq!(client.put(&update).await, expected, "{update}");
    }
    let [source, upload] = signed(&paths, marks);
    let urls = json!({"source_uri": source, "upload_urls": {"a": upload}});
    let mut update = urls.clone();
    (update["job_id"], update["expected_credential_version"]) = (by_url["job_id"].clone(), 1.into());
    assert_eq!(client.put(&update).await, 200);
    update["credentials"] = keys(marks);
    assert_eq!(client.put(&update).await, 422);

    // Retried after a failure, and made anew of dead letters.
    let pod = worker("pod");
    let fail = async |code: &str| {
        let claim = db.claim_soon(&pod).await.claim;
        let failure = JobFailure { code: code.into(), ..JobFailure::default() };
        db.store().fail_jobs(&pod, &[(claim, failure)]).await.unwrap();
    };
    fail("media_unreadable").await;
    fail("decrypt_failed").await;
    for job in [&id, &by_url["job_id"]] {
        let mut again = if *job == id { json!({"credentials": keys(marks)}) } else { urls.clone() };
        again["job_id"] = job.clone();
        let (status, said) = client.post("/transcode/retry", &again).await;
        assert!([200, 202].contains(&status), "{status} {said}");
        again["credentials"] = json!({"access_key_id": marks.next()});
        assert_eq!(client.post("/transcode/retry", &again).await.0, 422);
    }

    refuse_everything(client, marks).await;
    for path in ["status", "events"] {
        client.send(client.api.get(&format!("/transcode/{path}?job_id={}", id.as_str().unwrap()))).await;
    }
    client.send(client.api.get("/transcode")).await;
}

/// What is refused at any door: by the reader, before it, and by the database.
async fn refuse_everything(client: &mut Client<'_>, marks: &mut Marks) {
    let api = client.api;
    for body in refused(marks) {
        let (status, said) = client.enqueue("refused", &body).await;
        assert_eq!(status, 422, "{body}: {said}");
    }
    let raw = |text: String| api.request(Method::POST, "/transcode").body(text);
    let as_json = |text: String| raw(text).header("content-type", "application/json");
    let mut broken = by_keys(marks).to_string();
    broken.pop();
    let twice = format!(r#"{{"refresh_url": "{}", "refresh_url": "{}"}}"#, marks.next(), marks.next());
    let nul = format!(r#"{{"refresh_url": "{}\u0000"}}"#, marks.next());
    let long = by_keys(marks).to_string() + &" ".repeat(300_000);
    let stranger = format!("eut_{}_{}", marks.next(), marks.next());
    for (request, expected) in [
        (as_json(broken), 400),
        (as_json(twice), 422),
        (as_json(nul), 422),
        (as_json(format!("\"{}", marks.next())), 400),
        (as_json(long), 413),
        (raw(by_keys(marks).to_string()), 415),
        (api.get("/transcode").header("x-api-key", &stranger), 400),
        (api.client.get(format!("{}/transcode", api.url)).bearer_auth(&stranger), 401),
        (api.client.get(format!("{}/transcode", api.url)).basic_auth("a", Some(marks.next())), 401),
        (api.get(&format!("/transcode/status?job_id={}", marks.next())), 422),
        (api.get(&format!("/transcode?status={}", marks.next())), 422),
        (api.get(&format!("/transcode?cursor={}", marks.next())), 422),
        (api.get(&format!("/{}", marks.next())), 404),
    ] {
        let (status, said) = client.send(request).await;
        assert_eq!(status, expected, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_found_in_anything_we_leave_behind() {
    let db = TestDb::alone_with(Durability::Durable, TALKATIVE).await;
    db.run("update euterpe.requesters set requests_per_second = 100000, request_burst = 100000").await;
    let api = Api::start_with(&db, &[("RUST_LOG", "trace")]).await;
    let (mut secret, mut seen, acme) = (Marks::new(), Marks::new(), requester("acme"));
    let mut client = Client { api: &api, heard: String::new() };
    send_everything(&mut client, &db, &mut secret, &seen.next()).await;

    // A call that breaks in our hands is logged with its cause.
    db.run("revoke execute on function euterpe.enqueue_job_v1 from euterpe_api").await;
    let broken = api.post("/transcode", &by_keys(&mut secret)).header("x-request-id", seen.next());
    assert_eq!(client.send(broken).await.0, 500);

    // The secrets did arrive: a worker that has the key can open them.
    let pod = worker("pod");
    let job = db.claim_soon(&pod).await;
    let secrets = db.store().read_job_secrets(&pod, &[job.claim]).await.unwrap();
    let storage = secrets.into_iter().filter_map(|row| row.secret).find(|(purpose, _)| purpose == "storage");
    let (_, sealed) = storage.unwrap();
    let binding = Binding::storage(job.claim.job_id, &acme, job.credential_version);
    let opened = open(&keyring(), &binding, sealed.parts()).unwrap();
    assert!(opened.expose_str().unwrap().contains(&secret.family));

    // One of each form where it must be found.
    let control = Marks::new();
    db.run("create table public.control (form bytea)").await;
    for (_, form) in control.forms() {
        db.run(&format!("insert into public.control values ('\\x{}')", hex::encode(form))).await;
    }

    let numbers = api.client.get(format!("{}/metrics", api.metrics_url)).send().await.unwrap();
    let numbers = numbers.text().await.unwrap();
    db.run("select pg_switch_wal()").await;
    db.run("checkpoint").await;
    let proc = |name: &str| fs::read(format!("/proc/{}/{name}", api.pid().as_raw_nonzero())).unwrap();
    let activity: String = db.one("select string_agg(query, ' ') from pg_stat_activity").await;
    let mut places = files(db.dir());
    places.extend([
        ("our log".to_owned(), api.said().into_bytes()),
        ("the metrics".to_owned(), numbers.into_bytes()),
        ("the answers".to_owned(), client.heard.into_bytes()),
        ("the command line".to_owned(), proc("cmdline")),
        ("the environment".to_owned(), proc("environ")),
        ("pg_stat_activity".to_owned(), activity.into_bytes()),
        ("a dump".to_owned(), dump(&db)),
    ]);
    let found = search(&places, &secret.forms());
    assert!(found.is_empty(), "{} secrets were sent: {found:#?}", secret.made);
    // The key that was shown with each call is a secret, too.
    let found = search(&places, &[("the API key", api.key.clone().into_bytes())]);
    assert!(found.is_empty(), "{found:#?}");

    // Nor does the system write it down when we crash.
    let limits = String::from_utf8(proc("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");

    // What is no secret is found by the same search, or it proves nothing.
    let found = search(&places, &seen.forms()).join("\n");
    for place in ["/base/", "/pg_wal/", "/log: raw", "our log: raw", "the answers: raw", "a dump: raw"] {
        assert!(found.contains(place), "the search cannot find in {place}: {found}");
    }
    let found = search(&places, &control.forms());
    for (form, _) in control.forms() {
        let is_there = |hit: &String| hit.contains("/base/") && hit.ends_with(&format!(": {form}"));
        assert!(found.iter().any(is_there), "the search cannot find {form}: {found:#?}");
    }
}
