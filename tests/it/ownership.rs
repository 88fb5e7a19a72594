//! Contract §4: one owner at a time, and never a write from a past one.

use std::collections::HashMap;
use std::time::Duration;

use euterpe::domain::{Claim, JobFailure, JobStatus, Outcome, ReleaseReason, WorkerId};
use euterpe::store::Store;
use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use crate::support::{LEASE, QUEUE, TestDb, worker};

/// What a claim must leave behind.
#[tokio::test]
async fn a_claim_sets_owner_lease_heartbeat_and_a_new_version_but_no_attempt() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let pod = worker("pod");
    let job = db.claim(&pod).await;

    assert_eq!(job.claim.job_id, id);
    assert_eq!((job.claim.version, job.attempt_count), (1, 0));
    let row = db.job(id).await;
    assert_eq!(row["status"], "claimed");
    assert_eq!(row["worker_id"], pod.as_str());
    assert_eq!(row["claim_version"], 1);
    assert_eq!(row["claim_token"], job.claim.token.to_string());
    assert_eq!(row["attempt_count"], 0);
    let lease: f64 = db
        .one("select extract(epoch from lease_expires_at - heartbeat_at)::float8 from euterpe.inbox_jobs")
        .await;
    assert!((lease - 60.0).abs() < 0.001, "{lease}");

    db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
    assert_eq!(db.job(id).await["attempt_count"], 1, "an attempt starts with fetching");
}

/// Sixteen workers drain five thousand jobs from tables that were never analyzed: every job is handed out
/// once, nobody gets more than asked for, and each is finished once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_connections_drain_five_thousand_jobs_each_claimed_once() {
    const JOBS: usize = 5000;
    let db = TestDb::fresh().await;
    db.enqueue_many(JOBS).await;
    let store = db.store();

    let drains = (0..16).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { drain(&store, &worker(&format!("pod-{n}")), 7 + n).await })
    });
    let claimed: Vec<Claim> = join_all(drains).await.into_iter().flat_map(Result::unwrap).collect();

    let mut versions: HashMap<_, Vec<i64>> = HashMap::new();
    for claim in &claimed {
        versions.entry(claim.job_id).or_default().push(claim.version);
    }
    assert_eq!(claimed.len(), JOBS, "as many claims as jobs");
    assert_eq!(versions.len(), JOBS, "each of another job");
    assert!(versions.values().all(|versions| versions == &[1]));
    let succeeded: i64 =
        db.one("select count(*) from euterpe.job_outbox_events where to_status = 'succeeded'").await;
    assert_eq!(succeeded, i64::try_from(JOBS).unwrap());
    let left: i64 = db.one("select count(*) from euterpe.ready").await;
    assert_eq!(left, 0);
    let analyzed: i64 =
        db.one("select count(*) from pg_stat_user_tables where last_analyze is not null or last_autoanalyze is not null").await;
    assert_eq!(analyzed, 0, "the planner knew nothing of these tables");
}

async fn drain(store: &Store, worker: &WorkerId, batch: u16) -> Vec<Claim> {
    let mut mine = Vec::new();
    // Passing over what others hold at this moment may look like the end: ask a few times more.
    let mut empty = 0;
    while empty < 3 {
        let jobs = store.claim_jobs(QUEUE, worker, batch, None).await.unwrap();
        assert!(jobs.len() <= usize::from(batch), "asked for {batch}, got {}", jobs.len());
        empty = if jobs.is_empty() { empty + 1 } else { 0 };
        if jobs.is_empty() {
            continue;
        }
        let claims: Vec<_> = jobs.iter().map(|job| job.claim).collect();
        for status in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
            let steps: Vec<_> = claims.iter().map(|&claim| (claim, status)).collect();
            let answers = store.advance_jobs(worker, &steps).await.unwrap();
            assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ok));
        }
        let results: Vec<_> = claims.iter().map(|&claim| (claim, None, json!([]))).collect();
        let answers = store.complete_jobs(worker, &results).await.unwrap();
        assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ok));
        mine.extend(claims);
    }
    mine
}

