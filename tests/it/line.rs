//! Design §4: claims that stay flat. Asserted on buffers, never on time.

use std::time::Duration;

use euterpe::domain::{Claim, JobFailure, JobStatus, Outcome};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::{LEASE, QUEUE, TestDb, until, worker};

/// What one call touches, in a session that has made it before. The least of a few: a tick may fall into one.
async fn buffers(client: &Client, sql: &str) -> i64 {
    let mut least = i64::MAX;
    for _ in 0..6 {
        least = least.min(once(client, sql).await);
    }
    least
}

async fn once(client: &Client, sql: &str) -> i64 {
    let explain = format!("explain (analyze, buffers, format json) {sql}");
    let plan: Value = client.query_one(&explain, &[]).await.unwrap().get(0);
    let top = &plan[0]["Plan"];
    top["Shared Hit Blocks"].as_i64().unwrap() + top["Shared Read Blocks"].as_i64().unwrap()
}

const CLAIM_TEN: &str = "select * from euterpe.claim_jobs_v1('transcode', 'pod', 10)";

/// A claim of ten that leaves everything as it was.
async fn claim_of_ten(client: &Client) -> i64 {
    client.batch_execute("begin").await.unwrap();
    let touched = buffers(client, CLAIM_TEN).await;
    client.batch_execute("rollback").await.unwrap();
    touched
}

/// Ticks as a living system has them, and then none for a while: sweep, promotion and reclaim have caught up.
async fn settle(db: &TestDb) {
    for _ in 0..16 {
        db.wind(Duration::from_secs(2)).await;
    }
}

async fn process(db: &TestDb, count: usize) {
    for _ in 0..count / 1000 {
        db.enqueue_many(1000).await;
        assert_eq!(finish_all(db).await, 1000);
        db.jump(Duration::from_secs(1)).await;
    }
}

/// Claims whatever is ready and ends it; says how many that were.
async fn finish_all(db: &TestDb) -> usize {
    let (store, pod) = (db.store(), worker("pod"));
    let mut count = 0;
    loop {
        let jobs = store.claim_jobs(QUEUE, &pod, 1000, None).await.unwrap();
        if jobs.is_empty() {
            return count;
        }
        let rest = JobFailure { code: "media_unreadable".into(), ..JobFailure::default() };
        let failures: Vec<_> = jobs.iter().map(|job| (job.claim, rest.clone())).collect();
        store.fail_jobs(&pod, &failures).await.unwrap();
        count += jobs.len();
    }
}

/// Fifty thousand jobs come and go while somebody holds an old snapshot, so that nothing can be vacuumed away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_snapshot_and_fifty_thousand_dead_entries_do_not_show() {
    let db = TestDb::alone().await;
    let client = db.client().await;
    db.enqueue_many(200).await;
    settle(&db).await;
    let fresh_claim = claim_of_ten(&client).await;
    finish_all(&db).await;
    settle(&db).await;
    let fresh_poll = buffers(&client, CLAIM_TEN).await;
    let fresh_promotion = promotion(&client).await;
    let fresh_reclaim = reclaim(&client).await;
    let fresh_tick = tick(&db, &client).await;

    let holder = db.client().await;
    holder
        .batch_execute("begin isolation level repeatable read; select count(*) from euterpe.ready")
        .await
        .unwrap();
    // Entries of all three lines: a thousand retries as well.
    process(&db, 50_000).await;
    retries(&db, 1000).await;
    client.batch_execute("vacuum").await.unwrap();
    settle(&db).await;
    let dead: i64 =
        client.query_one("select pg_relation_size('euterpe.ready') / 8192", &[]).await.unwrap().get(0);
    assert!(dead > 300, "the dead are there: {dead} pages");

    let poll = buffers(&client, CLAIM_TEN).await;
    assert!(poll <= 2 * fresh_poll, "an empty poll: {poll} buffers, {fresh_poll} when fresh");
    let touched = promotion(&client).await;
    assert!(touched <= 2 * fresh_promotion, "an empty promotion: {touched}, {fresh_promotion} when fresh");
    let touched = reclaim(&client).await;
    assert!(touched <= 2 * fresh_reclaim, "an empty reclaim: {touched}, {fresh_reclaim} when fresh");
    db.enqueue_many(200).await;
    let claim = claim_of_ten(&client).await;
    assert!(claim <= 2 * fresh_claim, "a claim of ten: {claim} buffers, {fresh_claim} when fresh");
    let touched = tick(&db, &client).await;
    assert!(touched <= 2 * fresh_tick, "a whole tick: {touched}, {fresh_tick} when fresh");
    holder.batch_execute("rollback").await.unwrap();
}

