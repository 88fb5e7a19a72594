//! Contract §5: exponential backoff with jitter, as a property of the function itself.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::TestDb;

#[test]
fn waits_stay_within_their_bounds_for_any_setting() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let db = runtime.block_on(TestDb::fresh());
    let client = runtime.block_on(db.client());
    let setting = (1i64..3_600_000, 1i32..=10, 1i64..86_400_000, 0i32..200, 0f64..1.0);

    let mut runner = TestRunner::new(Config::with_cases(300));
    runner
        .run(&setting, |(base, factor, cap, attempt, random)| {
            let cap = cap.max(base);
            let wait: i64 = runtime
                .block_on(client.query_one(
                    "select euterpe._backoff_ms($1, $2, $3, $4, $5)",
                    &[&base, &factor, &cap, &attempt, &random],
                ))
                .unwrap()
                .get(0);
            let nominal = (base as f64 * f64::from(factor).powi(attempt.max(1) - 1)).min(cap as f64);
            prop_assert!(wait as f64 >= (nominal * 0.8).floor(), "{wait} < 0.8 · {nominal}");
            prop_assert!(wait as f64 <= (nominal * 1.2).ceil(), "{wait} > 1.2 · {nominal}");
            Ok(())
        })
        .unwrap();
    let _inside = runtime.enter();
    drop(db);
}

/// Without jitter every job of a broken store would come back in the same moment.
#[tokio::test]
async fn the_jitter_spreads() {
    let db = TestDb::fresh().await;
    let (distinct, spread): (i64, i64) = {
        let client = db.client().await;
        let row = client
            .query_one(
                "select count(distinct w), max(w) - min(w)
                   from (select euterpe._backoff_ms(2000, 2, 600000, 5, n / 100.0) as w from generate_series(0, 99) n) x",
                &[],
            )
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!(distinct, 100);
    assert!(spread > 12_000, "±20 % of 32 s: {spread}");
}

/// Two failures of the same kind do not wait equally long: the function is given a fresh random number.
#[tokio::test]
async fn failures_are_given_different_jitter() {
    let db = TestDb::fresh().await;
    let pod = crate::support::worker("pod");
    db.enqueue_many(20).await;
    let store = db.store();
    let jobs = store.claim_jobs(crate::support::QUEUE, &pod, 20, None).await.unwrap();
    let failures: Vec<_> = jobs
        .iter()
        .map(|job| {
            let failure = euterpe::domain::JobFailure { code: "internal".into(), ..Default::default() };
            (job.claim, failure)
        })
        .collect();
    let answers = store.fail_jobs(&pod, &failures).await.unwrap();
    let waits: std::collections::HashSet<_> = answers.iter().map(|answer| answer.run_at.unwrap()).collect();
    assert!(waits.len() > 15, "{waits:?}");
}
