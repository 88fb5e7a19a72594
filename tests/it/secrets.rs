//! Contract §7 and §10, in the database: sealed secrets are read behind a fence, replaced by compare-and-set, and gone
//! when nobody needs them any more.

use std::time::Duration;

use euterpe::domain::{Claim, Delivery, JobFailure, JobId, JobStatus, NewJob, Outcome, Sealed, WorkerId};
use euterpe::store::{Refresh, StoreError};
use futures_util::future::join;
use serde_json::json;
use uuid::Uuid;

use crate::support::{LEASE, TestDb, WEBHOOKS, requester, sealed, with_secrets, with_webhook, worker};

const AN_HOUR: Duration = Duration::from_secs(3600);

/// Which purposes of a job are stored.
async fn stored(db: &TestDb, id: JobId) -> Vec<String> {
    let sql = format!("select purpose from euterpe.job_secrets where job_id = '{id}' order by purpose");
    db.rows(&sql).await.iter().map(|row| row.get(0)).collect()
}

async fn fail(db: &TestDb, pod: &WorkerId, claim: Claim, code: &str) {
    let failure = JobFailure { code: code.into(), ..JobFailure::default() };
    let answers = db.store().fail_jobs(pod, &[(claim, failure)]).await.unwrap();
    assert_eq!(answers[0].outcome, Outcome::Ok);
}

/// What its worker reads of a job: purpose, ciphertext, version.
async fn read(db: &TestDb, pod: &WorkerId, claim: Claim) -> Vec<(String, Vec<u8>, i32)> {
    let rows = db.store().read_job_secrets(pod, &[claim]).await.unwrap();
    assert!(rows.iter().all(|row| row.outcome == Outcome::Ok));
    let secrets = rows.into_iter().filter_map(|row| row.secret);
    secrets.map(|(purpose, secret)| (purpose, secret.encrypted, secret.credential_version)).collect()
}

#[tokio::test]
async fn its_worker_reads_the_secrets_of_a_job_as_they_were_sealed() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let job = db.running_with(with_secrets(true), &pod, JobStatus::Claimed).await;
    let rows = db.store().read_job_secrets(&pod, &[job.claim]).await.unwrap();
    for (row, purpose) in rows.iter().zip(["callback", "storage"]) {
        let (said, secret) = row.secret.as_ref().unwrap();
        assert_eq!((said.as_str(), secret.encrypted.as_slice()), (purpose, purpose.as_bytes()));
        assert_eq!((secret.dek_wrapped.as_slice(), secret.kek_id.as_str()), (&[0x00, 0xff][..], "kek-1"));
        assert_eq!((secret.encryption_version, secret.credential_version), (1, 1));
        assert_eq!(secret.bound_to, job.claim.job_id.0);
    }
    let plain = db.running(&pod, JobStatus::Claimed).await;
    assert_eq!(read(&db, &pod, plain.claim).await, [], "a job without secrets");
}

/// A reader whose claim is lost, forged or somebody else's learns nothing but that.
#[tokio::test]
async fn nobody_else_reads_the_secrets_of_a_job() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let job = db.running_with(with_secrets(true), &pod, JobStatus::Claimed).await;
    let forged = [
        (worker("pod"), job.claim),
        (pod.clone(), Claim { token: Uuid::new_v4(), ..job.claim }),
        (pod.clone(), Claim { version: 2, ..job.claim }),
        (pod.clone(), Claim { job_id: JobId::new(&requester("acme")), ..job.claim }),
    ];
    for (reader, claim) in forged {
        let rows = store.read_job_secrets(&reader, &[claim]).await.unwrap();
        assert!(rows.len() == 1 && rows[0].outcome == Outcome::Stale && rows[0].secret.is_none());
    }
    let nulls = format!(
        "select outcome || coalesce(kek_id, '') from euterpe.read_job_secrets_v1(
           null, array['{}'::uuid], array[1::bigint], array[null::uuid])",
        job.claim.job_id
    );
    assert_eq!(db.one::<String>(&nulls).await, "stale");
    db.store().cancel_job(job.claim.job_id, None, None).await.unwrap();
    let rows = store.read_job_secrets(&pod, &[job.claim]).await.unwrap();
    assert!(rows.len() == 1 && rows[0].outcome == Outcome::Stale && rows[0].secret.is_none());
    assert_eq!(db.one::<String>(&nulls).await, "stale");
}

