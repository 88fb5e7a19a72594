//! Brings a database up to this binary: roles, then tables by refinery, then functions by hash ledger.
//!
//! Only `euterpe-migrate` runs this. A server that migrated at boot would take the fleet down: refinery
//! refuses to start when the database is ahead of the binary, so an old pod that restarts in mid-roll-out
//! would never come back.

use std::collections::BTreeMap;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use super::functions::{self, Functions};
use super::online::{self, OnlineIndex};
use super::surface;
use super::tls::connect;

mod embedded {
    refinery::embed_migrations!("migrations/postgres");
}

/// Two migrators may start at once; the second waits here. The number is the ASCII of "euterpe", so that a
/// DBA can tell whose lock it is.
pub(super) const MIGRATION_LOCK: i64 = 0x65_75_74_65_72_70_65;

const HISTORY: &str = "euterpe.schema_history";

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
        binary: String,
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

    /// Something did not get its turn or its lock in time; what is done is done, and the next run goes on.
    #[error("in use: {0}\nNothing is lost; run it again when it is quieter.")]
    Busy(String),

    /// The login is that of somebody else.
    #[error(
        "this login may not do that: give EUTERPE_DATABASE_URL the one that migrates here, which may act as \
         euterpe_owner"
    )]
    NotOwner(#[source] tokio_postgres::Error),

    /// The database could not be reached, or dropped us.
    #[error("cannot talk to the database")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            Self::NotOwner(error)
        } else {
            Self::Database(error)
        }
    }
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
    /// Indexes that `online` would build.
    pub indexes_to_build: Vec<String>,
    /// What belongs to somebody else, and who lacks rights: what a restore without its roles leaves behind.
    pub half_restored: Vec<String>,
}

impl Status {
    /// Nothing is left to do.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.database_version == Some(self.binary_version)
            && self.functions_to_load.is_empty()
            && self.indexes_to_build.is_empty()
            && self.half_restored.is_empty()
    }
}

/// Brings the database up to this binary. Safe to run twice, and twice at once.
pub async fn migrate(config: &Config) -> Result<Report, MigrateError> {
    let mut session = Session::open(config).await?;
    let report = Report {
        migrations: run_migrations(&mut session.client).await?,
        functions: functions::load(&mut session.client, &Functions::of_this_release()).await?,
    };
    session.close().await;
    Ok(report)
}

/// The second half alone, with the functions of any release: how a roll-out is rehearsed before it happens.
pub async fn load_functions(config: &Config, functions: &Functions) -> Result<Vec<String>, MigrateError> {
    let mut session = Session::open(config).await?;
    let loaded = functions::load(&mut session.client, functions).await?;
    session.close().await;
    Ok(loaded)
}

/// The one migrator at work.
struct Session {
    client: Client,
    driver: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl Session {
    /// Waits for its turn, prepares the ground and becomes the owner.
    async fn open(config: &Config) -> Result<Self, MigrateError> {
        let (client, connection) = connect(config).await?;
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
        Ok(Self { client, driver })
    }

    /// The connection ends with its client; how it ended does not matter any more.
    async fn close(self) {
        drop(self.client);
        let _ = self.driver.await;
    }
}

/// Looks, and changes nothing.
pub async fn status(config: &Config) -> Result<Status, MigrateError> {
    let (client, connection) = connect(config).await?;
    tokio::spawn(connection);

    let wanted = Functions::of_this_release();
    let database_version = database_version(&client).await?;
    let loaded = if database_version.is_some() { functions::ledger(&client).await? } else { BTreeMap::new() };
    let half_restored = if database_version.is_some() { half_restored(&client).await? } else { Vec::new() };
    Ok(Status {
        half_restored,
        database_version,
        binary_version: binary_version(),
        functions_to_load: wanted.changed_since(&loaded),
        indexes_to_build: online::missing(&client, &OnlineIndex::of_this_release()).await?,
        functions_unknown: loaded.into_keys().filter(|path| !wanted.contains(path)).collect(),
    })
}

/// A dump names its roles and does not hold them: where they were missing, `pg_restore` goes on, everything belongs to
/// whoever restored, and nobody was granted anything. The ledger came along and says that all is loaded.
async fn half_restored(client: &Client) -> Result<Vec<String>, MigrateError> {
    const SQL: &str = "\
        with schemas as (
          select n.oid, n.nspname, n.nspowner from pg_namespace n where n.nspname in ('euterpe', 'euterpe_line')
        ), things as (
          select 'schema ' || s.nspname as thing, s.nspowner as owner from schemas s
           union all
          select c.oid::regclass::text, c.relowner
            from pg_class c
           where c.relnamespace in (select s.oid from schemas s)
           union all
          select p.oid::regprocedure::text, p.proowner
            from pg_proc p
           where p.pronamespace in (select s.oid from schemas s)
        ), calls as (
          select c.role, to_regprocedure(c.signature)::text as call,
                 has_schema_privilege(to_regrole(c.role)::oid, 'euterpe', 'usage')
                 and has_function_privilege(to_regrole(c.role)::oid, to_regprocedure(c.signature), 'execute') as may
            from unnest($1::text[], $2::text[]) c (role, signature)
        )
        select format('%s%s belongs to %s, not to euterpe_owner', min(t.thing),
                      case when count(*) > 1 then format(' (and %s more)', count(*) - 1) end, t.owner::regrole) as says
          from things t
         where t.owner is distinct from to_regrole('euterpe_owner')
         group by t.owner
         union all
        select case when to_regrole(c.role) is null then format('there is no role %s', c.role)
                    else format('%s may not call %s%s', c.role, min(c.call),
                                case when count(*) > 1 then format(' (and %s more)', count(*) - 1) end) end
          from calls c
         where c.call is not null and c.may is not true
         group by c.role
         order by says";
    let (mut roles, mut signatures) = (Vec::new(), Vec::new());
    for function in surface::functions_of_this_release() {
        for role in &function.roles {
            roles.push(format!("euterpe_{role}"));
            signatures.push(function.signature());
        }
    }
    let rows = client.query(SQL, &[&roles, &signatures]).await?;
    Ok(rows.iter().map(|row| row.get("says")).collect())
}

/// Roles, and the owner's right to make schemas. Asks a DBA where this login may not.
async fn prepare_ground(client: &Client) -> Result<(), MigrateError> {
    let roles = functions::roles();
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
