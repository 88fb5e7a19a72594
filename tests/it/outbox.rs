//! Contract §5, §8 and §12, in the database: events are delivered, retried, given up and delivered again, and every
//! attempt is written down.

use std::time::Duration;

use euterpe::domain::{Delivery, EventRef, EventReleaseReason, JobId, Outcome};
use euterpe::store::{Redeliver, StoreError};
use jiff::Timestamp;

use crate::support::{LEASE, TestDb, WEBHOOKS, requester, until, webhook_at, with_webhook, worker};

const FIRST: &str = WEBHOOKS[0];
const RETRY: &str = WEBHOOKS[1];

/// Number, status, class, duration and answer.
type Attempt = (i32, Option<i16>, Option<String>, i32, Option<Vec<u8>>);

/// Seconds from the last failure of an event to its next attempt.
async fn wait_of(db: &TestDb, event: EventRef) -> f64 {
    db.event(event, "extract(epoch from run_at - (last_error ->> 'occurred_at')::timestamptz)")
        .await
        .unwrap()
        .parse()
        .unwrap()
}

async fn past(db: &TestDb, seconds: f64) {
    db.jump(Duration::from_secs_f64(seconds + 1.1)).await;
}

#[tokio::test]
async fn every_attempt_is_written_down_as_it_was_met() {
    let db = TestDb::fresh().await;
    let id = db.enqueue_with(with_webhook()).await;
    let pod = worker("pod");
    let first = EventRef { job_id: id, sequence: 1 };

    let event = db.take_event(FIRST, &pod).await;
    let long: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let met = Delivery {
        http_status: Some(503),
        duration_ms: 1234,
        answer: Some(long.clone()),
        ..Delivery::failed("status")
    };
    let answer = db.settle(&pod, &event, met).await;
    assert_eq!((answer.to_status.as_deref(), answer.released), (Some("ready"), false));
    past(&db, wait_of(&db, first).await).await;
    let (_, answer) = db.try_event(RETRY, Delivery::failed("timeout")).await;
    assert!(answer.run_at.is_some());
    past(&db, wait_of(&db, first).await).await;
    let (event, answer) = db
        .try_event(RETRY, Delivery { duration_ms: 7, answer: Some(vec![]), ..Delivery::arrived(204) })
        .await;
    assert_eq!((event.attempt_count, event.max_attempts), (2, 10));
    assert_eq!((answer.to_status.as_deref(), answer.run_at), (Some("delivered"), None));

    let rows = db
        .rows(
            "select attempt, worker_id, http_status, error_class, duration_ms, answer
               from euterpe.outbox_attempts order by attempt",
        )
        .await;
    let said: Vec<Attempt> =
        rows.iter().map(|row| (row.get(0), row.get(2), row.get(3), row.get(4), row.get(5))).collect();
    assert_eq!(
        said,
        [
            (1, Some(503), Some("status".into()), 1234, Some(long[..4096].to_vec())),
            (2, None, Some("timeout".into()), 0, None),
            (3, Some(204), None, 7, Some(vec![])),
        ]
    );
    assert_eq!(rows[0].get::<_, String>(1), pod.to_string());
    let row = db.event(first, "status || ' ' || attempt_count || ' ' || (last_error is null)").await.unwrap();
    assert_eq!(row, "delivered 3 true");
}

#[tokio::test]
async fn first_attempts_stand_in_one_queue_and_retries_in_the_other() {
    let db = TestDb::fresh().await;
    db.enqueue_with(with_webhook()).await;
    assert!(db.store().claim_events(RETRY, &worker("pod"), 1, None).await.unwrap().is_empty());
    for (attempt, queue) in [FIRST, RETRY, RETRY].into_iter().enumerate() {
        let (event, _) = db.try_event(queue, Delivery::failed("internal")).await;
        assert_eq!(usize::try_from(event.attempt_count).unwrap(), attempt);
        db.assert_no_event("its time has not come").await;
        past(&db, wait_of(&db, event.claim.event).await).await;
        assert!(db.store().claim_events(FIRST, &worker("pod"), 1, None).await.unwrap().is_empty());
    }
}

