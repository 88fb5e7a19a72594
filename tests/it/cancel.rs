//! Contract §3, §4 and design §5.6: a cancel ends a job by the contract's own steps, and races nobody into a lie.

use std::time::Duration;

use euterpe::domain::{JobId, JobStatus, Outcome};
use euterpe::store::StoreError;
use serde_json::json;

use crate::support::{LEASE, QUEUE, TestDb, requester, with_webhook, worker};

#[tokio::test]
async fn a_queued_job_ends_by_way_of_claimed_and_leaves_the_line() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let was = db.store().cancel_job(id, Some(&requester("acme")), Some("not needed")).await.unwrap();
    assert_eq!(was, "queued");
    assert_eq!(db.path(id).await, ["queued", "claimed", "failed"]);
    let row = db.job(id).await;
    assert_eq!((&row["last_error"]["code"], &row["attempt_count"]), (&"cancelled".into(), &0.into()));
    assert_eq!(row["last_error"]["message"], "not needed");
    let reasons =
        format!("select count(*) from euterpe.job_timeline where job_id = '{id}' and reason = 'cancelled'");
    assert_eq!(db.one::<i64>(&reasons).await, 2, "on both steps");

    // Its entry is litter, which the next claim deletes.
    assert_eq!(db.one::<i64>("select count(*) from euterpe.ready").await, 1);
    assert!(db.store().claim_jobs(QUEUE, &worker("pod"), 5, None).await.unwrap().is_empty());
    assert_eq!(db.one::<i64>("select count(*) from euterpe.ready").await, 0);
}

#[tokio::test]
async fn a_running_job_is_taken_from_its_worker_who_learns_why() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Processing).await;
    assert_eq!(db.store().cancel_job(job.claim.job_id, None, None).await.unwrap(), "processing");
    let beat = db.store().heartbeat_jobs(&pod, &[(job.claim, None)], None).await.unwrap();
    assert_eq!(beat[0].outcome, Outcome::Cancelled);
    assert_eq!(db.job(job.claim.job_id).await["status"], "failed");
    // Its lease lapses later, and nothing comes of it.
    db.wind(LEASE * 2).await;
    assert_eq!(db.job(job.claim.job_id).await["status"], "failed");
}

#[tokio::test]
async fn another_requesters_job_is_as_unknown_as_no_job() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let id = db.enqueue().await;
    let nobody = JobId::new(&requester("zenith"));
    for id in [id, nobody] {
        let refused = db.store().cancel_job(id, Some(&requester("zenith")), None).await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::NotFound(m) if *m == format!("there is no job {id}")),
            "{refused:?}"
        );
    }
    assert_eq!(db.job(id).await["status"], "queued");
}

#[tokio::test]
async fn what_has_ended_cannot_be_cancelled() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let done = db.running(&pod, JobStatus::Claimed).await;
    db.succeed(&pod, done.claim).await;
    let cancelled = db.enqueue().await;
    db.store().cancel_job(cancelled, None, None).await.unwrap();
    for id in [done.claim.job_id, cancelled] {
        let refused = db.store().cancel_job(id, None, None).await.unwrap_err();
        assert!(matches!(refused, StoreError::IllegalState(_)), "{refused:?}");
    }
}

/// Of a cancel and a complete, exactly one wins, two hundred times. These jobs have webhooks: the orphan check at the end
/// sees that no event is stranded, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_against_complete() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    for _ in 0..200 {
        let job = db.running_with(with_webhook(), &pod, JobStatus::Uploading).await;
        let (canceller, id) = (store.clone(), job.claim.job_id);
        let cancel = tokio::spawn(async move { canceller.cancel_job(id, None, None).await });
        let complete = store.complete_jobs(&pod, &[(job.claim, None, json!([]))]).await.unwrap().remove(0);
        let answer = cancel.await.unwrap();
        let status = db.job(id).await["status"].clone();
        match complete.outcome {
            Outcome::Ok => {
                assert!(matches!(answer, Err(StoreError::IllegalState(_))), "{answer:?}");
                assert_eq!(status, "succeeded");
            }
            Outcome::Cancelled => {
                assert_eq!(answer.unwrap(), "uploading");
                assert_eq!(status, "failed");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Of a cancel and a claim: either the job was cancelled in the line, or under its new worker; never both, never not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_against_claim() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    for _ in 0..200 {
        let id = db.enqueue_with(with_webhook()).await;
        let canceller = store.clone();
        let cancel = tokio::spawn(async move { canceller.cancel_job(id, None, None).await.unwrap() });
        let claimed = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap();
        let was = cancel.await.unwrap();
        assert_eq!(was, if claimed.is_empty() { "queued" } else { "claimed" });
        assert_eq!(db.job(id).await["status"], "failed");
        for job in claimed {
            let steps = [(job.claim, JobStatus::Fetching)];
            assert_eq!(store.advance_jobs(&pod, &steps).await.unwrap()[0].outcome, Outcome::Cancelled);
        }
    }
}

/// Of a cancel and a reclaim: the job ends, and is not in the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_against_reclaim() {
    let db = TestDb::fresh().await;
    let store = db.store();
    for _ in 0..200 {
        let job = db.running_with(with_webhook(), &worker("dead"), JobStatus::Processing).await;
        db.wind(LEASE - Duration::from_secs(1)).await;
        db.jump(Duration::from_secs(3)).await;
        let (ticker, id) = (store.clone(), job.claim.job_id);
        let tick = tokio::spawn(async move { ticker.tick(QUEUE).await.unwrap() });
        let was = store.cancel_job(id, None, None).await.unwrap();
        tick.await.unwrap();
        assert!(was == "processing" || was == "queued", "{was}");
        assert_eq!(db.job(id).await["status"], "failed");
        assert!(store.claim_jobs(QUEUE, &worker("pod"), 5, None).await.unwrap().is_empty());
    }
}