/// Everything a worker can say about a job, by name.
async fn say_everything(store: &Store, worker: &WorkerId, claim: Claim) -> Vec<(&'static str, Outcome)> {
    let failure = JobFailure { code: "internal".into(), ..JobFailure::default() };
    let beat = store.heartbeat_jobs(worker, &[(claim, Some(json!({"percent": 99})))], None).await.unwrap();
    let advance = store.advance_jobs(worker, &[(claim, JobStatus::Processing)]).await.unwrap();
    let complete = store.complete_jobs(worker, &[(claim, None, json!([]))]).await.unwrap();
    let fail = store.fail_jobs(worker, &[(claim, failure)]).await.unwrap();
    let release =
        store.release_jobs(worker, &[(claim, ReleaseReason::NotStarted, Duration::ZERO)]).await.unwrap();
    vec![
        ("heartbeat", beat[0].outcome),
        ("advance", advance[0].outcome),
        ("complete", complete[0].outcome),
        ("fail", fail[0].outcome),
        ("release", release[0].outcome),
    ]
}

async fn assert_unheard(db: &TestDb, worker: &WorkerId, claim: Claim) {
    let before = (db.job(claim.job_id).await, db.event_count().await);
    for (said, outcome) in say_everything(&db.store(), worker, claim).await {
        assert_eq!(outcome, Outcome::Stale, "{said}");
    }
    let after = (db.job(claim.job_id).await, db.event_count().await);
    assert_eq!(before, after, "a stale worker wrote something");
}

/// A worker pauses (GC, network, laptop lid), loses its lease, and comes back believing it still owns the
/// job. The second owner's work must stand.
#[tokio::test]
async fn a_worker_whose_job_was_reclaimed_is_not_heard() {
    let db = TestDb::fresh().await;
    let (first, second) = (worker("first"), worker("second"));
    let lost = db.running(&first, JobStatus::Fetching).await;
    db.wind(LEASE + Duration::from_secs(2)).await;

    // Reclaimed, not yet taken again.
    assert_unheard(&db, &first, lost.claim).await;

    let taken = db.claim(&second).await;
    assert_eq!(taken.claim.job_id, lost.claim.job_id);
    assert_eq!(taken.claim.version, lost.claim.version + 1);
    assert_ne!(taken.claim.token, lost.claim.token);
    assert_unheard(&db, &first, lost.claim).await;

    db.succeed(&second, taken.claim).await;
    assert_unheard(&db, &first, lost.claim).await;
}

/// The same worker may be the second owner: its old claim is as stale as anybody's.
#[tokio::test]
async fn an_old_claim_is_stale_even_for_the_worker_that_holds_the_new_one() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let old = db.running(&pod, JobStatus::Fetching).await;
    db.wind(LEASE + Duration::from_secs(2)).await;
    let new = db.claim(&pod).await;
    db.advance_to(&pod, new.claim, JobStatus::Fetching).await;

    assert_unheard(&db, &pod, old.claim).await;
    db.store().advance_jobs(&pod, &[(new.claim, JobStatus::Processing)]).await.unwrap();
}

#[tokio::test]
async fn the_right_version_with_a_wrong_token_or_worker_is_not_heard() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;

    let forged = Claim { token: Uuid::new_v4(), ..job.claim };
    assert_unheard(&db, &pod, forged).await;
    assert_unheard(&db, &worker("pod"), job.claim).await;
    let later = Claim { version: job.claim.version + 1, ..job.claim };
    assert_unheard(&db, &pod, later).await;
}

/// Null is not a way around the fence, for callers in plain SQL either.
#[tokio::test]
async fn a_fence_of_nulls_is_not_heard() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;
    let sql = format!(
        "select outcome from euterpe.advance_jobs_v1('{pod}', array['{}'::uuid], array[null::bigint],
                                                     array[null::uuid], array['processing'])",
        job.claim.job_id
    );
    assert_eq!(db.one::<String>(&sql).await, "stale");
}

