//! Contract §1 and §4: jobs and events are owned by the same protocol, so they sit the same exam.
//!
//! Each question is asked once, of a [`Subject`]; a second engine will be two more subjects.

use std::time::Duration;

use euterpe::domain::{
    Claim, Delivery, EventClaim, EventReleaseReason, JobFailure, JobStatus, Outcome, ReleaseReason, WorkerId,
};
use euterpe::store::{Result, Store};
use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use crate::support::{LEASE, QUEUE, TestDb, WEBHOOKS, with_webhook, worker};

/// Something that is claimed, held and settled.
trait Subject {
    type Claim: Copy + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static;

    /// Makes `count` items that may be claimed.
    async fn make(db: &TestDb, count: usize);
    async fn claim(store: &Store, worker: &WorkerId, limit: u16) -> Result<Vec<Self::Claim>>;
    async fn heartbeat(store: &Store, worker: &WorkerId, claim: Self::Claim) -> Result<Outcome>;
    /// It is done.
    async fn settle(store: &Store, worker: &WorkerId, claim: Self::Claim) -> Result<Outcome>;
    /// Everything else its owner may say, by name.
    async fn say_the_rest(
        store: &Store,
        worker: &WorkerId,
        claim: Self::Claim,
    ) -> Vec<(&'static str, Outcome)>;
    fn version(claim: Self::Claim) -> i64;
    /// The same claim with another version and token.
    fn forged(claim: Self::Claim, version: i64, token: Option<Uuid>) -> Self::Claim;
    /// Its row, as text.
    async fn row(db: &TestDb, claim: Self::Claim) -> String;
    fn same_item(one: Self::Claim, other: Self::Claim) -> bool;
}

struct Jobs;
struct Events;

impl Subject for Jobs {
    type Claim = Claim;

    async fn make(db: &TestDb, count: usize) {
        db.enqueue_many(count).await;
    }

    async fn claim(store: &Store, worker: &WorkerId, limit: u16) -> Result<Vec<Claim>> {
        Ok(store.claim_jobs(QUEUE, worker, limit, None).await?.iter().map(|job| job.claim).collect())
    }

    async fn heartbeat(store: &Store, worker: &WorkerId, claim: Claim) -> Result<Outcome> {
        Ok(store.heartbeat_jobs(worker, &[(claim, None)], None).await?[0].outcome)
    }

    async fn settle(store: &Store, worker: &WorkerId, claim: Claim) -> Result<Outcome> {
        for step in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
            let outcome = store.advance_jobs(worker, &[(claim, step)]).await?[0].outcome;
            if outcome != Outcome::Ok {
                return Ok(outcome);
            }
        }
        Ok(store.complete_jobs(worker, &[(claim, None, json!([]))]).await?[0].outcome)
    }

    async fn say_the_rest(store: &Store, worker: &WorkerId, claim: Claim) -> Vec<(&'static str, Outcome)> {
        let failure = JobFailure { code: "internal".into(), ..JobFailure::default() };
        let release = [(claim, ReleaseReason::NotStarted, Duration::ZERO)];
        vec![
            ("fail", store.fail_jobs(worker, &[(claim, failure)]).await.unwrap()[0].outcome),
            ("release", store.release_jobs(worker, &release).await.unwrap()[0].outcome),
            ("read secrets", store.read_job_secrets(worker, &[claim]).await.unwrap()[0].outcome),
        ]
    }

    fn version(claim: Claim) -> i64 {
        claim.version
    }

    fn forged(claim: Claim, version: i64, token: Option<Uuid>) -> Claim {
        Claim { version, token: token.unwrap_or(claim.token), ..claim }
    }

    async fn row(db: &TestDb, claim: Claim) -> String {
        db.job(claim.job_id).await.to_string()
    }

    fn same_item(one: Claim, other: Claim) -> bool {
        one.job_id == other.job_id
    }
}

impl Subject for Events {
    type Claim = EventClaim;

