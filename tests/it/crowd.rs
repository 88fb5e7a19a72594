//! Contract §1, §8: everybody at once. Jobs are driven, cancelled and retried, events claimed, settled in every way, left
//! to lapse and asked for again, while the clock runs; order holds, nobody deadlocks, and nothing is left behind.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use euterpe::domain::{
    Delivery, EventClaim, EventReleaseReason, JobFailure, JobId, JobStatus, NewJob, Outcome, WorkerId,
};
use euterpe::store::{ClaimedEvent, Redeliver, Store, StoreError};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{QUEUE, TestDb, WEBHOOKS, requester, webhook_at, worker};

/// Of these, acme's second endpoint is a bad one.
const ORIGINS: [&str; 3] = ["https://a.example", "https://b.example", "https://c.example"];

/// What everybody knows.
#[derive(Default)]
struct Crowd {
    is_over: AtomicBool,
    jobs: Mutex<Vec<JobId>>,
    /// Jobs of which somebody has asked for events again, noted before asking.
    asked: Mutex<HashSet<JobId>>,
    /// The highest event of each job that was handed out as its head.
    heads: Mutex<HashMap<JobId, i32>>,
    handed_out: Mutex<[usize; 2]>,
}

impl Crowd {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn any_job(&self, die: &mut StdRng) -> Option<JobId> {
        self.jobs.lock().unwrap().choose(die).copied()
    }

    fn is_asked(&self, job: JobId) -> bool {
        self.asked.lock().unwrap().contains(&job)
    }
}