/// What each kind of failure does to its event, its job and its endpoint: the rows of `delivery_classes`.
#[tokio::test]
async fn each_class_does_what_its_row_says() {
    const CLASSES: [(&str, &str, bool); 14] = [
        ("blocked", "dead_letter", false),
        ("closed", "ready", true),
        ("connect", "ready", true),
        ("decrypt_failed", "dead_letter", false),
        ("dns", "ready", true),
        ("gone", "dead_letter", false),
        ("internal", "ready", false),
        ("never_settled", "dead_letter", false),
        ("protocol", "ready", true),
        ("rate_limited", "ready", false),
        ("redirect", "ready", true),
        ("status", "ready", true),
        ("timeout", "ready", true),
        ("tls", "ready", true),
    ];
    let db = TestDb::fresh().await;
    let listed: Vec<String> = db
        .rows("select error_class from euterpe.delivery_classes order by error_class")
        .await
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(listed, CLASSES.map(|(class, ..)| class));
    for (class, to, trips) in CLASSES.into_iter().chain([("nobody_listed_it", "ready", false)]) {
        let origin = format!("https://{class}.example");
        let id = db.enqueue_with(webhook_at(&origin)).await;
        let (event, answer) = db.try_event(FIRST, Delivery::failed(class)).await;
        assert_eq!((event.claim.event.job_id, answer.to_status.as_deref()), (id, Some(to)), "{class}");
        assert_eq!(answer.run_at.is_some(), to == "ready", "{class}");
        let error = db.event(event.claim.event, "last_error ->> 'class'").await.unwrap();
        assert_eq!(error, class);
        let counted: i64 = db
            .one(&format!("select count(*) from euterpe.endpoint_circuits where origin = '{origin}'"))
            .await;
        assert_eq!(counted, i64::from(trips), "{class}");
        let trouble = db.job(id).await["callback_trouble"].clone();
        assert_eq!(trouble.as_str(), (class == "gone").then_some("gone"), "{class}");
    }
}

