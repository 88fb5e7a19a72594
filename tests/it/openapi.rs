//! Design §6: what `/openapi.json` promises is what the real `euterpe-api` does, as programs judge it that are not ours.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use euterpe::domain::transcode::ErrorCode;
use euterpe::domain::{JobFailure, JobId, JobStatus};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use crate::support::api::{Api, add_key, request};
use crate::support::{QUEUE, TestDb, requester, until, worker};

/// A tool of `make setup`; it goes with the test.
fn tool(name: &str) -> Command {
    let path = Path::new("target/tools/bin").join(name);
    assert!(path.exists(), "{} is not there: `make setup` installs it", path.display());
    let mut tool = Command::new(path);
    tool.kill_on_drop(true);
    tool
}

/// Everything a program printed, for when it fails.
fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

async fn description(api: &Api) -> Value {
    api.client.get(format!("{}/openapi.json", api.url)).send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_is_valid_openapi_3_1() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let dir = tempfile::tempdir().unwrap();
    let judge = async |document: &Value| {
        let file = dir.path().join("openapi.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let mut judge = tool("openapi-spec-validator");
        judge.args(["--schema", "3.1", "--validation-errors", "all"]).arg(file).output().await.unwrap()
    };
    let mut document = description(&api).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let verdict = judge(&document).await;
    assert!(verdict.status.success(), "{}", said(&verdict));
    document["paths"]["/transcode"]["post"]["responses"]["202"]
        .as_object_mut()
        .unwrap()
        .remove("description");
    assert!(!judge(&document).await.status.success(), "the judge can say no");
}

/// Words are what a client writes, not what our source calls them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_and_presets_are_described_as_they_are_written() {
    let db = TestDb::fresh().await;
    let schemas = description(&Api::start(&db).await).await["components"]["schemas"].clone();
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(schemas["ErrorCode"]["enum"], json!(codes));
    assert_eq!(schemas["Preset"]["enum"][0], "h264_480p");
    assert_eq!(schemas["Container"]["enum"][0], "mp4");
    assert_eq!(schemas["VideoCodec"]["enum"][0], "h264");
    assert_eq!(schemas["OutputLayout"]["enum"], json!(["exact", "per_claim"]));
}

/// Takes every job that comes and ends each in another way, so that there is something to see and nobody waits long.
fn busy_worker(db: &TestDb) -> AbortOnDropHandle<()> {
    let (store, pod) = (db.store(), worker("pod"));
    let ends = [None, Some("media_unreadable"), Some("decrypt_failed"), Some("source_timeout")];
    let work = async move {
        for end in ends.iter().cycle() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            let Some(job) = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().pop() else { continue };
            if let Some(code) = end {
                let failure = JobFailure { code: (*code).into(), ..JobFailure::default() };
                store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
                continue;
            }
            for step in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
                store.advance_jobs(&pod, &[(job.claim, step)]).await.unwrap();
            }
            store.complete_jobs(&pod, &[(job.claim, None, json!([]))]).await.unwrap();
        }
    };
    AbortOnDropHandle::new(tokio::spawn(work))
}

/// Requests made up from the description, right ones and wrong ones: each is answered as it says, and none breaks us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_500_and_no_undocumented_answer() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.requesters set requests_per_second = 100000, request_burst = 100000").await;
    let api = Api::start(&db).await;
    let _worker = busy_worker(&db);
    // One thread: Python 3.11 loses count of its own recursion when two parse at once (gh-106905); should it do so all
    // the same, that is no verdict about us, and it is asked again.
    let judge = async |more: &[&str]| {
        for _ in 0..3 {
            let mut judge = tool("schemathesis");
            judge
                .args(["run", &format!("{}/openapi.json", api.url), "--no-color", "--warnings", "off"])
                .args(["--header", &format!("Authorization: Bearer {}", api.key)])
                .args([
                    "--max-examples",
                    "30",
                    "--workers",
                    "1",
                    "--seed",
                    "1",
                    "--generation-database",
                    "none",
                ])
                .args(more);
            let verdict = judge.output().await.unwrap();
            if said(&verdict).contains("AST constructor recursion depth mismatch") {
                continue;
            }
            assert!(verdict.status.success(), "{}", said(&verdict));
            return;
        }
        panic!("schemathesis came to no verdict");
    };
    // What a job may be is more than a schema can say: that a uri is one, that a codec fits its container.
    judge(&["--checks", "all", "--exclude-checks", "positive_data_acceptance"]).await;
    // Where the schema says everything, what it allows is accepted. The key is in the header above.
    let complete = ["list", "status", "events", "cancel"].map(|name| ["--include-operation-id", name]);
    let accepts = ["--checks", "positive_data_acceptance", "--generation-with-security-parameters", "false"];
    judge(&[&accepts[..], complete.as_flattened()].concat()).await;
    assert!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await > 0, "some were accepted");
    assert!(!api.said().contains("\"level\":\"ERROR\""), "{}", api.said());
}