    /// One event each of as many jobs: of one job only one may be claimed.
    async fn make(db: &TestDb, count: usize) {
        for _ in 0..count {
            db.enqueue_with(with_webhook()).await;
        }
    }

    async fn claim(store: &Store, worker: &WorkerId, limit: u16) -> Result<Vec<EventClaim>> {
        let claimed = store.claim_events(WEBHOOKS[0], worker, limit, None).await?;
        Ok(claimed.iter().map(|event| event.claim).collect())
    }

    async fn heartbeat(store: &Store, worker: &WorkerId, claim: EventClaim) -> Result<Outcome> {
        Ok(store.heartbeat_events(worker, &[claim], None).await?[0].outcome)
    }

    async fn settle(store: &Store, worker: &WorkerId, claim: EventClaim) -> Result<Outcome> {
        Ok(store.settle_events(worker, &[(claim, Delivery::arrived(200))]).await?[0].outcome)
    }

    async fn say_the_rest(
        store: &Store,
        worker: &WorkerId,
        claim: EventClaim,
    ) -> Vec<(&'static str, Outcome)> {
        let failed = [(claim, Delivery::failed("timeout"))];
        let release = [(claim, EventReleaseReason::NotStarted, Duration::ZERO)];
        vec![
            ("fail", store.settle_events(worker, &failed).await.unwrap()[0].outcome),
            ("release", store.release_events(worker, &release).await.unwrap()[0].outcome),
            ("read secrets", store.read_event_secrets(worker, &[claim]).await.unwrap()[0].1),
        ]
    }

    fn version(claim: EventClaim) -> i64 {
        claim.version
    }

    fn forged(claim: EventClaim, version: i64, token: Option<Uuid>) -> EventClaim {
        EventClaim { version, token: token.unwrap_or(claim.token), ..claim }
    }

    async fn row(db: &TestDb, claim: EventClaim) -> String {
        db.event(claim.event, "to_jsonb(job_outbox_events)").await.unwrap()
    }

    fn same_item(one: EventClaim, other: EventClaim) -> bool {
        one.event == other.event
    }
}

async fn take_one<S: Subject>(db: &TestDb, worker: &WorkerId) -> S::Claim {
    let claims = S::claim(&db.store(), worker, 1).await.unwrap();
    assert_eq!(claims.len(), 1, "one item is ready");
    claims[0]
}

async fn assert_unheard<S: Subject>(db: &TestDb, worker: &WorkerId, claim: S::Claim) {
    let (store, before) = (db.store(), (S::row(db, claim).await, db.event_count().await));
    assert_eq!(S::heartbeat(&store, worker, claim).await.unwrap(), Outcome::Stale, "heartbeat");
    assert_eq!(S::settle(&store, worker, claim).await.unwrap(), Outcome::Stale, "settle");
    for (said, outcome) in S::say_the_rest(&store, worker, claim).await {
        assert_eq!(outcome, Outcome::Stale, "{said}");
    }
    assert_eq!(before, (S::row(db, claim).await, db.event_count().await), "a stale worker wrote something");
}

/// Eight workers at once: every item is handed out, and none twice.
async fn a_claim_is_exclusive<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 200).await;
    let drains = (0..8).map(|n| {
        let (store, pod) = (db.store(), worker(&format!("pod-{n}")));
        async move {
            let mut mine = Vec::new();
            loop {
                let claims = S::claim(&store, &pod, 7).await.unwrap();
                if claims.is_empty() {
                    return mine;
                }
                mine.extend(claims);
            }
        }
    });
    let all: Vec<_> = join_all(drains).await.into_iter().flatten().collect();
    assert_eq!(all.len(), 200);
    for (n, one) in all.iter().enumerate() {
        assert!(!all[..n].iter().any(|other| S::same_item(*one, *other)), "{one:?} was handed out twice");
    }
}

async fn a_batch_is_bounded<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 20).await;
    let (store, pod) = (db.store(), worker("pod"));
    assert_eq!(S::claim(&store, &pod, 7).await.unwrap().len(), 7);
    assert_eq!(S::claim(&store, &pod, 1000).await.unwrap().len(), 13);
    for limit in [0, 1001] {
        let refused = S::claim(&store, &pod, limit).await.unwrap_err();
        assert!(refused.to_string().contains("1..1000"), "{refused}");
    }
}

