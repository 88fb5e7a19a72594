//! Contract §3 and §5, design §5.5: how a job ends, and what a person may make of it afterwards.

use euterpe::domain::{JobFailure, JobId, JobStatus, NewJob, Outcome};
use euterpe::store::{Store, StoreError};
use futures_util::future::join;
use serde_json::{Value, json};

use crate::support::{QUEUE, TestDb, requester, sealed, with_secrets, with_webhook, worker};

/// A job that has met `code` while fetching.
async fn failed_with(db: &TestDb, job: NewJob, code: &str) -> JobId {
    let pod = worker("pod");
    let id = db.enqueue_with(job).await;
    let claimed = db.claim(&pod).await;
    assert_eq!(claimed.claim.job_id, id);
    db.advance_to(&pod, claimed.claim, JobStatus::Fetching).await;
    let failure = JobFailure { code: code.into(), ..JobFailure::default() };
    assert_eq!(
        db.store().fail_jobs(&pod, &[(claimed.claim, failure)]).await.unwrap()[0].outcome,
        Outcome::Ok
    );
    id
}

/// It rests as failed, with budget left.
async fn resting(db: &TestDb, job: NewJob) -> JobId {
    failed_with(db, job, "media_unreadable").await
}

/// It is given up.
async fn buried(db: &TestDb, job: NewJob) -> JobId {
    failed_with(db, job, "egress_blocked").await
}

/// What the last event of a job says.
async fn last_event(db: &TestDb, id: JobId) -> Value {
    let sql = format!(
        "select payload from euterpe.job_outbox_events where job_id = '{id}' order by sequence desc limit 1"
    );
    serde_json::from_str(&db.one::<String>(&sql).await).unwrap()
}

fn is_refused(answer: Result<impl std::fmt::Debug, StoreError>) -> String {
    match answer {
        Err(StoreError::IllegalState(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_job_that_rests_as_failed_goes_back_to_the_line_and_may_succeed() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let id = resting(&db, with_webhook()).await;
    let event = last_event(&db, id).await;
    assert_eq!((&event["data"]["status"], &event["data"]["final"]), (&"failed".into(), &true.into()));

    db.store().retry_job(id, Some(&requester("acme")), None, None).await.unwrap();
    let event = last_event(&db, id).await;
    assert_eq!(event["data"]["reason"], "retried");
    assert_eq!(
        (&event["data"]["previous_status"], &event["data"]["final"]),
        (&"failed".into(), &false.into())
    );
    let row = db.job(id).await;
    assert_eq!((&row["attempt_count"], &row["finished_at"]), (&1.into(), &Value::Null));
    let job = db.claim(&pod).await;
    assert_eq!((job.claim.job_id, job.claim.version), (id, 2));
    db.succeed(&pod, job.claim).await;
    let event = last_event(&db, id).await;
    assert_eq!((&event["data"]["final"], &event["data"]["attempt_count"]), (&true.into(), &2.into()));
    assert_eq!(db.one::<i64>("select count(*) from euterpe.operator_log where act = 'retry_job'").await, 0);
}

#[tokio::test]
async fn only_what_rests_as_failed_with_budget_left_is_retried() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let queued = db.enqueue().await;
    let refused = is_refused(store.retry_job(queued, None, None, None).await);
    assert!(refused.contains("queued"), "{refused}");
    let running = db.claim(&pod).await;
    is_refused(store.retry_job(running.claim.job_id, None, None, None).await);
    db.succeed(&pod, running.claim).await;
    is_refused(store.retry_job(running.claim.job_id, None, None, None).await);
    let dead = buried(&db, NewJob::default()).await;
    is_refused(store.retry_job(dead, None, None, None).await);

    // Cancelled on its last attempt: it rests, and the budget is spent.
    let last = db.enqueue_with(NewJob { max_attempts: Some(1), ..NewJob::default() }).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Processing).await;
    store.cancel_job(last, None, None).await.unwrap();
    let refused = is_refused(store.retry_job(last, None, None, None).await);
    assert!(refused.contains("redrive"), "{refused}");
    store.redrive_job(last, None, None, None).await.unwrap();
}

#[tokio::test]
async fn another_requesters_job_is_as_unknown_as_no_job() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let (store, zenith) = (db.store(), requester("zenith"));
    let (failed, dead) = (resting(&db, NewJob::default()).await, buried(&db, NewJob::default()).await);
    for id in [failed, dead, JobId::new(&zenith)] {
        let retried = store.retry_job(id, Some(&zenith), None, None).await.unwrap_err();
        assert!(matches!(retried, StoreError::NotFound(_)), "{retried:?}");
        let redriven = store.redrive_job(id, Some(&zenith), None, None).await.unwrap_err();
        assert!(matches!(redriven, StoreError::NotFound(_)), "{redriven:?}");
    }
    assert_eq!(db.job(failed).await["status"], "failed");
}

