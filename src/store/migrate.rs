//! Brings a database up to this binary: roles, then tables by refinery, then functions by hash ledger.
//!
//! Only `euterpe-migrate` runs this. A server that migrated at boot would take the fleet down: refinery
//! refuses to start when the database is ahead of the binary, so an old pod that restarts in mid-roll-out
//! would never come back.

use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, Transaction};

mod embedded {
    refinery::embed_migrations!("migrations/postgres");
}

static SQL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/sql");

/// Two migrators may start at once; the second waits here. The number is the ASCII of "euterpe", so that a
/// DBA can tell whose lock it is.
const MIGRATION_LOCK: i64 = 0x65_75_74_65_72_70_65;

/// Of this binary; three numbers.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

const HISTORY: &str = "euterpe.schema_history";

/// Files of `sql/` that hold no function, by what is done with them.
const ROLES: &str = "roles.sql";
const GRANTS: &str = "grants.sql";
const SEED: &str = "seed.sql";

/// Why a database could not be brought up to this release.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The migrator may not do what must be done first. The message carries the SQL for somebody who may.
    #[error(
        "this login may not {cannot}.\nLet a superuser run this in the same database, then start again:\n\n{sql}"
    )]
    NotAllowed {
        /// What it may not do.
        cannot: &'static str,
        /// What a superuser should run.
        sql: String,
    },

    /// A newer release was here.
    #[error(
        "this database is at migration V{database}, this euterpe-migrate knows only V{binary}: a newer release \
         was here.\nNothing was changed. Running services of this release are safe; to migrate, use the \
         euterpe-migrate of the newer release."
    )]
    DatabaseIsNewer {
        /// What the database has.
        database: i32,
        /// What this binary has.
        binary: i32,
    },

    /// A newer release was here, and brought functions but no migration.
    #[error(
        "functions of release {database} are loaded here, this euterpe-migrate is {binary}: it would put older ones \
         over them.\nNothing was changed. Use the euterpe-migrate of the newer release."
    )]
    FunctionsAreNewer {
        /// What the database has.
        database: String,
        /// What this binary is.
        binary: &'static str,
    },

    /// A migration failed; it was rolled back.
    #[error("migration failed and was rolled back")]
    Migration(#[source] refinery::Error),

    /// A file of `sql/` was refused; nothing of this release's functions was loaded.
    #[error("sql/{path} was refused, no function was changed")]
    Function {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },

    /// The database could not be reached, or dropped us.
    #[error("cannot talk to the database")]
    Database(#[from] tokio_postgres::Error),
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Report {
    /// Migrations applied now, by name.
    pub migrations: Vec<String>,
    /// Files of `sql/` loaded now.
    pub functions: Vec<String>,
}

/// How a database compares with this binary.
#[derive(Debug)]
pub struct Status {
    /// Newest migration in the database; `None`: Euterpe is not here.
    pub database_version: Option<i32>,
    /// Newest migration in this binary.
    pub binary_version: i32,
    /// Files of `sql/` that are not loaded in this wording.
    pub functions_to_load: Vec<String>,
    /// Files that are loaded there and unknown here.
    pub functions_unknown: Vec<String>,
}

impl Status {
    /// Nothing is left to do.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.database_version == Some(self.binary_version) && self.functions_to_load.is_empty()
    }
}

/// Brings the database up to this binary. Safe to run twice, and twice at once.
pub async fn migrate(config: &Config) -> Result<Report, MigrateError> {
    let (mut client, connection) = config.connect(NoTls).await?;
    let driver = tokio::spawn(connection);

    // Held by this session, so that it ends with it whatever happens.
    client.execute("select pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await?;
    prepare_ground(&client).await?;
    // A migration that cannot get its lock gives up instead of making the whole fleet queue up behind it.
    client
        .batch_execute(
            "set lock_timeout = '10s'; set statement_timeout = '30min';
             set role euterpe_owner; create schema if not exists euterpe",
        )
        .await?;

    let report = Report {
        migrations: run_migrations(&mut client).await?,
        functions: load_functions(&mut client).await?,
    };

    drop(client);
    // The connection ends with its client; how it ended does not matter any more.
    let _ = driver.await;
    Ok(report)
}

/// Looks, and changes nothing.
pub async fn status(config: &Config) -> Result<Status, MigrateError> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);

    let wanted = function_files();
    let database_version = database_version(&client).await?;
    let loaded = if database_version.is_some() { ledger(&client).await? } else { BTreeMap::new() };
    Ok(Status {
        database_version,
        binary_version: binary_version(),
        functions_to_load: wanted
            .iter()
            .filter(|file| loaded.get(file.path) != Some(&file.sha256))
            .map(|file| file.path.to_owned())
            .collect(),
        functions_unknown: loaded
            .into_keys()
            .filter(|path| wanted.iter().all(|file| file.path != path))
            .collect(),
    })
}

