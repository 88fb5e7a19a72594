//! Design §8: `euterpe doctor` says what is missing, and the command that mends it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use euterpe::crypto::{Binding, seal};
use euterpe::domain::{JobId, NewJob};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crypto::ring;
use crate::support::cli::Cli;
use crate::support::{QUEUE, TestDb, bare_database, requester, until, url_of};

/// `euterpe` where everything outside the database is as it should be.
fn healthy(db: &TestDb, work: &TempDir) -> Cli {
    Cli::new(db)
        .with("PATH", &std::env::var("PATH").unwrap())
        .with("EUTERPE_WORK_DIR", work.path().join("euterpe").to_str().unwrap())
}

/// `(ok, says, mend)` of one check.
fn check<'a>(found: &'a Value, name: &str) -> (bool, &'a str, &'a str) {
    let checks = found["checks"].as_array().unwrap();
    let one = checks.iter().find(|one| one["check"] == name).unwrap_or_else(|| panic!("{name}: {found:#}"));
    (one["ok"] == true, one["says"].as_str().unwrap(), one["mend"].as_str().unwrap_or_default())
}

/// What is wrong, without what could not be looked at because of it.
fn troubles(found: &Value) -> Vec<&str> {
    let checks = found["checks"].as_array().unwrap().iter();
    checks.filter(|one| one["ok"] == false).map(|one| one["check"].as_str().unwrap()).collect()
}

fn examine(cli: &Cli) -> (i32, Value) {
    let said = cli.say("doctor --json");
    (said.code, serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}{}", said.out, said.err)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_is_well_every_line_says_so() {
    let (db, work) = (TestDb::durable().await, TempDir::new().unwrap());
    db.store().upkeep().await.unwrap(); // a service would have
    let said = healthy(&db, &work).say("doctor");
    assert_eq!(said.code, 0, "{}", said.out);
    let (lines, summary) = said.out.split_once("\n\n").unwrap();
    assert_eq!(summary, "all is well\n");
    for name in [
        "postgres",
        "clock",
        "durability",
        "roles",
        "login",
        "functions",
        "partitions ahead",
        "health",
        "keys in use",
        "keys",
        "pepper",
        "work directory",
        "ffmpeg",
        "ffprobe",
        "encoders",
        "cage",
    ] {
        assert!(lines.lines().any(|line| line.starts_with(&format!("✓ {name} "))), "{name}: {lines}");
    }
    assert!(lines.lines().all(|line| line.starts_with('✓')), "{lines}");
}

/// Each by itself, with what mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_outside_the_database_is_named_with_its_remedy() {
    let (db, work) = (TestDb::fresh().await, TempDir::new().unwrap());
    db.store().upkeep().await.unwrap();
    db.wind(Duration::from_secs(120)).await;
    let (code, found) = examine(&healthy(&db, &work));
    assert_eq!((code, &found["ok"]), (1, &json!(false)));
    let (is_ok, says, mend) = check(&found, "upkeep");
    assert!(
        !is_ok && says.starts_with("last sample 2m") && mend.starts_with("start euterpe-api"),
        "{says} {mend}"
    );

    let tools = TempDir::new().unwrap();
    for (name, script) in [("ffmpeg", "echo ' A....D aac  x'"), ("ffprobe", "exit 3")] {
        let path = tools.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let cli = healthy(&db, &work).without("EUTERPE_KEKS").without("EUTERPE_KEY_PEPPER");
    let (_, found) = examine(
        &cli.with("PATH", tools.path().to_str().unwrap()).with("EUTERPE_WORK_DIR", "/proc/self/euterpe"),
    );
    for (name, says, mend) in [
        ("keys", "EUTERPE_KEK", "set -C; euterpe kek new --pepper > keys"),
        ("pepper", "as there are no keys", "see keys"),
        ("ffprobe", "ended with exit status: 3", "apt-get install ffmpeg"),
        ("encoders", "presets need libx264, libmp3lame", "an ffmpeg that has them"),
        ("work directory", "cannot work in /proc/self/euterpe: No such file", "EUTERPE_WORK_DIR"),
    ] {
        let (is_ok, met, remedy) = check(&found, name);
        assert!(!is_ok && met.contains(says) && remedy.contains(mend), "{name}: {met} → {remedy}");
    }
    let (_, found) = examine(&healthy(&db, &work).with("PATH", "/nonexistent"));
    assert!(check(&found, "ffmpeg").1.contains("cannot be started"));
    assert!(found["checks"].as_array().unwrap().iter().all(|one| one["check"] != "encoders"));

    let file = work.path().join("file");
    fs::write(&file, "").unwrap();
    let cli = healthy(&db, &work).with("EUTERPE_WORK_DIR", file.to_str().unwrap());
    let (_, found) = examine(&cli.with("EUTERPE_FFMPEG", "/nonexistent/ffmpeg"));
    let (is_ok, says, _) = check(&found, "work directory");
    assert!(!is_ok && says.contains("File exists"), "{says}");
    let (is_ok, says, mend) = check(&found, "ffmpeg");
    assert!(!is_ok && says.starts_with("/nonexistent/ffmpeg cannot be started"), "{says}");
    assert!(mend.starts_with("EUTERPE_FFMPEG=/nonexistent/ffmpeg does not lead to one"), "{mend}");
}

