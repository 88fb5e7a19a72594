//! Contract §3: exactly these steps, and no other.

use euterpe::domain::JobStatus::{
    self, Claimed, DeadLetter, Failed, Fetching, Processing, Queued, Succeeded, Uploading,
};
use euterpe::domain::{JobFailure, JobId, Outcome};
use tokio_postgres::Client;

use crate::support::{TestDb, worker};

/// Written out from the contract, not read from `job_transitions`: a test that asks the table what the table
/// should say would pass with any table.
fn allowed(from: JobStatus, to: JobStatus) -> bool {
    matches!(
        (from, to),
        (Queued, Claimed)
            | (Claimed, Fetching)
            | (Fetching, Processing)
            | (Processing, Uploading)
            | (Uploading, Succeeded)
            | (Claimed | Fetching | Processing | Uploading, Queued | Failed)
            | (Failed, Queued | DeadLetter)
    )
}

/// A job that really came to `status` by the functions everybody uses.
async fn job_in(db: &TestDb, status: JobStatus) -> JobId {
    let worker = worker("pod");
    match status {
        Queued => db.enqueue().await,
        Claimed | Fetching | Processing | Uploading => db.running(&worker, status).await.claim.job_id,
        Succeeded => {
            let job = db.running(&worker, Claimed).await;
            db.succeed(&worker, job.claim).await;
            job.claim.job_id
        }
        Failed | DeadLetter => {
            let job = db.running(&worker, Fetching).await;
            let code = if status == Failed { "media_unreadable" } else { "egress_blocked" };
            let failure = JobFailure { code: code.into(), ..JobFailure::default() };
            db.store().fail_jobs(&worker, &[(job.claim, failure)]).await.unwrap();
            job.claim.job_id
        }
    }
}

/// Tries one step through `_transition`, looks whether an event was written, and takes it all back.
async fn try_step(client: &mut Client, id: JobId, to: JobStatus) -> (String, i64) {
    let transaction = client.transaction().await.unwrap();
    let before: i64 =
        transaction.query_one("select count(*) from euterpe.job_outbox_events", &[]).await.unwrap().get(0);
    let outcome: String = transaction
        .query_one(
            "select outcome
               from euterpe._transition(euterpe._now(), array[
                      ($1, $2::text, null, null, 'tester', gen_random_uuid(), euterpe._now() + interval '1 minute',
                       null, null, '[]', null, null, null, case when $2::text = 'queued' then 1 end)::euterpe._step])",
            &[&id.0, &to.as_str()],
        )
        .await
        .unwrap()
        .get(0);
    let after: i64 =
        transaction.query_one("select count(*) from euterpe.job_outbox_events", &[]).await.unwrap().get(0);
    transaction.rollback().await.unwrap();
    (outcome, after - before)
}

#[tokio::test]
async fn of_all_64_pairs_exactly_the_contracts_steps_pass_each_with_one_event() {
    let db = TestDb::fresh().await;
    let mut client = db.client().await;
    for from in JobStatus::ALL {
        let id = job_in(&db, from).await;
        assert_eq!(db.job(id).await["status"], from.as_str());
        for to in JobStatus::ALL {
            let (outcome, events) = try_step(&mut client, id, to).await;
            let expected = if allowed(from, to) { ("ok", 1) } else { ("illegal", 0) };
            assert_eq!((outcome.as_str(), events), expected, "{from} -> {to}");
        }
        if from == Queued {
            // Out of the way: the next claims mean their own jobs.
            let worker = worker("cleaner");
            let job = db.claim(&worker).await;
            db.succeed(&worker, job.claim).await;
        }
    }
}

/// `failed -> queued` only while `attempt_count < max_attempts`.
#[tokio::test]
async fn a_failed_job_without_budget_cannot_go_back_to_the_line() {
    let db = TestDb::fresh().await;
    let id = job_in(&db, Failed).await;
    let mut client = db.client().await;
    assert_eq!(try_step(&mut client, id, Queued).await, ("ok".into(), 1));

    db.run(&format!("update euterpe.inbox_jobs set max_attempts = attempt_count where job_id = '{id}'"))
        .await;
    assert_eq!(try_step(&mut client, id, Queued).await, ("illegal".into(), 0));
    assert_eq!(try_step(&mut client, id, DeadLetter).await, ("ok".into(), 1));
}

/// What a worker asks for out of order is answered, per job, and harms no other job of the call.
#[tokio::test]
async fn a_step_out_of_order_is_illegal_and_writes_nothing() {
    let db = TestDb::fresh().await;
    let worker = worker("pod");
    let hasty = db.running(&worker, Claimed).await;
    let proper = db.running(&worker, Claimed).await;
    let before = db.event_count().await;

    let answers = db
        .store()
        .advance_jobs(&worker, &[(hasty.claim, Uploading), (proper.claim, Fetching)])
        .await
        .unwrap();
    let outcome = |id| answers.iter().find(|answer| answer.job_id == id).unwrap().outcome;
    assert_eq!(outcome(hasty.claim.job_id), Outcome::Illegal);
    assert_eq!(outcome(proper.claim.job_id), Outcome::Ok);
    assert_eq!(db.job(hasty.claim.job_id).await["status"], "claimed");
    assert_eq!(db.event_count().await, before + 1);

    let answers =
        db.store().complete_jobs(&worker, &[(hasty.claim, None, serde_json::json!([]))]).await.unwrap();
    assert_eq!(answers[0].outcome, Outcome::Illegal);
}

/// A straight run is queued, claimed, fetching, processing, uploading, succeeded: events 1 to 6.
#[tokio::test]
async fn a_straight_run_has_six_events() {
    let db = TestDb::fresh().await;
    let worker = worker("pod");
    let job = db.running(&worker, Claimed).await;
    db.succeed(&worker, job.claim).await;
    assert_eq!(
        db.path(job.claim.job_id).await,
        ["queued", "claimed", "fetching", "processing", "uploading", "succeeded"]
    );
    let row = db.job(job.claim.job_id).await;
    assert_eq!(row["last_sequence"], 6);
    assert_eq!(row["ended_as"], "succeeded");
    assert!(!row["finished_at"].is_null() && row["claim_token"].is_null() && row["worker_id"].is_null());
}
