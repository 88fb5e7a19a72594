//! The behaviour of one release, and how it gets into a database: the files of `sql/`, by hash ledger.
//!
//! Whoever calls must be the only migrator at work (`migrate.rs` sees to it): two sessions that replace the same
//! function at once fail with "tuple concurrently updated".

use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Transaction};

use super::migrate::MigrateError;

static SQL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/sql");

/// Files of `sql/` that hold no function, by what is done with them.
const ROLES: &str = "roles.sql";
const GRANTS: &str = "grants.sql";
const SEED: &str = "seed.sql";

/// The functions, views and grants of one release.
#[derive(Debug, Clone)]
pub struct Functions {
    release: String,
    /// Path below `sql/`, and text.
    files: BTreeMap<String, String>,
}

impl Functions {
    /// What this binary carries. A file counts when it ends in `.sql`; `grants.sql` does, so that a changed grant
    /// is a change.
    ///
    /// # Panics
    /// Never: the files are part of this repository.
    #[must_use]
    pub fn of_this_release() -> Self {
        let files = SQL
            .dirs()
            .flat_map(Dir::files)
            .chain(SQL.get_file(GRANTS))
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "sql"))
            .map(|file| {
                let path = file.path().to_str().expect("our own file names are ASCII");
                let text = file.contents_utf8().expect("our own SQL is UTF-8");
                (path.to_owned(), text.to_owned())
            })
            .collect();
        Self { release: env!("CARGO_PKG_VERSION").to_owned(), files }
    }

    /// The same, as `release` (three numbers) has them.
    #[must_use]
    pub fn named(self, release: &str) -> Self {
        Self { release: release.to_owned(), ..self }
    }

    /// The same with one file changed or added.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    /// The text of one file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Paths that `ledger` does not have in this wording, in loading order: the functions, then the views that may
    /// call them, then the grants.
    pub(super) fn changed_since(&self, ledger: &BTreeMap<String, String>) -> Vec<String> {
        let changed = self.files.iter().filter(|(path, text)| ledger.get(*path) != Some(&sha256(text)));
        let mut paths: Vec<_> = changed.map(|(path, _)| path.clone()).collect();
        paths.sort_by_key(|path| (path == GRANTS, path.starts_with("views/")));
        paths
    }
}

/// Loads what changed, all in one transaction: no call that begins sees half a release.
pub(super) async fn load(client: &mut Client, functions: &Functions) -> Result<Vec<String>, MigrateError> {
    refuse_newer(client, functions).await?;
    let changed = functions.changed_since(&ledger(client).await?);
    let mut transaction = client.transaction().await?;
    // Functions may name each other in any order; plpgsql_check looks at all of them in the tests.
    transaction.batch_execute("set local check_function_bodies = off").await?;

    for path in &changed {
        let text = &functions.files[path];
        load_file(&mut transaction, path, text).await?;
        transaction
            .execute(
                "insert into euterpe.sql_functions (path, sha256, release, loaded_at)
                 values ($1, $2, $3, clock_timestamp())
                     on conflict (path) do update
                    set sha256 = excluded.sha256, release = excluded.release, loaded_at = excluded.loaded_at",
                &[path, &sha256(text), &functions.release],
            )
            .await?;
    }
    if !changed.is_empty() {
        run_file(&transaction, GRANTS, &functions.files[GRANTS]).await?;
    }
    run_file(&transaction, SEED, embedded(SEED)).await?;
    transaction.commit().await?;
    Ok(changed)
}

async fn refuse_newer(client: &Client, functions: &Functions) -> Result<(), MigrateError> {
    let newest = client
        .query_opt(
            "select release from euterpe.sql_functions
              where string_to_array(release, '.')::integer[] > string_to_array($1, '.')::integer[]
              order by string_to_array(release, '.')::integer[] desc
              limit 1",
            &[&functions.release],
        )
        .await?;
    newest.map_or(Ok(()), |row| {
        Err(MigrateError::FunctionsAreNewer {
            database: row.get("release"),
            binary: functions.release.clone(),
        })
    })
}

/// A private function may change its signature from one release to the next, because all its callers change with it;
/// `create or replace` cannot do that, so the old one is dropped first. A public one never may: it gets a new version.
async fn load_file(transaction: &mut Transaction<'_>, path: &str, text: &str) -> Result<(), MigrateError> {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sql");
    let attempt = transaction.transaction().await?;
    match run_file(&attempt, path, text).await {
        Ok(()) => attempt.commit().await?,
        Err(MigrateError::Function { source, .. })
            if name.starts_with('_') && is_other_signature(&source) =>
        {
            attempt.rollback().await?;
            let old = transaction
                .query(
                    "select p.oid::regprocedure::text from pg_proc p
                      where p.pronamespace = 'euterpe'::regnamespace and p.proname = $1",
                    &[&name],
                )
                .await?;
            for signature in old.iter().map(|row| row.get::<_, String>(0)) {
                transaction.batch_execute(&format!("drop function {signature}")).await?;
            }
            run_file(transaction, path, text).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_other_signature(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        [SqlState::AMBIGUOUS_FUNCTION, SqlState::INVALID_FUNCTION_DEFINITION].contains(code)
    })
}

async fn run_file(transaction: &Transaction<'_>, path: &str, text: &str) -> Result<(), MigrateError> {
    transaction
        .batch_execute(text)
        .await
        .map_err(|source| MigrateError::Function { path: path.to_owned(), source })
}

/// What is loaded: path and hash.
pub(super) async fn ledger(client: &Client) -> Result<BTreeMap<String, String>, MigrateError> {
    let rows = client.query("select path, sha256 from euterpe.sql_functions", &[]).await?;
    Ok(rows.iter().map(|row| (row.get("path"), row.get("sha256"))).collect())
}

/// SQL that makes the group roles.
pub(super) fn roles() -> &'static str {
    embedded(ROLES)
}

fn embedded(path: &str) -> &'static str {
    SQL.get_file(path)
        .and_then(include_dir::File::contents_utf8)
        .expect("the file is part of this repository")
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