/// Roles, and the owner's right to make schemas. Asks a DBA where this login may not.
async fn prepare_ground(client: &Client) -> Result<(), MigrateError> {
    let roles = sql_text(ROLES);
    let row = client
        .query_one(
            "select quote_ident(current_database()) as database, quote_ident(current_user) as login,
                    (select count(*) from pg_roles
                      where rolname in ('euterpe_owner', 'euterpe_api', 'euterpe_transcode', 'euterpe_webhook',
                                        'euterpe_operator', 'euterpe_readonly')) as roles",
            &[],
        )
        .await?;
    let (database, login): (&str, &str) = (row.get("database"), row.get("login"));
    let remedy = format!(
        "{roles}\ngrant euterpe_owner to {login};\ngrant create on database {database} to euterpe_owner;\n"
    );
    let not_allowed = |cannot| MigrateError::NotAllowed { cannot, sql: remedy.clone() };

    if row.get::<_, i64>("roles") < 6 {
        let created = client.batch_execute(roles).await;
        if is_forbidden(&created) {
            return Err(not_allowed("create the roles of Euterpe"));
        }
        created?;
    }

    let may: bool = client
        .query_one("select pg_has_role(current_user, 'euterpe_owner', 'MEMBER') as may", &[])
        .await?
        .get("may");
    if !may {
        return Err(not_allowed("act as euterpe_owner"));
    }

    if !owner_may_create(client).await? {
        // Someone who may not grant gets a warning, not an error: look again afterwards.
        client.batch_execute(&format!("grant create on database {database} to euterpe_owner")).await.ok();
        if !owner_may_create(client).await? {
            return Err(not_allowed("let euterpe_owner make schemas here"));
        }
    }
    Ok(())
}

async fn owner_may_create(client: &Client) -> Result<bool, MigrateError> {
    let sql = "select has_database_privilege('euterpe_owner', current_database(), 'CREATE') as may";
    Ok(client.query_one(sql, &[]).await?.get("may"))
}

fn is_forbidden<T>(result: &Result<T, tokio_postgres::Error>) -> bool {
    result.as_ref().is_err_and(|error| error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE))
}

async fn run_migrations(client: &mut Client) -> Result<Vec<String>, MigrateError> {
    let binary = binary_version();
    if let Some(database) = database_version(client).await?
        && database > binary
    {
        return Err(MigrateError::DatabaseIsNewer { database, binary });
    }

    let mut runner = embedded::migrations::runner();
    runner.set_migration_table_name(HISTORY);
    let report = runner.run_async(client).await.map_err(MigrateError::Migration)?;
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}

/// All changed files in one transaction: nobody ever sees half a release.
async fn load_functions(client: &mut Client) -> Result<Vec<String>, MigrateError> {
    refuse_newer_functions(client).await?;
    let loaded = ledger(client).await?;
    let mut transaction = client.transaction().await?;
    // Functions may name each other in any order; plpgsql_check looks at all of them in the tests.
    transaction.batch_execute("set local check_function_bodies = off").await?;

    let mut changed = Vec::new();
    for file in function_files() {
        if loaded.get(file.path) == Some(&file.sha256) {
            continue;
        }
        load_file(&mut transaction, &file).await?;
        transaction
            .execute(
                "insert into euterpe.sql_functions (path, sha256, release, loaded_at)
                 values ($1, $2, $3, clock_timestamp())
                     on conflict (path) do update
                    set sha256 = excluded.sha256, release = excluded.release, loaded_at = excluded.loaded_at",
                &[&file.path, &file.sha256, &RELEASE],
            )
            .await?;
        changed.push(file.path.to_owned());
    }
    if !changed.is_empty() {
        run_file(&transaction, GRANTS, sql_text(GRANTS)).await?;
    }
    run_file(&transaction, SEED, sql_text(SEED)).await?;
    transaction.commit().await?;
    Ok(changed)
}

