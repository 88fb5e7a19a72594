//! Design §7: what operators do, one by one and many at once; recorded, bounded, and never by accident.

use std::time::Duration;

use euterpe::domain::{Delivery, JobFailure, JobId, JobStatus, Outcome};
use tokio_postgres::{Client, Row};

use crate::support::{QUEUE, TestDb, connect, requester, with_webhook, worker};

async fn operator(db: &TestDb) -> Client {
    let mut config = db.config();
    config.user("euterpe_operator");
    connect(&config).await
}

async fn steer(client: &Client, arguments: &str) -> Row {
    let sql = format!("select matching, done, refused, says from euterpe.steer_jobs_v1({arguments})");
    client.query_one(&sql, &[]).await.unwrap()
}

fn counts(row: &Row) -> (i32, i32, i32) {
    (row.get(0), row.get(1), row.get(2))
}

async fn fail(db: &TestDb, code: &str) -> JobId {
    let (store, pod) = (db.store(), worker("pod"));
    db.enqueue_with(with_webhook()).await;
    let job = db.claim(&pod).await;
    let failure = JobFailure { code: code.into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    job.claim.job_id
}

#[tokio::test]
async fn asked_once_it_only_counts() {
    let db = TestDb::fresh().await;
    db.enqueue_many(5).await;
    let client = operator(&db).await;
    let asked = steer(&client, "'cancel', p_queue => 'transcode'").await;
    assert_eq!(counts(&asked), (5, 0, 0));
    let says: String = asked.get(3);
    assert!(says.contains("nothing was done") && says.contains("p_confirm => 5"), "{says}");
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs where status = 'queued'").await, 5);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.operator_log where act = 'cancel_job'").await, 0);

    assert!(says.contains("5 queued") && says.contains("200 per call"), "{says}");
    let too_many = steer(&client, "'cancel', p_queue => 'transcode', p_confirm => 9999").await;
    assert_eq!(counts(&too_many), (5, 0, 0), "whoever confirms has looked");

    // Confirmed for fewer than there are now, it does it to no more than that; and in bites of p_limit.
    let done = steer(&client, "'cancel', p_queue => 'transcode', p_confirm => 4, p_limit => 3").await;
    assert_eq!(counts(&done), (5, 3, 0));
    let done = steer(&client, "'cancel', p_queue => 'transcode', p_confirm => 1, p_why => 'enough'").await;
    assert_eq!(counts(&done), (2, 1, 0));
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs where status = 'queued'").await, 1);
}

/// Repeated until it says that none is left, it gets to the last, whoever refuses.
#[tokio::test]
async fn repeated_it_gets_past_what_is_done_and_what_refuses() {
    let db = TestDb::fresh().await;
    db.enqueue_many(5).await;
    let client = operator(&db).await;
    let up = "'prioritise', p_queue => 'transcode', p_priority => 900, p_limit => 2";
    for (matching, done) in [(5, 2), (3, 2), (1, 1)] {
        let did = steer(&client, &format!("{up}, p_confirm => {matching}")).await;
        assert_eq!(counts(&did), (matching, done, 0));
    }
    assert_eq!(counts(&steer(&client, up).await), (0, 0, 0));

    // The oldest two dead letters want credentials that nobody has.
    let dead = [fail(&db, "egress_blocked").await, fail(&db, "egress_blocked").await];
    let good = fail(&db, "egress_blocked").await;
    for id in dead {
        db.run(&format!("update euterpe.inbox_jobs set credential_version = 1 where job_id = '{id}'")).await;
    }
    let did =
        steer(&client, "'redrive', p_error_code => 'egress_blocked', p_confirm => 3, p_limit => 1").await;
    assert_eq!(counts(&did), (3, 1, 2));
    assert!(!db.job(good).await["redriven_as"].is_null());
    for since in ["-infinity", "1960-01-01"] {
        steer(&client, &format!("'cancel', p_since => '{since}', p_until => 'infinity'")).await;
    }
}

/// What has arrived is not sent again for one event that was given up.
#[tokio::test]
async fn redelivering_many_sends_only_what_was_given_up() {
    let db = TestDb::fresh().await;
    fail(&db, "egress_blocked").await;
    db.deliver_all().await;
    db.run("update euterpe.job_outbox_events set status = 'dead_letter' where sequence = 2").await;
    let did = steer(&operator(&db).await, "'redeliver', p_queue => 'transcode', p_confirm => 1").await;
    assert_eq!(counts(&did), (1, 1, 0));
    let sent = "select string_agg(sequence::text, ' ') from euterpe.job_outbox_events where status = 'ready'";
    assert_eq!(db.one::<String>(sent).await, "2");
}

