//! Design §4.6: an endpoint that does not answer is left alone for a while, and nobody else notices.

use std::time::Duration;

use euterpe::domain::{Delivery, EventReleaseReason, NewJob};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{LEASE, QUEUE, TestDb, WEBHOOKS, requester, webhook_at, worker};

const FIRST: &str = WEBHOOKS[0];
const DEAD: &str = "https://dead.example";
const SOUND: &str = "https://sound.example";

/// The circuit of acme's dead endpoint, with the seconds to its next probe; null: there is none.
async fn circuit(db: &TestDb) -> Value {
    let sql = format!(
        "select (select to_jsonb(c) || jsonb_build_object('wait', extract(epoch from c.probe_at - euterpe._now()))
                   from euterpe.endpoint_circuits c where c.requester_id = 'acme' and c.origin = '{DEAD}')"
    );
    db.one::<Option<Value>>(&sql).await.unwrap_or_default()
}

async fn assert_state(db: &TestDb, state: &str, wait: f64) {
    let circuit = circuit(db).await;
    let left = circuit["wait"].as_f64().unwrap();
    assert!(circuit["state"] == state && (wait - 5.0..=wait).contains(&left), "{state}, {wait}: {circuit}");
}

/// `count` jobs of acme's with one event each.
async fn events_at(db: &TestDb, origin: &str, count: usize) {
    let jobs = vec![NewJob { request: json!({}), ..webhook_at(origin) }; count];
    db.store().enqueue_jobs(&requester("acme"), QUEUE, &jobs).await.unwrap();
}

/// The next event fails in a way that counts, and is not tried again for a day.
async fn fail_next(db: &TestDb) {
    let met = Delivery { retry_after_seconds: Some(86_400), ..Delivery::failed("connect") };
    let (event, _) = db.try_event(FIRST, met).await;
    assert_eq!(event.callback_origin.as_deref(), Some(DEAD));
}

/// The circuit of the dead endpoint is open, and `count` events wait for it.
async fn opened(count: usize) -> TestDb {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 5 + count).await;
    for _ in 0..5 {
        fail_next(&db).await;
    }
    assert_state(&db, "open", 30.0).await;
    db
}

/// How many events wait for the dead endpoint untried.
async fn untried(db: &TestDb) -> i64 {
    let sql = format!(
        "select count(*) from euterpe.delayed d join euterpe.job_outbox_events e on e.line_seq = d.seq
          where d.endpoint = 'acme {DEAD}' and e.attempt_count = 0 and e.claim_version = 0 and e.status = 'ready'"
    );
    db.one(&sql).await
}

#[tokio::test]
async fn five_failures_in_a_row_open_and_what_stands_in_the_line_waits_uncounted() {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 8).await;
    for failures in 1..=4 {
        fail_next(&db).await;
        let circuit = circuit(&db).await;
        assert_eq!(
            (&circuit["state"], &circuit["consecutive_failures"]),
            (&"closed".into(), &failures.into())
        );
    }
    fail_next(&db).await;
    assert_state(&db, "open", 30.0).await;

    db.assert_no_event("its circuit is open").await;
    assert_eq!(untried(&db).await, 3);
    events_at(&db, DEAD, 1).await;
    assert_eq!(untried(&db).await, 4, "what comes now does not come before a claim at all");
    db.wind(Duration::from_secs(20)).await;
    db.assert_no_event("its circuit is still open").await;
    assert_eq!(db.one::<i64>("select count(*) from euterpe.outbox_attempts").await, 5);
    let alarm = "select ok from euterpe.health where topic = 'endpoints'";
    assert!(!db.one::<bool>(alarm).await);
}

#[tokio::test]
async fn failures_that_come_in_one_batch_count_each() {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 5).await;
    let (store, pod) = (db.store(), worker("pod"));
    let events = store.claim_events(FIRST, &pod, 5, None).await.unwrap();
    let failed: Vec<_> = events.iter().map(|event| (event.claim, Delivery::failed("timeout"))).collect();
    store.settle_events(&pod, &failed).await.unwrap();
    assert_state(&db, "open", 30.0).await;
}

#[tokio::test]
async fn a_success_in_between_starts_the_count_anew() {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 9).await;
    for _ in 0..4 {
        fail_next(&db).await;
    }
    db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(circuit(&db).await.is_null(), "a sound endpoint has no row");
    for _ in 0..4 {
        fail_next(&db).await;
    }
    assert_eq!(circuit(&db).await["state"], "closed");
}

/// 429 says that the endpoint is there; what is our own fault says nothing of it.
#[tokio::test]
async fn what_is_not_the_endpoints_absence_does_not_count() {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 24).await;
    for class in ["rate_limited", "gone", "blocked", "internal"] {
        for _ in 0..6 {
            db.try_event(FIRST, Delivery::failed(class)).await;
        }
        assert!(circuit(&db).await.is_null(), "{class}");
    }
}