/// Events: `min(6 h, 5 s · 3^(n−1))`, ±20 %, ten attempts, then the dead letter.
#[tokio::test]
async fn waits_grow_threefold_to_six_hours_and_the_tenth_failure_gives_up() {
    let db = TestDb::fresh().await;
    db.enqueue_with(with_webhook()).await;
    for attempt in 1..=10 {
        let queue = if attempt == 1 { FIRST } else { RETRY };
        let (event, answer) = db.try_event(queue, Delivery::failed("internal")).await;
        if attempt == 10 {
            assert_eq!((answer.to_status.as_deref(), answer.run_at), (Some("dead_letter"), None));
            break;
        }
        let nominal = (5.0 * 3f64.powi(attempt - 1)).min(21_600.0);
        let wait = wait_of(&db, event.claim.event).await;
        assert!((nominal * 0.8..=nominal * 1.2).contains(&wait), "attempt {attempt}: {wait}");
        past(&db, wait).await;
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.outbox_attempts").await, 10);
    past(&db, 90_000.0).await;
    db.assert_no_event("it was given up").await;
}

#[tokio::test]
async fn retry_after_is_a_lower_bound_and_never_more_than_a_day() {
    let db = TestDb::fresh().await;
    for (asked, least, most) in [(300, 300.0, 300.001), (1, 4.0, 6.0), (i32::MAX, 86_400.0, 86_400.001)] {
        db.enqueue_with(with_webhook()).await;
        let met = Delivery { retry_after_seconds: Some(asked), ..Delivery::failed("rate_limited") };
        let (event, _) = db.try_event(FIRST, met).await;
        let wait = wait_of(&db, event.claim.event).await;
        assert!((least..=most).contains(&wait), "{asked}: {wait}");
    }
}

/// 410: what waits is given up with it, what happens later is not sent.
#[tokio::test]
async fn a_410_ends_the_callbacks_of_its_job() {
    let db = TestDb::fresh().await;
    let other = db.enqueue_with(with_webhook()).await;
    let id = db.three_events().await;
    db.try_event(FIRST, Delivery::arrived(200)).await;
    let gone = Delivery { http_status: Some(410), ..Delivery::failed("gone") };
    let (event, answer) = db.try_event(FIRST, gone).await;
    assert_eq!((event.claim.event.job_id, answer.released), (id, false));
    assert_eq!(db.deliveries(id).await, ["dead_letter"; 3]);
    let last = EventRef { job_id: id, sequence: 3 };
    assert_eq!(db.event(last, "last_error ->> 'class'").await.as_deref(), Some("gone"));

    db.store().retry_job(id, None, None, None).await.unwrap();
    assert_eq!(db.deliveries(id).await[3], "skipped");
    db.assert_no_event("its callbacks have ended").await;
    db.store().cancel_job(other, None, None).await.unwrap();
    assert_eq!(db.deliver_all().await, 2, "another job of the same endpoint goes on");

    // Asking for them again is asking for the rest, too.
    let (count, _) = db.store().redeliver_events(None, &Redeliver::Job(id), None).await.unwrap();
    assert_eq!((count, db.deliver_all().await), (3, 3));
    db.store().cancel_job(id, None, None).await.unwrap();
    assert_eq!(db.deliver_all().await, 2);
}

/// An endpoint that took ten attempts of one event is not given ten of each that follows.
#[tokio::test]
async fn when_an_endpoint_keeps_failing_later_events_get_one_attempt_each_until_one_arrives() {
    let db = TestDb::fresh().await;
    let id = db.three_events().await;
    db.run("update euterpe.job_outbox_events set max_attempts = 1 where sequence = 1").await;
    let trouble = async || db.job(id).await["callback_trouble"].clone();

    let (_, answer) = db.try_event(FIRST, Delivery::failed("timeout")).await;
    assert_eq!((answer.to_status.as_deref(), answer.released), (Some("dead_letter"), true));
    assert_eq!(trouble().await, "failing");
    let (event, answer) = db.try_event(FIRST, Delivery::failed("connect")).await;
    assert_eq!((event.max_attempts, answer.to_status.as_deref()), (1, Some("dead_letter")));
    let (event, _) = db.try_event(FIRST, Delivery::failed("blocked")).await;
    assert_eq!((event.max_attempts, trouble().await), (1, "failing".into()), "nothing has arrived yet");

    db.store().retry_job(id, None, None, None).await.unwrap();
    let (event, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!((event.max_attempts, trouble().await.is_null()), (1, true));
    db.store().cancel_job(id, None, None).await.unwrap();
    let event = db.take_event(FIRST, &worker("pod")).await;
    assert_eq!((event.claim.event.sequence, event.max_attempts), (5, 10));
}

#[tokio::test]
async fn a_redelivered_event_keeps_its_id_and_bytes_and_gets_a_new_budget() {
    let db = TestDb::fresh().await;
    db.enqueue_with(with_webhook()).await;
    let pod = worker("pod");
    let first = db.take_event(FIRST, &pod).await;
    db.settle(&pod, &first, Delivery::failed("internal")).await;
    past(&db, 6.0).await;
    let (second, _) = db.try_event(RETRY, Delivery::failed("blocked")).await;

    let what = Redeliver::Event(first.event_id.clone());
    let acme = requester("acme");
    assert_eq!(db.store().redeliver_events(Some(&acme), &what, None).await.unwrap(), (1, None));
    let again = db.take_event(FIRST, &pod).await;
    for event in [&second, &again] {
        assert_eq!((&event.event_id, &event.payload), (&first.event_id, &first.payload));
    }
    assert!(again.claim.version > second.claim.version);
    assert_eq!((again.attempt_count, again.max_attempts), (2, 12));
    db.settle(&pod, &again, Delivery::failed("internal")).await;
    let wait = wait_of(&db, first.claim.event).await;
    assert!((4.0..=6.0).contains(&wait), "its waits start anew: {wait}");
    past(&db, wait).await;
    db.try_event(RETRY, Delivery::arrived(200)).await;
    assert_eq!(db.one::<i64>("select max(attempt)::bigint from euterpe.outbox_attempts").await, 4);
    assert_eq!(
        db.one::<i64>("select count(*) from euterpe.operator_log where act like 'redeliver%'").await,
        0
    );
    db.store().redeliver_events(None, &what, Some("they asked")).await.unwrap();
    let logged = "select target || ', ' || why from euterpe.operator_log where act = 'redeliver_events'";
    assert_eq!(db.one::<String>(logged).await, format!("{}, they asked", first.event_id));
}

#[tokio::test]
async fn a_redelivery_neither_gates_nor_is_gated() {
    let db = TestDb::fresh().await;
    let id = db.three_events().await;
    let (first, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    let pod = worker("pod");
    let head = db.take_event(FIRST, &pod).await;
    assert_eq!(head.claim.event.sequence, 2);

    // The head is under way, and yet the first may go again; its arrival lets nothing else go.
    let what = Redeliver::Event(first.event_id);
    db.store().redeliver_events(None, &what, None).await.unwrap();
    let (_, answer) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert!(!answer.released);
    assert_eq!(db.deliveries(id).await, ["delivered", "claimed", "waiting"]);
    db.store().redeliver_events(None, &what, None).await.unwrap();
    let (again, answer) = db.try_event(FIRST, Delivery::failed("internal")).await;
    assert_eq!((again.claim.event.sequence, answer.released), (1, false));
    assert_eq!(db.deliveries(id).await, ["ready", "claimed", "waiting"]);
    // The first is not settled, and yet the third may go.
    assert!(db.settle(&pod, &head, Delivery::arrived(200)).await.released);
    let (third, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!(third.claim.event.sequence, 3);
    past(&db, 6.0).await;
    assert_eq!(db.deliver_all().await, 1);
}

#[tokio::test]
async fn what_is_on_its_way_or_was_never_meant_to_be_sent_is_not_redelivered() {
    let db = TestDb::fresh().await;
    let id = db.three_events().await;
    let quiet = db.enqueue().await;
    let refused = async |job_id: JobId, sequence: i32| {
        let what = Redeliver::Event(EventRef { job_id, sequence }.to_string());
        db.store().redeliver_events(Some(&requester("acme")), &what, None).await.unwrap_err()
    };
    assert!(matches!(refused(id, 1).await, StoreError::IllegalState(_)), "ready");
    let event = db.take_event(FIRST, &worker("pod")).await;
    assert!(matches!(refused(id, 1).await, StoreError::IllegalState(_)), "claimed");
    assert!(matches!(refused(id, 2).await, StoreError::IllegalState(_)), "waiting");
    assert!(matches!(refused(quiet, 1).await, StoreError::IllegalState(_)), "skipped");
    assert!(matches!(refused(id, 4).await, StoreError::NotFound(_)), "not there yet");
    let of_job = db.store().redeliver_events(None, &Redeliver::Job(id), None).await.unwrap();
    assert_eq!(of_job, (0, None), "of a job: what can be");
    assert_eq!(db.event(event.claim.event, "status").await.as_deref(), Some("claimed"));
}

#[tokio::test]
async fn another_requesters_event_is_as_unknown_as_no_event() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let id = db.three_events().await;
    db.deliver_all().await;
    let zenith = requester("zenith");
    let nobody = JobId::new(&zenith);
    for what in [
        Redeliver::Event(EventRef { job_id: id, sequence: 1 }.to_string()),
        Redeliver::Event(EventRef { job_id: nobody, sequence: 1 }.to_string()),
        Redeliver::Job(id),
        Redeliver::Job(nobody),
    ] {
        let refused = db.store().redeliver_events(Some(&zenith), &what, None).await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::NotFound(m) if m.starts_with("there is no ")),
            "{what:?}: {refused:?}"
        );
    }
    let all = Redeliver::Between(Timestamp::UNIX_EPOCH, Timestamp::MAX, None);
    assert_eq!(db.store().redeliver_events(Some(&zenith), &all, None).await.unwrap(), (0, None));
    db.assert_no_event("nothing was redelivered").await;
}

#[tokio::test]
async fn one_of_event_job_or_time_range_must_be_given() {
    let db = TestDb::fresh().await;
    for arguments in [
        "p_requester_id => 'acme'",
        "p_since => now(), p_until => now()",
        "'acme', p_since => now()",
        "'acme', p_until => now()",
        "'acme', p_event_id => 'evt_1'",
        "'acme', p_job_id => gen_random_uuid(), p_since => now(), p_until => now()",
        "'acme', p_since => now(), p_until => now(), p_limit => 1001",
        "'acme', p_since => now(), p_until => now(), p_limit => 0",
        "'acme', p_since => now(), p_until => now(), p_after_event_id => 'x'",
    ] {
        let sql = format!("select euterpe.redeliver_events_v1({arguments})");
        let refused = db.client().await.query(&sql, &[]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "22023", "{arguments}");
    }
}

/// Pages of two out of five; the range is that of the events, its end is open.
#[tokio::test]
async fn a_time_range_is_redelivered_page_by_page() {
    let db = TestDb::fresh().await;
    db.three_events().await;
    db.deliver_all().await;
    db.jump(LEASE).await;
    let since: Timestamp = db.one("select euterpe._now()").await;
    let mut inside = vec![db.three_events().await, db.enqueue_with(with_webhook()).await];
    db.jump(LEASE).await;
    db.store().cancel_job(inside[1], None, None).await.unwrap();
    let until: Timestamp = db.one("select max(created_at) from euterpe.job_outbox_events").await;
    inside.sort();
    db.deliver_all().await;

    let client = db.client().await;
    let mut pages = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let row = client
            .query_one(
                "select redelivered, last_event_id from euterpe.redeliver_events_v1(
                   'acme', p_since => $1, p_until => $2, p_after_event_id => $3, p_limit => 2)",
                &[&since, &until, &after],
            )
            .await
            .unwrap();
        pages.push(row.get::<_, i64>(0));
        db.deliver_all().await; // delivered again at once: the next page must not begin at the beginning
        after = row.get(1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [2, 2, 0], "a full page is never known to be the last");
    let twice = "select string_agg(sequence::text, ' ' order by job_id, sequence)
                   from euterpe.job_outbox_events where attempt_count = 2";
    assert_eq!(db.one::<String>(twice).await, "1 2 3 1", "{inside:?}");
    let all = Redeliver::Between(Timestamp::UNIX_EPOCH, Timestamp::MAX, None);
    let (count, _) = db.store().redeliver_events(Some(&requester("acme")), &all, None).await.unwrap();
    assert_eq!(count, 9, "from the beginning to the end of time");
    db.deliver_all().await;
}

