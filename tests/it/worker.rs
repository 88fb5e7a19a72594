//! Contract §1, §4, §12 and design §5.3: the loop takes no more than it can start, and gives everything a good ending.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use euterpe::domain::{Delivery, JobStatus};
use euterpe::store::{ClaimedJob, Store, Wakeup};
use euterpe::worker::{JobEnding, Lease, Pace};
use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::Notify;

use crate::support::lanes::{arrives, bring_up, done, pace, until_true, work_on_events, work_on_jobs};
use crate::support::{Proxy, QUEUE, TestDb, until, with_webhook, worker};

/// What the loop waits by is its own affair; here it is looked at as it stands.
#[path = "../../src/worker/pace.rs"]
mod waits;

const IN_HAND: &str = "select count(*) from euterpe.inbox_jobs where worker_id is not null";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_claims_no_more_than_it_can_start() {
    let db = TestDb::fresh().await;
    db.enqueue_many(20).await;
    let (pod, next) = (worker("pod"), Arc::new(Notify::new()));
    let (desk, me, told) = (db.store(), pod.clone(), Arc::clone(&next));
    let working = work_on_jobs(db.store(), &pod, pace(3), Wakeup::never(), move |job, _| {
        let (desk, me, told) = (desk.clone(), me.clone(), Arc::clone(&told));
        async move {
            bring_up(&desk, &me, job.claim).await;
            told.notified().await;
            done()
        }
        .boxed()
    });
    let watcher = db.client().await;
    for finished in 0..17 {
        let sql = format!(
            "select count(*) filter (where status = 'uploading') = 3 and count(*) filter (where worker_id is not null) = 3
                and count(*) filter (where status = 'succeeded') = {finished} from euterpe.inbox_jobs"
        );
        until(&watcher, &sql).await;
        next.notify_one();
    }
    working.stop().await;
    assert_eq!(db.one::<i64>(IN_HAND).await, 0);
}

/// The claim was committed when the stop came, and nothing of it had begun: it goes back at once, while what had
/// begun may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_claimed_and_not_begun_goes_back_at_once() {
    let db = TestDb::fresh().await;
    let first = db.enqueue().await;
    let (pod, finish) = (worker("pod"), Arc::new(Notify::new()));
    let (desk, me, told) = (db.store(), pod.clone(), Arc::clone(&finish));
    let patient = Pace { drain: Duration::from_secs(60), ..pace(4) };
    let working = work_on_jobs(db.store(), &pod, patient, Wakeup::never(), move |job, _| {
        let (desk, me, told) = (desk.clone(), me.clone(), Arc::clone(&told));
        async move {
            bring_up(&desk, &me, job.claim).await;
            told.notified().await;
            done()
        }
        .boxed()
    });
    let watcher = db.client().await;
    until(&watcher, "select exists (select from euterpe.inbox_jobs where status = 'uploading')").await;
    working.seen.hold_claims.store(true, Ordering::SeqCst);
    db.enqueue_many(3).await;
    working.seen.claim_held.notified().await;
    assert_eq!(db.one::<i64>(IN_HAND).await, 4);
    working.stop.cancel();
    working.seen.go_on.notify_one();

    until(
        &watcher,
        "select count(*) filter (where status = 'queued' and attempt_count = 0) = 3
            and count(*) filter (where status = 'uploading') = 1 from euterpe.inbox_jobs",
    )
    .await;
    let reasons = "select count(*) from euterpe.job_timeline where reason = 'not_started'";
    assert_eq!(db.one::<i64>(reasons).await, 3);
    finish.notify_one();
    working.stop().await;
    assert_eq!(db.job(first).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_end_of_the_drain_started_work_goes_back_with_its_attempt() {
    let db = TestDb::fresh().await;
    db.enqueue_many(3).await;
    let pod = worker("pod");
    let (desk, me) = (db.store(), pod.clone());
    let working = work_on_jobs(db.store(), &pod, pace(3), Wakeup::never(), move |job, _| {
        let (desk, me) = (desk.clone(), me.clone());
        async move {
            bring_up(&desk, &me, job.claim).await;
            std::future::pending().await
        }
        .boxed()
    });
    until(&db.client().await, "select bool_and(status = 'uploading') from euterpe.inbox_jobs").await;
    working.stop().await;
    let sql = "select bool_and(status = 'queued' and attempt_count = 0 and shutdown_releases = 1) from euterpe.inbox_jobs";
    assert!(db.one::<bool>(sql).await);
    let reasons = "select count(*) from euterpe.job_timeline where reason = 'worker_shutdown'";
    assert_eq!(db.one::<i64>(reasons).await, 3);
}

/// What a handler does to itself is written down as our fault, and harms nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_fails_its_job_and_nothing_else() {
    let db = TestDb::fresh().await;
    let first = db.enqueue().await;
    let second = db.enqueue().await;
    let pod = worker("pod");
    let (desk, me) = (db.store(), pod.clone());
    let working = work_on_jobs(db.store(), &pod, pace(2), Wakeup::never(), move |job: ClaimedJob, _| {
        let (desk, me) = (desk.clone(), me.clone());
        async move {
            desk.advance_jobs(&me, &[(job.claim, JobStatus::Fetching)]).await.unwrap();
            assert!(job.claim.job_id != first, "as this test wants it");
            desk.advance_jobs(&me, &[(job.claim, JobStatus::Processing)]).await.unwrap();
            desk.advance_jobs(&me, &[(job.claim, JobStatus::Uploading)]).await.unwrap();
            done()
        }
        .boxed()
    });
    let sql = format!("select status = 'succeeded' from euterpe.inbox_jobs where job_id = '{second}'");
    until(&db.client().await, &sql).await;
    let sql =
        format!("select last_error ->> 'code' = 'internal' from euterpe.inbox_jobs where job_id = '{first}'");
    until(&db.client().await, &format!("select coalesce(({sql}), false)")).await;
    let job = db.job(first).await;
    assert_eq!((&job["status"], &job["attempt_count"]), (&"queued".into(), &1.into()));
    working.stop().await;
}

