//! Contract §6, database part: what may be put in the inbox, and what is said about the rest.

use std::time::Duration;

use euterpe::domain::{JobId, NewJob, Sealed};
use euterpe::store::StoreError;
use serde_json::json;
use uuid::Uuid;

use crate::support::{QUEUE, TestDb, requester, worker};

#[tokio::test]
async fn what_is_not_acceptable_is_refused_with_a_reason_and_leaves_nothing() {
    let db = TestDb::fresh().await;
    let fine = NewJob { request: json!({}), ..NewJob::default() };
    let id = |text: &str| Some(JobId(Uuid::parse_str(text).unwrap()));
    let mut of_another = *JobId::new(&requester("acme")).0.as_bytes();
    of_another[15] ^= 1;
    let far = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(31 * 24);
    let cases = [
        (NewJob { request: json!([1]), ..fine.clone() }, "JSON object"),
        (NewJob { request: json!("x"), ..fine.clone() }, "JSON object"),
        (NewJob { job_id: id("7f1d9e2c-52a4-4c1e-9d1a-0a6a3e1f0b22"), ..fine.clone() }, "UUIDv7"),
        (NewJob { job_id: Some(JobId(Uuid::from_bytes(of_another))), ..fine.clone() }, "bucket"),
        (NewJob { priority: Some(-1), ..fine.clone() }, "0..1000"),
        (NewJob { priority: Some(1001), ..fine.clone() }, "0..1000"),
        (NewJob { max_attempts: Some(0), ..fine.clone() }, "1..100"),
        (NewJob { max_attempts: Some(101), ..fine.clone() }, "1..100"),
        (NewJob { run_at: Some(far), ..fine.clone() }, "30 days"),
        (NewJob { external_id: Some(String::new()), ..fine.clone() }, "external_id"),
        (NewJob { external_id: Some("x".repeat(256)), ..fine.clone() }, "external_id"),
        (NewJob { metadata: Some(json!([])), ..fine.clone() }, "metadata"),
        (NewJob { metadata: Some(json!({"k": "x".repeat(257)})), ..fine.clone() }, "metadata"),
        (NewJob { idempotency_key: Some("with space".into()), ..fine.clone() }, "visible ASCII"),
        (NewJob { idempotency_key: Some("x".repeat(256)), ..fine.clone() }, "visible ASCII"),
        (NewJob { request_hash: Some(vec![0; 31]), ..fine.clone() }, "32 bytes"),
        (NewJob { response: Some(vec![0; 65_537]), ..fine.clone() }, "64 KiB"),
        (NewJob { key_ttl_seconds: Some(3600), ..fine.clone() }, "3 to 90 days"),
        (NewJob { event_filter: Some(vec!["x".into(); 21]), ..fine.clone() }, "20 event types"),
    ];
    for (job, reason) in cases {
        let refused = db.store().enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::BadArgument(m) if m.contains(reason)),
            "{reason}: {refused:?}"
        );
    }
    for table in ["inbox_jobs", "job_requests", "job_outbox_events", "ready", "delayed", "idempotency_keys"] {
        assert_eq!(db.one::<i64>(&format!("select count(*) from euterpe.{table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn an_id_far_from_the_databases_clock_is_refused() {
    let db = TestDb::fresh().await;
    db.jump(Duration::from_secs(11 * 60)).await;
    let job =
        NewJob { request: json!({}), job_id: Some(JobId::new(&requester("acme"))), ..NewJob::default() };
    let refused = db.store().enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap_err();
    assert!(refused.to_string().contains("10 minutes"), "{refused}");
}

#[tokio::test]
async fn ids_made_by_us_and_by_the_database_are_accepted_and_carry_their_bucket() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let ours = JobId::new(&acme);
    let given = db.enqueue_with(NewJob { job_id: Some(ours), ..NewJob::default() }).await;
    assert_eq!(given, ours);
    let theirs = db.enqueue().await;
    for id in [given, theirs] {
        assert_eq!(id.0.get_version_num(), 7);
        assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
        assert_eq!(id.0.as_bytes()[15], acme.bucket());
        let sql = format!(
            "select created_at = euterpe._id_time(job_id) from euterpe.inbox_jobs where job_id = '{id}'"
        );
        assert!(db.one::<bool>(&sql).await);
    }
}

#[tokio::test]
async fn unknown_and_disabled_requesters_and_unknown_queues_are_refused() {
    let db = TestDb::fresh().await;
    let (store, job) = (db.store(), NewJob { request: json!({}), ..NewJob::default() });
    let refused = store.enqueue_job(&requester("nobody"), QUEUE, &job).await.unwrap_err();
    assert!(matches!(&refused, StoreError::RequesterRefused(m) if m.contains("unknown")), "{refused:?}");
    store.disable_requester(&requester("acme"), None).await.unwrap();
    let refused = store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap_err();
    assert!(matches!(&refused, StoreError::RequesterRefused(m) if m.contains("disabled")), "{refused:?}");
    store.enable_requester(&requester("acme"), None).await.unwrap();
    for queue in ["nowhere", "webhook"] {
        let refused = store.enqueue_job(&requester("acme"), queue, &job).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoSuchQueue(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn priority_is_lowered_to_what_the_requester_may_have() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.requesters set max_priority = 150").await;
    let id = db.enqueue_with(NewJob { priority: Some(900), ..NewJob::default() }).await;
    assert_eq!(db.job(id).await["priority"], 150);
}

#[tokio::test]
async fn a_scheduled_job_waits_for_its_time() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(120);
    let id = db.enqueue_with(NewJob { run_at: Some(soon), ..NewJob::default() }).await;
    assert!(db.store().claim_jobs(QUEUE, &pod, 1, None).await.unwrap().is_empty());
    db.wind(Duration::from_secs(121)).await;
    assert_eq!(db.claim(&pod).await.claim.job_id, id);
}

/// SQL only ever sees what is sealed, and keeps it where no other column is (contract §10).
#[tokio::test]
async fn sealed_secrets_are_kept_with_their_version() {
    let db = TestDb::fresh().await;
    let sealed = |n: u8| Sealed {
        encrypted: format!("\\x{}", hex::encode([n; 40])),
        dek_wrapped: format!("\\x{}", hex::encode([n; 60])),
        kek_id: format!("kek-{n}"),
        encryption_version: n.into(),
        can_refresh: None,
    };
    let job = NewJob {
        sealed: [("storage".to_owned(), sealed(1)), ("callback".to_owned(), sealed(2))].into(),
        ..NewJob::default()
    };
    let id = db.enqueue_with(job).await;
    assert_eq!(db.job(id).await["credential_version"], 1);
    let rows = db
        .rows(
            "select purpose, storage_creds_encrypted, storage_creds_dek_wrapped, storage_creds_kek_id,
                      storage_creds_encryption_version, credential_version
                 from euterpe.job_secrets order by purpose desc",
        )
        .await;
    assert_eq!(rows.len(), 2);
    for (row, (purpose, n)) in rows.iter().zip([("storage", 1), ("callback", 2)]) {
        assert_eq!(row.get::<_, &str>("purpose"), purpose);
        assert_eq!(row.get::<_, Vec<u8>>("storage_creds_encrypted"), [n; 40]);
        assert_eq!(row.get::<_, Vec<u8>>("storage_creds_dek_wrapped"), [n; 60]);
        assert_eq!(row.get::<_, &str>("storage_creds_kek_id"), format!("kek-{n}"));
        assert_eq!(row.get::<_, i16>("storage_creds_encryption_version"), i16::from(n));
        assert_eq!(row.get::<_, i32>("credential_version"), 1);
    }
}

/// Nobody made partitions: a clear error with its remedy, and the remedy works.
#[tokio::test]
async fn a_missing_partition_is_a_clear_error_and_upkeep_mends_it() {
    let db = TestDb::fresh().await;
    let ahead = Duration::from_secs(60 * 86_400);
    db.run(&format!("select setval('euterpe_line.test_clock_ms', {})", ahead.as_millis())).await;
    let job = NewJob { request: json!({}), ..NewJob::default() };
    let refused = db.store().enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap_err();
    assert!(matches!(refused, StoreError::PartitionMissing(_)), "{refused:?}");
    db.store().upkeep().await.unwrap();
    db.enqueue().await;
}

/// One bad item harms no other, however bad it is.
#[tokio::test]
async fn an_item_that_cannot_be_read_is_answered_and_harms_no_other() {
    let db = TestDb::fresh().await;
    let id = JobId::new(&requester("acme"));
    let items = json!([
        {"request": {}},
        {"request": {}, "run_at": "nonsense"},
        {"request": {}, "priority": "high"},
        5,
        {"request": {}, "sealed": 5},
        {"request": {}, "sealed": {"storage": {"encrypted": "", "dek_wrapped": "", "kek_id": "k", "encryption_version": 1}}},
        {"request": {}, "sealed": {"storage": ["encrypted", "dek_wrapped", "kek_id", "encryption_version"]}},
        {"request": {}, "job_id": id.to_string()},
        {"request": {}, "job_id": id.to_string()},
        {"request": {}, "complaint": "a field of ours is not the caller's"},
    ]);
    let client = db.client().await;
    let rows =
        client.query("select outcome from euterpe.enqueue_jobs_v1('acme', $1)", &[&items]).await.unwrap();
    let outcomes: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        outcomes,
        [
            "accepted", "invalid", "invalid", "invalid", "invalid", "invalid", "invalid", "invalid",
            "invalid", "accepted"
        ]
    );
}