/// The old one stays what it is and names its successor; the new one names the old, and has its request.
#[tokio::test]
async fn redriving_a_dead_letter_makes_one_new_job() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let job = NewJob {
        external_id: Some("video-42".into()),
        metadata: Some(json!({"tenant": "acme"})),
        priority: Some(70),
        max_attempts: Some(3),
        ..with_webhook()
    };
    let old = buried(&db, job).await;
    let event = last_event(&db, old).await;
    assert_eq!((&event["type"], &event["data"]["final"]), (&"transcode.dead_letter".into(), &true.into()));
    let before = db.path(old).await;

    let new = store.redrive_job(old, None, None, Some("fixed the firewall")).await.unwrap();
    assert_eq!(db.path(old).await, before, "a dead letter is absorbing");
    assert_eq!(db.path(new).await, ["queued"]);
    let (was, is) = (db.job(old).await, db.job(new).await);
    assert_eq!((&was["redriven_as"], &is["redrive_of"]), (&new.to_string().into(), &old.to_string().into()));
    for kept in [
        "requester_id",
        "queue_id",
        "external_id",
        "priority",
        "max_attempts",
        "event_filter",
        "callback_origin",
    ] {
        assert_eq!(was[kept], is[kept], "{kept}");
    }
    assert_eq!((&is["attempt_count"], &is["credential_version"]), (&0.into(), &0.into()));
    let requests = format!(
        "select count(distinct (request, metadata)) from euterpe.job_requests where job_id in ('{old}', '{new}')"
    );
    assert_eq!(db.one::<i64>(&requests).await, 1);
    let why = "select why from euterpe.operator_log where act = 'redrive_job'";
    assert_eq!(db.one::<String>(why).await, "fixed the firewall");

    let refused = is_refused(store.redrive_job(old, None, None, None).await);
    assert!(refused.contains(&new.to_string()), "{refused}");
    let job = db.claim(&pod).await;
    assert_eq!(job.claim.job_id, new);
    db.succeed(&pod, job.claim).await;
    db.deliver_all().await;
}

/// Whoever redrives it has decided that it will not be retried.
#[tokio::test]
async fn redriving_what_rests_gives_it_up_first() {
    let db = TestDb::fresh().await;
    let (store, old) = (db.store(), resting(&db, with_webhook()).await);
    store.redrive_job(old, Some(&requester("acme")), None, None).await.unwrap();
    assert_eq!(db.path(old).await[3..], ["failed", "dead_letter"]);
    let event = last_event(&db, old).await;
    assert_eq!((&event["data"]["reason"], &event["data"]["final"]), (&"redriven".into(), &true.into()));
    assert_eq!(event["data"]["error"]["code"], "media_unreadable", "what it was given up for");
    is_refused(store.retry_job(old, None, None, None).await);
    is_refused(store.cancel_job(old, None, None).await);
}

#[tokio::test]
async fn only_what_has_failed_is_redriven() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let id = db.enqueue().await;
    is_refused(store.redrive_job(id, None, None, None).await);
    let job = db.claim(&pod).await;
    is_refused(store.redrive_job(id, None, None, None).await);
    db.succeed(&pod, job.claim).await;
    is_refused(store.redrive_job(id, None, None, None).await);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 1);

    let dead = buried(&db, NewJob::default()).await;
    store.disable_requester(&requester("acme"), None).await.unwrap();
    let refused = store.redrive_job(dead, None, None, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::RequesterRefused(_)), "{refused:?}");
    assert!(db.job(dead).await["redriven_as"].is_null());
}

