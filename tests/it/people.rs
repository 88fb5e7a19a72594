//! Design §7: somebody who knows `psql` and nothing of Euterpe sees what is up, steers it, and breaks nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use euterpe::domain::{
    Delivery, EventReleaseReason, JobFailure, JobId, JobStatus, NewJob, Outcome, ReleaseReason,
};
use serde_json::json;

use crate::support::scene::Scene;
use crate::support::{LEASE, QUEUE, TestDb, connect, requester, until, with_webhook, worker};

const VIEWS: [&str; 8] = [
    "queue_overview",
    "running_jobs",
    "stuck_jobs",
    "dead_letters",
    "outbox_backlog",
    "tenants",
    "live_workers",
    "health",
];

async fn explain(db: &TestDb, id: JobId) -> (String, String, Option<String>) {
    let client = connect(&{
        let mut config = db.config();
        config.user("euterpe_readonly");
        config
    })
    .await;
    let rows = client.query("select * from euterpe.explain_job_v1($1)", &[&id.0]).await.unwrap();
    assert_eq!(rows.len(), 1, "one row, always");
    (rows[0].get(0), rows[0].get(1), rows[0].get(2))
}

async fn assert_explained(db: &TestDb, id: JobId, situation: &str, says: &str) {
    let found = explain(db, id).await;
    assert!(found.0 == situation && found.1.contains(says), "wanted {situation}, {says:?}: {found:?}");
}

/// One job through everything that can be up with it.
#[tokio::test]
async fn explain_has_a_sentence_for_every_situation() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod-7"));
    let nobody = JobId::new(&requester("acme"));
    assert_explained(&db, nobody, "unknown", "no job of that id").await;
    let ancient: JobId = JobId("0161c1b0-0000-7000-8000-0000000000aa".parse().unwrap());
    assert_explained(&db, ancient, "pruned", "was dropped").await;

    let first = db.enqueue().await;
    let run_at = jiff::Timestamp::now() + Duration::from_secs(900);
    let id = db.enqueue_with(NewJob { run_at: Some(run_at), ..with_webhook() }).await;
    assert_explained(&db, id, "delayed", "delayed for 1").await;
    db.jump(Duration::from_secs(1000)).await;
    assert_explained(&db, id, "due", "the next tick lets it into the line").await;
    db.wind(Duration::from_secs(2)).await;
    assert_explained(&db, id, "in_line", "behind 1 in line transcode").await;
    store.pause_queue(QUEUE, None).await.unwrap();
    assert_explained(&db, id, "paused", "resume_queue_v1('transcode') lets it go; behind 1").await;
    store.resume_queue(QUEUE, None).await.unwrap();
    store.cancel_job(first, None, None).await.unwrap();
    assert_explained(&db, first, "failed", "cancelled (cancelled); retry_job_v1 tries it again").await;
    assert!(store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().len() == 1);
    let claim = db.job(id).await;
    assert_explained(&db, id, "running", "claimed, attempt 1 of 5, by pod-7#").await;
    assert_eq!(claim["status"], "claimed");
    db.wind(LEASE - Duration::from_secs(5)).await;
    db.jump(Duration::from_secs(10)).await;
    assert_explained(&db, id, "lapsed", "the next tick takes it back").await;
    db.wind(Duration::from_secs(2)).await;
    assert_explained(&db, id, "in_line", "next in line transcode").await;

    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Processing).await;
    store.heartbeat_jobs(&pod, &[(job.claim, Some(json!({"percent": 42})))], None).await.unwrap();
    assert_explained(&db, id, "running", "processing 42%, attempt 1 of 5").await;
    store.begin_refreshes(&pod, &[(job.claim, false)]).await.unwrap();
    assert_explained(&db, id, "running", "asked for new credentials 1 times in a row").await;
    let wait = [(job.claim, ReleaseReason::Credentials, Duration::from_secs(30))];
    store.release_jobs(&pod, &wait).await.unwrap();
    assert_explained(&db, id, "waiting_for_credentials", "its storage credentials must be renewed").await;
    db.wind(Duration::from_secs(32)).await;
    assert_explained(&db, id, "waiting_for_credentials", "next in line").await;

    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
    let failed =
        |code: &str| JobFailure { code: code.into(), message: "as it is".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, failed("storage_unavailable"))]).await.unwrap();
    assert_explained(&db, id, "delayed", "(after storage_unavailable)").await;
    db.wind(Duration::from_secs(700)).await;
    let job = db.claim(&pod).await;
    store.fail_jobs(&pod, &[(job.claim, failed("media_unreadable"))]).await.unwrap();
    assert_explained(&db, id, "failed", "media_unreadable (as it is); retry_job_v1 tries it again").await;
    store.retry_job(id, None, None, None).await.unwrap();
    let job = db.claim(&pod).await;
    store.fail_jobs(&pod, &[(job.claim, failed("egress_blocked"))]).await.unwrap();
    assert_explained(&db, id, "dead_letter", "egress_blocked (as it is); redrive_job_v1 makes a new one")
        .await;
    let new = store.redrive_job(id, None, None, None).await.unwrap();
    assert_explained(&db, id, "redriven", &format!("goes on as {new}")).await;
    let job = db.claim(&pod).await;
    db.succeed(&pod, job.claim).await;
    assert_explained(&db, new, "succeeded", "on attempt 1").await;
}

