//! Places inside our functions at which a test can hold them: the same functions, with a lock to wait for.

use tokio_postgres::Client;

use super::TestDb;

/// Where a function can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The sweep has scanned `ready` and has not written anything.
    SweepScanned = 1,
    /// Somebody has read V and has not put their entry in the line.
    VirtualTimeRead = 2,
    /// A claim has taken its jobs and has not published what it took.
    ClaimTaken = 3,
}

impl Pause {
    fn lock(self, actor: i32) -> i32 {
        1000 * self as i32 + actor
    }
}

const PLACES: &[(Pause, &str, &str)] = &[
    (Pause::SweepScanned, include_str!("../../../sql/line/_sweep.sql"), "  -- least() passes over a null"),
    (Pause::VirtualTimeRead, include_str!("../../../sql/line/_put_in_line.sql"), "  insert into delayed"),
    (
        Pause::ClaimTaken,
        include_str!("../../../sql/inbox/claim_jobs_v1.sql"),
        "  perform setval(('euterpe_line.q'",
    ),
];

/// Our own number, so that nobody else's advisory lock is meant.
const CLASS: i32 = 777;

/// Holds and frees the places.
pub struct Pauses {
    holder: Client,
}

impl Pauses {
    /// Loads the functions with their places to wait. A mutant of one of them is kept: its text is taken.
    pub async fn install(db: &TestDb) -> Self {
        let client = db.client().await;
        for (pause, text, before) in PLACES {
            let mutant = mutated(text);
            let text = mutant.as_deref().unwrap_or(text);
            // Each session waits at a lock of its own, named by its setting test.actor: holding one stops no other.
            let lock = format!(
                "{} + coalesce(nullif(current_setting('test.actor', true), ''), '0')::integer",
                pause.lock(0)
            );
            let wait = format!(
                "  perform pg_advisory_lock_shared({CLASS}, {lock}); perform pg_advisory_unlock_shared({CLASS}, {lock});\n{before}"
            );
            let with_pause = text.replacen(before, &wait, 1);
            assert_ne!(&with_pause, text, "{pause:?} has no place to wait any more");
            client.batch_execute(&with_pause).await.unwrap();
        }
        Self { holder: db.client().await }
    }

    /// From now on `actor` waits at `pause`.
    pub async fn hold(&self, pause: Pause, actor: i32) {
        self.holder
            .batch_execute(&format!("select pg_advisory_lock({CLASS}, {})", pause.lock(actor)))
            .await
            .unwrap();
    }

    pub async fn free(&self, pause: Pause, actor: i32) {
        self.holder
            .batch_execute(&format!("select pg_advisory_unlock({CLASS}, {})", pause.lock(actor)))
            .await
            .unwrap();
    }

    /// Does `actor` wait at `pause` now?
    pub async fn is_waiting(&self, pause: Pause, actor: i32) -> bool {
        let sql = format!(
            "select exists (select from pg_locks
                             where locktype = 'advisory' and classid = {CLASS} and objid = {} and not granted
                               and database = (select oid from pg_database where datname = current_database()))",
            pause.lock(actor)
        );
        self.holder.query_one(&sql, &[]).await.unwrap().get(0)
    }

    pub async fn until_waiting(&self, pause: Pause, actor: i32) {
        for _ in 0..1000 {
            if self.is_waiting(pause, actor).await {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("nobody came to {pause:?}");
    }
}

/// The broken version of this file, when `make mutants` runs with one.
fn mutated(good: &str) -> Option<String> {
    let name = |text: &str| text.lines().next().map(str::to_owned);
    let dir = std::env::var_os("EUTERPE_TEST_MUTANT")?;
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .find(|text| name(text) == name(good))
}
