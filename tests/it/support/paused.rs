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

/// A place by its number: a [`Pause`], or one that [`Pauses::install_before_each_statement`] has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(i32);

impl From<Pause> for Place {
    fn from(pause: Pause) -> Self {
        Self(pause as i32)
    }
}

impl Place {
    fn lock(self, actor: i32) -> i32 {
        1000 * self.0 + actor
    }

    /// A statement that waits here. Each session waits at a lock of its own, named by its setting test.actor: holding
    /// one stops no other.
    fn wait(self) -> String {
        let lock = format!(
            "{} + coalesce(nullif(current_setting('test.actor', true), ''), '0')::integer",
            self.lock(0)
        );
        format!(
            "  perform pg_advisory_lock_shared({CLASS}, {lock}); perform pg_advisory_unlock_shared({CLASS}, {lock});"
        )
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
            let wait = format!("{}\n{before}", Place::from(*pause).wait());
            let with_pause = text.replacen(before, &wait, 1);
            assert_ne!(&with_pause, text, "{pause:?} has no place to wait any more");
            client.batch_execute(&with_pause).await.unwrap();
        }
        Self { holder: db.client().await }
    }

    /// Loads `functions` (paths below sql/) with a place to wait before each of their statements; says which places
    /// each has.
    pub async fn install_before_each_statement(db: &TestDb, functions: &[&str]) -> (Self, Vec<Vec<Place>>) {
        let client = db.client().await;
        let mut next = 100;
        let mut places = Vec::new();
        for function in functions {
            let good = std::fs::read_to_string(format!("sql/{function}")).unwrap();
            let (text, made) = before_each_statement(mutated(&good).as_deref().unwrap_or(&good), next);
            assert!(made.len() > 1, "{function} has statements");
            next += i32::try_from(made.len()).unwrap();
            places.push(made);
            client.batch_execute(&text).await.unwrap_or_else(|error| panic!("{function}: {error:?}\n{text}"));
        }
        (Self { holder: db.client().await }, places)
    }

    /// From now on `actor` waits at `place`.
    pub async fn hold(&self, place: impl Into<Place>, actor: i32) {
        self.holder
            .batch_execute(&format!("select pg_advisory_lock({CLASS}, {})", place.into().lock(actor)))
            .await
            .unwrap();
    }

    pub async fn free(&self, place: impl Into<Place>, actor: i32) {
        self.holder
            .batch_execute(&format!("select pg_advisory_unlock({CLASS}, {})", place.into().lock(actor)))
            .await
            .unwrap();
    }

    /// Does `actor` wait at `place` now?
    pub async fn is_waiting(&self, place: impl Into<Place>, actor: i32) -> bool {
        let sql = format!(
            "select exists (select from pg_locks
                             where locktype = 'advisory' and classid = {CLASS} and objid = {} and not granted
                               and database = (select oid from pg_database where datname = current_database()))",
            place.into().lock(actor)
        );
        self.holder.query_one(&sql, &[]).await.unwrap().get(0)
    }

    /// Does the session `pid` wait for a lock? `Some(true)`: at a place of ours; `Some(false)`: at somebody's row.
    pub async fn waits(&self, pid: i32) -> Option<bool> {
        let sql = format!(
            "select locktype = 'advisory' and classid = {CLASS} from pg_locks where pid = {pid} and not granted"
        );
        let rows = self.holder.query(&sql, &[]).await.unwrap();
        rows.first().map(|row| row.get(0))
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

/// The text of a plpgsql function with a place to wait before each statement of its body, nested ones as well; the
/// places are numbered from `first`.
///
/// It relies on our habits: a statement begins on a line of its own, after a line that ends the one before (`;`) or opens
/// a block (`begin`, `loop`, `else`, an `if … then` on one line).
fn before_each_statement(text: &str, first: i32) -> (String, Vec<Place>) {
    let (mut with_places, mut places) = (String::new(), Vec::new());
    let (mut in_body, mut may_begin) = (false, false);
    for line in text.lines() {
        let code = line.trim();
        let is_code = !code.is_empty() && !code.starts_with("--");
        if in_body && code == "$$;" {
            in_body = false;
        }
        let ends_a_block = ["end;", "end if;", "end loop;", "else", "exception"].contains(&code)
            || code.starts_with("elsif ")
            || code.starts_with("when ");
        if in_body && is_code && may_begin && !ends_a_block {
            let place = Place(first + i32::try_from(places.len()).unwrap());
            with_places += &place.wait();
            with_places.push('\n');
            places.push(place);
        }
        with_places += line;
        with_places.push('\n');
        if code == "begin" {
            in_body = true;
        }
        if is_code {
            let opens = ["begin", "loop", "else"].contains(&code)
                || (code.starts_with("if ") || code.starts_with("elsif ")) && code.ends_with(" then")
                || code.starts_with("for ") && code.ends_with(" loop");
            may_begin = opens || code.ends_with(';');
        }
    }
    (with_places, places)
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