/// A dead letter has no way out of the contract's table, whoever asks.
#[tokio::test]
async fn a_dead_letter_is_absorbing() {
    let db = TestDb::fresh().await;
    let id = buried(&db, NewJob::default()).await;
    for to in JobStatus::ALL {
        let sql = format!(
            "select outcome from euterpe._transition(euterpe._now(), array[('{id}', '{to}', null, null, 'w',
               gen_random_uuid(), now(), null, null, null, null, null, null, 1)::euterpe._step])"
        );
        assert_eq!(db.one::<String>(&sql).await, "illegal", "{to}");
    }
    assert_eq!(db.path(id).await.last().unwrap(), "dead_letter");
}

/// Credentials still stored, given anew, or to be asked for: one of these a job that had some must have.
#[tokio::test]
async fn a_retry_needs_credentials_that_are_there_given_or_can_be_asked_for() {
    let db = TestDb::fresh().await;
    let store = db.store();
    let (kept, gone) = (resting(&db, with_secrets(false)).await, resting(&db, with_secrets(false)).await);
    let askable = resting(&db, with_secrets(true)).await;
    store.retry_job(kept, None, None, None).await.unwrap();
    db.run(&format!(
        "delete from euterpe.job_secrets where purpose = 'storage' and job_id in ('{gone}', '{askable}')"
    ))
    .await;
    let refused = store.retry_job(gone, None, None, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::CredentialsRequired(_)), "{refused:?}");
    store.retry_job(askable, None, None, None).await.unwrap();

    let fresh = sealed("fresh");
    for wrong in [0, 2] {
        let refused = store.retry_job(gone, None, Some((wrong, &fresh)), None).await.unwrap_err();
        assert!(matches!(refused, StoreError::CredentialVersionMoved(_)), "{refused:?}");
    }
    let broken = euterpe::domain::Sealed { encrypted: "plain".into(), ..sealed("x") };
    let refused = store.retry_job(gone, None, Some((1, &broken)), None).await.unwrap_err();
    assert!(matches!(refused, StoreError::BadArgument(_)), "{refused:?}");
    assert_eq!(db.job(gone).await["status"], "failed", "a refusal changes nothing");
    store.retry_job(gone, None, Some((1, &fresh)), None).await.unwrap();
    let row = db.job(gone).await;
    assert_eq!((&row["status"], &row["credential_version"]), (&"queued".into(), &2.into()));
}

/// Storage credentials are sealed to a job, so they cannot be copied; the callback is, and says to which it was sealed.
#[tokio::test]
async fn a_redrive_needs_new_credentials_and_keeps_the_callback() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let old = buried(&db, with_secrets(false)).await;
    let refused = store.redrive_job(old, None, None, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::CredentialsRequired(_)), "{refused:?}");
    let fresh = sealed("fresh");
    let sql = format!(
        "select euterpe.redrive_job_v1('{old}', p_sealed => '{}')",
        serde_json::to_string(&fresh).unwrap()
    );
    let refused = db.client().await.query(&sql, &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "22023", "sealed to which job?");
    let foreign = JobId::new(&requester("zenith"));
    let refused = store.redrive_job(old, None, Some((foreign, &fresh)), None).await.unwrap_err();
    assert!(matches!(refused, StoreError::BadArgument(_)), "{refused:?}");
    assert!(db.job(old).await["redriven_as"].is_null(), "a refusal changes nothing");

    let id = JobId::new(&requester("acme"));
    assert_eq!(store.redrive_job(old, None, Some((id, &fresh)), None).await.unwrap(), id);
    let job = db.claim(&pod).await;
    assert_eq!((job.claim.job_id, job.credential_version), (id, 1));
    let secrets = store.read_job_secrets(&pod, &[job.claim]).await.unwrap();
    let seen: Vec<_> = secrets
        .iter()
        .map(|row| {
            row.secret
                .as_ref()
                .map(|(purpose, s)| (purpose.as_str(), s.encrypted.as_slice(), s.bound_to))
                .unwrap()
        })
        .collect();
    assert_eq!(seen, [("callback", b"callback".as_slice(), old.0), ("storage", b"fresh".as_slice(), id.0)]);

    // Redriven once more: still bound to the first.
    let failure = JobFailure { code: "egress_blocked".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    let third = JobId::new(&requester("acme"));
    store.redrive_job(id, None, Some((third, &fresh)), None).await.unwrap();
    let bound =
        format!("select bound_to from euterpe.job_secrets where job_id = '{third}' and purpose = 'callback'");
    assert_eq!(db.one::<uuid::Uuid>(&bound).await, old.0);
}