/// Outputs that Postgres cannot store, a success out of nowhere: each is settled as our fault; the endings beside it stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ending_that_cannot_be_written_takes_no_other_with_it() {
    let db = TestDb::fresh().await;
    let ids = [db.enqueue().await, db.enqueue().await, db.enqueue().await];
    let pod = worker("pod");
    let (desk, me) = (db.store(), pod.clone());
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let working = work_on_jobs(db.store(), &pod, pace(3), Wakeup::never(), move |job: ClaimedJob, _| {
        let (desk, me, together) = (desk.clone(), me.clone(), Arc::clone(&together));
        async move {
            if job.attempt_count > 0 {
                return std::future::pending().await; // a second attempt: enough was seen
            }
            if job.claim.job_id != ids[2] {
                bring_up(&desk, &me, job.claim).await;
            }
            together.wait().await;
            JobEnding::Succeeded(
                None,
                if job.claim.job_id == ids[0] { json!([{"name": "\u{0}"}]) } else { json!([]) },
            )
        }
        .boxed()
    });
    let watcher = db.client().await;
    for (id, wanted) in ids.iter().zip([
        "last_error ->> 'code' = 'internal' and last_error ->> 'message' like '%could not be written%'",
        "status = 'succeeded'",
        "last_error ->> 'code' = 'internal' and last_error ->> 'message' like '%where it may not end%'",
    ]) {
        let sql =
            format!("select exists (select from euterpe.inbox_jobs where job_id = '{id}' and {wanted})");
        until(&watcher, &sql).await;
    }
    working.stop().await;
}

/// The work ended while the database was away: its ending is written when it is back, under the same claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ending_waits_for_the_database() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let proxy = Proxy::before(&db.config());
    let (store, pod) = (Store::connect(proxy.config(&db.config()), 4), worker("pod"));
    let (desk, me, finish) = (store.clone(), pod.clone(), Arc::new(Notify::new()));
    let told = Arc::clone(&finish);
    let working = work_on_jobs(store, &pod, pace(1), Wakeup::never(), move |job, _| {
        let (desk, me, told) = (desk.clone(), me.clone(), Arc::clone(&told));
        async move {
            bring_up(&desk, &me, job.claim).await;
            told.notified().await;
            done()
        }
        .boxed()
    });
    let watcher = db.client().await;
    until(&watcher, "select exists (select from euterpe.inbox_jobs where status = 'uploading')").await;
    proxy.cut();
    finish.notify_one();
    let beats = working.seen.beats_answered.load(Ordering::SeqCst);
    until_true("beats that fail", || working.seen.beats_answered.load(Ordering::SeqCst) > beats + 3).await;
    assert_eq!(db.job(id).await["status"], "uploading");
    proxy.mend();
    until(&watcher, "select exists (select from euterpe.inbox_jobs where status = 'succeeded')").await;
    assert_eq!(db.job(id).await["claim_version"], 1);
    working.stop().await;
}

