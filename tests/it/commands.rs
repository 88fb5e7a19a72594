//! Design §8: what people do over HTTP and with dead letters, by the real `euterpe` against the real `euterpe-api`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use euterpe::crypto::ApiKey;
use euterpe::domain::{Claim, JobFailure, JobId, JobStatus, WorkerId};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::block_in_place;
use tokio_rustls::TlsAcceptor;

use crate::support::api::{Api, add_key};
use crate::support::cli::Cli;
use crate::support::receiver::{Does, Receiver};
use crate::support::{TestDb, worker};

/// A service with a root for files, and a file of acme's in it.
struct Scene {
    db: TestDb,
    api: Api,
    root: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let (db, root) = (TestDb::fresh().await, TempDir::new().unwrap());
        let dir = root.path().canonicalize().unwrap().join("acme/in");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("my clip.mov"), "not looked at here").unwrap();
        let storage = root.path().canonicalize().unwrap();
        let api = Api::start_with(&db, &[("EUTERPE_FILE_STORAGE", storage.to_str().unwrap())]).await;
        Self { db, api, root }
    }

    fn file(&self, path: &str) -> String {
        self.root.path().canonicalize().unwrap().join("acme").join(path).to_str().unwrap().to_owned()
    }

    fn cli(&self) -> Cli {
        Cli::new(&self.db)
            .without("EUTERPE_DATABASE_URL")
            .with("EUTERPE_API", &self.api.url)
            .with("EUTERPE_API_KEY", &self.api.key)
    }

    /// One that says so at once, without a request document to speak of.
    async fn accepted(&self) -> JobId {
        serde_json::from_value(self.api.enqueue().await["job_id"].clone()).unwrap()
    }
}

