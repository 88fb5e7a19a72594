//! Contract §4 across a lossy failover: a committed claim is lost, and its number is handed out again.

use std::process::Command;
use std::time::Duration;

use euterpe::dev::{Cluster, Durability};
use euterpe::domain::{JobStatus, NewJob, Outcome};
use euterpe::store::{NewRequester, Store, StoreError, migrate};
use serde_json::json;

use crate::support::{QUEUE, load_mutant, requester, worker};

/// The cluster is copied before a claim, as an asynchronous standby would be. After the "failover" to the
/// copy a second worker gets the same claim_version; the first one, still running, must not be heard.
#[tokio::test]
async fn the_owner_of_a_lost_claim_is_refused_although_its_version_is_current() {
    let (old, new) = (Cluster::scratch("old"), Cluster::scratch("new"));
    let cluster = Cluster::start(&old, Durability::Durable, &[]).unwrap();
    let config = cluster.url("postgres").parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    load_mutant(&config).await;
    let store = Store::connect(config.clone(), 2);
    store.add_requester(&NewRequester::named(requester("acme"))).await.unwrap();
    let job = NewJob { request: json!({}), ..NewJob::default() };
    store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap();
    cluster.stop();
    let copied = Command::new("cp").args(["-a"]).args([&old, &new]).status().unwrap();
    assert!(copied.success());

    // The same store goes on after the restart: dead connections are replaced.
    let cluster = Cluster::start(&old, Durability::Durable, &[]).unwrap();
    let (first, second) = (worker("first"), worker("second"));
    let lost = loop {
        match store.claim_jobs(QUEUE, &first, 1, None).await {
            Ok(mut jobs) => break jobs.remove(0),
            Err(StoreError::Unavailable(_)) => {} // the connection was found dead; the next one is new
            Err(error) => panic!("{error}"),
        }
    };
    cluster.stop();

    let standby = Cluster::start(&new, Durability::Durable, &[]).unwrap();
    let store = Store::connect(standby.url("postgres").parse().unwrap(), 2);
    let current = store.claim_jobs(QUEUE, &second, 1, None).await.unwrap().remove(0);
    assert_eq!(current.claim.version, lost.claim.version, "the number was handed out twice");
    assert_eq!(current.claim.job_id, lost.claim.job_id);

    let outcome = |answers: Vec<euterpe::store::Advanced>| answers[0].outcome;
    // Even when the first worker kept its name, the token tells them apart.
    for name in [&first, &second] {
        let late = store.advance_jobs(name, &[(lost.claim, JobStatus::Fetching)]).await.unwrap();
        assert_eq!(outcome(late), Outcome::Stale);
    }
    let rightful = store.advance_jobs(&second, &[(current.claim, JobStatus::Fetching)]).await.unwrap();
    assert_eq!(outcome(rightful), Outcome::Ok);
    assert!(store.orphan_check().await.unwrap().is_empty());

    standby.stop();
    for dir in [old, new] {
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// A server restart is an error or a wait for the call in flight, and nothing for the next.
#[tokio::test]
async fn the_store_comes_back_after_a_server_restart() {
    let dir = Cluster::scratch("restart");
    let cluster = Cluster::start(&dir, Durability::Durable, &[]).unwrap();
    let config = cluster.url("postgres").parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config, 4);
    assert!(store.claim_jobs(QUEUE, &worker("pod"), 1, None).await.unwrap().is_empty());

    cluster.stop();
    let refused = tokio::time::timeout(Duration::from_secs(20), store.upkeep()).await.unwrap().unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");

    let cluster = Cluster::start(&dir, Durability::Durable, &[]).unwrap();
    assert!(store.claim_jobs(QUEUE, &worker("pod"), 1, None).await.unwrap().is_empty());
    cluster.stop();
    std::fs::remove_dir_all(dir).unwrap();
}
