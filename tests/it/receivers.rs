//! Contract §8 and §9, the receiver's side: whoever verifies by the contract's words, by a library that others wrote or by
//! the few lines of docs/webhooks.md accepts every delivery and refuses what was changed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use euterpe::crypto::{Signed, SigningSecret};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::api::KEK;
use crate::support::receiver::{Does, Got, Receiver};
use crate::support::webhooks::{deliver_as_usual, hooked};
use crate::support::{TestDb, requester, until, url_of};

#[path = "../../docs/receivers/verify.rs"]
mod verify;

/// What a receiver has before it: a secret, and a request. `true`: it must be accepted.
struct Case {
    says: String,
    secret: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    by_contract: bool,
    by_standard: bool,
}

impl Case {
    /// With one thing changed: refused by both, or only by the one that signs it.
    fn changed(&self, says: &str, by_contract: bool, change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self {
            says: format!("{}, {says}", self.says),
            secret: self.secret.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            by_contract,
            by_standard: false,
        };
        change(&mut case);
        case
    }
}

/// Real deliveries before, while and after a secret is rotated, with each secret, whole and changed.
async fn cases() -> Vec<Case> {
    let db = TestDb::fresh().await;
    let (store, acme) = (db.store(), requester("acme"));
    let (old, receiver) = (db.add_signing_secret("acme").await, Receiver::kind().await);
    let one_job = async || {
        let before = receiver.got().len();
        db.ended(hooked("acme", &receiver.url())).await;
        let working = deliver_as_usual(&db);
        let got = receiver.until_got(before + 3).await;
        until(&db.client().await, "select bool_and(status = 'delivered') from euterpe.job_outbox_events")
            .await;
        working.stop().await;
        got[before..].to_vec()
    };
    let alone = one_job().await;
    let new = db.add_signing_secret("acme").await;
    let announced = one_job().await;
    store.activate_signing_secret(&acme, 2, SignedDuration::from_hours(1), None).await.unwrap();
    let activated = one_job().await;
    store.retire_signing_secret(&acme, 1, None).await.unwrap();
    let retired = one_job().await;

    let mut cases = Vec::new();
    for (phase, deliveries, [old_signs, new_signs], [old_beside, new_beside]) in [
        ("before", &alone, [true, false], [true, false]),
        ("announced", &announced, [true, false], [true, true]),
        ("activated", &activated, [false, true], [true, true]),
        ("retired", &retired, [false, true], [false, true]),
    ] {
        for got in deliveries {
            cases.push(case(format!("{phase}, old secret"), got, &old, old_signs, old_beside));
            cases.push(case(format!("{phase}, new secret"), got, &new, new_signs, new_beside));
        }
    }
    let whole = case("changed".into(), &alone[0], &old, true, true);
    let rename = |name: &'static str, to: &'static str| {
        move |case: &mut Case| drop(case.headers.insert(name.into(), to.into()))
    };
    cases.extend([
        whole.changed("a byte of the body", false, |case| case.body[10] ^= 1),
        whole.changed("a byte more", false, |case| case.body.push(b' ')),
        whole.changed("its id", true, rename("webhook-id", "evt_0_1")),
        whole.changed("its timestamps", false, |case| {
            for name in ["webhook-timestamp", "x-euterpe-timestamp"] {
                let at: i64 = case.headers[name].parse().unwrap();
                case.headers.insert(name.into(), (at + 1).to_string());
            }
        }),
        whole.changed("its signatures", false, |case| {
            case.headers.insert("webhook-signature".into(), format!("v1,{}", STANDARD.encode([7; 32])));
            case.headers.insert("x-euterpe-signature".into(), "07".repeat(32));
        }),
        whole.changed("no headers of ours", false, |case| {
            case.headers.retain(|name, _| !name.starts_with("x-euterpe-"));
            case.headers.insert("webhook-signature".into(), String::new());
        }),
        whole.changed("a signature in another script", false, |case| {
            case.headers.insert("webhook-signature".into(), String::new());
            case.headers.insert("x-euterpe-signature".into(), "é".repeat(64));
        }),
        whole.changed("no signatures", false, |case| {
            case.headers.insert("webhook-signature".into(), String::new());
            case.headers.insert("x-euterpe-signature".into(), String::new());
        }),
    ]);
    for (says, seconds, is_fine) in
        [("stale", -310, false), ("from the future", 310, false), ("late", -280, true)]
    {
        let signed =
            Signed::new(&old, &[], "evt_1_1", Timestamp::now().as_second() + seconds, &alone[0].body);
        let mut stale = case(says.into(), &alone[0], &old, is_fine, is_fine);
        stale.headers.extend(signed.headers().map(|(name, value)| (name.into(), value.into())));
        cases.push(stale);
    }
    cases
}

