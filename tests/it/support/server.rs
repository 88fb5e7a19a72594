//! The Postgres of the tests: `EUTERPE_TEST_DATABASE_URL`, else a private cluster from local binaries, else (with
//! the feature `containers`) a container, else a clear failure. Never a skip.

use std::sync::OnceLock;

use tokio::sync::OnceCell;
use tokio_postgres::Config;

use euterpe::dev::{Cluster, Durability};
use euterpe::store::migrate;

use super::connect;

/// Tests lose everything with the process; what needs a durable server starts one. Autovacuum is off, so that no
/// table ever has statistics: that is when planners do strange things.
pub const SETTINGS: &[&str] =
    &["max_connections=300", "autovacuum=off", "shared_buffers=256MB", "log_statement=none"];

enum Server {
    Given(Box<Config>),
    Private(Cluster),
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        if let Ok(url) = std::env::var("EUTERPE_TEST_DATABASE_URL") {
            let config = url.parse().expect("EUTERPE_TEST_DATABASE_URL is a connection string");
            return Server::Given(Box::new(config));
        }
        match Cluster::start(&Cluster::scratch("tests"), Durability::Fast, SETTINGS) {
            Ok(cluster) => Server::Private(cluster),
            #[cfg(feature = "containers")]
            Err(euterpe::dev::ClusterError::NotInstalled) => Server::Given(Box::new(container())),
            Err(error) => panic!(
                "no Postgres for the tests: {error}\nEither run `make setup`, or set EUTERPE_TEST_DATABASE_URL to a \
                 superuser of a throw-away server, or run with --features containers where Docker answers."
            ),
        }
    })
}

/// The superuser's way to `database`.
pub fn config(database: &str) -> Config {
    let mut config = match server() {
        Server::Given(config) => Config::clone(config),
        Server::Private(cluster) => cluster.url(database).parse().expect("our own connection string"),
    };
    config.dbname(database).application_name("euterpe-tests");
    config
}

/// The name of the migrated template, made once per process. Its clock can be wound.
pub async fn template() -> &'static str {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(|| async {
            let name = format!("template_{}", std::process::id());
            let admin = connect(&config("postgres")).await;
            admin.batch_execute(&format!("create database {name}")).await.unwrap();
            make_roles().await;
            prepare(&config(&name)).await;
            admin
                .batch_execute(&format!("alter database {name} is_template true allow_connections false"))
                .await
                .unwrap();
            name
        })
        .await
}

/// Migrated, with a clock that can be wound, and with the mutant if there is one.
pub async fn prepare(config: &Config) {
    let client = connect(config).await;
    log_in_roles(&client).await;
    migrate::migrate(config).await.unwrap();
    client.batch_execute(include_str!("wound_clock.sql")).await.unwrap();
    load_mutant(config).await;
}

/// Our roles, able to log in here, and a login that has all of them but the owner's and the reader's.
///
/// Made before any database is migrated: roles belong to the cluster, which all tests share.
pub async fn make_roles() {
    static ROLES: OnceCell<()> = OnceCell::const_new();
    ROLES.get_or_init(|| async { log_in_roles(&connect(&config("postgres")).await).await }).await;
}

async fn log_in_roles(admin: &tokio_postgres::Client) {
    admin.batch_execute(include_str!("../../../sql/roles.sql")).await.unwrap();
    admin
        .batch_execute(
            "do $$ begin
                       create role euterpe_test login
                         in role euterpe_api, euterpe_transcode, euterpe_webhook, euterpe_operator;
                     exception when duplicate_object then null; end $$;
                     alter role euterpe_test set lock_timeout = '10s';
                     alter role euterpe_test set statement_timeout = '60s';
                     alter role euterpe_api login;
                     alter role euterpe_transcode login;
                     alter role euterpe_webhook login;
                     alter role euterpe_operator login;
                     alter role euterpe_readonly login",
        )
        .await
        .unwrap();
}

/// `make mutants` breaks one function on purpose and expects a test to notice: the broken files lie in this
/// directory and are loaded over the good ones.
pub async fn load_mutant(config: &Config) {
    let Some(dir) = std::env::var_os("EUTERPE_TEST_MUTANT") else { return };
    let client = connect(config).await;
    client.batch_execute("set check_function_bodies = off").await.unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        client.batch_execute(&text).await.expect("THE MUTANT DOES NOT LOAD");
    }
}

#[cfg(feature = "containers")]
fn container() -> Config {
    use testcontainers::core::{IntoContainerPort, WaitFor};
    use testcontainers::runners::AsyncRunner;
    use testcontainers::{GenericImage, ImageExt};

    // On a thread with a runtime of its own: the caller is inside one already.
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let container = GenericImage::new("postgres", "15")
                .with_exposed_port(5432.tcp())
                .with_wait_for(WaitFor::message_on_stderr("database system is ready to accept connections"))
                .with_env_var("POSTGRES_HOST_AUTH_METHOD", "trust")
                .with_cmd(["-c", "max_connections=300", "-c", "autovacuum=off", "-c", "fsync=off"])
                .start()
                .await
                .expect("Docker answers");
            let port = container.get_host_port_ipv4(5432).await.expect("the port is published");
            std::mem::forget(container); // lives as long as the tests; the reaper takes it afterwards
            format!("host=127.0.0.1 port={port} user=postgres").parse().expect("our own connection string")
        })
    })
    .join()
    .unwrap()
}
