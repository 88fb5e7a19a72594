//! Design §4.5: should an event wait behind nothing all the same (a bug, a hand in the tables), upkeep puts it in the
//! line, and says so.

use euterpe::domain::{Delivery, JobId};

use crate::support::{LEASE, TestDb, WEBHOOKS, requester, worker};

/// What upkeep says it mended.
async fn mend(db: &TestDb) -> i64 {
    db.one("select row_count from euterpe.upkeep_v1() where did = 'mended stranded events'").await
}

async fn health(db: &TestDb) -> (bool, String) {
    let row = &db.rows("select ok, says from euterpe.health where topic = 'stranded events'").await[0];
    (row.get(0), row.get(1))
}

/// Three ways to lose a head, by hand.
async fn damage(db: &TestDb, id: JobId, how: &str) {
    let undone = "status = 'waiting', line_seq = null";
    db.run(&match how {
        "forgotten" => format!(
            "update euterpe.job_outbox_events set {undone} where job_id = '{id}' and sequence = 1;
             update euterpe.inbox_jobs set head_sequence = null where job_id = '{id}'"
        ),
        "not in the line" => {
            format!("update euterpe.job_outbox_events set {undone} where job_id = '{id}' and sequence = 1")
        }
        "settled already" => format!(
            "update euterpe.job_outbox_events set status = 'dead_letter', line_seq = null, finished_at = now()
              where job_id = '{id}' and sequence = 1"
        ),
        other => panic!("{other}"),
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_in_no_line_is_put_there_counted_and_reported() {
    let db = TestDb::fresh().await;
    let mut mended = 0;
    for (how, next) in [("forgotten", 1), ("not in the line", 1), ("settled already", 2)] {
        let id = db.three_events().await;
        damage(&db, id, how).await;
        assert_eq!(mend(&db).await, 0, "{how}: it may be under way; a minute is waited");
        db.wind(LEASE * 2).await;
        db.assert_no_event(how).await;
        assert_eq!(mend(&db).await, 1, "{how}");
        let (event, answer) = db.try_event(WEBHOOKS[0], Delivery::arrived(200)).await;
        assert_eq!((event.claim.event.job_id, event.claim.event.sequence), (id, next), "{how}");
        assert!(answer.released, "{how}: the rest follows");
        db.deliver_all().await;
        mended += 1;
        assert_eq!(health(&db).await, (false, format!("{mended} jobs found with an event in no line")));
    }
    assert_eq!(mend(&db).await, 0);
}

/// Whatever state a sound job is in, there is nothing to mend, and nobody is locked out meanwhile.
#[tokio::test]
async fn sound_jobs_are_left_alone() {
    let db = TestDb::fresh().await;
    db.three_events().await;
    db.enqueue().await;
    let delivered = db.three_events().await;
    let pod = worker("pod");
    db.take_event(WEBHOOKS[0], &pod).await;
    db.try_event(WEBHOOKS[0], Delivery::failed("internal")).await;
    db.store()
        .redeliver_events(Some(&requester("acme")), &euterpe::store::Redeliver::Job(delivered), None)
        .await
        .unwrap();
    db.jump(LEASE * 2).await;
    let client = db.client().await;
    client.batch_execute("begin; select euterpe.upkeep_v1()").await.unwrap();
    let free = "select count(*) from (select from euterpe.inbox_jobs for update skip locked) j";
    assert_eq!(db.one::<i64>(free).await, 3, "no job is locked for being looked at");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(health(&db).await, (true, "0 jobs found with an event in no line".into()));
}

/// It goes on where the last run ended, and begins anew at the end.
#[tokio::test]
async fn more_jobs_than_one_run_looks_at_are_looked_at_by_several() {
    let db = TestDb::fresh().await;
    let first = db.three_events().await;
    db.jump(LEASE).await;
    db.enqueue_many(700).await;
    db.jump(LEASE).await;
    let last = db.three_events().await;
    for id in [first, last] {
        damage(&db, id, "forgotten").await;
    }
    db.jump(LEASE * 2).await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(mend(&db).await);
    }
    assert_eq!(found.iter().sum::<i64>(), 2, "{found:?}");
    assert_eq!(found[0], 1, "five hundred per run");
    damage(&db, first, "forgotten").await;
    assert_eq!(mend(&db).await + mend(&db).await + mend(&db).await, 1, "round and round");
    assert_eq!(db.deliver_all().await, 6);
}