/// With a refresh_url it starts without credentials, at the refresh call; so does its successor.
#[tokio::test]
async fn a_redriven_job_that_can_ask_for_credentials_needs_none() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let mut id = buried(&db, with_secrets(true)).await;
    for _ in 0..2 {
        id = store.redrive_job(id, None, None, None).await.unwrap();
        let job = db.claim(&pod).await;
        assert_eq!((job.claim.job_id, job.credential_version), (id, 0));
        assert_eq!(db.job(id).await["can_refresh"], true);
        let failure = JobFailure { code: "egress_blocked".into(), ..JobFailure::default() };
        store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    }
}

/// What became of a job: its path, its status and its successor.
type Became = (Vec<String>, String, Option<uuid::Uuid>);

/// Runs two calls at once, two hundred times, each time on a fresh job with a webhook that rests as failed.
async fn race<A, B>(
    db: &TestDb,
    one: impl AsyncFn(&Store, JobId) -> Result<A, StoreError>,
    other: impl AsyncFn(&Store, JobId) -> Result<B, StoreError>,
    check: impl Fn(Result<A, StoreError>, Result<B, StoreError>, Became),
) {
    let (store, client, acme) = (db.store(), db.client().await, requester("acme"));
    let job = NewJob { request: json!({}), ..with_webhook() };
    for _ in 0..200 {
        let id = store.enqueue_job(&acme, QUEUE, &job).await.unwrap().job_id;
        store.cancel_job(id, None, None).await.unwrap();
        let (first, second) = join(one(&store, id), other(&store, id)).await;
        let sql = "select array_agg(e.to_status order by e.sequence), j.status, j.redriven_as
                     from euterpe.inbox_jobs j join euterpe.job_outbox_events e using (job_id)
                    where job_id = $1 group by j.status, j.redriven_as";
        let row = client.query_one(sql, &[&id.0]).await.unwrap();
        let became: Became = (row.get(0), row.get(1), row.get(2));
        assert_eq!(became.0[..3], ["queued", "claimed", "failed"]);
        assert_eq!(became.0.last(), Some(&became.1), "state and events agree");
        assert_eq!(became.0.len(), 4, "exactly one has done something: {became:?}");
        check(first, second, became);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_retry_and_a_redrive_exactly_one_wins() {
    let db = TestDb::fresh().await;
    race(
        &db,
        async |store, id| store.retry_job(id, None, None, None).await,
        async |store, id| store.redrive_job(id, None, None, None).await,
        |retried, redriven, (_, status, successor)| {
            if retried.is_ok() {
                is_refused(redriven);
                assert_eq!((status.as_str(), successor), ("queued", None));
            } else {
                is_refused(retried);
                assert_eq!((status.as_str(), successor), ("dead_letter", Some(redriven.unwrap().0)));
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_redrives_exactly_one_makes_a_job() {
    let db = TestDb::fresh().await;
    let redrive = async |store: &Store, id| store.redrive_job(id, None, None, None).await;
    race(&db, redrive, redrive, |one, other, (_, status, successor)| {
        assert!(one.is_ok() != other.is_ok(), "{one:?}, {other:?}");
        assert_eq!((status.as_str(), successor), ("dead_letter", Some(one.or(other).unwrap().0)));
    })
    .await;
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_retries_exactly_one_wins() {
    let db = TestDb::fresh().await;
    let retry = async |store: &Store, id| store.retry_job(id, None, None, None).await;
    race(&db, retry, retry, |one, other, (_, status, _)| {
        assert!(one.is_ok() != other.is_ok(), "{one:?}, {other:?}");
        assert_eq!(status, "queued");
    })
    .await;
}
