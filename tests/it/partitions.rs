//! Design §3: history by the week, made ahead without blocking anybody, dropped without deleting a row.

use std::time::Duration;

use euterpe::domain::{JobStatus, NewJob};
use euterpe::store::retain::{Week, retain};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{LEASE, QUEUE, TestDb, requester, until, worker};

const DAY: Duration = Duration::from_secs(86_400);

/// Sixty weeks of partitions.
async fn sixty_weeks(db: &TestDb) {
    for _ in 0..9 {
        db.jump(DAY * 42).await;
    }
    let partitions: i64 =
        db.one("select count(*) from pg_inherits where inhparent = 'euterpe.inbox_jobs'::regclass").await;
    assert!(partitions >= 50, "{partitions}");
}

/// Which partitions of our tables this session's transaction has locked.
async fn locked_partitions(client: &Client) -> Vec<String> {
    client
        .query(
            "select distinct c.relname::text from pg_locks l join pg_class c on c.oid = l.relation
              where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relispartition order by 1",
            &[],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// A join does not prune partitions, a list of ids does: with sixty weeks, a batch locks one of each table.
#[tokio::test]
async fn a_batch_write_locks_only_the_partitions_it_touches() {
    let db = TestDb::fresh().await;
    sixty_weeks(&db).await;
    db.enqueue_many(20).await;
    let client = db.client().await;
    // Often enough that a generic plan would have taken over.
    for _ in 0..8 {
        for (call, most) in [
            ("select * from euterpe.enqueue_jobs_v1('acme', '[{\"request\": {}}]')", 4),
            (
                "create temp table held on commit drop as
                select job_id, claim_version, claim_token from euterpe.claim_jobs_v1('transcode', 'pod', 5)",
                3,
            ),
        ] {
            client.batch_execute(&format!("begin; {call}")).await.unwrap();
            let locked = locked_partitions(&client).await;
            assert!(locked.len() <= most, "{call}: {locked:?}");
            client.batch_execute("rollback").await.unwrap();
        }
        let fence = "'pod', array_agg(job_id), array_agg(claim_version), array_agg(claim_token)";
        let jsons = "array_agg(null::jsonb)";
        for said in [
            format!("heartbeat_jobs_v1({fence}, {jsons})"),
            format!("advance_jobs_v1({fence}, array_agg('fetching'::text))"),
            format!("complete_jobs_v1({fence}, {jsons}, array_agg('[]'::jsonb))"),
            format!("fail_jobs_v1({fence}, array_agg('internal'::text), {jsons}, array_agg(null::integer))"),
            format!("release_jobs_v1({fence}, array_agg('not_started'::text), array_agg(0))"),
        ] {
            let claims: String = client
                .query_one(
                    "select string_agg(format('(%L::uuid, %s::bigint, %L::uuid)', job_id, claim_version, claim_token), ',')
                       from euterpe.claim_jobs_v1('transcode', 'pod', 2)",
                    &[],
                )
                .await
                .unwrap()
                .get(0);
            let call = format!(
                "select euterpe.{said} from (values {claims}) c (job_id, claim_version, claim_token)"
            );
            client.batch_execute(&format!("begin; {call}")).await.unwrap();
            let locked = locked_partitions(&client).await;
            assert!(locked.len() <= 4, "{said}: {locked:?}");
            client.batch_execute("rollback").await.unwrap();
            client
                .batch_execute(&format!(
                    "select euterpe.release_jobs_v1({fence}, array_agg('not_started'::text), array_agg(0))
                       from (values {claims}) c (job_id, claim_version, claim_token)"
                ))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn old_weeks_are_dropped_and_their_ids_are_known_to_be_pruned() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let old = db.running(&pod, JobStatus::Claimed).await;
    db.succeed(&pod, old.claim).await;
    db.jump(DAY * 120).await;
    db.wind(LEASE * 3).await;
    let new = db.enqueue().await;

    let weeks = retain(&db.config(), 90).await.unwrap().unwrap();
    assert!(weeks.iter().any(|week| matches!(week, Week::Dropped(_))), "{weeks:?}");
    assert!(!weeks.iter().any(|week| matches!(week, Week::Kept(..))), "{weeks:?}");
    let pruned = |id| format!("select euterpe._is_pruned(euterpe._now(), 'acme', '{id}')");
    assert!(db.one::<bool>(&pruned(old.claim.job_id)).await);
    assert!(!db.one::<bool>(&pruned(new)).await);
    for table in ["inbox_jobs", "job_requests", "job_results", "job_outbox_events"] {
        let sql = format!("select count(*) from euterpe.{table} where job_id = '{}'", old.claim.job_id);
        assert_eq!(db.one::<i64>(&sql).await, 0, "{table}");
    }
    assert_eq!(retain(&db.config(), 90).await.unwrap().unwrap(), [], "nothing is left to do");
}

/// 410 only for an id that can have been a job of this requester; every other miss is 404.
#[tokio::test]
async fn only_an_id_of_ones_own_from_a_dropped_week_is_pruned() {
    let db = TestDb::fresh().await;
    db.jump(DAY * 200).await;
    let now = "euterpe._now()";
    let id = |who: &str, at: &str| format!("euterpe._new_id('{who}', {at})");
    for (what, id, pruned) in [
        ("an id of a week that nobody keeps", id("acme", "euterpe._now() - interval '150 days'"), true),
        ("another requester's", id("zenith", "euterpe._now() - interval '150 days'"), false),
        ("of this week", id("acme", now), false),
        ("from the future", id("acme", "euterpe._now() + interval '150 days'"), false),
        ("no v7", "gen_random_uuid()".into(), false),
    ] {
        let sql = format!("select euterpe._is_pruned({now}, 'acme', {id})");
        assert_eq!(db.one::<bool>(&sql).await, pruned, "{what}");
    }
}

#[tokio::test]
async fn a_week_with_an_unfinished_job_or_an_undelivered_event_stays() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    // One job waits for ever behind a pause; another has ended, and nobody took its events.
    let waiting = db.enqueue().await;
    db.jump(DAY * 14).await;
    let told =
        db.enqueue_with(NewJob { event_filter: Some(vec!["transcode.*".into()]), ..NewJob::default() }).await;
    let store = db.store();
    let claimed = store.claim_jobs(QUEUE, &pod, 2, None).await.unwrap();
    let told_claim = claimed.iter().find(|job| job.claim.job_id == told).unwrap().claim;
    let waiting_claim = claimed.iter().find(|job| job.claim.job_id == waiting).unwrap().claim;
    db.succeed(&pod, told_claim).await;
    store
        .release_jobs(&pod, &[(waiting_claim, euterpe::domain::ReleaseReason::NotStarted, Duration::ZERO)])
        .await
        .unwrap();
    db.jump(DAY * 120).await;

    let weeks = retain(&db.config(), 90).await.unwrap().unwrap();
    let kept: Vec<_> = weeks
        .iter()
        .filter_map(|week| match week {
            Week::Kept(_, why) => Some(why.as_str()),
            Week::Dropped(_) => None,
        })
        .collect();
    assert_eq!(kept, ["1 unfinished jobs, 0 undelivered events", "0 unfinished jobs, 6 undelivered events"]);
    assert_eq!(db.job(waiting).await["status"], "queued");
    assert_eq!(db.path(told).await.len(), 6);

    // Once they are done, their weeks may go.
    let job = db.claim(&pod).await;
    assert_eq!(job.claim.job_id, waiting);
    db.succeed(&pod, job.claim).await;
    assert_eq!(db.deliver_all().await, 6);
    let weeks = retain(&db.config(), 90).await.unwrap().unwrap();
    assert!(weeks.len() >= 2 && weeks.iter().all(|week| matches!(week, Week::Dropped(_))), "{weeks:?}");
}

/// Cut off after any step, the next run goes on.
#[tokio::test]
async fn a_retention_that_was_cut_off_is_taken_up() {
    let db = TestDb::fresh().await;
    db.jump(DAY * 120).await;
    let name: String = db
        .one("select right(min(inhrelid::regclass::text), 8) from pg_inherits where inhparent = 'euterpe.inbox_jobs'::regclass")
        .await;
    // As after: the inbox was dropped, the results were detached, the rest is still there.
    db.run(&format!(
        "alter table euterpe.inbox_jobs detach partition euterpe.inbox_jobs_p{name};
         drop table euterpe.inbox_jobs_p{name};
         alter table euterpe.job_results detach partition euterpe.job_results_p{name}"
    ))
    .await;
    let weeks = retain(&db.config(), 90).await.unwrap().unwrap();
    assert!(weeks.contains(&Week::Dropped(name.clone())), "{weeks:?}");
    let left: i64 = db.one(&format!("select count(*) from pg_class where relname like '%\\_p{name}'")).await;
    assert_eq!(left, 0);
}

/// A long reader delays the dropping of what it reads, and nothing else; making partitions does not even notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn making_and_dropping_beside_a_long_reader_and_under_load_disturbs_nobody() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let old = db.running(&pod, JobStatus::Claimed).await;
    db.succeed(&pod, old.claim).await;
    db.jump(DAY * 120).await;
    let reader = db.client().await;
    reader
        .batch_execute("begin isolation level repeatable read; select count(*) from euterpe.inbox_jobs")
        .await
        .unwrap();

    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|n| {
            let (store, stop) = (db.store_as("euterpe_test", 1), std::sync::Arc::clone(&stop));
            tokio::spawn(async move {
                let (pod, mut done) = (worker(&format!("load-{n}")), 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let job = NewJob { request: json!({}), ..NewJob::default() };
                    store.enqueue_job(&requester("acme"), QUEUE, &job).await.unwrap();
                    for job in store.claim_jobs(QUEUE, &pod, 2, None).await.unwrap() {
                        let failure = euterpe::domain::JobFailure {
                            code: "media_unreadable".into(),
                            ..Default::default()
                        };
                        store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
                        done += 1;
                    }
                }
                done
            })
        })
        .collect();

    let config = db.config();
    let dropping = tokio::spawn(async move { retain(&config, 90).await });
    let watcher = db.client().await;
    until(
        &watcher,
        "select exists (select from pg_stat_activity where datname = current_database() and query like 'alter table%detach%'
                           and wait_event_type = 'Lock')",
    )
    .await;
    // While the detaching waits for the reader, a month of new partitions is made.
    for _ in 0..4 {
        db.jump(DAY * 7).await;
    }
    assert!(!dropping.is_finished(), "it waits for the reader, who sees the old job until the end");
    let seen: i64 = reader.query_one("select count(*) from euterpe.inbox_jobs", &[]).await.unwrap().get(0);
    assert_eq!(seen, 1);
    reader.batch_execute("commit").await.unwrap();
    let weeks = dropping.await.unwrap().unwrap().unwrap();
    assert!(weeks.iter().any(|week| matches!(week, Week::Dropped(_))), "{weeks:?}");

    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut done = 0;
    for task in load {
        done += task.await.unwrap();
    }
    assert!(done > 20, "the load went on: {done}");
    let pod = worker("rest");
    let store = db.store();
    while !store.claim_jobs(QUEUE, &pod, 1000, None).await.unwrap().is_empty() {}
}