#[tokio::test]
async fn every_act_by_every_filter() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let client = operator(&db).await;
    let (resting, other) = (fail(&db, "media_unreadable").await, fail(&db, "media_drm").await);
    let dead = fail(&db, "egress_blocked").await;

    let by_code = "p_error_code => 'media_unreadable', p_confirm => 1";
    assert_eq!(counts(&steer(&client, &format!("'retry', {by_code}")).await), (1, 1, 0));
    assert_eq!(db.job(resting).await["status"], "queued");
    assert_eq!(db.job(other).await["status"], "failed");
    assert_eq!(
        counts(&steer(&client, "'redrive', p_requester_id => 'zenith', p_confirm => 1").await),
        (0, 0, 0)
    );
    assert_eq!(
        counts(&steer(&client, "'redrive', p_requester_id => 'acme', p_confirm => 1").await),
        (1, 1, 0)
    );
    assert!(!db.job(dead).await["redriven_as"].is_null());
    let later = "p_since => now() + interval '20 minutes', p_confirm => 1";
    assert_eq!(counts(&steer(&client, &format!("'cancel', {later}")).await), (0, 0, 0));
    let now =
        "p_since => now() - interval '20 minutes', p_until => now() + interval '20 minutes', p_confirm => 2";
    assert_eq!(counts(&steer(&client, &format!("'prioritise', p_priority => 500, {now}")).await), (2, 2, 0));
    assert_eq!(db.job(resting).await["priority"], 500);

    let hooks = worker("hooks");
    let events = db.store().claim_events("webhook", &hooks, 100, None).await.unwrap();
    let blocked: Vec<_> = events.iter().map(|event| (event.claim, Delivery::failed("blocked"))).collect();
    db.store().settle_events(&hooks, &blocked).await.unwrap();
    let given_up = "select count(*) from euterpe.job_outbox_events where status = 'dead_letter'";
    let count: i64 = db.one(given_up).await;
    assert!(count > 0);
    let jobs: i64 = db
        .one("select count(distinct job_id) from euterpe.job_outbox_events where status = 'dead_letter'")
        .await;
    let done = steer(&client, &format!("'redeliver', p_requester_id => 'acme', p_confirm => {jobs}")).await;
    assert_eq!(i64::from(counts(&done).1), jobs);
    assert_eq!(db.one::<i64>(given_up).await, 0);
    assert_eq!(counts(&steer(&client, "'cancel', p_queue => 'transcode', p_confirm => 2").await), (2, 2, 0));
}

/// A job that needs credentials nobody has refuses; the others are done all the same.
#[tokio::test]
async fn one_that_refuses_stops_no_other() {
    let db = TestDb::fresh().await;
    let dead = [fail(&db, "egress_blocked").await, fail(&db, "egress_blocked").await];
    db.run(&format!("update euterpe.inbox_jobs set credential_version = 1 where job_id = '{}'", dead[0]))
        .await;
    let done = steer(&operator(&db).await, "'redrive', p_queue => 'transcode', p_confirm => 2").await;
    assert_eq!(counts(&done), (2, 1, 1));
    assert!(db.job(dead[0]).await["redriven_as"].is_null());
    assert!(!db.job(dead[1]).await["redriven_as"].is_null());
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let db = TestDb::fresh().await;
    let client = operator(&db).await;
    for (arguments, code) in [
        ("'cancel'", "22023"),
        ("'destroy', p_queue => 'transcode'", "22023"),
        ("'prioritise', p_queue => 'transcode'", "22023"),
        ("'cancel', p_queue => 'transcode', p_priority => 5", "22023"),
        ("'cancel', p_queue => 'transcode', p_limit => 1001", "22023"),
        ("'cancel', p_queue => 'webhook'", "UT006"),
        ("'cancel', p_requester_id => 'acmee'", "UT004"),
        ("'redrive', p_error_code => 'egres_blocked'", "UT004"),
    ] {
        let sql = format!("select * from euterpe.steer_jobs_v1({arguments})");
        let refused = client.query(&sql, &[]).await.expect_err(arguments);
        assert_eq!(refused.code().unwrap().code(), code, "{arguments}: {refused}");
    }
}

