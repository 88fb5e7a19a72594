//! Contract §4 and design §5.1, §5.16: a worker holds on to what it does, lets go of what it lost, and publishes only
//! what is proven to be its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use euterpe::domain::JobId;
use euterpe::store::{Store, Wakeup};
use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::Notify;

use crate::support::lanes::{Dropped, Working, bring_up, done, pace, until_true, work_on_jobs};
use crate::support::{LEASE, Proxy, QUEUE, TestDb, until, worker};

/// One job in the hands of a loop that reaches the database through a proxy. It works until it may publish, proves its
/// claim, publishes, and has succeeded.
struct OneAtWork {
    db: TestDb,
    id: JobId,
    proxy: Proxy,
    working: Working,
    may_publish: Arc<Notify>,
    has_published: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

async fn one_at_work() -> OneAtWork {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let proxy = Proxy::before(&db.config());
    let (desk, pod) = (Store::connect(proxy.config(&db.config()), 4), worker("pod"));
    let (may_publish, has_published, has_ended) =
        <(Arc<Notify>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (told, published, ended) =
        (Arc::clone(&may_publish), Arc::clone(&has_published), Arc::clone(&has_ended));
    let (store, me) = (desk.clone(), pod.clone());
    let working = work_on_jobs(desk, &pod, pace(1), Wakeup::never(), move |job, held| {
        let (store, me, told, published) =
            (store.clone(), me.clone(), Arc::clone(&told), Arc::clone(&published));
        let ended = Dropped(Arc::clone(&ended));
        async move {
            let _ended = ended;
            bring_up(&store, &me, job.claim).await;
            told.notified().await;
            if held.prove().await.is_ok() {
                published.store(true, Ordering::SeqCst);
            }
            done()
        }
        .boxed()
    });
    let at_work = OneAtWork { db, id, proxy, working, may_publish, has_published, has_ended };
    at_work.until_status("uploading").await;
    at_work
}

impl OneAtWork {
    async fn until_status(&self, status: &str) {
        let sql = format!("select exists (select from euterpe.inbox_jobs where status = '{status}')");
        until(&self.db.client().await, &sql).await;
    }

    /// Waits for `count` more heartbeats that got an answer or an error.
    async fn beats(&self, count: usize) {
        let before = self.working.seen.beats_answered.load(Ordering::SeqCst);
        until_true("heartbeats", || {
            self.working.seen.beats_answered.load(Ordering::SeqCst) >= before + count
        })
        .await;
    }
}

/// Nobody could speak for two leases. When the database is back, those who live speak before anything is reclaimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_away_for_two_leases_takes_nothing_from_a_living_worker() {
    let at_work = one_at_work().await;
    at_work.proxy.cut();
    at_work.beats(2).await;
    at_work.db.jump(LEASE * 2).await;
    assert!(!at_work.has_ended.load(Ordering::SeqCst), "the work goes on");

    // Others are back a moment earlier, and one of them gives the line its tick.
    let other = worker("other");
    let store = at_work.db.store();
    assert!(store.claim_jobs(QUEUE, &other, 1, None).await.unwrap().is_empty());
    at_work.proxy.mend();
    at_work.beats(3).await;
    for _ in 0..6 {
        at_work.db.wind(LEASE / 3).await;
        at_work.beats(2).await;
    }
    assert!(store.claim_jobs(QUEUE, &other, 1, None).await.unwrap().is_empty());

    at_work.may_publish.notify_one();
    at_work.until_status("succeeded").await;
    let job = at_work.db.job(at_work.id).await;
    assert_eq!((&job["claim_version"], &job["attempt_count"]), (&1.into(), &1.into()));
    at_work.working.stop().await;
}

/// Only this worker was cut off; for everybody else it is dead, and its job goes on elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cut_off_alone_learns_that_it_is_stale_and_stops() {
    let at_work = one_at_work().await;
    at_work.proxy.cut();
    at_work.beats(2).await;
    at_work.db.wind(LEASE + Duration::from_secs(2)).await;
    let second = at_work.db.claim(&worker("second")).await;
    assert_eq!((second.claim.job_id, second.claim.version), (at_work.id, 2));
    at_work.may_publish.notify_one();
    at_work.beats(2).await;
    assert!(!at_work.has_ended.load(Ordering::SeqCst), "it cannot know yet");

