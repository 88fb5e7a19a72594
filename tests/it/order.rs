//! Contract §8, design §4.5: the events of a job are delivered one after the other, in order, and none is stranded.

use std::sync::Arc;
use std::time::Duration;

use euterpe::domain::{Delivery, EventReleaseReason, JobStatus, NewJob};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{LEASE, Pauses, Place, TestDb, WEBHOOKS, with_webhook, worker};

const FIRST: &str = WEBHOOKS[0];

/// Whatever becomes of the first event but its end: the second is not handed out.
#[tokio::test]
async fn an_event_is_not_handed_out_before_the_one_before_it_is_settled() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let id = db.three_events().await;
    assert_eq!(db.deliveries(id).await, ["ready", "waiting", "waiting"]);

    let claimed = store.claim_events(FIRST, &pod, 10, None).await.unwrap();
    assert_eq!(claimed.len(), 1);
    db.assert_no_event("the first is under way").await;
    let release = (claimed[0].claim, EventReleaseReason::HostBusy, Duration::from_secs(5));
    store.release_events(&pod, &[release]).await.unwrap();
    db.assert_no_event("the first was put off").await;
    db.wind(Duration::from_secs(7)).await;
    db.take_event(FIRST, &worker("dead")).await;
    db.wind(LEASE + Duration::from_secs(2)).await;
    let (event, answer) = db.try_event(FIRST, Delivery::failed("internal")).await;
    assert_eq!((event.claim.event.sequence, answer.released), (1, false), "it came back");
    db.assert_no_event("the first is to be tried again").await;
    assert_eq!(db.deliveries(id).await, ["ready", "waiting", "waiting"]);

    db.wind(Duration::from_secs(8)).await;
    let (_, answer) = db.try_event(WEBHOOKS[1], Delivery::failed("blocked")).await;
    assert!(answer.released, "it was given up");
    let claimed = store.claim_events(FIRST, &pod, 10, None).await.unwrap();
    let sequences: Vec<_> = claimed.iter().map(|event| event.claim.event.sequence).collect();
    assert_eq!(sequences, [2]);
    assert!(db.settle(&pod, &claimed[0], Delivery::arrived(200)).await.released);
    let (_, answer) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(!answer.released, "it was the last");
    assert!(db.job(id).await["head_sequence"].is_null());
}

/// Given up by reclaim, twenty lapses: the next one goes.
#[tokio::test]
async fn an_event_that_nobody_settles_does_not_gate_for_ever() {
    let db = TestDb::fresh().await;
    let id = db.three_events().await;
    db.run("update euterpe.job_outbox_events set unstarted_expiries = 19 where sequence = 1").await;
    db.take_event(FIRST, &worker("dead")).await;
    db.wind(LEASE + Duration::from_secs(2)).await;
    assert_eq!(db.deliveries(id).await, ["dead_letter", "ready", "waiting"]);
    assert_eq!(db.deliver_all().await, 2);
}

#[tokio::test]
async fn skipped_events_never_gate() {
    let db = TestDb::fresh().await;
    let filter = ["transcode.claimed", "transcode.succeeded"].map(str::to_owned).to_vec();
    let id = db.enqueue_with(NewJob { event_filter: Some(filter), ..with_webhook() }).await;
    let pod = worker("pod");
    assert!(db.job(id).await["head_sequence"].is_null());
    let job = db.claim(&pod).await;
    assert_eq!(db.deliveries(id).await, ["skipped", "ready"]);
    let event = db.take_event(FIRST, &pod).await;
    db.succeed(&pod, job.claim).await;
    assert_eq!(db.deliveries(id).await[2..], ["skipped", "skipped", "skipped", "waiting"]);
    assert!(db.settle(&pod, &event, Delivery::arrived(200)).await.released);
    let (event, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!(event.claim.event.sequence, 6);

    // Nothing is on its way while they are written: they do not become the head, either.
    let filter = vec!["transcode.queued".to_owned(), "transcode.succeeded".to_owned()];
    let job = NewJob { event_filter: Some(filter), ..with_webhook() };
    let id = db.enqueue_with(job).await;
    db.try_event(FIRST, Delivery::arrived(200)).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
    assert!(db.job(id).await["head_sequence"].is_null());
    for step in [JobStatus::Processing, JobStatus::Uploading] {
        db.store().advance_jobs(&pod, &[(job.claim, step)]).await.unwrap();
    }
    db.store().complete_jobs(&pod, &[(job.claim, None, serde_json::json!([]))]).await.unwrap();
    let (event, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!(event.claim.event.sequence, 6);
}

/// Under way, locked by somebody, put off: whatever one job's event is at, another's is handed out.
#[tokio::test]
async fn jobs_do_not_wait_for_each_other() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    db.three_events().await;
    db.take_event(FIRST, &pod).await;
    db.three_events().await;
    db.try_event(FIRST, Delivery::failed("internal")).await;
    let locked = db.three_events().await;
    let holder = db.client().await;
    let lock = format!(
        "begin; select 1 from euterpe.inbox_jobs where job_id = '{locked}' for update;
         select 1 from euterpe.job_outbox_events where job_id = '{locked}' for update"
    );
    holder.batch_execute(&lock).await.unwrap();
    let free = db.three_events().await;
    let claimed = store.claim_events(FIRST, &pod, 10, None).await.unwrap();
    let jobs: Vec<_> = claimed.iter().map(|event| event.claim.event.job_id).collect();
    assert_eq!(jobs, [free]);
    assert!(db.settle(&pod, &claimed[0], Delivery::arrived(200)).await.released);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(store.claim_events(FIRST, &pod, 10, None).await.unwrap().len(), 2);
}

/// One batch may settle events of many jobs; each lets its own successor go.
#[tokio::test]
async fn a_batch_lets_one_event_of_each_job_go() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    for _ in 0..20 {
        db.three_events().await;
    }
    for sequence in 1..=3 {
        let claimed = store.claim_events(FIRST, &pod, 100, None).await.unwrap();
        assert_eq!(claimed.len(), 20);
        assert!(claimed.iter().all(|event| event.claim.event.sequence == sequence));
        let mut arrived: Vec<_> = claimed.iter().map(|event| (event.claim, Delivery::arrived(200))).collect();
        arrived.reverse();
        let answers = store.settle_events(&pod, &arrived).await.unwrap();
        assert!(answers.iter().all(|answer| answer.released == (sequence < 3)));
    }
}