#[tokio::test]
async fn a_prioritised_job_is_served_first_and_a_running_one_is_refused() {
    let db = TestDb::fresh().await;
    let client = operator(&db).await;
    let ids = [db.enqueue().await, db.enqueue().await, db.enqueue().await];
    let prioritise = "select euterpe.prioritise_job_v1($1, $2, 'a friend asked')";
    assert!(client.query_one(prioritise, &[&ids[2].0, &500]).await.unwrap().get::<_, bool>(0));
    assert!(!client.query_one(prioritise, &[&ids[2].0, &500]).await.unwrap().get::<_, bool>(0), "it has it");
    assert!(client.query_one(prioritise, &[&ids[0].0, &0]).await.unwrap().get::<_, bool>(0));
    let pod = worker("pod");
    for expected in [ids[2], ids[1], ids[0]] {
        assert_eq!(db.claim(&pod).await.claim.job_id, expected);
    }
    for (id, priority, code) in
        [(ids[0], 5, "UT002"), (JobId::new(&requester("acme")), 5, "UT004"), (ids[0], 1001, "22023")]
    {
        let refused = client.query(prioritise, &[&id.0, &priority]).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code);
    }
}

#[tokio::test]
async fn what_an_operator_does_is_in_the_timeline() {
    let db = TestDb::fresh().await;
    let client = operator(&db).await;
    let id = db.enqueue().await;
    client.execute("select euterpe.prioritise_job_v1($1, 7, 'can wait')", &[&id.0]).await.unwrap();
    client.execute("select euterpe.cancel_job_v1($1, p_why => 'not needed')", &[&id.0]).await.unwrap();
    client.execute("select euterpe.retry_job_v1($1, p_why => 'needed after all')", &[&id.0]).await.unwrap();
    steer(&client, "'cancel', p_queue => 'transcode', p_why => 'closing down', p_confirm => 1").await;
    let sql = format!(
        "select step, reason, worker_id from euterpe.job_timeline
          where job_id = '{id}' and sequence is null order by at"
    );
    let acts: Vec<(String, String, String)> = client
        .query(&sql, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let by = |act: &str, why: &str| (act.to_owned(), why.to_owned(), "euterpe_operator".to_owned());
    assert_eq!(
        acts,
        [
            by("prioritise_job", "can wait, 100 -> 7"),
            by("cancel_job", "not needed"),
            by("retry_job", "needed after all"),
            by("cancel_job", "closing down"),
        ]
    );
}

/// A failover lost the last commits: cursors run ahead of rows, a counter is behind them, and workers hold claims that
/// nobody remembers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_nobody_of_the_time_before_is_heard() {
    let db = TestDb::fresh().await;
    let (store, pod, hooks) = (db.store(), worker("pod"), worker("hooks"));
    db.enqueue_with(with_webhook()).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Processing).await;
    let event = store.claim_events("webhook", &hooks, 1, None).await.unwrap().remove(0);
    let waiting = db.enqueue_with(with_webhook()).await;
    db.run(
        "select setval(s.oid::regclass, 900000000) from pg_class s
          where s.relkind = 'S' and s.relnamespace = 'euterpe_line'::regnamespace
            and s.relname ~ '^q[0-9]+_(floor|ready_safe|delayed_safe|leases_safe|ready_mark)$';
         select setval('euterpe_line.seq', 1)",
    )
    .await;
    assert!(store.claim_jobs(QUEUE, &pod, 5, None).await.unwrap().is_empty(), "it is lost below the floor");

    let client = operator(&db).await;
    let did =
        client.query("select did, row_count from euterpe.after_restore_v1('failover')", &[]).await.unwrap();
    let did: Vec<(String, i64)> = did.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(did.contains(&("took jobs from their workers".into(), 1)), "{did:?}");
    assert!(did.contains(&("took events from their workers".into(), 1)), "{did:?}");
    assert!(did.contains(&("moved the counter of entries".into(), 1)), "{did:?}");

    let beat = store.heartbeat_jobs(&pod, &[(job.claim, None)], None).await.unwrap();
    assert_eq!(beat[0].outcome, Outcome::Stale);
    let late = store.settle_events(&hooks, &[(event.claim, Delivery::arrived(200))]).await.unwrap();
    assert_eq!(late[0].outcome, Outcome::Stale);
    db.wind(Duration::from_secs(3)).await;
    let mut back: Vec<_> =
        store.claim_jobs(QUEUE, &pod, 5, None).await.unwrap().iter().map(|job| job.claim.job_id).collect();
    back.sort();
    assert_eq!(back, [job.claim.job_id, waiting]);
    let again = store.claim_events("webhook", &hooks, 5, None).await.unwrap();
    assert!(
        again.iter().any(|again| again.event_id == event.event_id),
        "it may be sent twice, by the same event_id"
    );
}
