//! Two releases run on one database at once (docs/rolling-upgrades.md): what a release calls stays there until nobody
//! calls it, and replacing functions under load fails nobody.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use euterpe::domain::{Claim, JobId, JobStatus, NewJob, Outcome, WorkerId};
use euterpe::store::migrate::{self, MigrateError};
use euterpe::store::retain::retain;
use euterpe::store::surface::{self, Role};
use euterpe::store::{Functions, Store, StoreError};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row, Statement};

use crate::schema::keep;
use crate::support::api::KEK;
use crate::support::{Pause, Pauses, QUEUE, TestDb, bare_database, connect, requester, url_of, worker};

/// Written anew by `make schema` until the release; from then on the next test keeps it true.
#[tokio::test]
async fn the_surface_file_of_this_release_is_what_it_calls() {
    let db = TestDb::fresh().await;
    let file = surface::of_this_release(&db.config()).await.unwrap();
    keep(&format!("sql/surface/{}.txt", surface::RELEASE), &file);

    let called: BTreeSet<_> = surface::functions(&file).map(|function| function.name.to_owned()).collect();
    let mut in_source = BTreeSet::new();
    for entry in fs::read_dir("src/store").unwrap() {
        for rest in fs::read_to_string(entry.unwrap().path()).unwrap().split("euterpe.").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if name.contains("_v") && rest[name.len()..].starts_with('(') {
                in_source.insert(name);
            }
        }
    }
    assert_eq!(called, in_source, "called and there");
}

/// Every file of `sql/surface/` is a release whose pods may still run: same arguments, same columns, and whoever could
/// call a function still can.
#[tokio::test]
async fn every_release_that_may_still_run_is_answered() {
    let db = TestDb::fresh().await;
    let mut releases = 0;
    for entry in fs::read_dir("sql/surface").unwrap() {
        let (path, mut functions) = (entry.unwrap().path(), 0);
        let file = fs::read_to_string(&path).unwrap();
        let names: Vec<_> = surface::functions(&file).map(|function| function.name).collect();
        let answers = surface::answers(&db.config(), &names).await.unwrap().join("\n");
        for promised in surface::functions(&file) {
            let kept = surface::functions(&answers).any(|answer| {
                answer.promise == promised.promise
                    && promised.roles.iter().all(|role| answer.roles.contains(role))
            });
            assert!(kept, "{}: nothing answers to {promised:?}", path.display());
            functions += 1;
        }
        assert!(functions > 20, "{}: {functions} functions", path.display());
        releases += 1;
    }
    assert!(releases > 0);
}

#[tokio::test]
async fn a_binary_that_lacks_a_function_says_which_and_what_to_do() {
    let db = TestDb::fresh().await;
    for role in [Role::Api, Role::Transcode, Role::Webhook, Role::Operator] {
        let login = format!("euterpe_{}", role.as_str());
        db.store_as(&login, 1).check_surface(role).await.unwrap();
    }
    db.run("drop function euterpe.heartbeat_jobs_v1").await;
    let refused = db.store_as("euterpe_transcode", 1).check_surface(Role::Transcode).await.unwrap_err();
    let StoreError::FunctionsMissing(missing) = &refused else { panic!("{refused:?}") };
    assert_eq!(missing, &["euterpe.heartbeat_jobs_v1(text,uuid[],bigint[],uuid[],jsonb[],integer)"]);
    assert!(refused.to_string().contains("run euterpe-migrate of this release"), "{refused}");
    // Others do not call it, and go on.
    db.store_as("euterpe_webhook", 1).check_surface(Role::Webhook).await.unwrap();
}

#[tokio::test]
async fn on_a_database_without_euterpe_everything_is_missing() {
    let database = bare_database().await;
    let store = Store::connect(database.config(), 1);
    let missing = store.missing_functions(Role::Webhook).await.unwrap();
    assert!(missing.len() >= 9, "{missing:?}");
    // A worker looks before it works.
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_euterpe-webhook"))
        .env("EUTERPE_DATABASE_URL", url_of(&database.config()))
        .env("EUTERPE_KEKS", KEK)
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && says.contains("euterpe.claim_events_v1("), "{says}");
}

fn change(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} any more");
    text.replace(from, to)
}

/// The release after this one: claim_jobs_v2 tells one thing more, and claim_jobs_v1 is a thin wrapper over it.
fn next_release() -> Functions {
    let now = Functions::of_this_release();
    let v1 = now.text("inbox/claim_jobs_v1.sql").unwrap();
    let v2 = change(v1, "claim_jobs_v1", "claim_jobs_v2");
    let v2 = change(
        &v2,
        "  request            jsonb\n)",
        "  request            jsonb,\n  note               text\n)",
    );
    let v2 = change(
        &v2,
        "c.external_id, c.request\n",
        "c.external_id, c.request,\n         (select j.note from inbox_jobs j where j.job_id = c.job_id)\n",
    );
    let (before, rest) = v1.split_once("declare\n").unwrap();
    let (_, after) = rest.split_once("end;\n$$;").unwrap();
    let wrapper = format!(
        "{before}begin
  return query
  select c.job_id, c.requester_id, c.claim_version, c.claim_token, c.lease_expires_at, c.attempt_count,
         c.max_attempts, c.credential_version, c.external_id, c.request
    from claim_jobs_v2(p_queue, p_worker_id, p_limit, p_lease_seconds) c;
end;\n$$;{after}"
    );
    let grants = change(
        now.text("grants.sql").unwrap(),
        "euterpe.claim_jobs_v1,",
        "euterpe.claim_jobs_v1, euterpe.claim_jobs_v2,",
    );
    now.named("0.2.0")
        .with("inbox/claim_jobs_v2.sql", &v2)
        .with("inbox/claim_jobs_v1.sql", &wrapper)
        .with("grants.sql", &grants)
}