fn case(says: String, got: &Got, secret: &SigningSecret, by_contract: bool, by_standard: bool) -> Case {
    let secret = secret.expose().to_string();
    let headers = got.headers.iter().cloned().collect();
    Case { says, secret, headers, body: got.body.clone(), by_contract, by_standard }
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Written from the words of the contract alone, and with no function of ours: HMAC-SHA256 from its definition.
fn by_the_contracts_words(case: &Case) -> bool {
    use sha2::{Digest, Sha256};
    let Some(secret) = case.secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok()) else {
        return false;
    };
    let mut key = [0; 64];
    key[..secret.len()].copy_from_slice(&secret);
    let header = |name: &str| case.headers.get(name).map(String::as_str).unwrap_or_default();
    let (timestamp, nonce) = (header("x-euterpe-timestamp"), header("x-euterpe-nonce"));
    let input = [timestamp.as_bytes(), b".", nonce.as_bytes(), b".", &case.body].concat();
    let inner = Sha256::digest([&key.map(|b| b ^ 0x36)[..], &input].concat());
    let outer = Sha256::digest([&key.map(|b| b ^ 0x5c)[..], &inner].concat());
    let is_close = timestamp.parse::<i64>().is_ok_and(|at| (now() - at).abs() <= 300);
    hex::encode(outer) == header("x-euterpe-signature") && is_close
}

fn by_the_pages_rust(case: &Case) -> bool {
    let header = |name: &str| case.headers.get(name).map(String::as_str);
    verify::verify(&case.secret, header, &case.body, now()).is_ok()
}

fn by_the_standards_crate(case: &Case) -> bool {
    let mut headers = axum::http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, case.headers[name].parse().unwrap());
    }
    standardwebhooks::Webhook::new(&case.secret).unwrap().verify(&case.body, &headers).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifiers_accept_every_delivery_and_refuse_what_was_changed_also_while_a_secret_is_rotated() {
    let cases = cases().await;
    for case in &cases {
        assert_eq!(by_the_contracts_words(case), case.by_contract, "the contract: {}", case.says);
        assert_eq!(by_the_pages_rust(case), case.by_contract, "verify.rs: {}", case.says);
        assert_eq!(by_the_standards_crate(case), case.by_standard, "the crate: {}", case.says);
    }
    let python = tool("target/tools/bin/python3");
    let lines = ask(Command::new(python).args(["-c", PYTHON]), &cases);
    assert_says(&lines, &cases, "Python");

    // Node is not on every machine; `make test-receivers` insists on it.
    let theirs = "target/tools/node_modules/standardwebhooks/package.json";
    if Path::new(theirs).exists() || std::env::var_os("EUTERPE_TEST_NODE").is_some() {
        tool(theirs);
        let lines = ask(Command::new("node").args(["--input-type=module", "-e", NODE]), &cases);
        assert_says(&lines, &cases, "Node");
    } else {
        println!(
            "NOT RUN HERE: the verifiers in Node, since there is no node; `make test-receivers` runs them"
        );
    }
}

/// Both verifiers for each case, one JSON line in, `[by_contract, by_standard]` out.
const PYTHON: &str = r#"
import base64, json, sys
sys.path.insert(0, "docs/receivers")
from verify import verify
from standardwebhooks.webhooks import Webhook

def accepts(check, refusal):
    try:
        return check() is not None
    except refusal:
        return False

for line in sys.stdin:
    case = json.loads(line)
    body = base64.b64decode(case["body"])
    print(json.dumps([
        accepts(lambda: verify(case["secret"], case["headers"], body), ValueError),
        accepts(lambda: Webhook(case["secret"]).verify(body, case["headers"]), Exception),
    ]))
"#;