    at_work.proxy.mend();
    until_true("the work is dropped", || at_work.has_ended.load(Ordering::SeqCst)).await;
    assert!(!at_work.has_published.load(Ordering::SeqCst));
    assert!(!at_work.working.is_over(), "the worker itself lives");
    assert_eq!(at_work.db.job(at_work.id).await["status"], "claimed", "by the second");
    at_work.working.stop().await;
}

/// It could not beat for a lease, the job went back to the line, and its own free hand took it again: the first hand
/// lets go, the second keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_gets_its_own_lapsed_job_again_goes_on_with_the_newer_claim() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let pod = worker("pod");
    let (first_is_over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (over, begins, store, me) = (Arc::clone(&first_is_over), Arc::clone(&begun), db.store(), pod.clone());
    let working = work_on_jobs(db.store(), &pod, pace(2), Wakeup::never(), move |job, held| {
        let (over, store, me) = (Arc::clone(&over), store.clone(), me.clone());
        let is_first = begins.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                let _ended = Dropped(over);
                return std::future::pending().await;
            }
            until_true("the first lets go", || over.load(Ordering::SeqCst)).await;
            bring_up(&store, &me, job.claim).await;
            held.prove().await.unwrap();
            done()
        }
        .boxed()
    });
    until_true("it is begun", || begun.load(Ordering::SeqCst) == 1).await;
    working.seen.is_cut_off.store(true, Ordering::SeqCst);
    db.wind(LEASE + Duration::from_secs(2)).await;
    until_true("it is begun again", || begun.load(Ordering::SeqCst) == 2).await;
    working.seen.is_cut_off.store(false, Ordering::SeqCst);
    until(&db.client().await, "select exists (select from euterpe.inbox_jobs where status = 'succeeded')")
        .await;
    assert_eq!(db.job(id).await["claim_version"], 2);
    working.stop().await;
}

/// What one of them says of its progress cannot be stored: it alone may lose its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_that_is_refused_for_one_item_keeps_the_others() {
    let db = TestDb::fresh().await;
    for _ in 0..2 {
        db.enqueue().await;
    }
    let (begun, proven) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (begins, proof) = (Arc::clone(&begun), Arc::clone(&proven));
    let working = work_on_jobs(db.store(), &worker("pod"), pace(2), Wakeup::never(), move |_, held| {
        let (is_first, proof) = (begins.fetch_add(1, Ordering::SeqCst) == 0, Arc::clone(&proof));
        let begins = Arc::clone(&begins);
        async move {
            if is_first {
                held.report(json!({"output": "\u{0}"})); // no text that Postgres takes
            } else {
                until_true("both are there", || begins.load(Ordering::SeqCst) == 2).await;
                held.prove().await.unwrap();
                proof.store(true, Ordering::SeqCst);
            }
            std::future::pending().await
        }
        .boxed()
    });
    until_true("the other is proven", || proven.load(Ordering::SeqCst)).await;
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_stops_within_one_beat() {
    let at_work = one_at_work().await;
    at_work.beats(1).await;
    at_work.db.store().cancel_job(at_work.id, None, None).await.unwrap();
    let asked = at_work.working.seen.beats_asked.load(Ordering::SeqCst);
    until_true("the work is dropped", || at_work.has_ended.load(Ordering::SeqCst)).await;
    let beats = at_work.working.seen.beats_asked.load(Ordering::SeqCst) - asked;
    assert!(beats <= 2, "the one under way when it was cancelled, and one: {beats}");
    assert_eq!(at_work.db.path(at_work.id).await.last().unwrap(), "failed");
    at_work.working.stop().await;
}