/// Claimed, failed for a while, and due again: through `delayed`, `ready` and `leases`.
async fn retries(db: &TestDb, count: usize) {
    let (store, pod) = (db.store(), worker("pod"));
    db.enqueue_many(count).await;
    let jobs = store.claim_jobs(QUEUE, &pod, 1000, None).await.unwrap();
    let retry = JobFailure { code: "storage_unavailable".into(), ..JobFailure::default() };
    let failures: Vec<_> = jobs.iter().map(|job| (job.claim, retry.clone())).collect();
    store.fail_jobs(&pod, &failures).await.unwrap();
    db.wind(Duration::from_secs(5)).await;
    assert_eq!(finish_all(db).await, count, "all of them were due again");
    db.wind(LEASE + Duration::from_secs(5)).await;
}

/// Sweep, promotion and reclaim together. Once a minute a tick looks at the whole line; not in all four.
async fn tick(db: &TestDb, client: &Client) -> i64 {
    let mut least = i64::MAX;
    for _ in 0..4 {
        db.jump(Duration::from_secs(2)).await;
        least = least.min(once(client, "select euterpe.tick_v1('transcode')").await);
    }
    least
}

/// As the tick does it, from its safe point.
async fn promotion(client: &Client) -> i64 {
    let since = "timestamptz 'epoch' + interval '1 millisecond' * (select last_value from euterpe_line.q1_delayed_safe)";
    buffers(client, &format!("select euterpe._promote(euterpe._now(), 1::smallint, {since}, 1000)")).await
}

async fn reclaim(client: &Client) -> i64 {
    let since = "timestamptz 'epoch' + interval '1 millisecond' * (select last_value from euterpe_line.q1_leases_safe)";
    buffers(client, &format!("select euterpe._reclaim_jobs(euterpe._now(), 1::smallint, {since}, 1000)"))
        .await
}

/// Seeded by insert-select, with everything a claim touches: jobs, requests, entries. No events: nobody looks at
/// them here, and the orphan check is told so.
async fn seed(db: &TestDb, count: i64) {
    db.run(&format!(
        "with made as (
           insert into euterpe.inbox_jobs (job_id, requester_id, queue_id, priority, status, max_attempts, line_key,
                                           line_seq, last_sequence, created_at, updated_at)
           select euterpe._new_id('acme', euterpe._now()), 'acme', 1, 100, 'queued', 5, 1000 * n, n, 1, now(), now()
             from generate_series(1, {count}) n
           returning job_id, line_key, line_seq
         ), asked as (insert into euterpe.job_requests (job_id, request) select job_id, '{{}}' from made)
         insert into euterpe.ready (queue_id, shard, key, seq, job_id, sequence)
         select 1, 0, line_key, line_seq, job_id, 0 from made;
         select setval('euterpe_line.seq', {count});
         select setval('euterpe_line.q1_r1', 1000 * {count});"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_queued_cost_no_more_than_a_thousand() {
    let mut costs = Vec::new();
    for count in [1_000, 1_000_000] {
        let db = TestDb::fresh().await;
        seed(&db, count).await;
        settle(&db).await;
        costs.push(claim_of_ten(&db.client().await).await);
        db.run("truncate euterpe.inbox_jobs, euterpe.job_requests, euterpe.ready").await;
    }
    assert!(costs[1] <= 2 * costs[0], "a claim of ten: {costs:?} buffers");
}

/// Others' claims under way are passed over cheaply.
#[tokio::test]
async fn locked_entries_cost_at_most_three_buffers_each() {
    const LOCKED: i64 = 500;
    let db = TestDb::alone().await;
    db.enqueue_many(1000).await;
    settle(&db).await;
    let client = db.client().await;
    let free = claim_of_ten(&client).await;

    let other = db.client().await;
    other
        .batch_execute(&format!("begin; select * from euterpe.claim_jobs_v1('transcode', 'other', {LOCKED})"))
        .await
        .unwrap();
    let behind = claim_of_ten(&client).await;
    assert!(behind > free, "there was something to pass over");
    assert!(behind - free <= 3 * LOCKED, "{behind} buffers behind {LOCKED} locked entries, {free} without");
    other.batch_execute("rollback").await.unwrap();
}

/// Heartbeats and phase changes stay on their page: no index names what they change. On a server of its own:
/// transactions in other databases would keep old row versions alive.
#[tokio::test]
async fn heartbeats_and_phase_changes_are_heap_only() {
    let db = TestDb::alone().await;
    let store = db.store_as("euterpe_test", 1);
    db.enqueue_many(500).await;
    let pod = worker("pod");
    let jobs = store.claim_jobs(QUEUE, &pod, 500, None).await.unwrap();
    let claims: Vec<Claim> = jobs.iter().map(|job| job.claim).collect();
    let progress =
        json!({"percent": 50, "phase": "processing", "speed": 1.5, "eta_seconds": 20, "output": "720p"});
    let beats: Vec<_> = claims.iter().map(|&claim| (claim, Some(progress.clone()))).collect();
    for status in [JobStatus::Fetching, JobStatus::Processing, JobStatus::Uploading] {
        let steps: Vec<_> = claims.iter().map(|&claim| (claim, status)).collect();
        let answers = store.advance_jobs(&pod, &steps).await.unwrap();
        assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ok));
        for _ in 0..3 {
            store.heartbeat_jobs(&pod, &beats, None).await.unwrap();
        }
    }

    // Counters reach the statistics when the session that made them ends.
    drop(store);
    let client = db.client().await;
    until(
        &client,
        "select coalesce(sum(n_tup_upd), 0) >= 500 * 13 from pg_stat_user_tables where relname like 'inbox\\_jobs\\_p%'",
    )
    .await;
    let share: f64 = client
        .query_one(
            "select sum(n_tup_hot_upd)::float8 / sum(n_tup_upd) from pg_stat_user_tables
              where relname like 'inbox\\_jobs\\_p%'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(share >= 0.95, "{share}");
}