async fn a_lapsed_lease_is_reclaimed_behind_a_new_fence<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 1).await;
    let (first, second) = (worker("first"), worker("second"));
    let lost = take_one::<S>(&db, &first).await;
    db.wind(LEASE - Duration::from_secs(2)).await;
    assert!(S::claim(&db.store(), &second, 1).await.unwrap().is_empty(), "its lease runs");
    db.wind(Duration::from_secs(4)).await;

    assert_unheard::<S>(&db, &first, lost).await;
    let taken = take_one::<S>(&db, &second).await;
    assert!(S::same_item(taken, lost));
    assert_eq!(S::version(taken), S::version(lost) + 1);
    assert_unheard::<S>(&db, &first, lost).await;
    assert_eq!(S::settle(&db.store(), &second, taken).await.unwrap(), Outcome::Ok);
    assert_unheard::<S>(&db, &first, lost).await;
    assert_unheard::<S>(&db, &second, taken).await;
}

async fn a_heartbeat_keeps_the_lease<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 1).await;
    let pod = worker("pod");
    let claim = take_one::<S>(&db, &pod).await;
    for _ in 0..4 {
        db.wind(LEASE * 2 / 3).await;
        assert_eq!(S::heartbeat(&db.store(), &pod, claim).await.unwrap(), Outcome::Ok);
    }
    assert_eq!(S::settle(&db.store(), &pod, claim).await.unwrap(), Outcome::Ok);
}

/// A database that was away for a minute must not make every owner stale.
async fn a_lapsed_lease_that_nobody_took_is_still_its_owners<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 1).await;
    let pod = worker("pod");
    let claim = take_one::<S>(&db, &pod).await;
    db.jump(LEASE * 3).await;
    assert_eq!(S::settle(&db.store(), &pod, claim).await.unwrap(), Outcome::Ok);
}

/// Version, token and worker are all part of the fence.
async fn a_forged_claim_is_not_heard<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 1).await;
    let pod = worker("pod");
    let claim = take_one::<S>(&db, &pod).await;
    let version = S::version(claim);
    assert_unheard::<S>(&db, &pod, S::forged(claim, version, Some(Uuid::new_v4()))).await;
    assert_unheard::<S>(&db, &pod, S::forged(claim, version + 1, None)).await;
    assert_unheard::<S>(&db, &pod, S::forged(claim, version - 1, None)).await;
    assert_unheard::<S>(&db, &worker("pod"), claim).await;
    assert_eq!(S::settle(&db.store(), &pod, claim).await.unwrap(), Outcome::Ok);
}

/// What is claimed twenty times and never started or settled is given up, so that it blocks nobody for ever.
async fn twenty_lapses_end_it<S: Subject>() {
    let db = TestDb::fresh().await;
    S::make(&db, 1).await;
    let pod = worker("pod");
    let first = take_one::<S>(&db, &pod).await;
    for _ in 1..20 {
        db.wind(LEASE + Duration::from_secs(2)).await;
        take_one::<S>(&db, &pod).await;
    }
    db.wind(LEASE + Duration::from_secs(2)).await;
    assert!(S::row(&db, first).await.replace(' ', "").contains(r#""status":"dead_letter""#));
}

macro_rules! exam {
    ($($question:ident),* $(,)?) => {
        mod jobs {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $question() { super::$question::<super::Jobs>().await; })*
        }
        mod events {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $question() { super::$question::<super::Events>().await; })*
        }
    };
}

exam!(
    a_claim_is_exclusive,
    a_batch_is_bounded,
    a_lapsed_lease_is_reclaimed_behind_a_new_fence,
    a_heartbeat_keeps_the_lease,
    a_lapsed_lease_that_nobody_took_is_still_its_owners,
    a_forged_claim_is_not_heard,
    twenty_lapses_end_it,
);