#[tokio::test]
async fn explain_says_how_the_webhooks_stand() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("hooks"));
    let silent = db.enqueue().await;
    assert_eq!(explain(&db, silent).await.2.unwrap(), "no webhook");
    let id = db.enqueue_with(with_webhook()).await;
    store.cancel_job(id, None, None).await.unwrap();
    assert_eq!(explain(&db, id).await.2.unwrap(), "event 1 is in line; 2 wait behind it");
    let event = store.claim_events("webhook", &pod, 1, None).await.unwrap().remove(0);
    let says = explain(&db, id).await.2.unwrap();
    assert_eq!(says, format!("event 1 is being delivered by {pod}; 2 wait behind it"));

    let keys = "select says from euterpe.health where topic = 'keys' and not ok";
    assert!(db.client().await.query(keys, &[]).await.unwrap().is_empty());
    let later = [(event.claim, EventReleaseReason::UnknownKek, Duration::from_secs(30))];
    store.release_events(&pod, &later).await.unwrap();
    let says = explain(&db, id).await.2.unwrap();
    assert!(
        says.starts_with("event 1 is tried again in ") && says.contains("s (unknown_kek); 2 wait"),
        "{says}"
    );
    let says: String = db.one(keys).await;
    assert!(says.starts_with("1 of the next webhooks were handed back for a key"), "{says}");
    db.wind(Duration::from_secs(32)).await;
    let event = store.claim_events("webhook", &pod, 1, None).await.unwrap().remove(0);
    store.settle_events(&pod, &[(event.claim, Delivery::failed("timeout"))]).await.unwrap();
    let says = explain(&db, id).await.2.unwrap();
    assert!(
        says.starts_with("event 1 is tried again in ") && says.contains("(1 attempts, last: timeout)"),
        "{says}"
    );
    db.wind(Duration::from_secs(10)).await;
    let event = store.claim_events("webhook_retry", &pod, 1, None).await.unwrap().remove(0);
    store.settle_events(&pod, &[(event.claim, Delivery::failed("gone"))]).await.unwrap();
    let says = explain(&db, id).await.2.unwrap();
    assert_eq!(says, "0 delivered, 3 given up; the endpoint answered 410, nothing more is sent");
}

/// What is in somebody's hands leads to them: one name in both views.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_jobs_and_live_workers_name_a_worker_alike() {
    let scene = Scene::new().await;
    let found: String = scene
        .db
        .one(&format!(
            "select w.worker || ' ' || w.kind
               from euterpe.running_jobs r join euterpe.live_workers w using (worker) where r.job_id = '{}'",
            scene.running
        ))
        .await;
    assert!(found.starts_with("transcode-0#") && found.ends_with(" transcode"), "{found}");
}

/// What a person sees fits a terminal of 80 columns, for names of ordinary length.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_views_fit_eighty_columns() {
    let scene = Scene::new().await;
    for view in VIEWS {
        let shown = psql(&scene, "euterpe_readonly", &format!("select * from {view};"));
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{view}: {widest} columns\n{shown}");
        assert!(!shown.contains("(0 rows)") || view == "stuck_jobs", "{view} shows nothing\n{shown}");
    }
}

fn psql(scene: &Scene, login: &str, statements: &str) -> String {
    crate::operations::psql(&scene.config_of(login), scene.running, statements)
}

/// Readers and operators write nothing but by the operator's functions, and see nothing secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_secret_is_shown_and_nothing_can_be_written() {
    let scene = Scene::new().await;
    let marked = "whsec_0123456789abcdef";
    scene
        .db
        .run(&format!(
            "insert into euterpe.job_secrets (job_id, purpose, storage_creds_encrypted, storage_creds_dek_wrapped,
                     storage_creds_kek_id, storage_creds_encryption_version, credential_version, sealed_at)
             select job_id, 'callback', '{marked}', '{marked}', 'k', 1, 1, now() from euterpe.inbox_jobs"
        ))
        .await;
    for login in ["euterpe_readonly", "euterpe_operator"] {
        let client = connect(&scene.config_of(login)).await;
        for view in VIEWS.iter().chain(&["job_timeline", "error_codes", "delivery_classes", "operator_log"]) {
            let rows =
                client.query(&format!("select to_jsonb(v)::text from euterpe.{view} v"), &[]).await.unwrap();
            for row in rows {
                assert!(!row.get::<_, String>(0).contains(marked), "{login}: {view}");
            }
            for write in ["delete from", "truncate", "insert into"] {
                let rest = if write == "insert into" { " default values" } else { "" };
                let refused = client.batch_execute(&format!("{write} euterpe.{view}{rest}")).await;
                assert!(refused.is_err(), "{login}: {write} {view}");
            }
        }
    }
}