/// What the description shows can be sent as it stands; only the ids are those of a job that exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_description_are_accepted() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let document = description(&api).await;
    let examples = |name: &str| {
        let list = document["components"]["schemas"][name]["examples"].as_array();
        list.filter(|list| !list.is_empty()).unwrap_or_else(|| panic!("{name} has no example")).clone()
    };
    let send = async |request: RequestBuilder, example: &Value| {
        let answer = request.send().await.unwrap();
        let (status, body) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{example}: {status} {body}");
    };
    for example in examples("TranscodeRequest") {
        send(api.post("/transcode", &example), &example).await;
    }
    let mut job = request();
    for output in examples("OutputRequest") {
        job["outputs"] = json!([output]);
        send(api.post("/transcode", &job), &output).await;
    }
    job["status_webhook_url"] = "https://app.example.com/hooks/euterpe".into();
    let job: Value = api.post("/transcode", &job).send().await.unwrap().json().await.unwrap();
    let event_id = format!("evt_{}_1", job["job_id"].as_str().unwrap().replace('-', ""));
    for (method, path, schema) in [
        (Method::PUT, "/transcode/credentials", "CredentialsUpdate"),
        (Method::POST, "/transcode/cancel", "CancelRequest"),
        (Method::POST, "/transcode/retry", "RetryRequest"),
        (Method::POST, "/transcode/events/redeliver", "RedeliverRequest"),
    ] {
        // What was never sent cannot be sent again.
        db.deliver_all().await;
        for mut example in examples(schema) {
            for (name, real) in [("job_id", &job["job_id"]), ("event_id", &json!(event_id))] {
                if example.get(name).is_some() {
                    example[name] = real.clone();
                }
            }
            send(api.request(method.clone(), path).json(&example), &example).await;
        }
    }
}

/// Codes met so far; each must be described where it was met, with its status.
struct Met {
    document: Value,
    codes: BTreeSet<String>,
}

impl Met {
    async fn see(&mut self, method: &str, path: &str, answer: Response) {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body: Value = answer.json().await.unwrap();
        let code =
            body["error"]["code"].as_str().unwrap_or_else(|| panic!("{method} {path}: {status} {body}"));
        let described = &self.document["paths"][path][method]["responses"][status.to_string()];
        let example = &described["content"]["application/json"]["examples"][code]["value"]["error"]["code"];
        assert_eq!(example, code, "{method} {path}: {status} {body}");
        for name in described["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(headers.contains_key(name), "{method} {path}: {status} without {name}");
        }
        self.codes.insert(code.to_owned());
    }
}

