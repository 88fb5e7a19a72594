//! Builds indexes while everybody works: `euterpe-migrate online`.
//!
//! `create index concurrently` runs in no transaction, so not in refinery, and not on a partitioned table: the parent
//! gets its index alone, then each partition its own, then they are attached. Every step may be cut off and is taken
//! up by the next run.

use std::time::Duration;

use include_dir::{Dir, include_dir};
use tokio_postgres::{Client, Config};

use super::migrate::MigrateError;
use super::retain::{is_busy, take_turn};
use super::tls::connect;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/migrations/online");

/// For steps that need a moment alone, while others queue up behind them: give up soon, and come again.
const BRIEF: &str = "set lock_timeout = '500ms'";
/// For steps that wait for every older snapshot, which may be that of a backup. Nobody queues up behind those.
const PATIENT: &str = "set lock_timeout = '30min'";
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(500);

/// An index to build: one file of `migrations/online/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlineIndex {
    name: String,
    table: String,
    /// Columns and predicate, as SQL.
    on: String,
}

impl OnlineIndex {
    /// What this binary carries.
    ///
    /// # Panics
    /// When a file of `migrations/online/` is not in its form; a test looks.
    #[must_use]
    pub fn of_this_release() -> Vec<Self> {
        let files = FILES.files().filter(|file| file.path().extension().is_some_and(|end| end == "sql"));
        let mut indexes: Vec<_> = files
            .map(|file| {
                let index = file.contents_utf8().and_then(Self::parse);
                let index = index.expect("create index some_name on euterpe.some_table (…);");
                assert_eq!(file.path().file_stem().and_then(|stem| stem.to_str()), Some(index.name.as_str()));
                index
            })
            .collect();
        indexes.sort_by(|a, b| a.name.cmp(&b.name));
        indexes
    }

    /// `create index some_name on euterpe.some_table (…) …;`, after comments. A unique index is none to be built
    /// under load: duplicates may arrive while it is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let statement = lines.join(" ");
        let statement = statement.trim().strip_suffix(';').filter(|one| !one.contains(';'))?;
        let (name, rest) = statement.strip_prefix("create index ")?.split_once(" on euterpe.")?;
        let (table, on) = rest.split_once(' ')?;
        let is_name =
            |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        // A partition's index adds "_p20250106"; a name has 63 bytes at most.
        (is_name(name) && is_name(table) && name.len() <= 53).then(|| Self {
            name: name.to_owned(),
            table: table.to_owned(),
            on: on.to_owned(),
        })
    }
}

/// Builds what is missing or was cut off; says what it did. Safe to run twice, and twice at once.
pub async fn build(config: &Config, indexes: &[OnlineIndex]) -> Result<Vec<String>, MigrateError> {
    let (client, connection) = connect(config).await?;
    tokio::spawn(connection);
    client.batch_execute("set role euterpe_owner; set statement_timeout = 0").await?;
    // Its turn with retain, too: were the last partition without an index taken away, nobody would attach one any
    // more, and that is when Postgres looks whether the parent's index has become valid.
    for _ in 0..1200 {
        if take_turn(&client).await? {
            let mut builder = Builder { client: &client, did: Vec::new() };
            for index in indexes {
                builder.build(index).await?;
            }
            return Ok(builder.did);
        }
        // Not pg_advisory_lock: who waits there holds a snapshot, and an index being built waits for that.
        tokio::time::sleep(PAUSE).await;
    }
    Err(MigrateError::Busy("another euterpe-migrate online or retain is at work".into()))
}

/// Which of them are not there, or not valid.
pub(super) async fn missing(client: &Client, indexes: &[OnlineIndex]) -> Result<Vec<String>, MigrateError> {
    const SQL: &str = "\
        select n from unnest($1::text[]) n
         where not exists (select from pg_index x
                            where x.indexrelid = to_regclass('euterpe.' || n) and x.indisvalid)";
    let names: Vec<_> = indexes.iter().map(|index| &index.name).collect();
    Ok(client.query(SQL, &[&names]).await?.iter().map(|row| row.get("n")).collect())
}

struct Builder<'a> {
    client: &'a Client,
    did: Vec<String>,
}