/// A database that was away for a minute must not kill every running job: a lapsed lease that nobody took is
/// still its owner's.
#[tokio::test]
async fn a_worker_whose_lease_lapsed_but_was_not_taken_may_still_speak() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;
    db.jump(LEASE * 2).await;

    let beats = db.store().heartbeat_jobs(&pod, &[(job.claim, None)], None).await.unwrap();
    assert_eq!(beats[0].outcome, Outcome::Ok);
    db.jump(LEASE * 2).await;
    let steps = [(job.claim, JobStatus::Processing)];
    assert_eq!(db.store().advance_jobs(&pod, &steps).await.unwrap()[0].outcome, Outcome::Ok);
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease_and_takes_in_progress() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Processing).await;
    for percent in [10, 50, 90] {
        db.wind(LEASE * 2 / 3).await;
        let beat = (job.claim, Some(json!({"percent": percent})));
        let answers = db.store().heartbeat_jobs(&pod, &[beat], None).await.unwrap();
        assert_eq!(answers[0].outcome, Outcome::Ok, "alive at {percent} %");
        assert!(answers[0].lease_expires_at.unwrap() > job.lease_expires_at);
    }
    let row = db.job(job.claim.job_id).await;
    assert_eq!(row["progress"]["percent"], 90);
    assert_eq!(row["status"], "processing");
    assert_eq!(row["claim_version"], 1, "never reclaimed in two minutes");
}

/// A job cancelled under its worker is answered `cancelled`, so that the worker knows it was meant.
#[tokio::test]
async fn a_cancelled_job_says_so() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Processing).await;
    db.store().cancel_job(job.claim.job_id, None, None).await.unwrap();
    for (said, outcome) in say_everything(&db.store(), &pod, job.claim).await {
        assert_eq!(outcome, Outcome::Cancelled, "{said}");
    }
}

#[tokio::test]
async fn malformed_batches_are_refused_whole() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;
    let twice = [(job.claim, JobStatus::Processing), (job.claim, JobStatus::Processing)];
    let refused = db.store().advance_jobs(&pod, &twice).await.unwrap_err();
    assert!(refused.to_string().contains("names a job twice"), "{refused}");
    let refused = db.store().advance_jobs(&pod, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("1 to 1000"), "{refused}");
    let refused = db.store().advance_jobs(&pod, &[(job.claim, JobStatus::Succeeded)]).await.unwrap_err();
    assert!(refused.to_string().contains("fetching, processing and uploading"), "{refused}");
    let refused = db.store().claim_jobs(QUEUE, &pod, 0, None).await.unwrap_err();
    assert!(refused.to_string().contains("1..1000"), "{refused}");
    let refused = db.store().claim_jobs("nowhere", &pod, 1, None).await.unwrap_err();
    assert!(matches!(refused, euterpe::store::StoreError::NoSuchQueue(_)), "{refused}");
}

/// The functions look after they locked; an old snapshot would make that useless.
#[tokio::test]
async fn repeatable_read_is_refused() {
    let db = TestDb::fresh().await;
    let client = db.client().await;
    client.batch_execute("begin isolation level repeatable read").await.unwrap();
    let refused =
        client.query("select * from euterpe.claim_jobs_v1('transcode', 'pod', 1)", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "UT011");
}

/// Entries that somebody holds at this moment are passed over and stay; nobody waits.
#[tokio::test]
async fn a_job_that_somebody_holds_is_passed_over_and_stays_in_the_line() {
    let db = TestDb::fresh().await;
    let held = db.enqueue().await;
    let free = db.enqueue().await;
    let holder = db.client().await;
    holder
        .batch_execute(&format!("begin; select 1 from euterpe.inbox_jobs where job_id = '{held}' for update"))
        .await
        .unwrap();

    let pod = worker("pod");
    assert_eq!(db.claim(&pod).await.claim.job_id, free);
    assert!(db.store().claim_jobs(QUEUE, &pod, 5, None).await.unwrap().is_empty());
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(db.claim(&pod).await.claim.job_id, held);
}
