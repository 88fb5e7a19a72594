//! Design §4.2: tenants share a line; priorities count and age; what comes back keeps its place.

use std::collections::HashMap;
use std::time::Duration;

use euterpe::domain::{JobFailure, JobId, JobStatus, NewJob, ReleaseReason};
use euterpe::store::Store;
use serde_json::json;

use crate::support::{LEASE, QUEUE, TestDb, requester, worker};

async fn enqueue(store: &Store, who: &str, count: usize, priority: Option<i32>) {
    let job = NewJob { request: json!({}), priority, ..NewJob::default() };
    for batch in vec![job; count].chunks(1000) {
        store.enqueue_jobs(&requester(who), QUEUE, batch).await.unwrap();
    }
}

/// Whose jobs are handed out, in order; a second passes with every batch.
async fn served(db: &TestDb, count: usize, batch: u16) -> Vec<String> {
    let (store, pod) = (db.store(), worker("pod"));
    let mut order = Vec::new();
    while order.len() < count {
        let jobs = store.claim_jobs(QUEUE, &pod, batch, None).await.unwrap();
        if jobs.is_empty() {
            break;
        }
        order.extend(jobs.into_iter().map(|job| job.requester_id));
        db.jump(Duration::from_secs(1)).await;
    }
    order
}

fn count_of(order: &[String], who: &str) -> usize {
    order.iter().filter(|name| *name == who).count()
}

/// One tenant's flood is no other tenant's problem.
#[tokio::test]
async fn latecomers_are_done_within_the_first_twentieth_of_a_flood() {
    let db = TestDb::fresh().await;
    db.add_requester("b", 1).await;
    db.add_requester("c", 1).await;
    let store = db.store();
    enqueue(&store, "acme", 20_000, None).await;
    // Some of it was served before the others came.
    let before = served(&db, 500, 100).await;
    assert_eq!(count_of(&before, "acme"), 500);
    enqueue(&store, "b", 50, None).await;
    enqueue(&store, "c", 50, None).await;

    let order = served(&db, 1000, 50).await;
    assert_eq!((count_of(&order, "b"), count_of(&order, "c")), (50, 50), "within 1,000 of 20,100");
    let last = order.iter().rposition(|name| name != "acme").unwrap();
    assert!(last < 300, "they are served one to one, and are done after {last}");
}

#[tokio::test]
async fn weights_of_one_and_three_show_as_one_to_three() {
    let db = TestDb::fresh().await;
    db.add_requester("light", 1).await;
    db.add_requester("heavy", 3).await;
    let store = db.store();
    enqueue(&store, "light", 1500, None).await;
    enqueue(&store, "heavy", 1500, None).await;
    let order = served(&db, 1200, 40).await;
    let ratio = count_of(&order, "heavy") as f64 / count_of(&order, "light") as f64;
    assert!((2.7..=3.3).contains(&ratio), "{ratio}");
}

/// The same with priorities that the tenants set for themselves: a flood at the top is still a flood.
#[tokio::test]
async fn shares_hold_among_equal_priorities() {
    let db = TestDb::fresh().await;
    db.add_requester("b", 1).await;
    let store = db.store();
    enqueue(&store, "acme", 3000, Some(200)).await;
    enqueue(&store, "b", 100, Some(200)).await;
    let order = served(&db, 600, 50).await;
    assert_eq!(count_of(&order, "b"), 100);
}

#[tokio::test]
async fn higher_priority_goes_first_and_one_point_is_one_job() {
    let db = TestDb::fresh().await;
    let ids: Vec<JobId> = {
        let mut ids = Vec::new();
        for priority in [100, 100, 101, 110, 1000, 0] {
            ids.push(db.enqueue_with(NewJob { priority: Some(priority), ..NewJob::default() }).await);
        }
        ids
    };
    let jobs = db.store().claim_jobs(QUEUE, &worker("pod"), 10, None).await.unwrap();
    let order: Vec<usize> =
        jobs.iter().map(|job| ids.iter().position(|id| *id == job.claim.job_id).unwrap()).collect();
    // 101 gains one place: it stands beside the second, which came before it. 110 and 1000 stand at the head,
    // beside the first; 0 stands a hundred places behind the last.
    assert_eq!(order, [0, 3, 4, 1, 2, 5]);
}

