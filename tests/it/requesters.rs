//! Contract §6, auth part of the database: requesters, their keys, and who is there.

use euterpe::store::{NewApiKey, NewRequester, StoreError};
use serde_json::json;

use crate::support::{TestDb, requester, worker};

fn key(id: &str) -> NewApiKey {
    NewApiKey {
        requester_id: requester("acme"),
        key_id: id.into(),
        key_hash: vec![7; 32],
        pepper_version: 1,
        scopes: vec!["transcode:read".into()],
        expires_at: None,
    }
}

#[tokio::test]
async fn a_key_is_found_until_it_is_revoked_expires_or_its_requester_is_disabled() {
    let db = TestDb::fresh().await;
    let store = db.store();
    store.add_api_key(&key("k0000001")).await.unwrap();
    let found = store.find_api_key("k0000001").await.unwrap().unwrap();
    assert!(found.is_valid && !found.is_disabled);
    assert_eq!((found.requester_id.as_str(), found.key_hash.len()), ("acme", 32));
    assert_eq!(found.scopes, ["transcode:read"]);
    assert!(store.find_api_key("k0000002").await.unwrap().is_none());

    store.revoke_api_key("k0000001", Some("leaked")).await.unwrap();
    assert!(!store.find_api_key("k0000001").await.unwrap().unwrap().is_valid);

    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    store.add_api_key(&NewApiKey { expires_at: Some(soon), ..key("k0000003") }).await.unwrap();
    assert!(store.find_api_key("k0000003").await.unwrap().unwrap().is_valid);
    db.jump(std::time::Duration::from_secs(61)).await;
    assert!(!store.find_api_key("k0000003").await.unwrap().unwrap().is_valid);

    store.disable_requester(&requester("acme"), None).await.unwrap();
    assert!(store.find_api_key("k0000003").await.unwrap().unwrap().is_disabled);
}

#[tokio::test]
async fn last_use_is_written_at_most_once_a_minute() {
    let db = TestDb::fresh().await;
    let store = db.store();
    store.add_api_key(&key("k0000001")).await.unwrap();
    let last_use = "select extract(epoch from last_used_at)::float8 from euterpe.api_keys";
    store.find_api_key("k0000001").await.unwrap();
    let first: f64 = db.one(last_use).await;
    store.find_api_key("k0000001").await.unwrap();
    assert!((db.one::<f64>(last_use).await - first).abs() < f64::EPSILON);
    db.jump(std::time::Duration::from_secs(61)).await;
    store.find_api_key("k0000001").await.unwrap();
    assert!(db.one::<f64>(last_use).await > first + 60.0);
}

#[tokio::test]
async fn what_is_out_of_range_is_refused() {
    let db = TestDb::fresh().await;
    let store = db.store();
    let new = NewRequester::named(requester("other"));
    for bad in [
        NewRequester { weight: 0, ..new.clone() },
        NewRequester { weight: 101, ..new.clone() },
        NewRequester { max_priority: 1001, ..new.clone() },
        NewRequester { requester_id: requester("acme"), ..new.clone() },
    ] {
        assert!(matches!(store.add_requester(&bad).await, Err(StoreError::BadArgument(_))), "{bad:?}");
    }
    for bad in [
        NewApiKey { key_hash: vec![1; 31], ..key("k0000001") },
        NewApiKey { scopes: vec!["everything".into()], ..key("k0000001") },
        key("K"),
    ] {
        assert!(matches!(store.add_api_key(&bad).await, Err(StoreError::BadArgument(_))), "{bad:?}");
    }
    let unknown = NewApiKey { requester_id: requester("nobody"), ..key("k0000001") };
    assert!(matches!(store.add_api_key(&unknown).await, Err(StoreError::NotFound(_))));
    assert!(matches!(store.revoke_api_key("nokey", None).await, Err(StoreError::NotFound(_))));
    assert!(matches!(store.pause_queue("nowhere", None).await, Err(StoreError::NoSuchQueue(_))));
    for bad in ["", "Acme", "a b", "ü"] {
        assert!(bad.parse::<euterpe::domain::RequesterId>().is_err(), "{bad:?}");
    }
}

/// Slugs may be longer than an identifier of Postgres; two that share 63 letters must not share a line.
#[tokio::test]
async fn long_names_do_not_collide() {
    let db = TestDb::fresh().await;
    let (one, two) = (format!("{}a", "x".repeat(63)), format!("{}b", "x".repeat(63)));
    db.add_requester(&one, 1).await;
    db.add_requester(&two, 1).await;
    let store = db.store();
    assert!(store.create_queue("another").await.unwrap());
    assert!(!store.create_queue("another").await.unwrap(), "the second call leaves it as it is");
    let job = euterpe::domain::NewJob { request: json!({}), ..Default::default() };
    for name in [&one, &two] {
        store.enqueue_job(&requester(name), "another", &job).await.unwrap();
    }
    let names: Vec<_> =
        store.list_requesters().await.unwrap().into_iter().map(|requester| requester.requester_id).collect();
    assert_eq!(names, ["acme".to_owned(), one, two]);
}

#[tokio::test]
async fn what_people_do_is_written_down() {
    let db = TestDb::fresh().await;
    let store = db.store();
    store.pause_queue("transcode", Some("disk is full")).await.unwrap();
    store.resume_queue("transcode", None).await.unwrap();
    let log: Vec<(String, String, Option<String>)> = db
        .rows("select who, act, why from euterpe.operator_log where target = 'transcode' order by log_id desc limit 2")
        .await
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let who = "euterpe_test".to_owned();
    assert_eq!(log[1], (who.clone(), "pause_queue".into(), Some("disk is full".into())));
    assert_eq!(log[0], (who, "resume_queue".into(), None));
}

#[tokio::test]
async fn processes_come_stay_and_go() {
    let db = TestDb::fresh().await;
    let store = db.store();
    let (steady, gone, polite) = (worker("steady"), worker("gone"), worker("polite"));
    for pod in [&steady, &gone, &polite] {
        store.worker_seen(pod, "transcode", Some(&json!({"slots": 2}))).await.unwrap();
    }
    store.worker_stopped(&polite).await.unwrap();
    db.jump(std::time::Duration::from_secs(301)).await;
    store.worker_seen(&steady, "transcode", None).await.unwrap();
    store.upkeep().await.unwrap();
    let alive: Vec<String> = db
        .rows("select worker_id from euterpe.workers where stopped_at is null")
        .await
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(alive, [steady.as_str()]);
}

/// Each pair of queue and requester has its sequence, whoever came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_and_a_requester_added_at_once_know_each_other() {
    let db = TestDb::fresh().await;
    let store = db.store();
    for n in 0..10 {
        let (queue, who) = (format!("queue_{n}"), format!("who_{n}"));
        let (one, two) = (store.clone(), store.clone());
        let (queue_too, who_too) = (queue.clone(), NewRequester::named(requester(&who)));
        let made = tokio::spawn(async move { one.create_queue(&queue_too).await.unwrap() });
        two.add_requester(&who_too).await.unwrap();
        made.await.unwrap();
        let job = euterpe::domain::NewJob { request: json!({}), ..Default::default() };
        store.enqueue_job(&requester(&who), &queue, &job).await.unwrap();
    }
}