/// With keys there, whatever is wrong with them: nothing that doctor says makes new ones, and each is one trouble.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_keys_has_a_remedy_that_loses_none() {
    let (db, work) = (TestDb::fresh().await, TempDir::new().unwrap());
    db.store().upkeep().await.unwrap();
    let one = Cli::new(&db).say("kek new --id one --pepper").out;
    let two = format!("{one}{}", Cli::new(&db).say("kek new --id two").out);
    let pepper = one.lines().last().unwrap();
    let (file, gone) = (work.path().join("keys"), work.path().join("gone"));
    let cli = |more: &[(&'static str, &str)]| {
        let cli = healthy(&db, &work).without("EUTERPE_KEKS").without("EUTERPE_KEY_PEPPER");
        let cli = cli.with("EUTERPE_KEK_FILE", file.to_str().unwrap());
        more.iter().fold(cli, |cli, (name, value)| cli.with(name, value))
    };
    let chmod = format!("chmod 600 {}", file.display());
    let append = format!("(umask 077; {{ echo; euterpe kek new --pepper-only; }} >> {})", file.display());
    for (text, mode, more, trouble, mend) in [
        (one.as_str(), 0o644, vec![], "keys", chmod.as_str()),
        (&one, 0o600, vec![("EUTERPE_KEK_FILE", gone.to_str().unwrap())], "keys", "look at the path"),
        (
            &two,
            0o600,
            vec![],
            "keys",
            "export EUTERPE_ACTIVE_KEK=…, whichever the services seal with of one, two",
        ),
        (
            &one,
            0o600,
            vec![("EUTERPE_ACTIVE_KEK", "three")],
            "keys",
            "export EUTERPE_ACTIVE_KEK=one, or unset it",
        ),
        (&one, 0o600, vec![("EUTERPE_KEKS", "x")], "keys", "unset EUTERPE_KEK_FILE, or unset EUTERPE_KEKS"),
        (one.lines().next().unwrap(), 0o600, vec![], "pepper", &append),
        (pepper, 0o600, vec![], "keys", "(umask 077; { echo; euterpe kek new; } >> "),
    ] {
        fs::write(&file, text.trim_end()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let (_, found) = examine(&cli(&more));
        let (is_ok, says, remedy) = check(&found, trouble);
        assert!(!is_ok && remedy.starts_with(mend), "{says} → {remedy}");
        assert_eq!(troubles(&found), ["durability", trouble], "{found:#}");
        if remedy.starts_with("chmod") || remedy.starts_with("(umask") {
            run(&work, remedy);
            assert!(
                fs::read_to_string(&file).unwrap().starts_with(text.trim_end()),
                "what was there is there"
            );
            assert_eq!(troubles(&examine(&cli(&more)).1), ["durability"], "{remedy}");
        }
    }

    // Keys from the environment, and no pepper anywhere.
    let (_, found) = examine(&healthy(&db, &work).without("EUTERPE_KEY_PEPPER"));
    let (_, _, remedy) = check(&found, "pepper");
    let export = remedy.split(", and").next().unwrap();
    assert!(run(&work, &format!("{export} && test ${{#EUTERPE_KEY_PEPPER}} = 44")).success(), "{remedy}");

    // Nothing names any: made once, and by no means over those that are there.
    let none = || healthy(&db, &work).without("EUTERPE_KEKS").without("EUTERPE_KEY_PEPPER");
    let (_, found) = examine(&none());
    let remedy = check(&found, "keys").2.to_owned();
    let before = fs::read(&file).unwrap();
    assert!(!run(&work, &remedy).success(), "{remedy}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::remove_file(&file).unwrap();
    assert!(run(&work, &remedy).success(), "{remedy}");
    assert_eq!(troubles(&examine(&cli(&[])).1), ["durability"]);
    // Once something is sealed, new keys are no remedy at all.
    assert_eq!(cli(&[]).say("secret rotate acme").code, 0);
    assert_eq!(cli(&[]).say("key add acme").code, 0);
    let (_, found) = examine(&none());
    assert!(check(&found, "keys").2.starts_with("get the keys back"), "{found:#}");
    let (_, found) = examine(&healthy(&db, &work).without("EUTERPE_KEY_PEPPER"));
    assert!(check(&found, "pepper").2.starts_with("get its line back"), "{found:#}");
}

/// A remedy, as somebody pastes it, in the directory of the keys.
fn run(dir: &TempDir, remedy: &str) -> std::process::ExitStatus {
    let programs = Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", remedy]).current_dir(dir.path()).env("PATH", path);
    shell.stderr(Stdio::null()).status().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_what_it_said_is_mended_by_what_doctor_says() {
    let (db, work) = (TestDb::durable().await, TempDir::new().unwrap());
    for set in ["fsync = off", "synchronous_commit = local"] {
        db.run(&format!("alter system set {set}")).await;
    }
    db.run("select pg_reload_conf()").await;
    let looker = db.client().await;
    until(&looker, "select current_setting('fsync') = 'off'").await;
    let (_, found) = examine(&healthy(&db, &work));
    let (is_ok, says, mend) = check(&found, "durability");
    assert!(!is_ok && says.starts_with("fsync = off, synchronous_commit = local: a crash"), "{says}");
    let (_, statements) = mend.split_once(": ").unwrap();
    let as_superuser = url_of(&db.config()).replace("user=euterpe_test", "user=postgres");
    let psql = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &as_superuser])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut psql = psql.unwrap();
    psql.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success(), "{statements}");
    until(&looker, "select current_setting('fsync') = 'on'").await;
    let (_, found) = examine(&healthy(&db, &work));
    assert!(check(&found, "durability").0, "{found:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_in_the_database_is_named_with_its_remedy() {
    let (db, work) = (TestDb::fresh().await, TempDir::new().unwrap());
    let acme = requester("acme");
    let id = JobId::new(&acme);
    let sealed = seal(&ring(&[("lost", 7)]), &Binding::storage(id, &acme, 1), &"x".into());
    let job = NewJob {
        request: json!({}),
        job_id: Some(id),
        sealed: [("storage".to_owned(), sealed)].into(),
        ..NewJob::default()
    };
    db.store().enqueue_job(&acme, QUEUE, &job).await.unwrap();
    let (_, found) = examine(&healthy(&db, &work));
    let (is_ok, says, mend) = check(&found, "keys in use");
    assert!(
        !is_ok && says.starts_with("not here: lost;") && mend.contains("EUTERPE_KEK_FILE"),
        "{says} {mend}"
    );

    let as_api = url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_api");
    let (_, found) = examine(&healthy(&db, &work).with("EUTERPE_DATABASE_URL", &as_api));
    let (_, says, mend) = check(&found, "login");
    assert!(
        says.ends_with("it is for euterpe_api") && mend.starts_with("look with an operator's login"),
        "{mend}"
    );
    for name in ["health", "keys in use"] {
        let (is_ok, says, remedy) = check(&found, name);
        assert!(!is_ok && says.contains("permission denied") && remedy == mend, "{name}: {says} {remedy}");
    }
    assert_eq!(troubles(&found), ["durability", "login"], "{found:#}");
    assert!(!found.to_string().contains("grant"), "nobody widens a service's login: {found:#}");

    // One that was given no role yet: which one is for people.
    db.run("create role doctors_nobody login").await;
    let as_nobody = url_of(&db.config()).replace("user=euterpe_test", "user=doctors_nobody");
    let (_, found) = examine(&healthy(&db, &work).with("EUTERPE_DATABASE_URL", &as_nobody));
    for name in ["login", "functions"] {
        let (is_ok, says, mend) = check(&found, name);
        let grant = "as a superuser: grant euterpe_operator to \"doctors_nobody\"";
        assert!(!is_ok && mend == grant, "{name}: {says} {mend}");
    }
    assert_eq!(troubles(&found), ["durability", "login"], "{found:#}");
    let denied = Cli::new(&db).with("EUTERPE_DATABASE_URL", &as_nobody).say("requester list");
    assert!(denied.code == 1 && denied.err.contains("a login that has euterpe_operator"), "{}", denied.err);
    db.run("drop role doctors_nobody").await;

    db.run("alter function euterpe.claim_jobs_v1 rename to claim_jobs_v0").await;
    let (_, found) = examine(&healthy(&db, &work));
    let (is_ok, says, mend) = check(&found, "functions");
    assert!(!is_ok && says.starts_with("1 missing, the first is euterpe.claim_jobs_v1("), "{says}");
    assert!(mend.starts_with("euterpe-migrate"), "{mend}");
    db.run("alter function euterpe.claim_jobs_v0 rename to claim_jobs_v1").await;

    let bare = bare_database().await;
    let (_, found) = examine(&healthy(&db, &work).with("EUTERPE_DATABASE_URL", &url_of(&bare.config())));
    assert!(check(&found, "postgres").0 && !check(&found, "functions").0, "{found:#}");
}

/// The server is there and says why not; nobody has to guess.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_postgres_said_when_it_let_nobody_in_is_shown() {
    let (db, work) = (TestDb::fresh().await, TempDir::new().unwrap());
    let url = url_of(&db.config());
    let (name, user) = (db.config().get_dbname().unwrap().to_owned(), "user=euterpe_test");
    for (url, said) in [
        (url.replace(user, "user=stranger password=hunter2"), "FATAL: role \"stranger\" does not exist"),
        (url.replace(&name, "elsewhere"), "FATAL: database \"elsewhere\" does not exist"),
    ] {
        let cli = healthy(&db, &work).with("EUTERPE_DATABASE_URL", &url);
        let (_, found) = examine(&cli);
        let (is_ok, says, _) = check(&found, "postgres");
        let other = cli.say("requester list").err;
        for says in [says, &other] {
            assert!(!is_ok && says.contains(said) && !says.contains("hunter2"), "{says}");
        }
    }
    let nobody_there = Cli::new(&db).with("EUTERPE_DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/none");
    let said = nobody_there.say("requester list").err;
    assert!(said.contains("Connection refused") && !said.contains("hunter2"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_hides_nothing_else() {
    let (db, work) = (TestDb::fresh().await, TempDir::new().unwrap());
    let away =
        healthy(&db, &work).with("EUTERPE_DATABASE_URL", "postgres://euterpe:hunter2@127.0.0.1:1/none");
    for cli in [away, healthy(&db, &work).without("EUTERPE_DATABASE_URL")] {
        let (code, found) = examine(&cli);
        let (is_ok, says, mend) = check(&found, "postgres");
        assert!(code == 1 && !is_ok && mend.contains("EUTERPE_DATABASE_URL"), "{says} {mend}");
        assert!(check(&found, "keys").0 && check(&found, "ffmpeg").0, "{found:#}");
        assert!(!found.to_string().contains("hunter2"), "{found:#}");
    }
}
