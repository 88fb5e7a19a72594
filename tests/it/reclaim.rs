//! Contract §4, §5: lapsed leases come back, budgets end, and a hand-back costs nothing.

use std::time::Duration;

use euterpe::domain::{JobFailure, JobStatus, NewJob, Outcome, ReleaseReason};
use euterpe::store::StoreError;

use crate::support::{LEASE, QUEUE, TestDb, worker};

const A_BIT: Duration = Duration::from_secs(2);

/// No reaper process, no leader: whoever asks for work next finds it, and a busy worker's tick does as well.
#[tokio::test]
async fn a_lapsed_lease_is_reclaimed_by_whoever_comes_by() -> Result<(), StoreError> {
    for by_claim in [true, false] {
        let db = TestDb::fresh().await;
        let job = db.running(&worker("dead"), JobStatus::Processing).await;
        // Ticks that a living system has, until just before the lapse.
        db.wind(LEASE - A_BIT).await;
        assert_eq!(db.job(job.claim.job_id).await["status"], "processing");
        db.jump(A_BIT * 2).await;

        if by_claim {
            let taken = db.store().claim_jobs(QUEUE, &worker("alive"), 1, None).await?;
            assert_eq!(taken[0].claim.job_id, job.claim.job_id);
            assert_eq!(taken[0].claim.version, 2);
        } else {
            assert!(db.store().tick(QUEUE).await?);
            assert_eq!(db.job(job.claim.job_id).await["status"], "queued");
        }
        let sql = format!(
            "select reason from euterpe.job_timeline where job_id = '{}' and sequence = 5",
            job.claim.job_id
        );
        assert_eq!(db.one::<String>(&sql).await, "lease_expired");
    }
    Ok(())
}

#[tokio::test]
async fn a_lapse_on_the_last_attempt_ends_in_failed_and_dead_letter() {
    let db = TestDb::fresh().await;
    let id = db.enqueue_with(NewJob { max_attempts: Some(2), ..NewJob::default() }).await;
    for attempt in 1..=2 {
        let dead = worker("dead");
        let job = db.claim(&dead).await;
        db.advance_to(&dead, job.claim, JobStatus::Fetching).await;
        assert_eq!(db.job(id).await["attempt_count"], attempt);
        db.wind(LEASE + A_BIT).await;
    }
    let path = db.path(id).await;
    assert_eq!(path[path.len() - 3..], ["fetching", "failed", "dead_letter"]);
    let row = db.job(id).await;
    assert_eq!(row["ended_as"], "dead_letter");
    assert_eq!(row["last_error"]["code"], "lease_expired");
    assert_eq!(row["last_error"]["retryable"], false);
}

/// A failure on the last attempt: both events, in one transaction.
#[tokio::test]
async fn a_failure_on_the_last_attempt_ends_in_failed_and_dead_letter() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let id = db.enqueue_with(NewJob { max_attempts: Some(1), ..NewJob::default() }).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
    let failure = JobFailure { code: "storage_unavailable".into(), ..JobFailure::default() };
    let answers = db.store().fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    assert_eq!(answers[0].to_status, Some(JobStatus::DeadLetter));
    assert_eq!(db.path(id).await[3..], ["failed", "dead_letter"]);
    let same_moment: bool = db
        .one("select count(distinct (created_at, xmin::text)) = 1 from euterpe.job_outbox_events where sequence > 3")
        .await;
    assert!(same_moment, "one transaction");
}

#[tokio::test]
async fn a_claim_handed_back_unstarted_costs_no_attempt() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let id = db.enqueue_with(NewJob { max_attempts: Some(1), ..NewJob::default() }).await;
    for version in 1..=10 {
        let job = db.claim(&pod).await;
        assert_eq!((job.claim.version, job.attempt_count), (version, 0));
        let back = [(job.claim, ReleaseReason::NotStarted, Duration::ZERO)];
        assert_eq!(db.store().release_jobs(&pod, &back).await.unwrap()[0].outcome, Outcome::Ok);
    }
    assert_eq!(db.job(id).await["attempt_count"], 0);
}

/// Credentials and disk are nobody's fault; the attempt is given back, always.
#[tokio::test]
async fn credentials_and_disk_give_their_attempt_back() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    db.enqueue_with(NewJob { max_attempts: Some(1), ..NewJob::default() }).await;
    for reason in [ReleaseReason::Credentials, ReleaseReason::Disk, ReleaseReason::UnknownKek].repeat(3) {
        let job = db.claim(&pod).await;
        db.advance_to(&pod, job.claim, JobStatus::Processing).await;
        assert_eq!(db.job(job.claim.job_id).await["attempt_count"], 1);
        db.store().release_jobs(&pod, &[(job.claim, reason, Duration::ZERO)]).await.unwrap();
        assert_eq!(db.job(job.claim.job_id).await["attempt_count"], 0, "{reason:?}");
    }
}

/// A worker that is always shut down in the middle gives the attempt back three times, then it counts.
#[tokio::test]
async fn a_shutdown_gives_its_attempt_back_three_times() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let id = db.enqueue_with(NewJob { max_attempts: Some(2), ..NewJob::default() }).await;
    let mut counts = Vec::new();
    while counts.len() < 10 && db.job(id).await["ended_as"].is_null() {
        let job = db.claim(&pod).await;
        db.advance_to(&pod, job.claim, JobStatus::Processing).await;
        let back = [(job.claim, ReleaseReason::WorkerShutdown, Duration::ZERO)];
        db.store().release_jobs(&pod, &back).await.unwrap();
        counts.push(db.job(id).await["attempt_count"].as_i64().unwrap());
    }
    assert_eq!(counts, [0, 0, 0, 1, 2]);
    let row = db.job(id).await;
    assert_eq!(
        (&row["ended_as"], &row["last_error"]["code"]),
        (&"dead_letter".into(), &"worker_shutdown".into())
    );
}