/// The one call in which the two releases differ.
pub enum Claimer {
    /// This release's.
    V1,
    /// The next one's; prepared once, as the store does it.
    V2(Client, Statement),
}

impl Claimer {
    async fn v2(db: &TestDb) -> Self {
        let mut config = db.config();
        let client = connect(config.user("euterpe_test")).await;
        let sql = "select job_id, claim_version, claim_token, note
                     from euterpe.claim_jobs_v2(p_queue => $1, p_worker_id => $2, p_limit => $3)";
        let statement = client.prepare(sql).await.unwrap();
        Self::V2(client, statement)
    }

    async fn claim(&self, store: &Store, pod: &WorkerId) -> Vec<Claim> {
        match self {
            Self::V1 => {
                let jobs = store.claim_jobs(QUEUE, pod, 2, None).await.unwrap();
                jobs.into_iter().map(|job| job.claim).collect()
            }
            Self::V2(client, statement) => {
                let rows = client.query(statement, &[&QUEUE, &pod.as_str(), &2]).await.unwrap();
                let claim = |row: &Row| {
                    assert_eq!(
                        row.get::<_, Option<&str>>("note"),
                        None,
                        "on old rows a new column means nothing"
                    );
                    Claim { job_id: JobId(row.get(0)), version: row.get(1), token: row.get(2) }
                };
                rows.iter().map(claim).collect()
            }
        }
    }
}

