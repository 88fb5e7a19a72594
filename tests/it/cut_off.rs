//! Contract §4, §8: a call cut off anywhere leaves state and events in agreement, and a retry is harmless.

use euterpe::domain::{JobStatus, NewJob, Outcome};
use euterpe::store::{Store, StoreError};
use serde_json::json;

use crate::support::{Proxy, QUEUE, TestDb, requester, until, worker};

const WAITING: &str = "select exists (select from pg_stat_activity
                                       where datname = current_database() and wait_event_type = 'Lock')";

/// The call waits for a row lock and is cut off there, once by a cancel and once by losing its connection.
#[tokio::test]
async fn a_call_cut_off_while_it_waits_for_a_lock_has_done_nothing() {
    for cut in ["pg_cancel_backend", "pg_terminate_backend"] {
        let db = TestDb::fresh().await;
        let pod = worker("pod");
        let job = db.running(&pod, JobStatus::Uploading).await;
        let before = (db.job(job.claim.job_id).await, db.event_count().await);
        let holder = db.client().await;
        holder.batch_execute("begin; select 1 from euterpe.inbox_jobs for update").await.unwrap();

        let (store, claim, speaker) = (db.store_as("euterpe_test", 1), job.claim, pod.clone());
        let call =
            tokio::spawn(async move { store.complete_jobs(&speaker, &[(claim, None, json!([]))]).await });
        let watcher = db.client().await;
        until(&watcher, WAITING).await;
        watcher
            .batch_execute(&format!(
                "select {cut}(pid) from pg_stat_activity
                  where datname = current_database() and wait_event_type = 'Lock'"
            ))
            .await
            .unwrap();
        let refused = call.await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{cut}: {refused:?}");
        holder.batch_execute("rollback").await.unwrap();
        assert_eq!((db.job(claim.job_id).await, db.event_count().await), before, "{cut}");

        let again = db.store().complete_jobs(&pod, &[(claim, None, json!([]))]).await.unwrap();
        assert_eq!(again[0].outcome, Outcome::Ok);
    }
}

/// The server commits, the answer is lost. The worker's retry finds the job done and itself stale; nothing
/// is done twice.
#[tokio::test]
async fn an_answer_lost_after_commit_is_harmless_for_a_worker() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let proxy = Proxy::before(&db.config());
    let store = Store::connect(proxy.config(&db.config()), 1);
    for complete in [true, false] {
        let job = db.running(&pod, JobStatus::Uploading).await;
        let results = [(job.claim, None, json!([{"name": "720p"}]))];
        let steps = [(job.claim, JobStatus::Succeeded)];
        assert!(store.advance_jobs(&pod, &steps).await.is_err(), "prepares a statement, moves nothing");
        // Prepare this one as well: from here on the next answer is that of the call itself.
        let nobody = [(euterpe::domain::Claim { version: 99, ..job.claim }, None, json!([]))];
        store.complete_jobs(&pod, &nobody).await.unwrap();
        if complete {
            proxy.lose_next_answer();
            let lost = store.complete_jobs(&pod, &results).await.unwrap_err();
            assert!(matches!(lost, StoreError::Unavailable(_)), "{lost:?}");
            assert!(proxy.has_lost_it());
            until(
                &db.client().await,
                "select exists (select from euterpe.inbox_jobs where status = 'succeeded')",
            )
            .await;
        }
        let retried = store.complete_jobs(&pod, &results).await.unwrap();
        assert_eq!(retried[0].outcome, if complete { Outcome::Stale } else { Outcome::Ok });
        assert_eq!(db.job(job.claim.job_id).await["status"], "succeeded");
        assert_eq!(db.path(job.claim.job_id).await.iter().filter(|step| *step == "succeeded").count(), 1);
    }
}

#[tokio::test]
async fn an_answer_lost_after_commit_is_harmless_for_a_requester() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let proxy = Proxy::before(&db.config());
    let store = Store::connect(proxy.config(&db.config()), 1);
    let keyed = |key: &str| NewJob {
        request: json!({}),
        idempotency_key: Some(key.into()),
        request_hash: Some(vec![1; 32]),
        ..NewJob::default()
    };
    store.enqueue_job(&acme, QUEUE, &keyed("first")).await.unwrap();

    proxy.lose_next_answer();
    let lost = store.enqueue_job(&acme, QUEUE, &keyed("second")).await.unwrap_err();
    assert!(matches!(lost, StoreError::Unavailable(_)), "{lost:?}");
    assert!(proxy.has_lost_it());

    let retried = store.enqueue_job(&acme, QUEUE, &keyed("second")).await.unwrap();
    assert!(retried.replayed, "the first call had been committed");
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 2);
}

/// A claim whose answer is lost is nobody's work: its lease lapses and it is handed out again, uncounted.
#[tokio::test]
async fn a_claim_whose_answer_was_lost_comes_back_by_itself() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let proxy = Proxy::before(&db.config());
    let store = Store::connect(proxy.config(&db.config()), 1);
    assert!(store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().is_empty());
    let id = db.enqueue().await;

    proxy.lose_next_answer();
    store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap_err();
    assert_eq!(db.job(id).await["status"], "claimed");
    db.wind(crate::support::LEASE + std::time::Duration::from_secs(2)).await;

    let job = db.claim(&pod).await;
    assert_eq!((job.claim.job_id, job.claim.version, job.attempt_count), (id, 2, 0));
}

/// Two batches that name the same jobs in opposite orders wait for each other; they do not deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_in_opposite_orders_do_not_deadlock() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    db.enqueue_many(200).await;
    let store = db.store();
    let jobs = store.claim_jobs(QUEUE, &pod, 200, None).await.unwrap();
    let mut beats: Vec<_> = jobs.iter().map(|job| (job.claim, None)).collect();
    let calls: Vec<_> = (0..40)
        .map(|_| {
            beats.reverse();
            let (store, pod, beats) = (store.clone(), pod.clone(), beats.clone());
            tokio::spawn(async move { store.heartbeat_jobs(&pod, &beats, None).await })
        })
        .collect();
    for call in calls {
        let answers = call.await.unwrap().unwrap();
        assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ok));
    }
}