/// Low priority ages: virtual time moves on, and its key does not.
#[tokio::test]
async fn priority_zero_is_served_although_priority_1000_keeps_arriving() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let low = db.enqueue_with(NewJob { priority: Some(0), ..NewJob::default() }).await;
    let mut high = 0;
    loop {
        enqueue(&store, "acme", 25, Some(1000)).await;
        high += 25;
        let jobs = store.claim_jobs(QUEUE, &pod, 25, None).await.unwrap();
        if jobs.iter().any(|job| job.claim.job_id == low) {
            break;
        }
        db.jump(Duration::from_secs(1)).await;
        assert!(high < 1500, "a thousand points are a thousand jobs, not more");
    }
    assert!(high > 500, "but they do count: {high}");
    // Drain, so that the orphan check sees a quiet line.
    while !store.claim_jobs(QUEUE, &pod, 1000, None).await.unwrap().is_empty() {}
}

/// A job that comes back is served before those that came after it.
#[tokio::test]
async fn a_job_that_comes_back_keeps_its_place() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let first: Vec<JobId> = vec![db.enqueue().await, db.enqueue().await, db.enqueue().await];
    db.enqueue_many(200).await;
    let jobs = store.claim_jobs(QUEUE, &pod, 3, None).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.claim.job_id).collect::<Vec<_>>(), first);

    // One is handed back, one is retried, one is lost with its pod.
    let failure = JobFailure { code: "storage_unavailable".into(), ..JobFailure::default() };
    store.release_jobs(&pod, &[(jobs[0].claim, ReleaseReason::NotStarted, Duration::ZERO)]).await.unwrap();
    store.fail_jobs(&pod, &[(jobs[1].claim, failure)]).await.unwrap();
    db.wind(LEASE + Duration::from_secs(5)).await;

    let again = store.claim_jobs(QUEUE, &pod, 3, None).await.unwrap();
    let mut ids: Vec<_> = again.iter().map(|job| job.claim.job_id).collect();
    ids.sort();
    assert_eq!(ids, first, "all three before the two hundred that came later");
}

/// With equal tenants and priorities: first in, first out, over all of them.
#[tokio::test]
async fn equals_are_served_first_in_first_out() {
    let db = TestDb::fresh().await;
    db.add_requester("b", 1).await;
    let store = db.store();
    let mut expected = Vec::new();
    for _ in 0..50 {
        for who in ["acme", "b"] {
            let job = NewJob { request: json!({}), ..NewJob::default() };
            expected.push(store.enqueue_job(&requester(who), QUEUE, &job).await.unwrap().job_id);
        }
    }
    let mut order = Vec::new();
    while order.len() < expected.len() {
        let jobs = store.claim_jobs(QUEUE, &worker("pod"), 7, None).await.unwrap();
        order.extend(jobs.iter().map(|job| job.claim.job_id));
    }
    assert_eq!(order, expected);
}

/// A tenant that was idle does not come back with old credit, nor with old debt.
#[tokio::test]
async fn nobody_saves_up() {
    let db = TestDb::fresh().await;
    db.add_requester("idle", 1).await;
    let store = db.store();
    enqueue(&store, "idle", 1, None).await;
    enqueue(&store, "acme", 2000, None).await;
    served(&db, 500, 10).await;
    enqueue(&store, "idle", 300, None).await;
    let order = served(&db, 200, 20).await;
    let share = count_of(&order, "idle");
    assert!((80..=120).contains(&share), "half of what is served now, not all of it: {share}");
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for name in &order {
        *seen.entry(name).or_default() += 1;
    }
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_and_loses_nothing() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let running = db.running(&pod, JobStatus::Processing).await;
    db.enqueue_many(10).await;
    store.pause_queue(QUEUE, Some("maintenance")).await.unwrap();
    db.enqueue_many(10).await;
    assert!(store.claim_jobs(QUEUE, &pod, 100, None).await.unwrap().is_empty());
    // What was claimed goes on, what lapses comes back, and still nothing is handed out.
    let beat = store.heartbeat_jobs(&pod, &[(running.claim, None)], None).await.unwrap();
    assert_eq!(beat[0].outcome, euterpe::domain::Outcome::Ok);
    db.wind(LEASE + Duration::from_secs(5)).await;
    assert_eq!(db.job(running.claim.job_id).await["status"], "queued");
    assert!(store.claim_jobs(QUEUE, &pod, 100, None).await.unwrap().is_empty());

    store.resume_queue(QUEUE, None).await.unwrap();
    assert_eq!(store.claim_jobs(QUEUE, &pod, 100, None).await.unwrap().len(), 21);
}