/// A refusal is an answer; anything else (a deadlock, a lock that is waited for too long) is a fault.
fn may_be_refused<T>(answer: Result<T, StoreError>) {
    match answer {
        Ok(_) | Err(StoreError::IllegalState(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}

/// Makes jobs with webhooks and drives them on, one step at a time.
async fn drive(crowd: Arc<Crowd>, store: Store, mut die: StdRng, pod: WorkerId) {
    let mut held = Vec::new();
    while crowd.goes_on() {
        match die.random_range(0..10) {
            0..3 => {
                let origin = ORIGINS[die.random_range(0..3)];
                let job = NewJob { request: json!({}), max_attempts: Some(3), ..webhook_at(origin) };
                let id = store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap().job_id;
                crowd.jobs.lock().unwrap().push(id);
            }
            3 => held.extend(
                store.claim_jobs(QUEUE, &pod, 3, None).await.unwrap().into_iter().map(|job| (job.claim, 0)),
            ),
            4 => {
                if let Some(id) = crowd.any_job(&mut die) {
                    may_be_refused(store.cancel_job(id, None, None).await);
                }
            }
            5 => {
                if let Some(id) = crowd.any_job(&mut die) {
                    may_be_refused(store.retry_job(id, None, None, None).await);
                }
            }
            _ if held.is_empty() => {}
            6 => {
                let (claim, _) = held.swap_remove(die.random_range(0..held.len()));
                let code = ["internal", "media_unreadable", "egress_blocked"][die.random_range(0..3)];
                let failure = JobFailure { code: code.into(), ..JobFailure::default() };
                store.fail_jobs(&pod, &[(claim, failure)]).await.unwrap();
            }
            _ => {
                let nth = die.random_range(0..held.len());
                let (claim, step) = held[nth];
                let outcome = match step {
                    0..3 => {
                        let to = [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading][step];
                        store.advance_jobs(&pod, &[(claim, to)]).await.unwrap()[0].outcome
                    }
                    _ => store.complete_jobs(&pod, &[(claim, None, json!([]))]).await.unwrap()[0].outcome,
                };
                if outcome == Outcome::Ok && step < 3 {
                    held[nth].1 += 1;
                } else {
                    held.swap_remove(nth);
                }
            }
        }
    }
}

/// Claims events and settles them in every way there is; some it forgets.
async fn deliver(crowd: Arc<Crowd>, store: Store, client: Client, mut die: StdRng, pod: WorkerId) {
    let mut held: Vec<ClaimedEvent> = Vec::new();
    while crowd.goes_on() {
        let queue = WEBHOOKS[die.random_range(0..2)];
        for event in store.claim_events(queue, &pod, die.random_range(1..6), None).await.unwrap() {
            watch(&crowd, &client, &event).await;
            held.push(event);
        }
        if held.len() > 8 {
            held.truncate(6); // its worker dies a little
        }
        let (mut met, mut back): (Vec<(EventClaim, Delivery)>, Vec<_>) = (Vec::new(), Vec::new());
        for event in std::mem::take(&mut held) {
            let is_bad = event.callback_origin.as_deref() == Some(ORIGINS[1]);
            match die.random_range(0..20) {
                0..10 if !is_bad => met.push((event.claim, Delivery::arrived(200))),
                0..12 => met.push((event.claim, Delivery::failed("timeout"))),
                12 => met.push((event.claim, Delivery::failed("blocked"))),
                13 => met.push((event.claim, Delivery::failed("rate_limited"))),
                14 if die.random_bool(0.2) => met.push((event.claim, Delivery::failed("gone"))),
                15 => back.push((event.claim, EventReleaseReason::HostBusy, Duration::from_secs(1))),
                16 => back.push((event.claim, EventReleaseReason::NotStarted, Duration::ZERO)),
                _ => held.push(event),
            }
        }
        if !met.is_empty() {
            store.settle_events(&pod, &met).await.unwrap();
        }
        if !back.is_empty() {
            store.release_events(&pod, &back).await.unwrap();
        }
        if !held.is_empty() && die.random_bool(0.3) {
            let claims: Vec<_> = held.iter().map(|event| event.claim).collect();
            store.heartbeat_events(&pod, &claims, None).await.unwrap();
        }
    }
}

/// What was handed out is the head of its job, everything before it is settled, and heads only go up; unless
/// somebody has asked for it again.
async fn watch(crowd: &Crowd, client: &Client, event: &ClaimedEvent) {
    let EventClaim { event: which, version, .. } = event.claim;
    let row = client
        .query_one(
            "select j.head_sequence,
                    (select string_agg(b.sequence || ' ' || b.status, ', ') from euterpe.job_outbox_events b
                      where b.job_id = $1 and b.sequence < $2 and b.status in ('waiting', 'ready', 'claimed')),
                    e.claim_version = $3 and e.status = 'claimed'
               from euterpe.inbox_jobs j join euterpe.job_outbox_events e using (job_id)
              where job_id = $1 and e.sequence = $2",
            &[&which.job_id.0, &which.sequence, &version],
        )
        .await
        .unwrap();
    let (head, before, is_still_mine): (Option<i32>, Option<String>, bool) =
        (row.get(0), row.get(1), row.get(2));
    let is_asked = crowd.is_asked(which.job_id);
    crowd.handed_out.lock().unwrap()[usize::from(is_asked)] += 1;
    if !is_still_mine || is_asked {
        return;
    }
    assert_eq!(head, Some(which.sequence), "{which} was handed out and is not the head");
    assert_eq!(before, None, "{which} was handed out before these");
    let mut heads = crowd.heads.lock().unwrap();
    let highest = heads.entry(which.job_id).or_default();
    assert!(*highest <= which.sequence, "{which} was handed out after {highest}");
    *highest = which.sequence;
}

/// Asks for one event or all of a job again, of one job in five.
async fn ask_again(crowd: Arc<Crowd>, store: Store, mut die: StdRng) {
    while crowd.goes_on() {
        if let Some(id) = crowd.any_job(&mut die)
            && id.0.as_bytes()[14] % 5 == 0
        {
            crowd.asked.lock().unwrap().insert(id);
            let what = if die.random_bool(0.5) {
                Redeliver::Job(id)
            } else {
                Redeliver::Event(euterpe::domain::EventRef { job_id: id, sequence: 1 }.to_string())
            };
            may_be_refused(store.redeliver_events(None, &what, None).await);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Every event comes to an end once the endpoints are sound again.
async fn drain(db: &TestDb) {
    const OPEN: &str =
        "select count(*) from euterpe.job_outbox_events where status in ('waiting', 'ready', 'claimed')";
    for _ in 0..12 {
        db.jump(Duration::from_secs(7 * 3600)).await;
        db.deliver_all().await;
        db.wind(Duration::from_secs(90)).await;
        db.deliver_all().await;
        if db.one::<i64>(OPEN).await == 0 {
            break;
        }
    }
    let left = db
        .rows(
            "select status, job_id::text, sequence from euterpe.job_outbox_events
                         where status in ('waiting', 'ready', 'claimed') limit 10",
        )
        .await;
    assert!(left.is_empty(), "left: {left:?}");
    assert_eq!(
        db.one::<i64>("select count(*) from euterpe.inbox_jobs where head_sequence is not null").await,
        0
    );
    assert_eq!(
        db.one::<i64>("select last_value from euterpe_line.mended").await,
        0,
        "nothing had to be mended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_and_nothing_is_left_behind_whatever_everybody_does() {
    let seed: u64 = std::env::var("EUTERPE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("EUTERPE_TEST_SEED={seed}");
    let db = TestDb::fresh().await;
    let (crowd, store) = (Arc::new(Crowd::default()), db.store());
    let die = |n: u64| StdRng::seed_from_u64(seed * 100 + n);
    let mut everybody = Vec::new();
    for n in 0..3 {
        let pod = worker(&format!("transcode-{n}"));
        everybody.push(tokio::spawn(drive(Arc::clone(&crowd), store.clone(), die(n), pod)));
    }
    for n in 3..7 {
        let (client, pod) = (db.client().await, worker(&format!("webhook-{n}")));
        everybody.push(tokio::spawn(deliver(Arc::clone(&crowd), store.clone(), client, die(n), pod)));
    }
    everybody.push(tokio::spawn(ask_again(Arc::clone(&crowd), store.clone(), die(7))));

    // The clock runs six times as fast as ours, in leaps.
    let (start, mut leaps) = (Instant::now(), die(8));
    while start.elapsed() < Duration::from_secs(8)
        && !everybody.iter().any(tokio::task::JoinHandle::is_finished)
    {
        db.wind(Duration::from_millis(leaps.random_range(200..4000))).await;
        store.upkeep().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    crowd.is_over.store(true, Ordering::Relaxed);
    for somebody in everybody {
        somebody.await.unwrap();
    }
    let [firsts, agains] = *crowd.handed_out.lock().unwrap();
    assert!(firsts > 200 && agains > 20, "{firsts} and {agains} were handed out");
    drain(&db).await;
}