async fn refuse_newer_functions(client: &Client) -> Result<(), MigrateError> {
    let newest = client
        .query_opt(
            "select release from euterpe.sql_functions
              where string_to_array(release, '.')::integer[] > string_to_array($1, '.')::integer[]
              order by string_to_array(release, '.')::integer[] desc
              limit 1",
            &[&RELEASE],
        )
        .await?;
    newest.map_or(Ok(()), |row| {
        Err(MigrateError::FunctionsAreNewer { database: row.get("release"), binary: RELEASE })
    })
}

/// A private function may change its signature from one release to the next, because all its callers change with it;
/// `create or replace` cannot do that, so the old one is dropped first. A public one never may: it gets a new version.
async fn load_file(transaction: &mut Transaction<'_>, file: &FunctionFile) -> Result<(), MigrateError> {
    let attempt = transaction.transaction().await?;
    match run_file(&attempt, file.path, file.text).await {
        Ok(()) => attempt.commit().await?,
        Err(MigrateError::Function { source, .. }) if file.is_private() && is_other_signature(&source) => {
            attempt.rollback().await?;
            let old = transaction
                .query(
                    "select p.oid::regprocedure::text from pg_proc p
                      where p.pronamespace = 'euterpe'::regnamespace and p.proname = $1",
                    &[&file.name()],
                )
                .await?;
            for signature in old.iter().map(|row| row.get::<_, String>(0)) {
                transaction.batch_execute(&format!("drop function {signature}")).await?;
            }
            run_file(transaction, file.path, file.text).await?;
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

fn binary_version() -> i32 {
    let migrations =
        embedded::migrations::runner().get_migrations().iter().map(refinery::Migration::version).max();
    migrations.unwrap_or(0)
}

async fn database_version(client: &Client) -> Result<Option<i32>, MigrateError> {
    let there: bool =
        client.query_one("select to_regclass($1) is not null as there", &[&HISTORY]).await?.get("there");
    if !there {
        return Ok(None);
    }
    let row = client.query_one("select max(version) as version from euterpe.schema_history", &[]).await?;
    Ok(row.get("version"))
}

async fn ledger(client: &Client) -> Result<BTreeMap<String, String>, MigrateError> {
    let rows = client.query("select path, sha256 from euterpe.sql_functions", &[]).await?;
    Ok(rows.iter().map(|row| (row.get("path"), row.get("sha256"))).collect())
}

struct FunctionFile {
    path: &'static str,
    text: &'static str,
    sha256: String,
}

impl FunctionFile {
    /// The function the file defines.
    fn name(&self) -> &'static str {
        let file = self.path.rsplit('/').next().unwrap_or(self.path);
        file.trim_end_matches(".sql")
    }

    fn is_private(&self) -> bool {
        self.name().starts_with('_')
    }
}

/// The functions, then the views that may call them. grants.sql counts as a file, so that a changed grant is
/// a change.
fn function_files() -> Vec<FunctionFile> {
    let mut files: Vec<_> = SQL
        .dirs()
        .flat_map(Dir::files)
        .chain(SQL.get_file(GRANTS))
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "sql"))
        .map(|file| {
            let path = file.path().to_str().expect("our own file names are ASCII");
            let text = file.contents_utf8().expect("our own SQL is UTF-8");
            FunctionFile { path, text, sha256: hex::encode(Sha256::digest(text)) }
        })
        .collect();
    files.sort_by_key(|file| (file.path == GRANTS, file.path.starts_with("views/"), file.path));
    files
}

fn sql_text(path: &str) -> &'static str {
    SQL.get_file(path)
        .and_then(include_dir::File::contents_utf8)
        .expect("the file is part of this repository")
}