#[tokio::test]
async fn a_release_with_a_delay_waits_for_it() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running(&pod, JobStatus::Fetching).await;
    let back = [(job.claim, ReleaseReason::Disk, Duration::from_secs(30))];
    db.store().release_jobs(&pod, &back).await.unwrap();
    db.wind(Duration::from_secs(28)).await;
    assert!(db.store().claim_jobs(QUEUE, &pod, 1, None).await.unwrap().is_empty());
    db.wind(Duration::from_secs(4)).await;
    assert_eq!(db.claim(&pod).await.claim.job_id, job.claim.job_id);
}

/// A job that kills whoever claims it, before it starts, must not go round for ever.
#[tokio::test]
async fn twenty_leases_that_lapse_unstarted_end_a_job() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    for nth in 1..=20 {
        assert_eq!(db.job(id).await["status"], "queued", "before claim {nth}");
        db.claim(&worker("doomed")).await;
        db.wind(LEASE + A_BIT).await;
    }
    let row = db.job(id).await;
    assert_eq!(row["ended_as"], "dead_letter");
    assert_eq!(row["last_error"]["code"], "never_started");
    assert_eq!(row["attempt_count"], 0);
}

/// The database was away: living workers may speak first. One lease later the silent ones lose their jobs.
#[tokio::test]
async fn after_a_gap_in_ticks_reclaim_waits_one_lease() {
    let db = TestDb::fresh().await;
    let (alive, silent) = (worker("alive"), worker("silent"));
    let kept = db.running(&alive, JobStatus::Processing).await;
    let lost = db.running(&silent, JobStatus::Processing).await;
    db.jump(LEASE * 3).await;

    let other = db.store().claim_jobs(QUEUE, &worker("other"), 10, None).await.unwrap();
    assert!(other.is_empty(), "nothing was taken from anybody at once");
    for _ in 0..5 {
        let beat = db.store().heartbeat_jobs(&alive, &[(kept.claim, None)], None).await.unwrap();
        assert_eq!(beat[0].outcome, Outcome::Ok);
        db.wind(LEASE / 4).await;
    }
    assert_eq!(db.job(kept.claim.job_id).await["status"], "processing");
    assert_eq!(db.job(lost.claim.job_id).await["status"], "queued");
}

/// Heartbeats do not touch `leases`; reclaim files a renewed job again and forgets an ended one.
#[tokio::test]
async fn leases_are_filed_again_or_forgotten() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let long = db.running(&pod, JobStatus::Processing).await;
    let short = db.running(&pod, JobStatus::Claimed).await;
    db.succeed(&pod, short.claim).await;
    for _ in 0..8 {
        db.store().heartbeat_jobs(&pod, &[(long.claim, None)], None).await.unwrap();
        db.wind(LEASE / 4).await;
    }
    let filed: Vec<uuid::Uuid> =
        db.rows("select job_id from euterpe.leases").await.iter().map(|row| row.get(0)).collect();
    assert_eq!(filed, [long.claim.job_id.0]);
}

/// Where ticks are always sparse (one slow poller, a short lease) a lapsed lease is reclaimed all the same.
#[tokio::test]
async fn sparse_ticks_delay_reclaim_once_not_for_ever() {
    let db = TestDb::fresh().await;
    let job = db.running(&worker("dead"), JobStatus::Processing).await;
    for _ in 0..6 {
        db.jump(LEASE / 2).await;
        db.store().tick(QUEUE).await.unwrap();
    }
    assert_eq!(db.job(job.claim.job_id).await["status"], "queued");
}

/// A failure before an execution starts costs no attempt; the twentieth ends the job, so that it cannot go round
/// for ever, and the waits grow meanwhile.
#[tokio::test]
async fn twenty_failures_before_a_start_end_a_job() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let id = db.enqueue().await;
    let mut waits = Vec::new();
    for nth in 1..=20 {
        let job = db.claim(&pod).await;
        let failure = JobFailure { code: "internal".into(), ..JobFailure::default() };
        let answer = store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap().remove(0);
        if nth == 20 {
            assert_eq!(answer.to_status, Some(JobStatus::DeadLetter));
            break;
        }
        assert_eq!(answer.to_status, Some(JobStatus::Queued), "failure {nth}");
        let sql = format!(
            "select extract(epoch from run_at - updated_at)::float8 from euterpe.inbox_jobs where job_id = '{id}'"
        );
        waits.push(db.one::<f64>(&sql).await);
        db.jump(Duration::from_secs(800)).await;
        store.tick(QUEUE).await.unwrap();
    }
    assert_eq!(db.job(id).await["attempt_count"], 0);
    assert!(waits[5] > 8.0 * waits[0], "{waits:?}");
}

/// A heartbeat with a shorter lease does not shorten the one that was given: reclaim would not look in time.
#[tokio::test]
async fn a_heartbeat_never_shortens_a_lease() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    db.enqueue().await;
    let long = Duration::from_secs(3600);
    let job = db.store().claim_jobs(QUEUE, &pod, 1, Some(long)).await.unwrap().remove(0);
    let beat = db.store().heartbeat_jobs(&pod, &[(job.claim, None)], Some(LEASE)).await.unwrap();
    assert_eq!(beat[0].lease_expires_at, Some(job.lease_expires_at));
}