/// A job whose second event is under way: `settle` settles it, `advance` writes the third.
const PREPARE: &str = r"
create schema act;
create table act.job (settle text, advance text);
create function act.prepare() returns uuid language plpgsql as $$
declare
  v_id  uuid;
  v_job record;
  v_event record;
begin
  select e.job_id into v_id from euterpe.enqueue_job_v1('acme', '{}', p_event_filter => '{transcode.*}',
                                                        p_callback_origin => 'https://example.com') e;
  select * into strict v_job from euterpe.claim_jobs_v1('transcode', 'w', 10);
  for v_sequence in 1 .. 2 loop
    select * into strict v_event from euterpe.claim_events_v1('webhook', 'w', 10);
    if v_event.sequence = 1 then
      perform act.settle(v_event.job_id, 1, v_event.claim_version, v_event.claim_token, null);
    end if;
  end loop;
  if v_job.job_id <> v_id or v_event.job_id <> v_id or v_event.sequence <> 2 then
    raise exception 'something was left over: % %', v_job, v_event;
  end if;
  truncate act.job;
  insert into act.job values (
    format('select act.settle(%L, 2, %L, %L, ', v_id, v_event.claim_version, v_event.claim_token),
    format('select euterpe.advance_jobs_v1(''w'', array[%L::uuid], array[%L::bigint], array[%L::uuid], ''{fetching}'')',
           v_id, v_job.claim_version, v_job.claim_token));
  return v_id;
end $$;
create function act.settle(p_job uuid, p_sequence integer, p_version bigint, p_token uuid, p_class text)
returns text language sql as $$
  select outcome from euterpe.settle_events_v1('w', array[p_job], array[p_sequence], array[p_version], array[p_token],
    array[p_class], array[200], array[1], array[null::bytea], array[null::integer]) $$;
-- What the third event has come to; where it can be, it is delivered, so that the next job begins with an empty line.
create function act.check(p_job uuid) returns text language plpgsql as $$
declare
  v_event record;
  v_was   text;
begin
  select string_agg(e.status, ' ' order by e.sequence) || ', head ' || coalesce(max(j.head_sequence)::text, 'none')
    into v_was
    from euterpe.job_outbox_events e join euterpe.inbox_jobs j using (job_id) where e.job_id = p_job and e.sequence > 1;
  for v_event in select * from euterpe.claim_events_v1('webhook', 'w', 10) loop
    perform act.settle(v_event.job_id, v_event.sequence, v_event.claim_version, v_event.claim_token, null);
    v_was := v_was || ', delivers ' || v_event.sequence;
  end loop;
  return v_was;
end $$;
";

/// One of the two sessions.
struct Session {
    client: Arc<Client>,
    pid: i32,
    actor: i32,
    places: Vec<Place>,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    AtItsPlace,
    Blocked,
    Done,
}

impl Session {
    async fn new(db: &TestDb, actor: i32, places: Vec<Place>) -> Self {
        let client = db.client().await;
        client.batch_execute(&format!("set test.actor = {actor}; set lock_timeout = '10s'")).await.unwrap();
        let pid = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        Self { client: Arc::new(client), pid, actor, places }
    }

    fn call(&self, sql: String) -> JoinHandle<()> {
        let client = Arc::clone(&self.client);
        tokio::spawn(async move { client.batch_execute(&sql).await.unwrap() })
    }

    /// Until the call is at its place, or waits for the other one, or is done.
    async fn until_it_stands(&self, pauses: &Pauses, call: &JoinHandle<()>) -> Stand {
        loop {
            match pauses.waits(self.pid).await {
                Some(true) => return Stand::AtItsPlace,
                Some(false) => return Stand::Blocked,
                None if call.is_finished() => return Stand::Done,
                None => tokio::task::yield_now().await,
            }
        }
    }
}