/// A webhook worker sees where to send, and never what opens the storage.
#[tokio::test]
async fn the_worker_of_an_event_reads_its_callback_and_nothing_else() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("webhook"));
    db.enqueue_with(with_secrets(true)).await;
    let event = db.take_event(WEBHOOKS[0], &pod).await;
    let rows = store.read_event_secrets(&pod, &[event.claim]).await.unwrap();
    assert_eq!(rows.len(), 1);
    let (which, outcome, secret) = &rows[0];
    assert_eq!((*which, *outcome), (event.claim.event, Outcome::Ok));
    let secret = secret.as_ref().unwrap();
    assert_eq!((secret.encrypted.as_slice(), secret.bound_to), (&b"callback"[..], which.job_id.0));

    let mut wrong = [event.claim; 3];
    wrong[0].token = Uuid::new_v4();
    wrong[1].version += 1;
    wrong[2].event.sequence += 1;
    for claim in wrong {
        let (_, outcome, secret) = store.read_event_secrets(&pod, &[claim]).await.unwrap().remove(0);
        assert!(outcome == Outcome::Stale && secret.is_none(), "{claim:?}");
    }
    let (_, outcome, secret) =
        store.read_event_secrets(&worker("webhook"), &[event.claim]).await.unwrap().remove(0);
    assert!(outcome == Outcome::Stale && secret.is_none());
    db.settle(&pod, &event, Delivery::arrived(200)).await;
    let (_, outcome, secret) = store.read_event_secrets(&pod, &[event.claim]).await.unwrap().remove(0);
    assert!(outcome == Outcome::Stale && secret.is_none());
}

#[tokio::test]
async fn credentials_are_replaced_only_in_place_of_the_expected_version() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let (store, pod, acme) = (db.store(), worker("pod"), requester("acme"));
    let id = db.enqueue_with(with_secrets(true)).await;
    assert_eq!(store.replace_credentials(id, &acme, 1, &sealed("second")).await.unwrap(), 2);
    let moved = store.replace_credentials(id, &acme, 1, &sealed("late")).await.unwrap_err();
    assert!(matches!(moved, StoreError::CredentialVersionMoved(_)), "{moved:?}");
    let theirs = store.replace_credentials(id, &requester("zenith"), 2, &sealed("x")).await.unwrap_err();
    assert!(matches!(theirs, StoreError::NotFound(_)), "{theirs:?}");
    let open = Sealed { encrypted: "plain text".into(), ..sealed("x") };
    let plain = store.replace_credentials(id, &acme, 2, &open).await.unwrap_err();
    assert!(matches!(plain, StoreError::BadArgument(_)), "{plain:?}");

    let job = db.claim(&pod).await;
    assert_eq!(job.credential_version, 2);
    assert_eq!(store.replace_credentials(id, &acme, 2, &sealed("third")).await.unwrap(), 3);
    let secrets = read(&db, &pod, job.claim).await;
    assert_eq!(secrets[1], ("storage".into(), b"third".to_vec(), 3));
    assert_eq!(secrets[0], ("callback".into(), b"callback".to_vec(), 1), "sealed once");
    db.succeed(&pod, job.claim).await;
    let ended = store.replace_credentials(id, &acme, 3, &sealed("x")).await.unwrap_err();
    assert!(matches!(ended, StoreError::IllegalState(_)), "{ended:?}");
}