/// Each code is provoked, and the description has it at that call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_code_is_described_where_it_is_met() {
    let db = TestDb::fresh().await;
    for (name, limit) in
        [("hasty", "requests_per_second = 1, request_burst = 1"), ("full", "max_open_jobs = 1")]
    {
        db.add_requester(name, 1).await;
        db.run(&format!("update euterpe.requesters set {limit} where requester_id = '{name}'")).await;
    }
    let mut api = Api::start_with(&db, &[("EUTERPE_API_CONNECTIONS", "1")]).await;
    let mut met = Met { document: description(&api).await, codes: BTreeSet::new() };
    let raw = |api: &Api, body: &str| {
        let request = api.request(Method::POST, "/transcode").header("content-type", "application/json");
        request.body(body.to_owned())
    };
    let send = async |request: RequestBuilder| request.send().await.unwrap();

    for request in [
        raw(&api, "{"),
        raw(&api, "{}"),
        raw(&api, &" ".repeat(256 * 1024 + 1)),
        raw(&api, "{}").header("idempotency-key", "a b"),
        api.request(Method::POST, "/transcode").body("{}"),
    ] {
        met.see("post", "/transcode", send(request).await).await;
    }
    let keyed = |body: &Value| api.post("/transcode", body).header("idempotency-key", "k");
    let job: Value = send(keyed(&request())).await.json().await.unwrap();
    let mut other = request();
    other["priority"] = 1.into();
    met.see("post", "/transcode", send(keyed(&other)).await).await;

    let id = json!({"job_id": job["job_id"]});
    let mut stale = json!({"credentials": {"access_key_id": "A", "secret_access_key": "S"}});
    (stale["job_id"], stale["expected_credential_version"]) = (job["job_id"].clone(), 7.into());
    let put = api.request(Method::PUT, "/transcode/credentials").json(&stale);
    met.see("put", "/transcode/credentials", send(put).await).await;
    let pod = worker("pod");
    let claim = db.claim_soon(&pod).await.claim;
    let given_up = JobFailure { code: "decrypt_failed".into(), ..JobFailure::default() };
    db.store().fail_jobs(&pod, &[(claim, given_up)]).await.unwrap();
    met.see("post", "/transcode/cancel", send(api.post("/transcode/cancel", &id)).await).await;
    met.see("post", "/transcode/retry", send(api.post("/transcode/retry", &id)).await).await;

    let ancient = format!("0161c1b0-0000-7000-8000-0000000000{:02x}", requester("acme").bucket());
    for id in [JobId::new(&requester("acme")).to_string(), ancient] {
        for path in ["/transcode/status", "/transcode/events"] {
            met.see("get", path, send(api.get(&format!("{path}?job_id={id}"))).await).await;
        }
    }
    db.run("revoke execute on function euterpe.read_events_v1 from euterpe_api").await;
    let path = format!("/transcode/events?job_id={}", job["job_id"].as_str().unwrap());
    met.see("get", "/transcode/events", send(api.get(&path)).await).await;

    // One connection, and somebody sits on it: who comes then is told so, not left hanging.
    let holder = db.client().await;
    holder.batch_execute("begin; lock table euterpe.inbox_jobs").await.unwrap();
    let sits = tokio::spawn(api.get("/transcode").send());
    let waits = "select exists (select from pg_stat_activity where datname = current_database()
                                  and wait_event_type = 'Lock' and usename = 'euterpe_api')";
    until(&db.client().await, waits).await;
    met.see("get", "/transcode", send(api.get("/transcode")).await).await;
    holder.batch_execute("rollback").await.unwrap();
    sits.await.unwrap().unwrap();

    api.key = add_key(&db, "acme", &["transcode:read"]).await;
    met.see("post", "/transcode", send(api.post("/transcode", &request())).await).await;
    api.key = add_key(&db, "hasty", &["transcode:read"]).await;
    assert_eq!(send(api.get("/transcode")).await.status(), 200);
    met.see("get", "/transcode", send(api.get("/transcode")).await).await;
    api.key = add_key(&db, "full", &["transcode:write"]).await;
    api.enqueue().await;
    met.see("post", "/transcode", send(api.post("/transcode", &request())).await).await;
    api.key = "eut_nobody".into();
    met.see("get", "/transcode", send(api.get("/transcode")).await).await;

    let all: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    // A slow body takes ten seconds to be refused, and a wrong method is a call that is not described.
    let rest = ["method_not_allowed", "request_timeout"].map(str::to_owned);
    assert_eq!(met.codes.union(&rest.into()).cloned().collect::<BTreeSet<_>>(), all);
    assert_eq!(send(api.request(Method::DELETE, "/transcode")).await.status(), 405);
    let operations = met.document["paths"].as_object().unwrap().values();
    for operation in operations.flat_map(|methods| methods.as_object().unwrap().values()) {
        let has_body = operation.get("requestBody").is_some();
        assert_eq!(operation["responses"].get("408").is_some(), has_body, "{}", operation["operationId"]);
    }
}

/// The page brings everything it needs, and may fetch nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_needs_nothing_from_outside() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let mut pages = Vec::new();
    for (path, kind) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/page.js", "text/javascript; charset=utf-8"),
        ("/docs/page.css", "text/css; charset=utf-8"),
    ] {
        let answer = api.client.get(format!("{}{path}", api.url)).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &kind.parse().unwrap())
        );
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        let (first, rest) = policy.split_once("; ").unwrap();
        assert_eq!(first, "default-src 'none'", "{path}");
        assert!(
            rest.split("; ").all(|rule| rule.ends_with(" 'self'") || rule.ends_with(" 'none'")),
            "{policy}"
        );
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
        let text = answer.text().await.unwrap();
        assert!(!text.contains("://") && !text.contains("\"//") && !text.contains("url("), "{path}: {text}");
        pages.push(text);
    }
    // What the policy would not let run: inline script and style, and markup made from text.
    assert!(!pages[0].contains(" style=") && !pages[0].contains("<style") && !pages[0].contains(" on"));
    assert!(pages[0].matches("<script").count() == 1 && pages[0].contains("<script src=\"/docs/page.js\""));
    assert!(!pages[1].contains("innerHTML") && !pages[1].contains(".style"));
}