/// Twenty times: the time of the probe comes, eight claims are made at once, one event is handed out. Its worker says
/// nothing, so another passes after a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_probe_passes_by_itself_although_eight_claim_and_the_next_after_a_lease() {
    let db = opened(30).await;
    db.wind(Duration::from_secs(31)).await;
    let store = db.store();
    for round in 0..20 {
        let claims = (0..8).map(|n| {
            let (store, pod) = (store.clone(), worker(&format!("pod-{n}")));
            tokio::spawn(async move { store.claim_events(FIRST, &pod, 5, None).await.unwrap().len() })
        });
        let passed: usize = join_all(claims).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(passed, 1, "round {round}");
        assert_state(&db, "half_open", 60.0).await;
        db.wind(LEASE / 2).await;
        db.assert_no_event("the probe is under way").await;
        db.wind(LEASE / 2 + Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn each_probe_that_fails_doubles_the_wait_up_to_ten_minutes() {
    let db = opened(8).await;
    let mut wait = 30;
    for next in [60, 120, 240, 480, 600, 600] {
        db.jump(Duration::from_secs(wait - 2)).await;
        db.assert_no_event("its time has not come").await;
        db.jump(Duration::from_secs(4)).await;
        fail_next(&db).await;
        wait = next;
        assert_state(&db, "open", next as f64).await;
    }
    db.jump(Duration::from_secs(602)).await;
    db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(circuit(&db).await.is_null());
}

#[tokio::test]
async fn one_success_closes_and_what_was_delayed_moves_up_at_once() {
    let db = opened(4).await;
    db.assert_no_event("its circuit is open").await;
    db.wind(Duration::from_secs(31)).await;
    let (store, pod) = (db.store(), worker("pod"));
    let probe = store.claim_events(FIRST, &pod, 10, None).await.unwrap();
    assert_eq!((probe.len(), untried(&db).await), (1, 3));
    db.settle(&pod, &probe[0], Delivery::arrived(200)).await;
    assert!(circuit(&db).await.is_null());
    assert_eq!(store.claim_events(FIRST, &pod, 10, None).await.unwrap().len(), 3);
    let retries = store.claim_events(WEBHOOKS[1], &pod, 10, None).await.unwrap();
    assert_eq!(retries.len(), 5, "retries as well: they failed because nobody was there");
}

/// Told to come in an hour, an event does not come sooner because others get through.
#[tokio::test]
async fn what_was_told_to_come_later_does_not_move_up() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    events_at(&db, DEAD, 1).await;
    let late = Delivery { retry_after_seconds: Some(3600), ..Delivery::failed("rate_limited") };
    db.try_event(FIRST, late).await;
    events_at(&db, DEAD, 6).await;
    for _ in 0..5 {
        fail_next(&db).await;
    }
    db.wind(Duration::from_secs(31)).await;
    db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(circuit(&db).await.is_null());
    let retries = db.store().claim_events(WEBHOOKS[1], &pod, 10, None).await.unwrap();
    assert_eq!(retries.len(), 5, "the five that failed, not the one that was put off");
}

/// Neither a success nor a failure: it stays half open, and the next passes after a lease.
#[tokio::test]
async fn a_probe_that_says_nothing_of_the_endpoint_leaves_it_half_open() {
    let db = opened(4).await;
    let pod = worker("pod");
    db.wind(Duration::from_secs(31)).await;
    db.try_event(FIRST, Delivery::failed("rate_limited")).await;
    assert_state(&db, "half_open", 60.0).await;
    db.wind(LEASE + Duration::from_secs(2)).await;
    let probe = db.take_event(FIRST, &pod).await;
    let release = (probe.claim, EventReleaseReason::WorkerShutdown, Duration::ZERO);
    db.store().release_events(&pod, &[release]).await.unwrap();
    assert_state(&db, "half_open", 60.0).await;
    db.assert_no_event("a probe was let through a moment ago").await;
    db.wind(LEASE + Duration::from_secs(2)).await;
    db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(circuit(&db).await.is_null());
}

#[tokio::test]
async fn other_endpoints_and_other_requesters_do_not_notice() {
    let db = opened(3).await;
    db.add_requester("zenith", 1).await;
    let own = db.enqueue_with(webhook_at(SOUND)).await;
    let theirs = db.enqueue_for("zenith", webhook_at(DEAD)).await;
    let mut next: Vec<_> = db
        .store()
        .claim_events(FIRST, &worker("pod"), 10, None)
        .await
        .unwrap()
        .iter()
        .map(|event| event.claim.event.job_id)
        .collect();
    next.sort();
    assert_eq!(next, [own, theirs]);
}

/// The other requester's event comes with the very next claim; their own, behind all of these, within three.
#[tokio::test]
async fn five_hundred_events_of_a_dead_endpoint_keep_nobody_waiting() {
    let db = opened(500).await;
    db.add_requester("zenith", 1).await;
    let own = db.enqueue_with(webhook_at(SOUND)).await;
    let theirs = db.enqueue_for("zenith", webhook_at(SOUND)).await;
    let (store, pod) = (db.store(), worker("pod"));
    let mut handed_out = Vec::new();
    for _ in 0..3 {
        let events = store.claim_events(FIRST, &pod, 10, None).await.unwrap();
        handed_out.push(events.iter().map(|event| event.claim.event.job_id).collect::<Vec<_>>());
    }
    assert_eq!(handed_out[0], [theirs]);
    assert_eq!(handed_out[1..].concat(), [own]);
    assert_eq!(untried(&db).await, 500);
}

/// Everything that was to go there has been given up, so no probe will ever find it alive.
#[tokio::test]
async fn an_endpoint_that_nobody_tried_for_a_day_is_forgotten() {
    let db = TestDb::fresh().await;
    events_at(&db, DEAD, 5).await;
    events_at(&db, SOUND, 1).await;
    db.run("update euterpe.job_outbox_events set max_attempts = 1").await;
    for _ in 0..6 {
        db.try_event(FIRST, Delivery::failed("dns")).await;
    }
    let health = "select (select ok from euterpe.health where topic = 'endpoints'), count(*)
                    from euterpe.endpoint_circuits";
    for (hours, is_well, rows) in [(23, false, 2), (2, true, 0)] {
        db.jump(Duration::from_secs(hours * 3600)).await;
        db.store().upkeep().await.unwrap();
        let row = &db.rows(health).await[0];
        assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1)), (is_well, rows));
    }
}