/// Litter is deleted when it is met, and never handed out.
#[tokio::test]
async fn litter_is_deleted_when_it_is_met() {
    let db = TestDb::fresh().await;
    db.enqueue_many(5).await;
    db.run(
        "insert into euterpe.ready (queue_id, shard, key, seq, job_id, sequence)
         select 1, 0, 0, 1000000 + n, (select job_id from euterpe.inbox_jobs order by job_id limit 1), 0
           from generate_series(1, 30) n
         union all
         select 1, 0, 0, 2000000 + n, gen_random_uuid(), 0 from generate_series(1, 30) n",
    )
    .await;
    let store = db.store();
    let mut claimed = 0;
    for _ in 0..4 {
        claimed += store.claim_jobs(QUEUE, &worker("pod"), 20, None).await.unwrap().len();
    }
    assert_eq!(claimed, 5);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.ready").await, 0);
}

/// The first claim after a long litter finds what is behind it: it refills before it says that the line is empty.
/// One free hand, and somebody cancelled all that stood before.
#[tokio::test]
async fn behind_a_hundred_cancelled_jobs_one_claim_of_one_finds_work() {
    let db = TestDb::fresh().await;
    db.enqueue_many(100).await;
    db.run("select * from euterpe.steer_jobs_v1('cancel', p_queue => 'transcode', p_confirm => 100)").await;
    let good = db.enqueue().await;
    let jobs = db.store().claim_jobs(QUEUE, &worker("pod"), 1, None).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.claim.job_id).collect::<Vec<_>>(), [good]);
}

/// A server whose clock was a day ahead, for a moment: what it wrote must not stop anything until that day has come.
#[tokio::test]
async fn a_clock_that_was_ahead_stops_neither_reclaim_nor_samples() {
    let db = TestDb::fresh().await;
    let (id, store) = (db.enqueue().await, db.store());
    db.claim(&worker("dies")).await;
    let tomorrow = "(extract(epoch from euterpe._now() + interval '1 day') * 1000)::bigint";
    db.run(&format!("select setval('euterpe_line.q1_hold', {tomorrow})")).await;
    db.run(
        "insert into euterpe.queue_samples
                (queue_id, sampled_at, ready_count, delayed_count, leased_count, oldest_ready_age_ms)
         values (1, euterpe._now() + interval '1 day', 0, 0, 0, null)",
    )
    .await;
    let upkeep = "select ok from euterpe.health_v1() where topic = 'upkeep'";
    assert!(!db.one::<bool>(upkeep).await, "a sample of tomorrow is none");
    db.wind(LEASE + Duration::from_secs(2)).await;
    let again = store.claim_jobs(QUEUE, &worker("lives"), 1, None).await.unwrap();
    assert_eq!(again.iter().map(|job| job.claim.job_id).collect::<Vec<_>>(), [id]);
    store.upkeep().await.unwrap();
    assert!(db.one::<bool>(upkeep).await);
}

#[tokio::test]
async fn a_claim_looks_behind_litter_before_it_says_that_the_line_is_empty() {
    let db = TestDb::fresh().await;
    db.run("select setval('euterpe_line.seq', 1000)").await;
    db.enqueue().await;
    db.run(
        "insert into euterpe.ready (queue_id, shard, key, seq, job_id, sequence)
         select 1, 0, 0, n, gen_random_uuid(), 0 from generate_series(1, 40) n",
    )
    .await;
    let jobs = db.store().claim_jobs(QUEUE, &worker("pod"), 10, None).await.unwrap();
    assert_eq!(jobs.len(), 1);
}
