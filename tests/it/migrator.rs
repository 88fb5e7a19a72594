//! Design §2: `euterpe-migrate` may be started twice, at once, by somebody who is no superuser; and it never
//! pulls a newer database down.

use euterpe::store::migrate::{MigrateError, migrate, status};
use euterpe::store::retain::retain;
use tokio_postgres::Config;

use crate::support::{TestDb, bare_database, connect};

#[tokio::test]
async fn started_four_times_at_once_all_succeed_and_the_second_time_nothing_is_left() {
    crate::support::make_roles().await;
    let database = bare_database().await;
    let config = database.config();
    let runs = (0..4).map(|_| {
        let config = config.clone();
        tokio::spawn(async move { migrate(&config).await })
    });
    let mut applied = 0;
    for run in futures_util::future::join_all(runs).await {
        applied += run.unwrap().unwrap().migrations.len();
    }
    assert_eq!(applied, migration_files(), "each migration once, over all runs");

    let again = migrate(&config).await.unwrap();
    assert!(again.migrations.is_empty() && again.functions.is_empty(), "{again:?}");
    let status = status(&config).await.unwrap();
    assert!(status.is_current(), "{status:?}");
}

/// refinery passes over a file whose name does not fit, with no more than a line in the log.
fn migration_files() -> usize {
    let files: Vec<_> =
        std::fs::read_dir("migrations/postgres").unwrap().map(|f| f.unwrap().file_name()).collect();
    for file in &files {
        let name = file.to_str().unwrap();
        let (number, rest) = name.split_at(5);
        assert!(
            number.starts_with('V')
                && number[1..].bytes().all(|b| b.is_ascii_digit())
                && rest.starts_with("__"),
            "{name} would be skipped: V0001__what_it_does.sql"
        );
    }
    files.len()
}

#[tokio::test]
async fn a_changed_function_is_loaded_again_and_an_unchanged_one_is_not() {
    let db = TestDb::fresh().await;
    db.run(
        "update euterpe.sql_functions set sha256 = repeat('0', 64) where path = 'inbox/claim_jobs_v1.sql'",
    )
    .await;
    let before = status(&db.config()).await.unwrap();
    assert_eq!(before.functions_to_load, ["inbox/claim_jobs_v1.sql"]);
    let report = migrate(&db.config()).await.unwrap();
    assert_eq!(report.functions, ["inbox/claim_jobs_v1.sql"]);
    assert!(status(&db.config()).await.unwrap().is_current());
}

#[tokio::test]
async fn a_newer_database_is_refused_with_a_sentence_that_helps() {
    let db = TestDb::fresh().await;
    db.run(
        "insert into euterpe.schema_history (version, name, applied_on, checksum)
         values (9999, 'from_the_future', '2030-01-01T00:00:00Z', '1');
         insert into euterpe.sql_functions values ('inbox/claim_jobs_v9.sql', repeat('0', 64), '9.0.0', now())",
    )
    .await;
    let refused = migrate(&db.config()).await.unwrap_err();
    assert!(matches!(refused, MigrateError::DatabaseIsNewer { database: 9999, .. }), "{refused:?}");
    assert!(refused.to_string().contains("newer release"), "{refused}");
    let status = status(&db.config()).await.unwrap();
    assert_eq!(status.functions_unknown, ["inbox/claim_jobs_v9.sql"]);
}

