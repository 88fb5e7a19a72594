//! Contract §12 and design §4.8: wake-ups are hints, told after the commit and merged; the poll is the floor under them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use euterpe::domain::{Delivery, JobFailure, JobStatus, NewJob, ReleaseReason};
use euterpe::store::{Redeliver, Store, Wakeup, Wakeups};
use euterpe::worker::{Events, Pace};
use serde_json::json;

use crate::support::lanes::{arrives, pace, simply_do, until_true, work_on_events, work_on_jobs};
use crate::support::{QUEUE, TestDb, requester, until, with_webhook, worker};

/// A pace at which nothing is found by polling while a test runs.
fn without_polling(concurrency: usize) -> Pace {
    Pace { poll_ms: 3_600_000..=3_600_000, ..pace(concurrency) }
}

fn wakeups(db: &TestDb, name: &str) -> Wakeups {
    let mut config = db.config();
    config.user("euterpe_test").application_name(name);
    Wakeups::connect(config)
}

const LISTENS: &str = "select exists (select from pg_stat_activity
   where datname = current_database() and application_name = 'listener' and query like 'listen%' and state = 'idle')";

async fn enqueue(store: &Store, job: NewJob) {
    let job = NewJob { request: json!({}), ..job };
    store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap();
}

const ALL_SUCCEEDED: &str = "select bool_and(status = 'succeeded') from euterpe.inbox_jobs";

/// Everything that puts work in a line says so, after its commit, on another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_commits_work_tells_those_who_wait_for_it() {
    let db = TestDb::fresh().await;
    let ears = wakeups(&db, "listener");
    until(&db.client().await, LISTENS).await;
    let (mut jobs, mut events) = (ears.hear(&[QUEUE]), ears.hear(&Events::QUEUES));
    let store = db.store().with_wakeups(wakeups(&db, "voice"));
    let (pod, postman) = (worker("pod"), worker("postman"));

    enqueue(&store, with_webhook()).await;
    both(&mut jobs, &mut events).await;
    let job = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().remove(0);
    events.heard().await;
    store.advance_jobs(&pod, &[(job.claim, JobStatus::Fetching)]).await.unwrap();
    events.heard().await;
    store.release_jobs(&pod, &[(job.claim, ReleaseReason::Disk, Duration::ZERO)]).await.unwrap();
    both(&mut jobs, &mut events).await;
    let job = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().remove(0);
    events.heard().await;
    let rests = JobFailure { code: "media_unreadable".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, rests)]).await.unwrap();
    events.heard().await;
    store.retry_job(job.claim.job_id, None, None, None).await.unwrap();
    both(&mut jobs, &mut events).await;
    store.cancel_job(job.claim.job_id, None, None).await.unwrap();
    events.heard().await;
    store.redrive_job(job.claim.job_id, None, None, None).await.unwrap();
    both(&mut jobs, &mut events).await;

    let event = store.claim_events("webhook", &postman, 1, None).await.unwrap().remove(0);
    store.settle_events(&postman, &[(event.claim, Delivery::arrived(200))]).await.unwrap();
    events.heard().await;
    store.redeliver_events(None, &Redeliver::Event(event.event_id), None).await.unwrap();
    events.heard().await;
}

async fn both(jobs: &mut Wakeup, events: &mut Wakeup) {
    jobs.heard().await;
    events.heard().await;
}