/// Two sessions, their functions with places to wait, and how often they were brought together.
struct Duel {
    db: TestDb,
    pauses: Pauses,
    settling: Session,
    advancing: Session,
    client: Client,
    rounds: usize,
}

impl Duel {
    async fn new() -> Self {
        let db = TestDb::fresh().await;
        db.run(PREPARE).await;
        let functions = [
            "outbox/settle_events_v1.sql",
            "outbox/_write_settled.sql",
            "outbox/_advance_heads.sql",
            "inbox/advance_jobs_v1.sql",
            "shared/_transition.sql",
            "outbox/_file_events.sql",
        ];
        let (pauses, places) = Pauses::install_before_each_statement(&db, &functions).await;
        let of = |functions: &[usize]| functions.iter().flat_map(|&n| places[n].clone()).collect();
        let settling = Session::new(&db, 1, of(&[0, 1, 2, 5])).await;
        let advancing = Session::new(&db, 2, of(&[3, 4, 5])).await;
        let client = db.client().await;
        Self { db, pauses, settling, advancing, client, rounds: 0 }
    }

    /// One goes to `here`, then the other to `there` or until it is blocked; then both go on, the first one first or the
    /// second one first. Says where each of them stood.
    async fn meet(
        &mut self,
        settle_is_first: bool,
        here: Place,
        there: Place,
        first_goes_on_first: bool,
        class: &str,
    ) -> (Stand, Stand) {
        self.rounds += 1;
        let id: Uuid = self.client.query_one("select act.prepare()", &[]).await.unwrap().get(0);
        let row = self.client.query_one("select settle, advance from act.job", &[]).await.unwrap();
        let settle = format!("{}{class})", row.get::<_, String>(0));
        let advance = row.get::<_, String>(1);
        let (one, other, first_sql, second_sql) = if settle_is_first {
            (&self.settling, &self.advancing, settle, advance)
        } else {
            (&self.advancing, &self.settling, advance, settle)
        };

        self.pauses.hold(here, one.actor).await;
        self.pauses.hold(there, other.actor).await;
        let first = one.call(first_sql);
        let first_stands = one.until_it_stands(&self.pauses, &first).await;
        let second = other.call(second_sql);
        let second_stands = other.until_it_stands(&self.pauses, &second).await;
        if first_goes_on_first {
            self.pauses.free(here, one.actor).await;
            one.until_it_stands(&self.pauses, &first).await;
            self.pauses.free(there, other.actor).await;
        } else {
            self.pauses.free(there, other.actor).await;
            other.until_it_stands(&self.pauses, &second).await;
            self.pauses.free(here, one.actor).await;
        }
        first.await.unwrap();
        second.await.unwrap();

        let became: String = self.client.query_one("select act.check($1)", &[&id]).await.unwrap().get(0);
        let expected: &[&str] = if class == "null" {
            &["delivered ready, head 3, delivers 3"]
        } else {
            &["dead_letter dead_letter, head none", "dead_letter skipped, head none"]
        };
        assert!(
            expected.contains(&became.as_str()),
            "{became}; settle first: {settle_is_first}, {here:?} then {there:?} ({second_stands:?}), \
             first goes on first: {first_goes_on_first}, class {class}"
        );
        (first_stands, second_stands)
    }

    /// Every pair of places that the two come by. Where the second is blocked, places further on are the same case.
    async fn meet_everywhere(&mut self, settle_is_first: bool, class: &str, in_both_orders: bool) {
        let (heres, theres) = (self.settling.places.clone(), self.advancing.places.clone());
        let (heres, mut theres) = if settle_is_first { (heres, theres) } else { (theres, heres) };
        for here in heres {
            for there in theres.clone() {
                match self.meet(settle_is_first, here, there, true, class).await {
                    (Stand::Done, _) | (_, Stand::Blocked) => break,
                    (_, Stand::Done) => theres.retain(|place| *place != there),
                    _ if !in_both_orders => {}
                    _ => drop(self.meet(settle_is_first, here, there, false, class).await),
                }
            }
        }
    }
}

/// A settle and a transition of one job, each held before each of its statements while the other runs: the event that
/// the transition writes is in the line afterwards, whoever came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_and_a_transition_strand_no_event_wherever_they_meet() {
    let mut duel = Duel::new().await;
    for settle_is_first in [true, false] {
        duel.meet_everywhere(settle_is_first, "null", true).await;
    }
    assert!(duel.rounds > 60, "they have met {} times", duel.rounds);
    assert_eq!(duel.db.one::<i64>("select count(*) from euterpe.orphan_check_v1()").await, 0);
}

/// The same with an endpoint that is gone: what the transition writes is given up or skipped, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_410_and_a_transition_leave_nothing_on_its_way_wherever_they_meet() {
    let mut duel = Duel::new().await;
    for settle_is_first in [true, false] {
        duel.meet_everywhere(settle_is_first, "'gone'", false).await;
    }
    let status = JobStatus::Fetching.as_str();
    let there = format!("select count(*) from euterpe.inbox_jobs where status = '{status}'");
    assert_eq!(duel.db.one::<i64>(&there).await, i64::try_from(duel.rounds).unwrap());
}