/// A page from which somebody else took an event in this moment is not the last.
#[tokio::test]
async fn a_page_says_where_to_go_on_although_somebody_was_faster() {
    let db = TestDb::fresh().await;
    let id = db.three_events().await;
    db.deliver_all().await;
    let (faster, client, watcher) = (db.client().await, db.client().await, db.client().await);
    let first = EventRef { job_id: id, sequence: 1 };
    let ask = format!("begin; select euterpe.redeliver_events_v1(p_event_id => '{first}')");
    faster.batch_execute(&ask).await.unwrap();
    let page = tokio::spawn(async move {
        let sql = "select redelivered, last_event_id from euterpe.redeliver_events_v1(
                     'acme', p_since => 'epoch', p_until => 'infinity', p_limit => 2)";
        let row = client.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, Option<String>>(1))
    });
    until(
        &watcher,
        "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                         where not l.granted and a.datname = current_database())",
    )
    .await;
    faster.batch_execute("commit").await.unwrap();
    assert_eq!(page.await.unwrap(), (1, Some(EventRef { job_id: id, sequence: 2 }.to_string())));
    db.deliver_all().await;
}

/// Who asks for a thousand events again stands in the line for a thousand, and nobody waits for them.
#[tokio::test]
async fn a_flood_of_redeliveries_keeps_nobody_waiting() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    for _ in 0..60 {
        db.enqueue_with(with_webhook()).await;
    }
    assert_eq!(db.deliver_all().await, 60);
    db.wind(Duration::from_secs(4)).await;
    let all = Redeliver::Between(Timestamp::UNIX_EPOCH, Timestamp::MAX, None);
    let (count, _) = db.store().redeliver_events(Some(&requester("acme")), &all, None).await.unwrap();
    assert_eq!(count, 60);
    let theirs = db.enqueue_for("zenith", with_webhook()).await;
    let next = db.store().claim_events(FIRST, &worker("pod"), 10, None).await.unwrap();
    assert!(next.iter().any(|event| event.claim.event.job_id == theirs), "it is among the next ten");
}