impl Builder<'_> {
    async fn build(&mut self, index: &OnlineIndex) -> Result<(), MigrateError> {
        let OnlineIndex { name, table, on } = index;
        let is_partitioned: bool = self
            .client
            .query_one(
                "select relkind = 'p' as is_partitioned from pg_class where oid = ('euterpe.' || $1)::regclass",
                &[table],
            )
            .await?
            .get("is_partitioned");
        if !is_partitioned {
            return self.build_alone(name, table, on).await;
        }
        for _ in 0..2 {
            if self.is_valid(name).await?.is_none() {
                self.briefly(&format!("create index if not exists {name} on only euterpe.{table} {on}"))
                    .await?;
            }
            while let Some(partition) = self.partition_without(index).await? {
                let week = partition.strip_prefix(table.as_str()).unwrap_or(&partition);
                let own = format!("{name}{week}");
                self.build_alone(&own, &partition, on).await?;
                // The parent is locked against partitions that come and go: its index becomes valid when the count is
                // right at this moment, or never.
                self.briefly(&format!(
                    "lock table only euterpe.{table} in share update exclusive mode;
                     alter index euterpe.{name} attach partition euterpe.{own}"
                ))
                .await?;
            }
            if self.is_valid(name).await? == Some(true) {
                return Ok(());
            }
            // All are attached and it is not valid: somebody dropped a partition by hand at the wrong moment. Before
            // PostgreSQL 19 nothing but starting over helps.
            self.briefly(&format!("drop index euterpe.{name}")).await?;
        }
        Err(MigrateError::Busy(format!("{name}: partitions come and go by hand")))
    }

    /// On one table, after what an earlier run may have left behind.
    async fn build_alone(&mut self, name: &str, table: &str, on: &str) -> Result<(), MigrateError> {
        self.client.batch_execute(PATIENT).await?;
        for _ in 0..TRIES {
            let statement = match self.is_valid(name).await? {
                Some(true) => return Ok(()),
                Some(false) => format!("drop index concurrently euterpe.{name}"),
                None => format!("create index concurrently {name} on euterpe.{table} {on}"),
            };
            match self.client.batch_execute(&statement).await {
                Ok(()) => self.did.push(statement),
                Err(error) if is_busy(&error) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(MigrateError::Busy(format!("euterpe.{table}")))
    }

    async fn briefly(&mut self, statement: &str) -> Result<(), MigrateError> {
        self.client.batch_execute(BRIEF).await?;
        for _ in 0..TRIES {
            match self.client.batch_execute(statement).await {
                Ok(()) => {
                    self.did.push(statement.split_whitespace().collect::<Vec<_>>().join(" "));
                    return Ok(());
                }
                Err(error) if is_busy(&error) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(MigrateError::Busy(statement.to_owned()))
    }

    /// `None`: there is no such index; `Some(false)`: its building was cut off, or not all partitions have theirs.
    async fn is_valid(&self, name: &str) -> Result<Option<bool>, MigrateError> {
        let sql = "select x.indisvalid from pg_index x where x.indexrelid = to_regclass('euterpe.' || $1)";
        Ok(self.client.query_opt(sql, &[&name]).await?.map(|row| row.get("indisvalid")))
    }

    /// The next partition without an index of its own under the parent's.
    async fn partition_without(&self, index: &OnlineIndex) -> Result<Option<String>, MigrateError> {
        const SQL: &str = "\
            select p.relname::text
              from pg_inherits i
              join pg_class p on p.oid = i.inhrelid
             where i.inhparent = to_regclass('euterpe.' || $1) and not i.inhdetachpending
               and not exists (select from pg_index x
                                 join pg_inherits a on a.inhrelid = x.indexrelid
                                where x.indrelid = p.oid and a.inhparent = to_regclass('euterpe.' || $2))
             order by p.relname
             limit 1";
        let row = self.client.query_opt(SQL, &[&index.table, &index.name]).await?;
        Ok(row.map(|row| row.get("relname")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_its_form() {
        drop(OnlineIndex::of_this_release());
    }

    #[test]
    fn only_one_plain_index_is_accepted() {
        let good = "-- Why.\ncreate index by_error on euterpe.inbox_jobs (last_error)\n  where ended_as is not null;\n";
        let index = OnlineIndex::parse(good).expect("the form of the README");
        assert_eq!((index.name.as_str(), index.table.as_str()), ("by_error", "inbox_jobs"));
        assert_eq!(index.on, "(last_error)   where ended_as is not null");
        for bad in [
            "create unique index a on euterpe.b (c);",
            "create index concurrently a on euterpe.b (c);",
            "create index a on b (c);",
            "create index a on euterpe.b (c); drop table d;",
            "create index a on euterpe.b (c)",
            "create index a_name_that_leaves_no_room_for_the_week_of_a_partition on euterpe.b (c);",
        ] {
            assert_eq!(OnlineIndex::parse(bad), None, "{bad}");
        }
    }
}
