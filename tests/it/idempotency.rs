//! Contract §9: same key and same hash get the stored answer; another hash is a conflict.

use std::collections::HashSet;
use std::time::Duration;

use euterpe::domain::NewJob;
use euterpe::store::{EnqueuedItem, StoreError};
use futures_util::future::join_all;
use serde_json::json;

use crate::support::{QUEUE, TestDb, requester};

fn keyed(key: &str, hash: u8) -> NewJob {
    NewJob {
        request: json!({"n": hash}),
        idempotency_key: Some(key.into()),
        request_hash: Some(vec![hash; 32]),
        response: Some(format!("answer {hash}").into_bytes()),
        ..NewJob::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_concurrent_enqueues_with_one_key_make_one_job_and_one_answer() {
    let db = TestDb::fresh().await;
    let store = db.store_as("euterpe_test", 64);
    let acme = requester("acme");
    for round in 0..5 {
        let calls = (0..64).map(|_| {
            let (store, acme) = (store.clone(), acme.clone());
            let job = keyed(&format!("key-{round}"), 1);
            tokio::spawn(async move { store.enqueue_job(&acme, QUEUE, &job).await.unwrap() })
        });
        let answers: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers.iter().map(|answer| answer.job_id).collect::<HashSet<_>>().len(), 1);
        assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1, "one was the first");
        assert!(answers.iter().all(|answer| answer.response == b"answer 1"));
        assert!(answers.iter().all(|answer| answer.created_at == answers[0].created_at));
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 5);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.idempotency_keys").await, 5);
}

#[tokio::test]
async fn another_hash_is_a_conflict_that_names_the_stored_one() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let first = db.store().enqueue_job(&acme, QUEUE, &keyed("k", 0xab)).await.unwrap();
    let refused = db.store().enqueue_job(&acme, QUEUE, &keyed("k", 0xcd)).await.unwrap_err();
    assert!(matches!(refused, StoreError::IdempotencyConflict(_)), "{refused:?}");
    assert!(refused.to_string().ends_with("abababab"), "{refused}");

    let again = db.store().enqueue_job(&acme, QUEUE, &keyed("k", 0xab)).await.unwrap();
    assert_eq!(again.job_id, first.job_id);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 1);
}

/// The same digest under another canonical form is another request.
#[tokio::test]
async fn another_hash_version_is_a_conflict() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    db.store().enqueue_job(&acme, QUEUE, &keyed("k", 1)).await.unwrap();
    let newer = NewJob { hash_version: Some(2), ..keyed("k", 1) };
    let refused = db.store().enqueue_job(&acme, QUEUE, &newer).await.unwrap_err();
    assert!(matches!(refused, StoreError::IdempotencyConflict(_)), "{refused:?}");
}

#[tokio::test]
async fn keys_of_two_requesters_never_meet() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let one = db.store().enqueue_job(&requester("acme"), QUEUE, &keyed("k", 1)).await.unwrap();
    let two = db.store().enqueue_job(&requester("zenith"), QUEUE, &keyed("k", 2)).await.unwrap();
    assert_ne!(one.job_id, two.job_id);
    assert!(!two.replayed);
}

#[tokio::test]
async fn a_rejected_request_leaves_the_key_free() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let bad = NewJob { priority: Some(1001), ..keyed("k", 1) };
    let refused = db.store().enqueue_job(&acme, QUEUE, &bad).await.unwrap_err();
    assert!(matches!(refused, StoreError::BadArgument(_)), "{refused:?}");
    let accepted = db.store().enqueue_job(&acme, QUEUE, &keyed("k", 2)).await.unwrap();
    assert!(!accepted.replayed);
}

#[tokio::test]
async fn expiry_frees_a_key() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let three_days = NewJob { key_ttl_seconds: Some(3 * 86_400), ..keyed("k", 1) };
    let first = db.store().enqueue_job(&acme, QUEUE, &three_days).await.unwrap();
    db.jump(Duration::from_secs(3 * 86_400 - 60)).await;
    assert!(db.store().enqueue_job(&acme, QUEUE, &keyed("k", 1)).await.unwrap().replayed);

    db.jump(Duration::from_secs(120)).await;
    let second = db.store().enqueue_job(&acme, QUEUE, &keyed("k", 2)).await.unwrap();
    assert!(!second.replayed);
    assert_ne!(second.job_id, first.job_id);
}

