//! `docs/schema.sql` is what the migrations make: a reviewer sees in its diff what a migration really did.
//!
//! Behaviour is not repeated there (functions and views are in `sql/`, one per file), nor is what depends on the day
//! (weekly partitions) or on the rows of `queues` (cursors of the lines).

use std::collections::BTreeSet;
use std::process::Command;

use euterpe::dev::Cluster;
use euterpe::store::migrate::migrate;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::support::{bare_database, make_roles};

/// Compares a file of the repository with what it should be. `make schema` writes it instead.
pub fn keep(path: &str, text: &str) {
    if std::env::var_os("EUTERPE_WRITE_SCHEMA").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let kept: Vec<_> = kept.lines().collect();
    let made: Vec<_> = text.lines().collect();
    let at = kept.iter().zip(&made).take_while(|(kept, made)| kept == made).count();
    assert_eq!(
        kept.get(at),
        made.get(at),
        "{path} line {}: `make schema` writes it, git shows the rest",
        at + 1
    );
}

/// Held on PostgreSQL 15: each major's pg_dump has words of its own.
#[tokio::test]
async fn the_schema_page_is_what_the_migrations_make() {
    make_roles().await;
    let database = bare_database().await;
    migrate(&database.config()).await.unwrap();
    let dump = pg_dump(&database.config());
    let text = format!(
        "-- What the migrations make, as pg_dump shows it. `make schema` writes this; a test compares.\n{}",
        state_of(&dump)
    );
    assert!(text.contains("CREATE TABLE euterpe.inbox_jobs"), "there was something to compare:\n{dump}");
    keep("docs/schema.sql", &text);
}

fn pg_dump(config: &Config) -> String {
    let program = Cluster::program("pg_dump").unwrap_or_else(|| "pg_dump".into());
    let mut command = Command::new(&program);
    command.args([
        "--schema-only",
        "--no-owner",
        "--no-privileges",
        "--schema=euterpe",
        "--schema=euterpe_line",
    ]);
    match &config.get_hosts()[0] {
        Host::Tcp(host) => command.env("PGHOST", host),
        Host::Unix(directory) => command.env("PGHOST", directory),
    };
    if let Some(port) = config.get_ports().first() {
        command.env("PGPORT", port.to_string());
    }
    if let Some(password) = config.get_password() {
        command.env("PGPASSWORD", String::from_utf8_lossy(password).as_ref());
    }
    command.env("PGUSER", config.get_user().unwrap()).env("PGDATABASE", config.get_dbname().unwrap());
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One object of a dump: what its headline says of it, and its statements.
struct Object<'a> {
    name: &'a str,
    kind: &'a str,
    body: &'a str,
}

impl<'a> Object<'a> {
    /// `-- Name: inbox_jobs; Type: TABLE; Schema: euterpe; Owner: -`, a line of dashes, then the statements.
    fn parse(text: &'a str) -> Option<Self> {
        let (headline, body) = text.split_once("\n--\n")?;
        let (name, rest) = headline.split_once("; Type: ")?;
        let (kind, _) = rest.split_once(';')?;
        Some(Self { name, kind, body })
    }

    /// The table, view, sequence or index that the object is or belongs to.
    fn relation(&self) -> &'a str {
        let name = ["COLUMN ", "TABLE ", "VIEW ", "TYPE ", "INDEX "]
            .iter()
            .find_map(|kind| self.name.strip_prefix(kind))
            .unwrap_or(self.name);
        name.split(['.', ' ']).next().unwrap_or(name)
    }
}

fn state_of(dump: &str) -> String {
    // What follows the last object is pg_dump's farewell.
    let dump = dump.split("\n--\n-- PostgreSQL database dump complete").next().unwrap();
    let objects: Vec<_> = dump.split("\n--\n-- Name: ").skip(1).filter_map(Object::parse).collect();
    let views: BTreeSet<_> =
        objects.iter().filter(|object| object.kind == "VIEW").map(|object| object.name).collect();
    let is_state = |object: &Object| {
        let is_behaviour = matches!(object.kind, "FUNCTION" | "VIEW")
            || object.name.starts_with("FUNCTION ")
            || views.contains(object.relation());
        !is_behaviour && !is_partition(object.body) && !is_cursor(object.relation())
    };
    let mut text = String::new();
    for object in objects.iter().filter(|object| is_state(object)) {
        if object.kind != "COMMENT" {
            text += "\n";
        }
        for line in object.body.lines().filter(|line| !line.is_empty() && !line.starts_with("SET ")) {
            text += line;
            text += "\n";
        }
    }
    text
}

/// Is or belongs to one week's partition: `…_p20250106`.
fn is_partition(body: &str) -> bool {
    body.match_indices("_p2").any(|(at, _)| {
        let digits = body[at + 2..].bytes().take_while(u8::is_ascii_digit).count();
        digits == 8
    })
}

/// A sequence that `create_queue_v1` made for one line: `q1_floor`.
fn is_cursor(relation: &str) -> bool {
    relation.strip_prefix('q').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}