/// A DBA runs the printed SQL once; from then on a plain login that may act as euterpe_owner is enough.
#[tokio::test]
async fn a_plain_login_is_told_what_it_lacks_and_then_succeeds() {
    let database = bare_database().await;
    let superuser = connect(&database.config()).await;
    let login = format!("plain_{}", std::process::id());
    superuser.batch_execute(&format!("create role {login} login nosuperuser")).await.unwrap();
    let mut plain: Config = database.config();
    plain.user(&login);

    // The roles are there already, made for the other tests; this login may not act as their owner yet.
    crate::support::make_roles().await;
    let refused = migrate(&plain).await.unwrap_err();
    let MigrateError::NotAllowed { cannot, sql } = refused else { panic!("{refused:?}") };
    assert_eq!(cannot, "act as euterpe_owner");

    // One that may do something else here is told whose work this is.
    superuser.batch_execute("create schema euterpe; create table euterpe.schema_history ()").await.unwrap();
    for told in [status(&plain).await.err(), retain(&plain, 90).await.err()] {
        let told = told.unwrap();
        assert!(matches!(told, MigrateError::NotOwner(_)), "{told:?}");
        assert!(told.to_string().contains("which may act as euterpe_owner"), "{told}");
    }
    superuser.batch_execute("drop schema euterpe cascade").await.unwrap();

    superuser.batch_execute(&sql).await.unwrap();
    let report = migrate(&plain).await.unwrap();
    assert_eq!(report.migrations.len(), migration_files());
    assert!(migrate(&plain).await.unwrap().migrations.is_empty());

    let owners: Vec<String> = superuser
        .query(
            "select distinct r.rolname::text from pg_class c join pg_roles r on r.oid = c.relowner
              where c.relnamespace in ('euterpe'::regnamespace, 'euterpe_line'::regnamespace)",
            &[],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(owners, ["euterpe_owner"], "not the login that happened to migrate");
    drop(database);
    let admin = connect(&crate::support::admin_config()).await;
    admin.batch_execute(&format!("revoke euterpe_owner from {login}; drop role {login}")).await.unwrap();
}

/// A file that does not load leaves the whole release unloaded: nobody sees half of one.
#[tokio::test]
async fn a_refused_file_changes_nothing() {
    let db = TestDb::fresh().await;
    // create or replace cannot rename an argument, so loading tick_v1 again must fail …
    db.run(
        "drop function euterpe.tick_v1; create function euterpe.tick_v1(p_other text) returns boolean
           language sql as 'select true';
         alter function euterpe.tick_v1 owner to euterpe_owner;
         update euterpe.sql_functions set sha256 = repeat('0', 64)",
    )
    .await;
    let refused = migrate(&db.config()).await.unwrap_err();
    assert!(
        matches!(&refused, MigrateError::Function { path, .. } if path == "line/tick_v1.sql"),
        "{refused:?}"
    );
    // … and nothing else was loaded with it.
    let loaded: i64 =
        db.one("select count(*) from euterpe.sql_functions where sha256 <> repeat('0', 64)").await;
    assert_eq!(loaded, 0);
}

/// All callers of a private function change with it, so its signature may change from release to release.
#[tokio::test]
async fn a_private_function_may_change_its_signature() {
    let db = TestDb::fresh().await;
    db.run(
        "drop function euterpe._lock_jobs;
         create function euterpe._lock_jobs(p_other integer) returns integer language sql as 'select 1';
         alter function euterpe._lock_jobs owner to euterpe_owner;
         update euterpe.sql_functions set sha256 = repeat('0', 64) where path = 'shared/_lock_jobs.sql'",
    )
    .await;
    let report = migrate(&db.config()).await.unwrap();
    assert_eq!(report.functions, ["shared/_lock_jobs.sql"]);
    let signature: String = db.one("select 'euterpe._lock_jobs'::regproc::regprocedure::text").await;
    assert_eq!(signature, "euterpe._lock_jobs(uuid[])");
}

/// A release may bring functions and no migration: an older migrator must not put its own over them.
#[tokio::test]
async fn functions_of_a_newer_release_are_not_replaced_by_older_ones() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.sql_functions set release = '10.0.0', sha256 = repeat('0', 64) where path = 'line/tick_v1.sql'").await;
    let refused = migrate(&db.config()).await.unwrap_err();
    assert!(
        matches!(&refused, MigrateError::FunctionsAreNewer { database, .. } if database == "10.0.0"),
        "{refused:?}"
    );
    assert_eq!(db.one::<i64>("select count(*) from euterpe.sql_functions where release = '10.0.0'").await, 1);
}

/// After a restore without its roles the ledger says that all is loaded, and nobody may do anything.
#[tokio::test]
async fn a_half_restored_database_is_not_called_current() {
    let db = TestDb::fresh().await;
    assert_eq!(status(&db.config()).await.unwrap().half_restored, [""; 0]);
    db.run(
        "alter function euterpe.tick_v1 owner to current_user; revoke usage on schema euterpe from euterpe_webhook",
    )
    .await;
    let status = status(&db.config()).await.unwrap();
    assert!(!status.is_current());
    let [alien, refused] = &status.half_restored[..] else { panic!("{status:?}") };
    assert!(alien.contains("tick_v1(text) belongs to ") && alien.contains("not to euterpe_owner"), "{alien}");
    assert!(refused.starts_with("euterpe_webhook may not call euterpe.claim_events_v1("), "{refused}");
}
