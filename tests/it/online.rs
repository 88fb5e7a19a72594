//! docs/rolling-upgrades.md: an index is built while everybody works, whatever happens to its builder.

use std::time::Duration;

use euterpe::store::migrate::{MigrateError, status};
use euterpe::store::online::{OnlineIndex, build};

use crate::pages::block;
use crate::rolling_upgrade::{Claimer, Pods};
use crate::support::{TestDb, until};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn buried() -> Vec<OnlineIndex> {
    vec![OnlineIndex::parse(&block("migrations/online/README.md", "```sql\n")).unwrap()]
}

/// The parent's index is valid, and every partition has a valid one of its own below it.
async fn assert_complete(db: &TestDb) {
    let valid = "select indisvalid from pg_index where indexrelid = 'euterpe.inbox_jobs_buried'::regclass";
    assert!(db.one::<bool>(valid).await, "the parent's is valid");
    let without = "select count(*) from pg_inherits i
                    where i.inhparent = 'euterpe.inbox_jobs'::regclass
                      and not exists (select from pg_index x join pg_inherits a on a.inhrelid = x.indexrelid
                                       where x.indrelid = i.inhrelid and x.indisvalid
                                         and a.inhparent = 'euterpe.inbox_jobs_buried'::regclass)";
    assert_eq!(db.one::<i64>(without).await, 0, "partitions without a valid one");
    let litter = "select count(*) from pg_index x join pg_class c on c.oid = x.indexrelid
                   where c.relnamespace = 'euterpe'::regnamespace and not x.indisvalid";
    assert_eq!(db.one::<i64>(litter).await, 0, "nothing invalid is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_built_under_load_is_complete_although_its_builder_was_killed() {
    let db = TestDb::fresh().await;
    let pods = Pods::start(&db, "pod", vec![Claimer::V1, Claimer::V1]);
    // As long as somebody holds an old snapshot, no index that is built concurrently becomes valid.
    let reader = db.client().await;
    reader
        .batch_execute("begin isolation level repeatable read; select count(*) from euterpe.inbox_jobs")
        .await
        .unwrap();

    let config = db.config();
    let building = tokio::spawn(async move { build(&config, &buried()).await });
    let waiting = "datname = current_database() and query like 'create index concurrently%'
                   and wait_event_type = 'Lock'";
    let watcher = db.client().await;
    until(&watcher, &format!("select exists (select from pg_stat_activity where {waiting})")).await;
    pods.finish(10).await;
    watcher
        .execute(&format!("select pg_terminate_backend(pid) from pg_stat_activity where {waiting}"), &[])
        .await
        .unwrap();
    let cut_off = building.await.unwrap().unwrap_err();
    assert!(matches!(cut_off, MigrateError::Database(_)), "{cut_off:?}");
    let invalid = "select count(*) from pg_index where not indisvalid";
    assert_eq!(db.one::<i64>(invalid).await, 2, "the parent's and one that was cut off");
    reader.batch_execute("commit").await.unwrap();

    // A week is added meanwhile; then two run at once, and the second finds everything done.
    db.jump(WEEK).await;
    let (config, indexes) = (db.config(), buried());
    let (one, other) = tokio::join!(build(&config, &indexes), build(&config, &indexes));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.is_empty() != other.is_empty(), "one of them did it all: {one:?} {other:?}");
    let dropped = one.iter().chain(&other).filter(|did| did.starts_with("drop index concurrently")).count();
    assert_eq!(dropped, 1, "what was cut off was built anew: {one:?} {other:?}");
    assert_complete(&db).await;
    pods.finish(10).await;
    pods.stop().await;

    assert_eq!(build(&config, &indexes).await.unwrap(), [""; 0], "a third time there is nothing to do");
    db.jump(WEEK).await;
    assert_complete(&db).await;
}

/// The parent's index needs a moment without writers. Whoever makes it wait must not make others wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_does_not_commit_delays_the_index_and_nobody_else() {
    let db = TestDb::fresh().await;
    let writer = db.client().await;
    writer.batch_execute("begin; select euterpe.enqueue_job_v1('acme', '{}')").await.unwrap();
    let config = db.config();
    let building = tokio::spawn(async move { build(&config, &buried()).await });
    let watcher = db.client().await;
    let waiting = "select exists (select from pg_stat_activity where datname = current_database()
                       and query like 'create index%' and wait_event_type = 'Lock')";
    until(&watcher, waiting).await;
    for _ in 0..3 {
        db.enqueue().await; // would time out behind a patient lock
    }
    assert!(!building.is_finished());
    writer.batch_execute("commit").await.unwrap();
    building.await.unwrap().unwrap();
    assert_complete(&db).await;
}

/// Postgres looks whether the parent's index is complete when one is attached, and at no other time.
#[tokio::test]
async fn an_index_that_can_not_become_valid_any_more_is_built_anew() {
    let db = TestDb::fresh().await;
    db.run(
        "set role euterpe_owner;
         create index inbox_jobs_buried on only euterpe.inbox_jobs (requester_id, job_id) where ended_as = 'dead_letter'",
    )
    .await;
    let partitions = "select inhrelid::regclass::text from pg_inherits
                       where inhparent = 'euterpe.inbox_jobs'::regclass order by 1";
    let partitions: Vec<String> = db.rows(partitions).await.iter().map(|row| row.get(0)).collect();
    let (last, others) = partitions.split_last().unwrap();
    for (n, partition) in others.iter().enumerate() {
        db.run(&format!(
            "set role euterpe_owner;
             create index by_hand_{n} on {partition} (requester_id, job_id) where ended_as = 'dead_letter';
             alter index euterpe.inbox_jobs_buried attach partition euterpe.by_hand_{n}"
        ))
        .await;
    }
    db.run(&format!("alter table euterpe.inbox_jobs detach partition {last}; drop table {last}")).await;
    let valid = "select indisvalid from pg_index where indexrelid = 'euterpe.inbox_jobs_buried'::regclass";
    assert!(!db.one::<bool>(valid).await, "every partition has its index, and nobody noticed");

    build(&db.config(), &buried()).await.unwrap();
    assert_complete(&db).await;
}

#[tokio::test]
async fn a_table_without_partitions_needs_one_step() {
    let db = TestDb::fresh().await;
    let index = OnlineIndex::parse("create index leases_by_job on euterpe.leases (job_id);").unwrap();
    let did = build(&db.config(), &[index]).await.unwrap();
    assert_eq!(did, ["create index concurrently leases_by_job on euterpe.leases (job_id)"]);
    assert!(status(&db.config()).await.unwrap().is_current());
}