/// Somebody holds the row, so the heartbeat waits; the work does not wait with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_heartbeat_does_not_stall_the_work() {
    let db = TestDb::fresh().await;
    db.enqueue().await;
    let (store, pod, steps) = (db.store(), worker("pod"), Arc::new(AtomicUsize::new(0)));
    let taken = Arc::clone(&steps);
    let working = work_on_jobs(store, &pod, pace(1), Wakeup::never(), move |_, held| {
        let taken = Arc::clone(&taken);
        async move {
            loop {
                held.report(json!({"step": taken.fetch_add(1, Ordering::SeqCst)}));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        .boxed()
    });
    let watcher = db.client().await;
    until(&watcher, "select exists (select from euterpe.inbox_jobs where progress is not null)").await;
    let holder = db.client().await;
    holder.batch_execute("begin; select 1 from euterpe.inbox_jobs for update").await.unwrap();
    until(
        &watcher,
        "select exists (select from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock')",
    )
    .await;
    let before = steps.load(Ordering::SeqCst);
    until_true("fifty steps more", || steps.load(Ordering::SeqCst) > before + 50).await;
    holder.batch_execute("rollback").await.unwrap();
    working.stop().await;
    assert_eq!(db.event_count().await, 3, "queued, claimed, and handed back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_published_while_the_database_is_away() {
    let at_work = one_at_work().await;
    at_work.proxy.cut();
    at_work.may_publish.notify_one();
    at_work.beats(4).await;
    assert!(!at_work.has_published.load(Ordering::SeqCst));

    at_work.proxy.mend();
    until_true("published", || at_work.has_published.load(Ordering::SeqCst)).await;
    at_work.until_status("succeeded").await;
    at_work.working.stop().await;
}

/// A beat that had begun before the question proves nothing about now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_publishes_nothing_although_a_beat_was_fine_a_moment_ago() {
    for _ in 0..5 {
        let at_work = one_at_work().await;
        at_work.db.store().cancel_job(at_work.id, None, None).await.unwrap();
        at_work.may_publish.notify_one();
        until_true("the work is dropped", || at_work.has_ended.load(Ordering::SeqCst)).await;
        assert!(!at_work.has_published.load(Ordering::SeqCst));
        at_work.working.stop().await;
    }
}

/// However many items are in hand, a beat is one call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_heartbeat_speaks_for_all_items_in_hand() {
    let db = TestDb::fresh().await;
    db.enqueue_many(12).await;
    let pod = worker("pod");
    let working =
        work_on_jobs(db.store(), &pod, pace(12), Wakeup::never(), |_, _| std::future::pending().boxed());
    until_true("one beat for twelve", || working.seen.largest_beat.load(Ordering::SeqCst) == 12).await;
    let renewed = "select count(distinct heartbeat_at) = 1 and count(*) = 12 from euterpe.inbox_jobs";
    until(&db.client().await, renewed).await;
    working.stop().await;
}

/// What the handler says of its progress is in the job's row with the next beat, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_carry_the_progress() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    let pod = worker("pod");
    let working = work_on_jobs(db.store(), &pod, pace(1), Wakeup::never(), |_, held| {
        async move {
            held.report(json!({"percent": 42}));
            std::future::pending().await
        }
        .boxed()
    });
    until(
        &db.client().await,
        "select exists (select from euterpe.inbox_jobs where progress ->> 'percent' = '42')",
    )
    .await;
    let told = db.job(id).await["progress"]["updated_at"].clone();
    let beats = working.seen.beats_answered.load(Ordering::SeqCst);
    until_true("two more beats", || working.seen.beats_answered.load(Ordering::SeqCst) > beats + 2).await;
    assert_eq!(db.job(id).await["progress"]["updated_at"], told, "nothing new was said");
    working.stop().await;
}
