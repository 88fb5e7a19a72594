//! Contract §5: what is retried, what rests, what is buried.

use std::time::Duration;

use euterpe::domain::{JobFailure, JobStatus, NewJob};
use euterpe::storage::{Cause, Doing, classify};
use euterpe::store::Failed;

use crate::support::{QUEUE, TestDb, worker};

#[tokio::test]
async fn status_codes_mean_what_the_contract_says() {
    let db = TestDb::fresh().await;
    for (status, policy) in [
        (423, "retry"),
        (500, "retry"),
        (502, "retry"),
        (503, "retry"),
        (504, "retry"),
        (429, "retry_slow"),
        (400, "rest"),
        (404, "rest"),
        (501, "rest"),
    ] {
        let code = classify(status, None, "").code(Doing::Fetch);
        let sql = format!("select policy from euterpe.error_codes where code = '{code}'");
        assert_eq!(db.one::<String>(&sql).await, policy, "{status} is {code}");
    }
    for status in [401, 403] {
        assert_eq!(classify(status, None, ""), Cause::Auth, "{status}: new credentials come first");
    }
}

/// A job at attempt `attempt` fails with `failure`.
async fn fail_at(db: &TestDb, attempt: i64, max_attempts: i32, failure: JobFailure) -> Failed {
    let pod = worker("pod");
    let id = db.enqueue_with(NewJob { max_attempts: Some(max_attempts), ..NewJob::default() }).await;
    db.run(&format!("update euterpe.inbox_jobs set attempt_count = {} where job_id = '{id}'", attempt - 1))
        .await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
    db.store().fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap().remove(0)
}

fn failure(code: &str) -> JobFailure {
    JobFailure { code: code.into(), ..JobFailure::default() }
}

#[tokio::test]
async fn each_code_does_what_its_row_says() {
    let db = TestDb::fresh().await;
    for (code, to) in [
        ("storage_unavailable", JobStatus::Queued),
        ("storage_rate_limited", JobStatus::Queued),
        ("a_code_nobody_listed", JobStatus::Queued),
        ("media_unreadable", JobStatus::Failed),
        ("source_not_found", JobStatus::Failed),
        ("egress_blocked", JobStatus::DeadLetter),
        ("decrypt_failed", JobStatus::DeadLetter),
        ("credential_refresh_exhausted", JobStatus::DeadLetter),
    ] {
        let answer = fail_at(&db, 1, 5, failure(code)).await;
        assert_eq!(answer.to_status, Some(to), "{code}");
        assert_eq!(answer.run_at.is_some(), to == JobStatus::Queued, "{code}");
        let error = db.job(answer.job_id).await["last_error"].clone();
        assert_eq!(error["code"], code);
        assert_eq!(error["retryable"], to == JobStatus::Queued);
        assert_eq!((&error["phase"], &error["attempt"]), (&"fetching".into(), &1.into()));
    }
}

/// `attempt_count >= max_attempts` ends in `dead_letter`, whatever the code.
#[tokio::test]
async fn a_spent_budget_buries_every_code() {
    let db = TestDb::fresh().await;
    for code in ["storage_unavailable", "media_unreadable", "encode_failed", "egress_blocked"] {
        let answer = fail_at(&db, 3, 3, failure(code)).await;
        assert_eq!(answer.to_status, Some(JobStatus::DeadLetter), "{code}");
    }
}

/// Some failures are worth a second try, not a fifth.
#[tokio::test]
async fn a_code_with_few_tries_rests_before_the_budget_is_spent() {
    let db = TestDb::fresh().await;
    assert_eq!(fail_at(&db, 1, 5, failure("encode_failed")).await.to_status, Some(JobStatus::Queued));
    assert_eq!(fail_at(&db, 2, 5, failure("encode_failed")).await.to_status, Some(JobStatus::Failed));
}

/// Seconds from failing to the next attempt.
async fn wait_of(db: &TestDb, answer: &Failed) -> f64 {
    let sql = format!(
        "select extract(epoch from run_at - updated_at)::float8 from euterpe.inbox_jobs where job_id = '{}'",
        answer.job_id
    );
    db.one(&sql).await
}

#[tokio::test]
async fn waits_grow_with_the_attempt_and_429_starts_four_steps_higher() {
    let db = TestDb::fresh().await;
    for attempt in 1..=4 {
        let nominal = 2.0 * 2f64.powi(i32::try_from(attempt).unwrap() - 1);
        let wait = wait_of(&db, &fail_at(&db, attempt, 50, failure("storage_unavailable")).await).await;
        assert!((nominal * 0.8..=nominal * 1.2).contains(&wait), "attempt {attempt}: {wait}");
        let slow = wait_of(&db, &fail_at(&db, attempt, 50, failure("storage_rate_limited")).await).await;
        assert!(
            (nominal * 16.0 * 0.8..=nominal * 16.0 * 1.2).contains(&slow),
            "429, attempt {attempt}: {slow}"
        );
    }
    let wait = wait_of(&db, &fail_at(&db, 40, 50, failure("storage_unavailable")).await).await;
    assert!((480.0..=720.0).contains(&wait), "capped at ten minutes: {wait}");
}

#[tokio::test]
async fn retry_after_is_a_lower_bound() {
    let db = TestDb::fresh().await;
    let after =
        |seconds| JobFailure { retry_after_seconds: Some(seconds), ..failure("storage_rate_limited") };
    let wait = wait_of(&db, &fail_at(&db, 1, 5, after(300)).await).await;
    assert!((wait - 300.0).abs() < 0.001, "{wait}");
    let wait = wait_of(&db, &fail_at(&db, 1, 5, after(1)).await).await;
    assert!(wait >= 25.0, "the backoff is longer: {wait}");
    let wait = wait_of(&db, &fail_at(&db, 1, 5, after(i32::MAX)).await).await;
    assert!((wait - 86_400.0).abs() < 0.001, "never more than a day: {wait}");
}

#[tokio::test]
async fn a_retry_is_not_handed_out_before_its_time_and_then_keeps_its_fence_rising() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let answer = fail_at(&db, 1, 5, failure("storage_unavailable")).await;
    assert!(db.store().claim_jobs(QUEUE, &pod, 1, None).await.unwrap().is_empty());
    db.wind(Duration::from_secs(4)).await;
    let job = db.claim(&pod).await;
    assert_eq!((job.claim.job_id, job.claim.version, job.attempt_count), (answer.job_id, 2, 1));
}

/// The three counters of contract §5 are three columns, and an execution moves only its own.
#[tokio::test]
async fn counters_are_separate() {
    let db = TestDb::fresh().await;
    let answer = fail_at(&db, 1, 5, failure("storage_unavailable")).await;
    let row = db.job(answer.job_id).await;
    assert_eq!(row["attempt_count"], 1);
    assert_eq!(row["credential_refresh_count"], 0);
    let deliveries: i64 = db.one("select sum(attempt_count)::bigint from euterpe.job_outbox_events").await;
    assert_eq!(deliveries, 0);
}