#[tokio::test]
async fn upkeep_deletes_expired_keys() {
    let db = TestDb::fresh().await;
    db.store().enqueue_job(&requester("acme"), QUEUE, &keyed("k", 1)).await.unwrap();
    db.jump(Duration::from_secs(7 * 86_400 - 60)).await;
    db.store().upkeep().await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from euterpe.idempotency_keys").await, 1);
    db.jump(Duration::from_secs(120)).await;
    db.store().upkeep().await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from euterpe.idempotency_keys").await, 0);
}

/// A batch knows the keys of other calls and its own.
#[tokio::test]
async fn in_a_batch_each_item_gets_its_own_answer() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let before = db.store().enqueue_job(&acme, QUEUE, &keyed("old", 1)).await.unwrap();
    let batch = [
        keyed("old", 1),
        keyed("old", 2),
        keyed("new", 3),
        keyed("new", 3),
        keyed("new", 4),
        NewJob { request: json!([]), ..NewJob::default() },
        NewJob { request: json!({}), ..NewJob::default() },
    ];
    let answers = db.store().enqueue_jobs(&acme, QUEUE, &batch).await.unwrap();
    let accepted = |n: usize| match &answers[n] {
        EnqueuedItem::Accepted(job) => job.clone(),
        other => panic!("item {n}: {other:?}"),
    };
    assert!(accepted(0).replayed && accepted(0).job_id == before.job_id);
    assert!(matches!(&answers[1], EnqueuedItem::Conflict(m) if m.ends_with("01010101")), "{:?}", answers[1]);
    assert!(!accepted(2).replayed);
    assert!(accepted(3).replayed && accepted(3).job_id == accepted(2).job_id);
    assert!(matches!(&answers[4], EnqueuedItem::Conflict(_)));
    assert!(matches!(&answers[5], EnqueuedItem::Invalid(m) if m.contains("JSON object")));
    assert!(!accepted(6).replayed);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 3);
}

/// For callers in plain SQL, inside a transaction of their own.
#[tokio::test]
async fn plain_sql_needs_no_hash_and_no_id_and_rolls_back_whole() {
    let db = TestDb::fresh().await;
    let client = db.client().await;
    let call = r#"select job_id, outcome, convert_from(response, 'UTF8') as response
                    from euterpe.enqueue_job_v1('acme', '{"a": 1, "b": 2}', p_idempotency_key => 'k')"#;
    client.batch_execute("begin").await.unwrap();
    client.query_one(call, &[]).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from euterpe.idempotency_keys").await, 0);

    let first = client.query_one(call, &[]).await.unwrap();
    let again = client.query_one(&call.replace(r#""a": 1, "b": 2"#, r#""b": 2, "a": 1"#), &[]).await.unwrap();
    assert_eq!(first.get::<_, uuid::Uuid>("job_id"), again.get::<_, uuid::Uuid>("job_id"));
    assert_eq!(again.get::<_, &str>("outcome"), "replayed");
    assert_eq!(first.get::<_, &str>("response"), again.get::<_, &str>("response"));
}

/// A caller that made its own id and comes back late gets the stored answer, not a complaint about the id's age.
#[tokio::test]
async fn a_late_replay_with_its_own_id_is_answered() {
    let db = TestDb::fresh().await;
    let acme = requester("acme");
    let job = NewJob { job_id: Some(euterpe::domain::JobId::new(&acme)), ..keyed("k", 1) };
    let first = db.store().enqueue_job(&acme, QUEUE, &job).await.unwrap();
    db.jump(Duration::from_secs(3600)).await;
    let again = db.store().enqueue_job(&acme, QUEUE, &job).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.job_id, first.job_id);
}