/// A word with a space in it is one argument.
fn say(cli: &Cli, words: &[&str]) -> (i32, String, String) {
    let output = cli.command("submit").args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_submitted_once_however_often_it_is_asked_for() {
    let scene = Scene::new().await;
    let (cli, clip) = (scene.cli(), scene.file("in/my clip.mov"));
    let words = [
        clip.as_str(),
        "--preset=h264_480p",
        "--preset=hls_ladder",
        "--external-id=v-1",
        "--priority=200",
        "--idempotency-key=clip-1",
        "--webhook-url=https://media.example.com/hooks",
    ];
    let (code, out, err) = say(&cli, &words);
    assert_eq!(code, 0, "{err}");
    let (job_id, rest) = out.split_once(' ').unwrap();
    assert_eq!(rest, format!("is accepted\nnext: euterpe watch {job_id}\n"));

    let (_, again, _) = say(&cli, &[&words[..], &["--json"]].concat());
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((again["job_id"].as_str(), &again["is_replayed"]), (Some(job_id), &json!(true)));
    assert_eq!(again["idempotency_key"], "clip-1");

    let status = scene.api.status(&json!(job_id)).await;
    assert_eq!((&status["external_id"], &status["status"]), (&json!("v-1"), &json!("queued")));
    let text: String = scene.db.one("select request::text from euterpe.job_requests").await;
    for part in ["in/my clip.mov", "in/my clip.mov.out", "h264_480p.mp4", "hls_ladder/index.m3u8"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(scene.db.one::<i32>("select priority::integer from euterpe.inbox_jobs").await, 200);

    // Without a key of one's own two calls are two jobs.
    for _ in 0..2 {
        let (code, _, err) = say(&cli, &[&clip, "--to", &scene.file("out")]);
        assert_eq!(code, 0, "{err}");
    }
    assert_eq!(scene.db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_request_is_handed_over_and_keys_come_from_a_file() {
    let scene = Scene::new().await;
    let request = scene.root.path().join("request.json");
    fs::write(&request, crate::support::api::request().to_string()).unwrap();
    let keys = scene.root.path().join("key");
    fs::write(&keys, format!("{}\n", scene.api.key)).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    let (request, keys) = (request.to_str().unwrap(), keys.to_str().unwrap());
    let cli = scene.cli().without("EUTERPE_API_KEY");
    let (code, out, err) = say(&cli, &["--request", request, "--key-file", keys]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("is accepted"), "{out}");

    fs::write(scene.root.path().join("long.json"), format!("[{}]", " ".repeat(256 * 1024))).unwrap();
    let long = scene.root.path().join("long.json");
    let (code, _, err) = say(&cli, &["--request", long.to_str().unwrap(), "--key-file", keys]);
    assert!(code == 2 && err.contains("is longer than 262144 bytes"), "{err}");

    // The same by options, with the credentials where Amazon's own programs look for them.
    let cli = scene
        .cli()
        .with("AWS_ACCESS_KEY_ID", "AKIA")
        .with("AWS_SECRET_ACCESS_KEY", "hunter2")
        .with("AWS_REGION", "eu-west-1");
    let (code, _, err) = say(&cli, &["s3://media-in/42/clip.mov", "--output-prefix", "s3://media-out/42/"]);
    assert_eq!(code, 0, "{err}");
    let sealed = "select count(*) from euterpe.job_secrets where purpose = 'storage'";
    assert_eq!(scene.db.one::<i64>(sealed).await, 2);
}

/// Each says what to do next, and repeats neither key nor credentials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_cannot_be_says_why() {
    let scene = Scene::new().await;
    let clip = scene.file("in/my clip.mov");
    let open = scene.root.path().join("open");
    fs::write(&open, "eut_hunter2").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let (cli, open) = (|| scene.cli(), open.to_str().unwrap());
    let stranger = ApiKey::generate();
    let reader = add_key(&scene.db, "acme", &["transcode:read"]).await;
    let stranger = cli().with("EUTERPE_API_KEY", stranger.expose().expose_str().unwrap());
    let clip = clip.as_str();
    for (cli, words, code, says) in [
        (cli().without("EUTERPE_API_KEY"), vec![clip], 2, "`euterpe key add REQUESTER` makes one"),
        (cli().with("EUTERPE_API_KEY", "eut_hunter2"), vec![clip], 2, "that is no API key"),
        (cli(), vec![clip, "--key-file", open], 2, "run chmod 600 on it"),
        (stranger, vec![clip], 2, "unauthorized: "),
        (cli().with("EUTERPE_API_KEY", &reader), vec![clip], 4, "forbidden: "),
        (cli(), vec!["https://media.example.com/clip.mov?X-Amz-Signature=hunter2"], 2, "--request"),
        (cli(), vec!["/nowhere/clip.mov"], 2, "/nowhere/clip.mov: No such file"),
        (cli(), vec!["/etc/hostname"], 2, "/source/uri must lie below the directory acme"),
        (cli(), vec!["s3://in/clip.mov"], 2, "say where outputs go"),
        (cli(), vec!["s3://in/a.mov", "--to", "/x"], 2, "AWS_ACCESS_KEY_ID is not set"),
        (cli(), vec![clip, "--preset", "h264_4k"], 2, "possible values: h264_480p, h264_720p, "),
        (cli(), vec![clip, "--priority", "2000"], 2, "/priority must be"),
        (cli().with("EUTERPE_API", "http://127.0.0.1:1"), vec![clip], 1, "is euterpe-api there?"),
        (cli().with("EUTERPE_API", "ftp://127.0.0.1:1"), vec![clip], 2, "is no http:// or https:// url"),
        (cli(), vec![], 2, "Usage: euterpe submit [OPTIONS] [FILE|URL]"),
    ] {
        let (met, out, err) = say(&cli, &words);
        assert_eq!(met, code, "{words:?}: {err}");
        assert!(err.contains(says), "{words:?}: {err}");
        assert!(out.is_empty() && !err.contains("hunter2"), "{words:?}: {out}{err}");
    }
    assert_eq!(scene.db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 0);
}

/// Reads what a child says on stderr until a line is `wanted`.
fn hear(lines: &mut impl Iterator<Item = std::io::Result<String>>, wanted: &str) {
    for line in lines {
        let line = line.unwrap();
        assert!(!line.starts_with("euterpe:"), "{line}");
        if line == wanted {
            return;
        }
    }
    panic!("it ended, and never said {wanted}");
}

/// `timeout` ends what would go on for ever when something is broken.
fn watching(cli: &Cli, job_id: JobId) -> (Child, impl Iterator<Item = std::io::Result<String>> + use<>) {
    let mut child = cli
        .within("60", &format!("watch {job_id}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines)
}

async fn step(scene: &Scene, pod: &WorkerId, claim: Claim, status: JobStatus) {
    scene.db.store().advance_jobs(pod, &[(claim, status)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_watched_from_the_line_to_its_outputs() {
    let scene = Scene::new().await;
    let (store, pod) = (scene.db.store(), worker("pod"));
    let job_id = scene.accepted().await;
    let (child, mut lines) = watching(&scene.cli(), job_id);
    hear(&mut lines, "queued");
    let claim = scene.db.claim_soon(&pod).await.claim;
    step(&scene, &pod, claim, JobStatus::Fetching).await;
    hear(&mut lines, "fetching");
    step(&scene, &pod, claim, JobStatus::Processing).await;
    hear(&mut lines, "processing");
    let progress = json!({"percent": 42.5, "phase": "processing", "output": "720p", "speed": 1.93, "eta_seconds": 65.0,
                          "updated_at": "2026-11-18T07:00:00Z"});
    store.heartbeat_jobs(&pod, &[(claim, Some(progress))], None).await.unwrap();
    hear(&mut lines, "processing 42 % 720p, 1.9x, 65 seconds left");
    step(&scene, &pod, claim, JobStatus::Uploading).await;
    let output = json!({"name": "720p", "uri": "s3://media-out/42/720p.mp4", "size_bytes": 1_048_576, "sha256": null,
                        "container": "mp4", "duration_seconds": 1.0, "bitrate_kbps": 1, "video": null, "audio": null,
                        "file_count": 1});
    store.complete_jobs(&pod, &[(claim, None, json!([output]))]).await.unwrap();
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{out}");
    assert!(out.starts_with(&format!("{job_id} succeeded\n")), "{out}");
    assert!(out.contains("720p    1.00 MiB  s3://media-out/42/720p.mp4"), "{out}");
    let document = scene.cli().json(&format!("watch {job_id}"));
    assert_eq!(document["status"], "succeeded");
}

/// Scripts branch on it: rests or given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_watched_job_ended_is_the_exit_code() {
    let scene = Scene::new().await;
    let (store, pod, cli) = (scene.db.store(), worker("pod"), scene.cli());
    for (fault, code, next) in [
        ("media_unreadable", 5, "euterpe retry JOB\n"),
        ("egress_blocked", 6, "euterpe dead redrive JOB\n"),
        ("decrypt_failed", 6, "new `credentials` with POST /transcode/retry"),
        ("credential_refresh_exhausted", 6, "new `credentials` with POST /transcode/retry"),
    ] {
        let job_id = scene.accepted().await;
        let claim = scene.db.claim_soon(&pod).await.claim;
        step(&scene, &pod, claim, JobStatus::Fetching).await;
        let (child, mut lines) = watching(&cli, job_id);
        hear(&mut lines, "fetching");
        if fault == "egress_blocked" {
            // As if it had been sent without credentials: then a person can redrive it.
            let without = format!(
                "delete from euterpe.job_secrets where job_id = '{job_id}' and purpose = 'storage';
                 update euterpe.inbox_jobs set credential_version = 0 where job_id = '{job_id}'"
            );
            scene.db.run(&without).await;
        }
        let met = JobFailure { code: fault.into(), ..JobFailure::default() };
        store.fail_jobs(&pod, &[(claim, met)]).await.unwrap();
        let ended = child.wait_with_output().unwrap();
        let out = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{out}");
        assert!(
            out.contains(&format!(": {fault}: ")) && out.contains(&next.replace("JOB", &job_id.to_string())),
            "{out}"
        );
        let said = cli.say(&format!("watch {job_id} --json"));
        let document: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((said.code, &document["error"]["code"], said.err.as_str()), (code, &json!(fault), ""));
    }
    let nothing = JobId::new(&crate::support::requester("acme"));
    let said = cli.say(&format!("watch {nothing}"));
    assert_eq!((said.code, said.err.contains("not_found: ")), (3, true), "{}", said.err);
}

/// Not only that a job is back in the line, but why, and until when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_goes_back_says_why_and_when_it_is_tried_again() {
    let scene = Scene::new().await;
    let (store, pod) = (scene.db.store(), worker("pod"));
    let job_id = scene.accepted().await;
    let claim = scene.db.claim_soon(&pod).await.claim;
    step(&scene, &pod, claim, JobStatus::Fetching).await;
    let (child, mut lines) = watching(&scene.cli(), job_id);
    hear(&mut lines, "fetching");
    // Long enough that it still waits when a busy machine has come to the terminal.
    let wait = Some(600);
    let met =
        JobFailure { code: "storage_connection".into(), retry_after_seconds: wait, ..JobFailure::default() };
    store.fail_jobs(&pod, &[(claim, met)]).await.unwrap();
    let line = lines.next().unwrap().unwrap();
    let wait = line.strip_prefix("queued (storage_connection, again in ").and_then(|s| s.strip_suffix(" s)"));
    assert!(wait.is_some_and(|wait| (540..=600).contains(&wait.parse::<u32>().unwrap())), "{line}");

    let mut script = on_a_terminal(&scene, job_id);
    let seen = read_until(&mut script, "storage_connection, again in ");
    assert!(seen.contains(" queued "), "{seen}");
    store.cancel_job(job_id, None, None).await.unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(5));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(5));
}

/// `script` gives it one.
fn on_a_terminal(scene: &Scene, job_id: JobId) -> Child {
    Command::new("script")
        .args([
            "-qefc",
            &format!("timeout --foreground 60 {} watch {job_id}", env!("CARGO_BIN_EXE_euterpe")),
            "/dev/null",
        ])
        .env_clear()
        .env("EUTERPE_API", &scene.api.url)
        .env("EUTERPE_API_KEY", &scene.api.key)
        .envs([("TERM", "xterm"), ("PATH", "/usr/bin:/bin"), ("COLUMNS", "80")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it draws until `wanted` is there.
fn read_until(script: &mut Child, wanted: &str) -> String {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        script.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_terminal_there_are_bars() {
    let scene = Scene::new().await;
    let (store, pod) = (scene.db.store(), worker("pod"));
    let job_id = scene.accepted().await;
    let claim = scene.db.claim_soon(&pod).await.claim;
    step(&scene, &pod, claim, JobStatus::Fetching).await;
    step(&scene, &pod, claim, JobStatus::Processing).await;
    let progress = json!({"percent": 50.0, "phase": "processing", "updated_at": "2026-11-18T07:00:00Z"});
    store.heartbeat_jobs(&pod, &[(claim, Some(progress))], None).await.unwrap();
    let mut script = on_a_terminal(&scene, job_id);
    let seen = read_until(&mut script, "50 %");
    assert!(seen.contains(" processing ") && seen.contains("████"), "{seen}");
    store.advance_jobs(&pod, &[(claim, JobStatus::Uploading)]).await.unwrap();
    store.complete_jobs(&pod, &[(claim, None, json!([]))]).await.unwrap();
    let mut rest = String::new();
    script.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    assert!(rest.contains(" uploading ") && rest.contains(" succeeded"), "{rest}");
    assert!(script.wait().unwrap().success());
}

/// A job of acme's that was given up for `code`.
async fn dead_letter(db: &TestDb, code: &str) -> JobId {
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;
    let met = JobFailure { code: code.into(), ..JobFailure::default() };
    db.store().fail_jobs(&pod, &[(job.claim, met)]).await.unwrap();
    job.claim.job_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_and_redriven_one_by_one_or_all_that_match() {
    let db = TestDb::fresh().await;
    let cli = Cli::new(&db);
    assert_eq!(cli.say("dead list").out, "no dead letters\n");
    let (first, second) =
        (dead_letter(&db, "egress_blocked").await, dead_letter(&db, "decrypt_failed").await);
    let listed = cli.json("dead list");
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["job_id"]).collect();
    assert_eq!(ids, [&json!(second), &json!(first)], "newest first");
    assert_eq!(cli.json("dead list --code egress_blocked --requester acme")[0]["job_id"], json!(first));
    assert_eq!(cli.json("dead list --limit 1").as_array().unwrap().len(), 1);
    assert!(cli.say("dead list").out.contains("decrypt_failed"));

    // One of two has been redriven before: the other is, and the exit code says that not all were.
    assert_eq!(cli.say(&format!("dead redrive {first} --why mended")).code, 0);
    let said = cli.say(&format!("dead redrive {first} {second}"));
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
    assert!(said.out.contains(&format!("{first} is not: ")), "{}", said.out);
    assert!(said.out.contains(&format!("{second} is redriven as ")), "{}", said.out);
    assert_eq!(cli.say("dead list").out, "no dead letters\n");
    let said = cli.say("dead redrive --all-matching");
    let filters = "give --queue, --requester, --code, --since or --until";
    assert_eq!((said.code, said.err.contains(filters)), (2, true), "{}", said.err);

    for _ in 0..3 {
        // Those that were redriven are in the line, too: any of them will do.
        dead_letter(&db, "egress_blocked").await;
    }
    let all = "dead redrive --all-matching --code egress_blocked";
    assert_eq!(cli.json(all), json!({"matching": 3, "done": 0, "refused": 0}));
    assert!(cli.say(all).out.contains("--confirm 3"));
    let said = cli.say(&format!("{all} --confirm 4"));
    assert_eq!((said.code, said.err.contains("3 match, not 4")), (4, true), "{}", said.err);
    assert_eq!(cli.json(&format!("{all} --confirm 3 --why mended"))["done"], 3);
    assert_eq!(cli.say("dead list").out, "no dead letters\n");
    let why = "select count(*) from euterpe.operator_log where why = 'mended'";
    assert_eq!(db.one::<i64>(why).await, 4);
    db.deliver_all().await;
}

/// In the middle of three the database goes away: the new id of the first is known nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_redriven_is_told_when_the_rest_was_not() {
    let db = TestDb::fresh().await;
    let cli = Cli::new(&db);
    let mut dead = Vec::new();
    for _ in 0..4 {
        dead.push(dead_letter(&db, "egress_blocked").await);
    }
    // It goes away with the second call of each.
    db.run(
        "create function public.goes_away() returns trigger language plpgsql as $$
           begin
             if (select count(*) % 2 from euterpe.operator_log) = 1 then
               raise exception 'shutting down' using errcode = '57P01';
             end if;
             return new;
           end $$;
         create trigger goes_away before insert on euterpe.operator_log for each row
           when (new.why = 'again') execute function public.goes_away()",
    )
    .await;
    let said = cli.say(&format!("dead redrive {} {} {} --why again", dead[0], dead[1], dead[2]));
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.out);
    assert!(lines[0].starts_with(&format!("{} is redriven as ", dead[0])), "{}", said.out);
    assert!(lines[1].starts_with(&format!("{}, and those after it, perhaps not: the database", dead[1])));

    db.run("insert into euterpe.operator_log (at, who, act, target) values (now(), 'a', 'test', 'x')").await;
    let said = cli.say(&format!("dead redrive {} {} --why again --json", dead[1], dead[2]));
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, told.as_array().unwrap().len()), (1, 2), "{told}");
    assert!(told[0]["redriven_as"].is_string() && told[1]["error"].is_string(), "{told}");
    db.run("drop trigger goes_away on euterpe.operator_log; drop function public.goes_away()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_asked_whether_it_is_ready() {
    let scene = Scene::new().await;
    let cli = scene.cli();
    assert_eq!(cli.json(&format!("health {}/readyz", scene.api.metrics_url))["is_ready"], true);
    let lives = cli.say(&format!("health {}/healthz", scene.api.metrics_url)).out;
    assert!(lives.ends_with("/healthz lives\n"), "it may not be ready: {lives}");
    assert_eq!(cli.say(&format!("health {}/nothing", scene.api.metrics_url)).code, 1);
    let said = cli.say("health http://127.0.0.1:1/readyz");
    assert_eq!((said.code, said.err.contains("EUTERPE_METRICS_LISTEN")), (1, true), "{}", said.err);
    assert!(!said.err.contains("--api"), "it has no such option: {}", said.err);
}

/// A key goes to nobody who cannot show a certificate for that name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_https_a_service_must_be_who_it_says() {
    let (db, file) = (TestDb::fresh().await, tempfile::NamedTempFile::new().unwrap());
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file.path(), made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let tls = Some(TlsAcceptor::from(Arc::new(config)));
    let receiver = Receiver::at("127.0.0.1:0", tls, |_, _| Does::Answers(200)).await;
    let port = receiver.address.port();
    let trusting = Cli::new(&db).with("SSL_CERT_FILE", file.path().to_str().unwrap());
    for (cli, host, code) in
        [(&trusting, "localhost", 0), (&trusting, "127.0.0.1", 1), (&Cli::new(&db), "localhost", 1)]
    {
        let said = block_in_place(|| cli.say(&format!("health https://{host}:{port}/readyz")));
        assert_eq!(said.code, code, "{host}: {}", said.err);
        assert!(code == 0 || said.err.contains("certificate"), "{host}: {}", said.err);
    }
    assert_eq!(receiver.got().len(), 1);
}

/// Bash itself reads them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_what_a_shell_understands() {
    let euterpe = env!("CARGO_BIN_EXE_euterpe");
    let script = format!(
        "source <({euterpe} completions bash) && COMP_WORDS=(euterpe doc) COMP_CWORD=1 && _euterpe euterpe doc euterpe && \
         echo ${{COMPREPLY[@]}}"
    );
    let bash = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "doctor", "{bash:?}");
    for (shell, begins) in [("zsh", "#compdef euterpe"), ("fish", "# Print an optspec")] {
        let said = Command::new(euterpe).args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(text.starts_with(begins) && text.contains("doctor"), "{shell}: {text}");
    }
}