/// Pods of one release, each taking jobs through their whole life until they are told to stop. Any error ends the test.
pub struct Pods {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Pods {
    pub fn start(db: &TestDb, release: &str, claimers: Vec<Claimer>) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let tasks = claimers
            .into_iter()
            .enumerate()
            .map(|(n, claimer)| {
                let (store, pod) = (db.store_as("euterpe_test", 1), worker(&format!("{release}-{n}")));
                let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
                tokio::spawn(async move {
                    store.upkeep().await.unwrap();
                    while !stop.load(Relaxed) {
                        let job = NewJob { request: json!({}), ..NewJob::default() };
                        store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap();
                        for claim in claimer.claim(&store, &pod).await {
                            finish(&store, &pod, claim).await;
                            done.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        Self { stop, done, tasks }
    }

    /// Waits until they have finished `count` more jobs.
    pub async fn finish(&self, count: usize) {
        let goal = self.done.load(Relaxed) + count;
        for _ in 0..12_000 {
            if self.done.load(Relaxed) >= goal {
                return;
            }
            assert!(!self.tasks.iter().any(JoinHandle::is_finished), "a pod has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{count} jobs were not finished within a minute");
    }

    pub async fn stop(self) {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn finish(store: &Store, pod: &WorkerId, claim: Claim) {
    let beats = store.heartbeat_jobs(pod, &[(claim, None)], None).await.unwrap();
    assert_eq!(beats[0].outcome, Outcome::Ok);
    for status in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
        let answers = store.advance_jobs(pod, &[(claim, status)]).await.unwrap();
        assert_eq!(answers[0].outcome, Outcome::Ok);
    }
    let answers = store.complete_jobs(pod, &[(claim, None, json!([]))]).await.unwrap();
    assert_eq!(answers[0].outcome, Outcome::Ok);
}

/// The steps of docs/rolling-upgrades.md: expand, roll out, roll the pods back, contract.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_drive_one_database_while_functions_are_reloaded() {
    let db = TestDb::fresh().await;
    let old = Pods::start(&db, "old", vec![Claimer::V1, Claimer::V1, Claimer::V1, Claimer::V1]);
    old.finish(20).await;

    // Expand: a column that old functions do not know, then the functions of the next release.
    let owner = db.client().await;
    owner
        .batch_execute(
            "set role euterpe_owner; set lock_timeout = '10s'; alter table euterpe.inbox_jobs add column note text",
        )
        .await
        .unwrap();
    let next = next_release();
    let mut loaded = migrate::load_functions(&db.config(), &next).await.unwrap();
    loaded.sort();
    assert_eq!(loaded, ["grants.sql", "inbox/claim_jobs_v1.sql", "inbox/claim_jobs_v2.sql"]);

    // Roll out: both releases on the same rows, while every function is replaced again and again.
    let claimers = futures_util::future::join_all((0..4).map(|_| Claimer::v2(&db))).await;
    let new = Pods::start(&db, "new", claimers);
    for _ in 0..6 {
        db.run("update euterpe.sql_functions set sha256 = repeat('0', 64)").await;
        db.store().upkeep().await.unwrap();
        let loaded = migrate::load_functions(&db.config(), &next).await.unwrap();
        assert!(loaded.len() > 50, "everything: {}", loaded.len());
        tokio::join!(old.finish(10), new.finish(10));
    }

    // Back: the pods alone. The old release boots on the newer database; its migrator changes nothing.
    new.stop().await;
    for role in [Role::Api, Role::Transcode, Role::Webhook, Role::Operator] {
        db.store().check_surface(role).await.unwrap();
    }
    let refused = migrate::migrate(&db.config()).await.unwrap_err();
    assert!(matches!(refused, MigrateError::FunctionsAreNewer { .. }), "{refused:?}");
    old.finish(20).await;
    old.stop().await;

    // Contract: nobody of the old release is left, and one that comes late is told before it starts.
    owner.batch_execute("drop function euterpe.claim_jobs_v1").await.unwrap();
    let refused = db.store().check_surface(Role::Transcode).await.unwrap_err();
    let StoreError::FunctionsMissing(missing) = refused else { panic!("{refused:?}") };
    assert_eq!(missing, ["euterpe.claim_jobs_v1(text,text,integer,integer)"]);
}

/// Postgres looks up a function anew with each statement, so a call that is under way when a release is loaded meets
/// new helpers. One whose signature changed is not there for it any more: nothing was done, and the store calls again.
#[tokio::test]
async fn a_call_under_way_whose_helper_changes_its_signature_is_made_again() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let pauses = Pauses::install(&db).await;
    pauses.hold(Pause::ClaimTaken, 0).await;
    let (store, pod) = (db.store(), worker("pod"));
    let claiming = tokio::spawn(async move { store.claim_jobs(QUEUE, &pod, 1, None).await });
    pauses.until_waiting(Pause::ClaimTaken, 0).await;

    let now = Functions::of_this_release();
    let helper = change(
        now.text("inbox/_claimed_jobs.sql").unwrap(),
        "  p_job_ids uuid[]\n",
        "  p_job_ids uuid[],\n  p_extra integer\n",
    );
    let caller = change(
        now.text("inbox/claim_jobs_v1.sql").unwrap(),
        "_claimed_jobs(v_claimed)",
        "_claimed_jobs(v_claimed, 1)",
    );
    let next =
        now.named("0.2.0").with("inbox/_claimed_jobs.sql", &helper).with("inbox/claim_jobs_v1.sql", &caller);
    migrate::load_functions(&db.config(), &next).await.unwrap();
    pauses.free(Pause::ClaimTaken, 0).await;

    let jobs = claiming.await.unwrap().unwrap();
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].claim.job_id, jobs[0].claim.version), (id, 1), "claimed once");
    assert_eq!(db.path(id).await, ["queued", "claimed"]);
}

/// Granting writes the row of every table in the catalog, dropping too: whoever comes second would fail.
#[tokio::test]
async fn nothing_is_dropped_while_a_release_is_loaded() {
    let db = TestDb::fresh().await;
    db.jump(Duration::from_secs(120 * 86_400)).await;
    let migrator = db.client().await;
    let lock = i64::from_be_bytes(*b"\0euterpe");
    migrator.execute("select pg_advisory_lock($1)", &[&lock]).await.unwrap();
    assert_eq!(retain(&db.config(), 90).await.unwrap(), None, "not its turn");
    migrator.execute("select pg_advisory_unlock($1)", &[&lock]).await.unwrap();
    assert!(!retain(&db.config(), 90).await.unwrap().unwrap().is_empty());
}

/// Not that anybody should, but a restore does: statements that name their columns find the function of the same name.
#[tokio::test]
async fn a_function_dropped_and_made_again_is_found_by_statements_prepared_before() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store_as("euterpe_test", 1), worker("pod"));
    let before = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap();
    assert!(before.is_empty(), "it is prepared now");

    let now = Functions::of_this_release();
    let (claim, grants) = (now.text("inbox/claim_jobs_v1.sql").unwrap(), now.text("grants.sql").unwrap());
    db.run(&format!(
        "begin; set local role euterpe_owner; drop function euterpe.claim_jobs_v1; {claim}; {grants}; commit"
    ))
    .await;
    db.enqueue().await;
    assert_eq!(store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().len(), 1);
}

/// A composite type is no table: casts to it count its columns, in functions that were loaded before it grew. That is
/// why a migration never alters one of ours; the next release makes another.
#[tokio::test]
async fn a_composite_type_that_grows_breaks_the_functions_of_the_release_before() {
    let db = TestDb::fresh().await;
    db.enqueue().await;
    db.run("alter type euterpe._step add attribute note text").await;
    let refused = db.store().claim_jobs(QUEUE, &worker("pod"), 1, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unexpected(_)), "{refused:?}");
}