/// Nobody made partitions for a month: health says so before anything fails, enqueueing says what to do, and the
/// first service that comes back mends it.
#[tokio::test]
async fn a_month_without_upkeep_is_an_alarm_and_then_mends_itself() {
    let db = TestDb::fresh().await;
    db.store().upkeep().await.unwrap();
    let ok = "select ok from euterpe.health where topic = 'partitions ahead'";
    assert!(db.one::<bool>(ok).await);
    let wind =
        |days: u128| format!("select setval('euterpe_line.test_clock_ms', {})", days * DAY.as_millis());
    db.run(&wind(20)).await;
    assert!(!db.one::<bool>(ok).await, "two weeks before the end");
    db.enqueue().await;
    db.run(&wind(40)).await;
    let refused = db
        .store()
        .enqueue_job(&requester("acme"), QUEUE, &NewJob { request: json!({}), ..NewJob::default() })
        .await
        .unwrap_err();
    assert!(matches!(refused, euterpe::store::StoreError::PartitionMissing(_)), "{refused:?}");

    db.store().upkeep().await.unwrap();
    assert!(db.one::<bool>(ok).await);
    db.enqueue().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_by_everybody_at_once_is_done_by_one() {
    let db = TestDb::fresh().await;
    db.jump(DAY * 7).await;
    db.run(&format!("select setval('euterpe_line.test_clock_ms', {})", (DAY * 21).as_millis())).await;
    let store = db.store();
    let calls = (0..12).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.upkeep().await.unwrap() })
    });
    let mut made = 0;
    for call in futures_util::future::join_all(calls).await {
        made += call
            .unwrap()
            .iter()
            .filter(|step| step.did == "made partitions")
            .map(|step| step.row_count)
            .sum::<i64>();
    }
    assert_eq!(made, 2 * 6, "two weeks, six tables, once");
    let samples: i64 = db.one("select count(*) from euterpe.queue_samples where sampled_at > euterpe._now() - interval '1 minute'").await;
    assert_eq!(samples, 3, "one per queue");
}

/// A partition that somebody detached with an unfinished job in it is attached again, and its job is in the line again.
#[tokio::test]
async fn an_unfinished_job_in_a_detached_partition_is_brought_back() {
    let db = TestDb::fresh().await;
    let (store, pod) = (db.store(), worker("pod"));
    let id = db.enqueue().await;
    let name: String = db.one("select right(tableoid::regclass::text, 8) from euterpe.inbox_jobs").await;
    db.run(&format!("alter table euterpe.inbox_jobs detach partition euterpe.inbox_jobs_p{name}")).await;
    assert!(
        store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().is_empty(),
        "its entry was taken for litter"
    );
    assert_eq!(db.one::<i64>("select count(*) from euterpe.ready").await, 0);

    assert_eq!(retain(&db.config(), 90).await.unwrap().unwrap(), [], "too young to be touched");
    db.jump(DAY * 120).await;
    let weeks = retain(&db.config(), 90).await.unwrap().unwrap();
    let back = Week::Kept(name, "a job of it was brought back to life".into());
    assert!(weeks.contains(&back), "{weeks:?}");
    assert_eq!(db.claim(&pod).await.claim.job_id, id);
}