/// Two hundred times two bring credentials for the same version: one is taken, and it is the one that is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_replacements_exactly_one_is_stored() {
    let db = TestDb::fresh().await;
    let (store, acme, client) = (db.store(), requester("acme"), db.client().await);
    let id = db.enqueue_with(with_secrets(true)).await;
    let (one, other) = (sealed("one"), sealed("other"));
    for version in 1..=200 {
        let (first, second) = join(
            store.replace_credentials(id, &acme, version, &one),
            store.replace_credentials(id, &acme, version, &other),
        )
        .await;
        let row = client
            .query_one(
                "select convert_from(s.storage_creds_encrypted, 'UTF8'), s.credential_version, j.credential_version
                   from euterpe.job_secrets s join euterpe.inbox_jobs j using (job_id) where s.purpose = 'storage'",
                &[],
            )
            .await
            .unwrap();
        let expected = match (first, second) {
            (Ok(new), Err(StoreError::CredentialVersionMoved(_))) => ("one", new),
            (Err(StoreError::CredentialVersionMoved(_)), Ok(new)) => ("other", new),
            both => panic!("{both:?}"),
        };
        assert_eq!(expected.1, version + 1);
        assert_eq!((row.get(0), row.get(1), row.get(2)), (expected.0, expected.1, expected.1));
    }
}

#[tokio::test]
async fn storage_secrets_go_with_the_end_and_callbacks_stay() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let done = db.running_with(with_secrets(true), &pod, JobStatus::Claimed).await;
    db.succeed(&pod, done.claim).await;
    let dead = db.running_with(with_secrets(true), &pod, JobStatus::Fetching).await;
    fail(&db, &pod, dead.claim, "egress_blocked").await;
    let given_up = db.running_with(with_secrets(true), &pod, JobStatus::Fetching).await;
    fail(&db, &pod, given_up.claim, "media_unreadable").await;
    assert_eq!(stored(&db, given_up.claim.job_id).await, ["callback", "storage"], "it may be retried");
    db.store().redrive_job(given_up.claim.job_id, None, None, None).await.unwrap();
    for job in [done, dead, given_up] {
        assert_eq!(stored(&db, job.claim.job_id).await, ["callback"]);
    }
}

/// Upkeep waits for nobody: whoever holds a job is passed over, and its secrets go the next time.
#[tokio::test]
async fn a_held_job_keeps_its_secrets_for_a_moment_and_nobody_waits() {
    let (db, pod) = (TestDb::fresh().await, worker("pod"));
    let claim = db.running_with(with_secrets(false), &pod, JobStatus::Fetching).await.claim;
    fail(&db, &pod, claim, "media_unreadable").await;
    let job = claim.job_id;
    db.jump(AN_HOUR * 25).await;
    let holder = db.client().await;
    holder
        .batch_execute(&format!("begin; select from euterpe.inbox_jobs where job_id = '{job}' for update"))
        .await
        .unwrap();
    db.run("set lock_timeout = '100ms'; select * from euterpe.upkeep_v1(); reset lock_timeout").await;
    assert_eq!(stored(&db, job).await, ["callback", "storage"]);
    holder.batch_execute("rollback").await.unwrap();
    db.store().upkeep().await.unwrap();
    assert_eq!(stored(&db, job).await, ["callback"]);
}