const NODE: &str = r#"
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { verify } = await import(pathToFileURL("docs/receivers/verify.mjs"));
const { Webhook } = createRequire(process.cwd() + "/target/tools/x.js")("standardwebhooks");
const accepts = (check) => { try { check(); return true; } catch { return false; } };
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const given = JSON.parse(line);
  const body = Buffer.from(given.body, "base64");
  console.log(JSON.stringify([
    accepts(() => verify(given.secret, given.headers, body)),
    accepts(() => new Webhook(given.secret).verify(body.toString(), given.headers)),
  ]));
}
"#;

/// A tool that `make setup` installs.
fn tool(path: &str) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(path.exists(), "{} is not there: `make setup` installs it", path.display());
    path
}

fn ask(command: &mut Command, cases: &[Case]) -> Vec<Value> {
    let mut child = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for case in cases {
        let body = STANDARD.encode(&case.body);
        writeln!(input, "{}", json!({"secret": case.secret, "headers": case.headers, "body": body})).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn assert_says(lines: &[Value], cases: &[Case], who: &str) {
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.iter().zip(cases) {
        assert_eq!(*line, json!([case.by_contract, case.by_standard]), "{who}: {}", case.says);
    }
}

/// The contract's signature does not cover the header with the id; the body, which it covers, has it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_id_that_a_receiver_dedupes_by_is_signed() {
    let case = cases().await.remove(0);
    let header = |name: &str| match name {
        "x-euterpe-event-id" => Some("evt_forged_1"),
        name => case.headers.get(name).map(String::as_str),
    };
    let event = verify::verify(&case.secret, header, &case.body, now()).unwrap();
    assert_eq!(event["event_id"], case.headers["x-euterpe-event-id"].as_str());
}

/// The page shows the verifiers that are tested, not others.
#[test]
fn the_page_shows_the_verifiers_as_they_are() {
    let page = std::fs::read_to_string("docs/webhooks.md").unwrap();
    for file in ["verify.py", "verify.mjs", "verify.rs"] {
        let text = std::fs::read_to_string(format!("docs/receivers/{file}")).unwrap();
        assert!(page.contains(text.trim()), "docs/webhooks.md shows docs/receivers/{file} otherwise");
    }
    let python = std::fs::read_to_string("docs/receivers/verify.py").unwrap();
    assert!(
        std::fs::read_to_string("README.md").unwrap().contains(python.trim()),
        "README.md shows it otherwise"
    );
}

/// `euterpe listen` on a free port, told to stop after `count`; its address.
fn listen(secret: &str, count: usize) -> (Child, String) {
    let mut command =
        euterpe(&["listen", "--listen", "127.0.0.1:0", "--json", "--count", &count.to_string()]);
    listening(command.env("EUTERPE_WEBHOOK_SECRET", secret))
}

/// The real program, with nothing in its environment.
/// `euterpe listen | head -n 1`: it ends in order, and who sends is told that nobody has seen it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_whose_reader_has_gone_ends_and_has_seen_nothing() {
    let mut command = euterpe(&["listen", "--listen", "127.0.0.1:0"]);
    let (mut child, url) =
        listening(command.env("EUTERPE_WEBHOOK_SECRET", SigningSecret::generate().expose().as_str()));
    drop(child.stdout.take());
    let answer = reqwest::Client::new().post(&url).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

fn euterpe(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_euterpe"));
    command.args(words).env_clear();
    command
}

fn listening(command: &mut Command) -> (Child, String) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().strip_prefix("listening on ").unwrap().to_owned())
}