#[tokio::test]
async fn a_release_costs_no_attempt_and_keeps_its_place() {
    let db = TestDb::fresh().await;
    let (first, second) = (db.enqueue_with(with_webhook()).await, db.enqueue_with(with_webhook()).await);
    let (store, pod) = (db.store(), worker("pod"));
    for reason in [EventReleaseReason::NotStarted, EventReleaseReason::WorkerShutdown] {
        let event = db.take_event(FIRST, &pod).await;
        assert_eq!((event.claim.event.job_id, event.attempt_count), (first, 0));
        let answer = store.release_events(&pod, &[(event.claim, reason, Duration::ZERO)]).await.unwrap();
        assert_eq!(answer[0].outcome, Outcome::Ok);
    }
    let event = db.take_event(FIRST, &pod).await;
    assert_eq!((event.claim.event.job_id, event.claim.version, event.max_attempts), (first, 3, 10));
    let busy = (event.claim, EventReleaseReason::HostBusy, Duration::from_secs(2));
    store.release_events(&pod, &[busy]).await.unwrap();
    let (event, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!(event.claim.event.job_id, second, "the first waits two seconds");
    db.wind(Duration::from_secs(3)).await;
    let (event, _) = db.try_event(FIRST, Delivery::arrived(200)).await;
    assert_eq!((event.claim.event.job_id, event.attempt_count), (first, 0));
    assert_eq!(db.one::<i64>("select count(*) from euterpe.outbox_attempts").await, 2);
}

/// Its first lease was filed in the other queue, whose tick must not fetch it over there.
#[tokio::test]
async fn a_retry_whose_worker_died_stays_among_the_retries() {
    let db = TestDb::fresh().await;
    db.enqueue_with(with_webhook()).await;
    let (event, _) = db.try_event(FIRST, Delivery::failed("internal")).await;
    db.wind(Duration::from_secs(7)).await;
    db.take_event(RETRY, &worker("dead")).await;
    db.wind(LEASE * 2).await;
    assert!(db.store().claim_events(FIRST, &worker("pod"), 1, None).await.unwrap().is_empty());
    let again = db.take_event(RETRY, &worker("pod")).await;
    assert_eq!((again.claim.event, again.attempt_count), (event.claim.event, 1));
}