/// A day after it came to rest. What was retried meanwhile keeps them, until it has rested for a day of its own.
#[tokio::test]
async fn storage_secrets_of_a_resting_job_go_after_a_day() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let mut resting = Vec::new();
    for _ in 0..3 {
        let job = db.running_with(with_secrets(false), &pod, JobStatus::Fetching).await;
        fail(&db, &pod, job.claim, "media_unreadable").await;
        resting.push(job.claim.job_id);
    }
    let [rests, retried, rests_again] = resting[..] else { unreachable!("three were made") };
    db.jump(AN_HOUR).await;
    store.retry_job(rests_again, None, None, None).await.unwrap();
    let job = db.claim(&pod).await;
    store.cancel_job(job.claim.job_id, None, None).await.unwrap();
    db.jump(AN_HOUR * 22).await;
    store.upkeep().await.unwrap();
    assert_eq!(stored(&db, rests).await, ["callback", "storage"], "23 hours are no day");
    store.retry_job(retried, None, None, None).await.unwrap();

    db.jump(AN_HOUR + LEASE).await;
    store.upkeep().await.unwrap();
    assert_eq!(stored(&db, rests).await, ["callback"]);
    assert_eq!(stored(&db, retried).await, ["callback", "storage"]);
    assert_eq!(stored(&db, rests_again).await, ["callback", "storage"], "it rests for 23 hours");
    let gone = store.retry_job(rests, None, None, None).await.unwrap_err();
    assert!(matches!(gone, StoreError::CredentialsRequired(_)), "{gone:?}");

    db.jump(AN_HOUR).await;
    store.upkeep().await.unwrap();
    assert_eq!(stored(&db, rests_again).await, ["callback"]);
    assert_eq!(stored(&db, retried).await, ["callback", "storage"]);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.secret_expiries").await, 0);
}

/// A job as its worker holds it, able to ask for credentials.
async fn asking(db: &TestDb, pod: &WorkerId) -> Claim {
    db.running_with(with_secrets(true), pod, JobStatus::Fetching).await.claim
}

async fn ask(db: &TestDb, pod: &WorkerId, claim: Claim, storage_worked: bool) -> Refresh {
    db.store().begin_refreshes(pod, &[(claim, storage_worked)]).await.unwrap().remove(0).1
}

#[tokio::test]
async fn three_refreshes_in_a_row_exhaust_and_a_storage_call_that_worked_breaks_the_row() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let claim = asking(&db, &pod).await;
    for _ in 0..3 {
        assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Ask(1));
    }
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Exhausted);
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Exhausted, "asking again changes nothing");
    assert_eq!(ask(&db, &pod, claim, true).await, Refresh::Ask(1));
    for _ in 0..2 {
        assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Ask(1));
    }
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Exhausted);
    let row = db.job(claim.job_id).await;
    assert_eq!((&row["credential_refresh_count"], &row["attempt_count"]), (&6.into(), &1.into()));

    fail(&db, &pod, claim, "credential_refresh_exhausted").await;
    assert_eq!(db.job(claim.job_id).await["status"], "dead_letter");
}

/// Credentials that always help for a moment and never for long: fifty are enough.
#[tokio::test]
async fn fifty_refreshes_in_all_exhaust() {
    let db = TestDb::fresh().await;
    let (pod, acme) = (worker("pod"), requester("acme"));
    let claim = asking(&db, &pod).await;
    for version in 1..=50 {
        assert_eq!(ask(&db, &pod, claim, true).await, Refresh::Ask(version));
        db.store().replace_credentials(claim.job_id, &acme, version, &sealed("new")).await.unwrap();
    }
    assert_eq!(ask(&db, &pod, claim, true).await, Refresh::Exhausted);
}

/// The row goes on from one worker to the next: dying does not buy more refreshes.
#[tokio::test]
async fn the_count_of_refreshes_belongs_to_the_job() {
    let db = TestDb::fresh().await;
    let (dead, pod) = (worker("dead"), worker("pod"));
    let lost = asking(&db, &dead).await;
    assert_eq!(ask(&db, &dead, lost, false).await, Refresh::Ask(1));
    assert_eq!(ask(&db, &dead, lost, false).await, Refresh::Ask(1));
    db.wind(LEASE + Duration::from_secs(2)).await;
    assert_eq!(ask(&db, &dead, lost, false).await, Refresh::Lost(Outcome::Stale));
    let claim = db.claim(&pod).await.claim;
    assert_eq!(ask(&db, &dead, lost, false).await, Refresh::Lost(Outcome::Stale));
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Ask(1));
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Exhausted);
    db.store().cancel_job(claim.job_id, None, None).await.unwrap();
    assert_eq!(ask(&db, &pod, claim, false).await, Refresh::Lost(Outcome::Cancelled));
    assert_eq!(db.job(claim.job_id).await["credential_refresh_count"], 3, "what is not heard is not counted");
}