/// Requester, worker and webhook worker are three processes, as in production.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_and_their_events_flow_through_three_processes() {
    let db = TestDb::fresh().await;
    let watcher = db.client().await;
    let (api, transcode, webhook) = (wakeups(&db, "api"), wakeups(&db, "listener"), wakeups(&db, "hooks"));
    let (store, pod) = (db.store().with_wakeups(transcode.clone()), worker("pod"));
    let handle = simply_do(&store, &pod);
    let usual = || Pace { poll_ms: Pace::default().poll_ms, ..pace(2) };
    let jobs = work_on_jobs(store, &pod, usual(), transcode.hear(&[QUEUE]), handle);
    let events = work_on_events(db.store(), usual(), webhook.hear(&Events::QUEUES), arrives);

    let api_store = db.store().with_wakeups(api);
    for _ in 0..5 {
        enqueue(&api_store, with_webhook()).await;
    }
    until(&watcher, ALL_SUCCEEDED).await;
    until(&watcher, "select count(*) = 30 from euterpe.job_outbox_events where status = 'delivered'").await;
    jobs.stop().await;
    events.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_listener_killed_a_worker_goes_on_by_polling_and_the_listener_comes_back() {
    let db = TestDb::fresh().await;
    let watcher = db.client().await;
    let ears = wakeups(&db, "listener");
    until(&watcher, LISTENS).await;
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                 where datname = current_database() and application_name = 'listener'";

    let pod = worker("pod");
    let polling = work_on_jobs(db.store(), &pod, pace(1), ears.hear(&[QUEUE]), simply_do(&db.store(), &pod));
    assert_eq!(watcher.query_one(kill, &[]).await.unwrap().get::<_, i64>(0), 1);
    enqueue(&db.store(), NewJob::default()).await;
    until(&watcher, ALL_SUCCEEDED).await;
    polling.stop().await;

    until(&watcher, LISTENS).await;
    let woken =
        work_on_jobs(db.store(), &pod, without_polling(1), ears.hear(&[QUEUE]), simply_do(&db.store(), &pod));
    // The loop has looked once and found nothing before the next job comes.
    until(&watcher, "select exists (select from pg_stat_activity
                      where datname = current_database() and state = 'idle' and query like '%claim_jobs_v1%')").await;
    let voice = wakeups(&db, "api");
    enqueue(&db.store().with_wakeups(voice.clone()), NewJob::default()).await;
    until(&watcher, ALL_SUCCEEDED).await;
    woken.stop().await;
}

/// What was told while a listener was away is not lost: coming back, it wakes everybody once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_comes_back_wakes_everybody() {
    let db = TestDb::fresh().await;
    let watcher = db.client().await;
    let ears = wakeups(&db, "listener");
    until(&watcher, LISTENS).await;
    let mut heard = ears.hear(&["never told"]);
    watcher
        .batch_execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'listener'",
        )
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(20), heard.heard()).await.expect("it came back");
}

/// The first at once; after that at most one in 20 ms, whatever the number of commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_commits_are_a_handful_of_wake_ups() {
    let db = TestDb::fresh().await;
    let watcher = db.client().await;
    let ears = wakeups(&db, "listener");
    until(&watcher, LISTENS).await;
    let (count, mut hear) = (Arc::new(AtomicUsize::new(0)), ears.hear(&[QUEUE]));
    let rings = Arc::clone(&count);
    let counting = tokio::spawn(async move {
        loop {
            hear.heard().await;
            rings.fetch_add(1, Ordering::SeqCst);
        }
    });
    let voice = wakeups(&db, "api");
    let begun = Instant::now();
    for _ in 0..1000 {
        voice.tell(&[QUEUE, "webhook"]);
        tokio::task::yield_now().await;
    }
    voice.tell(&["last"]);
    let mut last = ears.hear(&["last"]);
    voice.tell(&["last"]);
    last.heard().await;
    until_true("the counting task has had its turn", || count.load(Ordering::SeqCst) >= 1).await;
    let (rings, most) = (count.load(Ordering::SeqCst), begun.elapsed().as_millis() / 20 + 3);
    assert!((rings as u128) <= most, "{rings} wake-ups, at most {most} may be");
    counting.abort();
}

/// A settled event lets the next one of its job go, and the worker that settled it claims at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_successor_is_claimed_without_a_poll_or_a_wake_up() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    db.enqueue_with(with_webhook()).await;
    let job = db.claim(&pod).await;
    db.succeed(&pod, job.claim).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let events = work_on_events(db.store(), without_polling(3), Wakeup::never(), move |event, held| {
        seen.lock().unwrap().push(event.claim.event.sequence);
        arrives(event, held)
    });
    until_true("six deliveries", || order.lock().unwrap().len() == 6).await;
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5, 6]);
    until(
        &db.client().await,
        "select count(*) = 6 from euterpe.job_outbox_events where status = 'delivered'",
    )
    .await;
    events.stop().await;
}
