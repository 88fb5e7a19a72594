//! Design §8: `euterpe doctor` says what is missing, and the command that mends it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use euterpe::crypto::{Binding, seal};
use euterpe::domain::{JobId, NewJob};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crypto::ring;
use crate::support::cli::Cli;
use crate::support::{QUEUE, TestDb, bare_database, requester, url_of};

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
    (one["ok"].as_bool().unwrap(), one["says"].as_str().unwrap(), one["mend"].as_str().unwrap_or_default())
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
    let (is_ok, says, mend) = check(&found, "durability");
    assert!(!is_ok && says.contains("fsync = off") && mend.contains("fsync = on"), "{says} {mend}");
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
        ("keys", "EUTERPE_KEK", "euterpe kek new --pepper > keys"),
        ("pepper", "EUTERPE_KEY_PEPPER", "euterpe kek new --pepper"),
        ("keys in use", "not looked at", "see keys"),
        ("ffprobe", "ended with exit status: 3", "apt-get install ffmpeg"),
        ("encoders", "presets need libx264, libmp3lame", "an ffmpeg that has them"),
        ("work directory", "/proc/self", "EUTERPE_WORK_DIR"),
    ] {
        let (is_ok, met, remedy) = check(&found, name);
        assert!(!is_ok && met.contains(says) && remedy.contains(mend), "{name}: {met} → {remedy}");
    }
    let (_, found) = examine(&healthy(&db, &work).with("PATH", "/nonexistent"));
    assert!(check(&found, "ffmpeg").1.contains("cannot be started"));
    assert!(found["checks"].as_array().unwrap().iter().all(|one| one["check"] != "encoders"));
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
    assert_eq!(
        check(&found, "login").2,
        "it is a service's: give EUTERPE_DATABASE_URL an operator's login here"
    );
    assert!(check(&found, "health").1.contains("permission denied"), "{found:#}");

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
