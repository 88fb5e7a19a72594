//! Drops history by the week: `euterpe-migrate retain`.
//!
//! Detaching concurrently cannot run in a function or a transaction, so this is Rust. Every step may be cut off
//! and is taken up by the next run.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use super::migrate::{MIGRATION_LOCK, MigrateError};
use super::tls::connect;

/// The inbox first: once it is detached, nobody can bring one of its jobs back to life.
const TABLES: [&str; 6] =
    ["inbox_jobs", "job_requests", "job_results", "job_secrets", "job_outbox_events", "outbox_attempts"];

/// One run of retain or online at a time; "eut" and a number of its own.
const TURN: &str = "select pg_try_advisory_lock(6649204, -1) as mine";

/// What became of a week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Week {
    /// It is gone.
    Dropped(String),
    /// It stays, and why.
    Kept(String, String),
}

/// Drops every week that ended more than `days` ago and holds nothing unfinished; at most 520 weeks a run.
/// `None`: another run, or a migrator, is at work.
pub async fn retain(config: &Config, days: i32) -> Result<Option<Vec<Week>>, MigrateError> {
    let (client, connection) = connect(config).await?;
    tokio::spawn(connection);
    // Not while a release is loaded: granting and dropping meet in the catalog, and one of them would fail with "tuple
    // concurrently updated". A migrator waits for us in turn.
    let alone = client.query_one("select pg_try_advisory_lock($1) as mine", &[&MIGRATION_LOCK]).await?;
    if !alone.get::<_, bool>("mine") || !take_turn(&client).await? {
        return Ok(None);
    }
    // Detaching waits for transactions that may still look at the partition. Nobody queues up behind that wait,
    // but it must end: what is left half detached is finished by the next run.
    client
        .batch_execute("set role euterpe_owner; set timezone = 'UTC'; set lock_timeout = '5s'; set statement_timeout = '60s'")
        .await?;

    let mut weeks = Vec::new();
    for (name, unfinished, undelivered) in old_weeks(&client, days).await? {
        if unfinished + undelivered > 0 {
            let why = format!("{unfinished} unfinished jobs, {undelivered} undelivered events");
            weeks.push(Week::Kept(name, why));
        } else {
            weeks.push(drop_week(&client, name).await?);
        }
    }
    // Ends with the session too, but a moment after we have answered.
    client.batch_execute("select pg_advisory_unlock_all()").await?;
    Ok(Some(weeks))
}

/// Whether this session is the one that may take partitions away, or build on them, until it ends.
pub(super) async fn take_turn(client: &Client) -> Result<bool, MigrateError> {
    Ok(client.query_one(TURN, &[]).await?.get("mine"))
}

/// Weeks that are old enough, and those that an earlier run began to drop.
async fn old_weeks(client: &Client, days: i32) -> Result<Vec<(String, i64, i64)>, MigrateError> {
    let rows = client
        .query(
            "select to_char(w.week at time zone 'UTC', 'YYYYMMDD') as name, w.unfinished_jobs, w.undelivered_events
               from euterpe.prunable_weeks_v1($1) w
             union
             select right(c.relname, 8), 0, 0
               from pg_class c
              where c.relnamespace = 'euterpe'::regnamespace and c.relkind = 'r'
                and left(c.relname, -10) = any ($2) and c.relname ~ '_p[0-9]{8}$'
                and to_date(right(c.relname, 8), 'YYYYMMDD') + 7 <= (euterpe._now() - make_interval(days => $1))::date
                and not exists (select from pg_class i
                                 where i.oid = to_regclass('euterpe.inbox_jobs_p' || right(c.relname, 8))
                                   and i.relispartition)
              order by 1
              limit 520",
            &[&days, &TABLES.map(str::to_owned).to_vec()],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
}

async fn drop_week(client: &Client, week: String) -> Result<Week, MigrateError> {
    for table in TABLES {
        match drop_partition(client, table, &week).await {
            Ok(None) => {}
            Ok(Some(why)) => return Ok(Week::Kept(week, why)),
            Err(MigrateError::Database(error)) if is_busy(&error) => {
                let why = format!("{table} is in use; the next run goes on");
                return Ok(Week::Kept(week, why));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Week::Dropped(week))
}

/// Detaches and drops one partition; says why not when it has to stay.
async fn drop_partition(client: &Client, table: &str, week: &str) -> Result<Option<String>, MigrateError> {
    let partition = format!("euterpe.{table}_p{week}");
    let row = client
        .query_one(
            "select to_regclass($1) is not null as there,
                    coalesce((select i.inhdetachpending from pg_inherits i where i.inhrelid = to_regclass($1)), false)
                      as is_pending,
                    exists (select from pg_inherits i where i.inhrelid = to_regclass($1)) as is_attached",
            &[&partition],
        )
        .await?;
    if !row.get::<_, bool>("there") {
        return Ok(None);
    }
    if row.get::<_, bool>("is_pending") {
        client
            .batch_execute(&format!("alter table euterpe.{table} detach partition {partition} finalize"))
            .await?;
    } else if row.get::<_, bool>("is_attached") {
        client
            .batch_execute(&format!("alter table euterpe.{table} detach partition {partition} concurrently"))
            .await?;
    }

    // Between the look and the detaching somebody may have retried a failed job of that week, or asked for its events
    // again. From here on nobody can: both begin with the job.
    if table == "inbox_jobs" {
        let revived: bool = client
            .query_one(
                &format!(
                    "select exists (select from {partition} where finished_at is null)
                         or exists (select from euterpe.job_outbox_events e,
                                           (select to_date($1, 'YYYYMMDD')::timestamp at time zone 'UTC' as week) w
                                     where e.job_id >= euterpe._id_floor(w.week)
                                       and e.job_id < euterpe._id_floor(w.week + interval '1 week')
                                       and e.finished_at is null) as revived"
                ),
                &[&week],
            )
            .await?
            .get("revived");
        if revived {
            attach_again(client, table, &partition, week).await?;
            return Ok(Some("a job of it was brought back to life".into()));
        }
    }
    client.batch_execute(&format!("drop table {partition}")).await?;
    Ok(None)
}

async fn attach_again(client: &Client, table: &str, partition: &str, week: &str) -> Result<(), MigrateError> {
    let row = client
        .query_one(
            "select euterpe._id_floor(w.week)::text as low, euterpe._id_floor(w.week + interval '1 week')::text as high
               from (select to_date($1, 'YYYYMMDD')::timestamp at time zone 'UTC' as week) w",
            &[&week],
        )
        .await?;
    let (low, high): (&str, &str) = (row.get("low"), row.get("high"));
    client
        .batch_execute(&format!(
            "alter table euterpe.{table} attach partition {partition} for values from ('{low}') to ('{high}');
             select euterpe._refile_jobs('{low}', '{high}'), euterpe._refile_events('{low}', '{high}')"
        ))
        .await?;
    Ok(())
}

pub(super) fn is_busy(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED, SqlState::T_R_DEADLOCK_DETECTED]
            .contains(code)
    })
}