/// An endpoint that hangs fills the hands with retries, but never the last one: news still goes out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_never_take_the_last_hand() {
    let db = TestDb::fresh().await;
    for _ in 0..8 {
        db.enqueue_with(with_webhook()).await;
    }
    let postman = worker("postman");
    let firsts = db.store().claim_events("webhook", &postman, 100, None).await.unwrap();
    let failed: Vec<_> = firsts.iter().map(|event| (event.claim, Delivery::failed("rate_limited"))).collect();
    db.store().settle_events(&postman, &failed).await.unwrap();
    db.wind(Duration::from_secs(10)).await;

    let delivered = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&delivered);
    let working = work_on_events(db.store(), pace(3), Wakeup::never(), move |event, held| {
        if event.attempt_count > 0 {
            return std::future::pending().boxed();
        }
        seen.lock().unwrap().push(event.claim.event);
        arrives(event, held)
    });
    let watcher = db.client().await;
    until(&watcher, "select count(*) = 2 from euterpe.job_outbox_events where status = 'claimed'").await;
    for _ in 0..5 {
        db.enqueue_with(with_webhook()).await;
    }
    until_true("five first attempts", || delivered.lock().unwrap().len() == 5).await;
    until(&watcher, "select count(*) = 2 from euterpe.job_outbox_events where status = 'claimed'").await;
    working.stop().await;
}

/// With one hand only there is none to keep back; both lines are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hand_serves_both_lines() {
    let db = TestDb::fresh().await;
    let postman = worker("postman");
    for _ in 0..3 {
        db.enqueue_with(with_webhook()).await;
    }
    let firsts = db.store().claim_events("webhook", &postman, 100, None).await.unwrap();
    let failed: Vec<_> = firsts.iter().map(|event| (event.claim, Delivery::failed("rate_limited"))).collect();
    db.store().settle_events(&postman, &failed).await.unwrap();
    db.wind(Duration::from_secs(10)).await;
    for _ in 0..3 {
        db.enqueue_with(with_webhook()).await;
    }
    let working = work_on_events(db.store(), pace(1), Wakeup::never(), arrives);
    until(
        &db.client().await,
        "select count(*) = 6 from euterpe.job_outbox_events where status = 'delivered'",
    )
    .await;
    working.stop().await;
}

/// All hands are busy for longer than a lease, so nobody claims: the line gets its ticks all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_worker_keeps_the_line_ticking() {
    let db = TestDb::fresh().await;
    db.enqueue().await;
    let pod = worker("pod");
    let working =
        work_on_jobs(db.store(), &pod, pace(1), Wakeup::never(), |_, _| std::future::pending().boxed());
    let watcher = db.client().await;
    until(&watcher, &format!("select ({IN_HAND}) = 1")).await;
    let tick = "select last_value from euterpe_line.q1_tick";
    let before: i64 = db.one(tick).await;
    until(&watcher, &format!("select ({tick}) > {before}")).await;
    assert_eq!(db.one::<String>("select name from euterpe.queues where queue_id = 1").await, QUEUE);
    working.stop().await;
}

/// Contract §12: 500 to 1500 ms, and not in step with the pods beside it.
#[test]
fn pauses_lie_in_their_range_and_are_not_all_equal() {
    let waits::Pace { concurrency, batch, poll_ms, drain, lease } = waits::Pace::default();
    assert_eq!((concurrency, batch, poll_ms.clone()), (5, 10, 500..=1500));
    let usual = Pace::default();
    assert_eq!((drain, lease, &poll_ms), (usual.drain, usual.lease, &usual.poll_ms));
    let pauses: Vec<_> = (0..100).map(|_| waits::Pace::default().pause()).collect();
    let within = |pause: &Duration| poll_ms.contains(&u64::try_from(pause.as_millis()).unwrap());
    assert!(pauses.iter().all(within), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
}