/// Contract §4: what a worker stores of a refresh is fenced like all its writes.
#[tokio::test]
async fn only_the_owner_of_a_job_stores_what_a_refresh_answered() {
    let db = TestDb::fresh().await;
    let (store, dead, pod) = (db.store(), worker("pod-1"), worker("pod-2"));
    let lost = asking(&db, &dead).await;
    let keep = async |who: &WorkerId, claim: Claim, expected: i32| {
        store.store_refreshed(who, claim, expected, &sealed("new")).await
    };
    assert_eq!(keep(&dead, lost, 1).await.unwrap(), Outcome::Ok);
    let moved = keep(&dead, lost, 1).await.unwrap_err();
    assert!(matches!(moved, StoreError::CredentialVersionMoved(_)), "{moved:?}");
    db.wind(LEASE + Duration::from_secs(2)).await;
    let claim = db.claim(&pod).await.claim;
    for (who, claim) in [(&dead, lost), (&dead, claim), (&pod, Claim { token: lost.token, ..claim })] {
        assert_eq!(keep(who, claim, 2).await.unwrap(), Outcome::Stale);
    }
    assert_eq!(keep(&pod, claim, 2).await.unwrap(), Outcome::Ok);
    store.cancel_job(claim.job_id, None, None).await.unwrap();
    assert_eq!(keep(&pod, claim, 3).await.unwrap(), Outcome::Cancelled);
    assert_eq!(db.job(claim.job_id).await["credential_version"], 3);
}

/// A job in the line has no owner, no token and no worker; nulls are not those.
#[tokio::test]
async fn a_fence_of_nulls_is_not_heard() {
    let db = TestDb::fresh().await;
    let id = db.enqueue_with(with_secrets(true)).await;
    let sql = format!(
        "select outcome from euterpe.begin_refreshes_v1(
           null, array['{id}'::uuid], array[0::bigint], array[null::uuid], array[false])"
    );
    assert_eq!(db.one::<String>(&sql).await, "stale");
    assert_eq!(db.job(id).await["credential_refresh_count"], 0);
    let store = format!(
        "select euterpe.store_refreshed_v1(null, '{id}', 0, null, 1,
           '{{\"encrypted\": \"\\\\x00\", \"dek_wrapped\": \"\\\\x00\", \"kek_id\": \"k\", \"encryption_version\": 1}}')"
    );
    assert_eq!(db.one::<String>(&store).await, "stale");
    let event = format!(
        "select outcome || coalesce(kek_id, '') from euterpe.read_event_secrets_v1(
           null, array['{id}'::uuid], array[1], array[0::bigint], array[null::uuid])"
    );
    assert_eq!(db.one::<String>(&event).await, "stale");
}

/// A refused job leaves nothing, a job that brings secrets in clear is refused.
#[tokio::test]
async fn what_is_not_sealed_is_not_stored() {
    let db = TestDb::fresh().await;
    for (purpose, secret) in [
        ("storage", Sealed { encrypted: "AKIA".into(), ..sealed("x") }),
        ("callback", Sealed { dek_wrapped: "\\x".into(), ..sealed("x") }),
        ("storage", Sealed { kek_id: String::new(), ..sealed("x") }),
        ("other", sealed("x")),
    ] {
        let job =
            NewJob { request: json!({}), sealed: [(purpose.to_owned(), secret)].into(), ..with_webhook() };
        let refused = db.store().enqueue_job(&requester("acme"), "transcode", &job).await.unwrap_err();
        assert!(matches!(refused, StoreError::BadArgument(_)), "{refused:?}");
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.job_secrets").await, 0);
}