/// Real deliveries to the real receiver; then the same request again, and one that was changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn euterpe_listen_verifies_what_comes_and_knows_what_came_before() {
    let db = TestDb::fresh().await;
    let secret = db.add_signing_secret("acme").await;
    let (child, url) = listen(&secret.expose(), 5);
    let id = db.ended(hooked("acme", &url)).await;
    let working = deliver_as_usual(&db);
    until(&db.client().await, "select bool_and(status = 'delivered') from euterpe.job_outbox_events").await;
    working.stop().await;

    let client = reqwest::Client::new();
    let body = format!(r#"{{"event_id": "evt_{}_1"}}"#, id.0.simple());
    let signed = Signed::new(&secret, &[], "evt_1", now(), body.as_bytes());
    let send = async |body: &str| {
        let mut request = client.post(&url).body(body.to_owned());
        for (name, value) in signed.headers() {
            request = request.header(name, value);
        }
        request.send().await.unwrap().text().await.unwrap()
    };
    assert_eq!(send(&body).await, "verified, a duplicate");
    assert_eq!(send(&body).await, "rejected: its nonce was used before");
    assert_eq!(send("{}").await, "rejected: its signature does not fit");

    let ping = euterpe(&["webhook", "test", &url, "--json"])
        .env("EUTERPE_WEBHOOK_SECRET", secret.expose().as_str())
        .env("EUTERPE_ALLOW_HTTP", "true")
        .env("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8")
        .env("EUTERPE_EGRESS_PORTS", "any")
        .output()
        .unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    let said = child.wait_with_output().unwrap();
    let lines: Vec<Value> = String::from_utf8(said.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let types: Vec<_> = lines.iter().map(|line| line["event"]["type"].as_str().unwrap_or("-")).collect();
    assert_eq!(
        types,
        ["transcode.queued", "transcode.claimed", "transcode.failed", "-", "-", "-", "euterpe.ping", "-"]
    );
    assert_eq!(lines[7], json!({"verified": 5}));
}

/// Nobody has to paste a secret: both ends find it in the database. While one is rotated, a receiver that knows only
/// the new one accepts the ping too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ping_is_signed_with_the_secrets_of_a_requester() {
    let db = TestDb::fresh().await;
    db.add_signing_secret("acme").await;
    let of_acme = |words: &[&str]| {
        let mut command = euterpe(words);
        command
            .env("EUTERPE_DATABASE_URL", url_of(&db.config()))
            .env("EUTERPE_KEKS", KEK)
            .env("EUTERPE_ALLOW_HTTP", "true")
            .env("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8")
            .env("EUTERPE_EGRESS_PORTS", "any");
        command
    };
    let ping = |url: &str, who: &str| {
        let output = of_acme(&["webhook", "test", url, "--requester", who, "--json"]).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), says)
    };
    let mut words =
        vec!["listen", "--listen", "127.0.0.1:0", "--json", "--count", "1", "--requester", "acme"];
    let (child, url) = listening(&mut of_acme(&words));
    let (code, out, says) = ping(&url, "acme");
    assert_eq!(code, 0, "{says}");
    let answered: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&answered["http_status"], &answered["answer"]), (&json!(200), &json!("verified")));
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let got: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((&got["verdict"], &got["event"]["type"]), (&json!("verified"), &json!("euterpe.ping")));
    assert_eq!(got["event"]["event_id"], answered["event_id"]);

    let newer = db.add_signing_secret("acme").await;
    let receiver = Receiver::kind().await;
    let (code, _, says) = ping(&receiver.url(), "acme");
    assert_eq!(code, 0, "{says}");
    let got = receiver.until_got(1).await.remove(0);
    let library = standardwebhooks::Webhook::new(&newer.expose()).unwrap();
    let mut headers = hyper::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, got.header(name).parse().unwrap());
    }
    library.verify(&got.body, &headers).unwrap();

    // Who has none, and who is not there, is told what to do; nothing is sent unsigned.
    let (code, _, says) = ping(&receiver.url(), "nobody");
    assert!(code == 3 && says.contains("`euterpe requester list`"), "{code} {says}");
    words.extend(["--secret", "whsec_x"]);
    let both = of_acme(&words).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{}", String::from_utf8_lossy(&both.stderr));
    assert_eq!(receiver.got().len(), 1);

    // An answer without a body leaves nothing behind its number.
    let terse = Receiver::start(|_, _| Does::Answers(204)).await;
    let plain = of_acme(&["webhook", "test", &terse.url(), "--requester", "acme"]).output().unwrap();
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), "delivered: 204\n");
}

/// It goes where webhooks may go: not to this machine, and it says why.
#[test]
fn a_ping_goes_nowhere_that_a_webhook_may_not_go() {
    let ping = |url: &str, secret: &str| {
        let output =
            euterpe(&["webhook", "test", url]).env("EUTERPE_WEBHOOK_SECRET", secret).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let secret = SigningSecret::generate();
    let (code, says) = ping("https://127.0.0.1:1/s3cr3t", &secret.expose());
    assert_eq!(code, 1);
    assert!(says.contains("blocked") && says.contains("not public") && !says.contains("s3cr3t"), "{says}");
    let (code, says) = ping("https://hooks.example/", "whsec_short");
    assert!(code == 2 && says.contains("whsec_ and base64"), "{says}");
}