/// People look while eight connections claim and finish; nobody is hindered, nothing is hidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_view_works_while_eight_connections_claim_and_finish() {
    let db = TestDb::fresh().await;
    db.enqueue_many(400).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..8)
        .map(|n| {
            let (store, pod) = (db.store(), worker(&format!("pod-{n}")));
            tokio::spawn(async move {
                let mut count = 0;
                loop {
                    let jobs = store.claim_jobs(QUEUE, &pod, 5, None).await.unwrap();
                    if jobs.is_empty() {
                        return count;
                    }
                    for job in jobs {
                        for step in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
                            store.advance_jobs(&pod, &[(job.claim, step)]).await.unwrap();
                        }
                        let done = store.complete_jobs(&pod, &[(job.claim, None, json!([]))]).await.unwrap();
                        assert_eq!(done[0].outcome, Outcome::Ok);
                        count += 1;
                    }
                }
            })
        })
        .collect();
    let (flag, config) = (Arc::clone(&is_over), {
        let mut config = db.config();
        config.user("euterpe_readonly");
        config
    });
    let reader = tokio::spawn(async move {
        let (client, mut rounds) = (connect(&config).await, 0);
        while !flag.load(Ordering::SeqCst) {
            for view in VIEWS {
                client.query(&format!("select * from euterpe.{view}"), &[]).await.unwrap();
            }
            rounds += 1;
        }
        rounds
    });
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(reader.await.unwrap() > 0);
    // A claim may pass over what another holds and find nothing else; the rest is still there.
    let left: i64 = db.one("select count(*) from euterpe.ready").await;
    assert_eq!(done + left, 400);
}

/// History does not make looking dearer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_view_costs_does_not_grow_with_finished_jobs() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let client = db.client().await;
    let mut before = Vec::new();
    for round in 0..2 {
        for _ in 0..if round == 0 { 2 } else { 20 } {
            db.enqueue_many(200).await;
            let jobs = store.claim_jobs(QUEUE, &pod, 200, None).await.unwrap();
            let fail = JobFailure { code: "media_unreadable".into(), ..JobFailure::default() };
            let failed: Vec<_> = jobs.iter().map(|job| (job.claim, fail.clone())).collect();
            store.fail_jobs(&pod, &failed).await.unwrap();
        }
        db.wind(LEASE * 2).await;
        db.enqueue_many(50).await;
        client.batch_execute("vacuum analyze").await.unwrap();
        let mut costs = Vec::new();
        for view in VIEWS {
            for _ in 0..2 {
                let plan: serde_json::Value = client
                    .query_one(
                        &format!("explain (analyze, buffers, format json) select * from euterpe.{view}"),
                        &[],
                    )
                    .await
                    .unwrap()
                    .get(0);
                let plan = &plan[0]["Plan"];
                let touched = plan["Shared Hit Blocks"].as_i64().unwrap()
                    + plan["Shared Read Blocks"].as_i64().unwrap();
                costs.push((view, touched));
            }
        }
        if round == 0 {
            before = costs;
        } else {
            for ((view, first), (_, then)) in before.iter().zip(&costs) {
                assert!(*then <= first * 2 + 100, "{view}: {first} buffers, then {then}");
            }
        }
    }
}

/// Who holds the oldest snapshot, and since when; which table has dead rows; which pods lack their functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_names_culprits() {
    let db = TestDb::fresh().await;
    db.enqueue().await;
    let mut config = db.config();
    config.application_name("forgotten");
    let holder = connect(&config).await;
    holder
        .batch_execute("begin isolation level repeatable read; select 1 from euterpe.queues")
        .await
        .unwrap();
    let says = |topic: &'static str| format!("select says from euterpe.health where topic = '{topic}'");
    let watcher = db.client().await;
    // Other tests of this server hold snapshots as well; ours is the oldest sooner or later.
    until(&watcher, &format!("select ({}) like '%forgotten, since %'", says("oldest snapshot"))).await;
    holder.batch_execute("rollback").await.unwrap();

    db.run("delete from euterpe.ready; select pg_stat_force_next_flush()").await;
    until(&watcher, &format!("select ({}) like '% dead, % live, vacuumed never'", says("dead rows"))).await;
    let releases: String = db.one(&says("releases")).await;
    assert!(releases.starts_with("functions of 0."), "{releases}");
    db.run("insert into euterpe.workers values ('new#1', 'transcode', '99.0.0', now(), now())").await;
    let sql = "select says from euterpe.health where topic = 'releases' and not ok";
    let releases: String = db.one(sql).await;
    assert!(releases.ends_with("pods of 99.0.0 (1): run euterpe-migrate of the newest"), "{releases}");
    db.run("delete from euterpe.inbox_jobs; delete from euterpe.job_outbox_events; delete from euterpe.job_requests")
        .await;
}
