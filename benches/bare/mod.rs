//! What every bench needs: a server of its own, and what things are measured against: Postgres doing the least it can.
#![allow(dead_code, reason = "each bench takes what it needs")]

use std::path::PathBuf;
use std::process::Command;

use euterpe::dev::{Cluster, Durability};
use tokio_postgres::Client;

/// A server on a disk, with fsync: that is half of what is measured. Gone with [`Bench::end`].
pub struct Bench {
    pub cluster: Cluster,
    dir: PathBuf,
}

impl Bench {
    pub fn start() -> Self {
        let dir = Cluster::place(&std::env::temp_dir().join(format!("euterpe-{}-bench", std::process::id())))
            .unwrap();
        let settings = ["shared_buffers=512MB", "max_wal_size=4GB"];
        let cluster = Cluster::start(&dir, Durability::Durable, &settings).unwrap();
        Self { cluster, dir }
    }

    pub fn end(self) {
        self.cluster.stop();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// Bare single-row updates by primary key, one transaction each, on one connection.
pub async fn updates_per_second(url: &str, client: &Client) -> f64 {
    client
        .batch_execute(
            "create table bare (id int primary key, n int) with (fillfactor = 50);
             insert into bare select g, 0 from generate_series(1, 10000) g; analyze bare",
        )
        .await
        .unwrap();
    pgbench(url, 1, "\\set id random(1, 10000)\nupdate bare set n = n + 1 where id = :id;\n")
}

/// Transactions per second of `script` on `connections` connections.
pub fn pgbench(url: &str, connections: usize, script: &str) -> f64 {
    let file = std::env::temp_dir().join(format!("euterpe-bare-{}.sql", std::process::id()));
    std::fs::write(&file, script).unwrap();
    let output = Command::new(pgbench_program())
        .args([
            "--no-vacuum",
            "--protocol=prepared",
            "--time=5",
            "--client",
            &connections.to_string(),
            "--file",
        ])
        .arg(&file)
        .arg(url)
        .output()
        .expect("pgbench comes with PostgreSQL");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    std::fs::remove_file(&file).unwrap();
    tps.unwrap_or_else(|| panic!("pgbench said:\n{said}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Debian keeps it beside the server, not on PATH.
fn pgbench_program() -> PathBuf {
    let beside = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    beside
        .map(|entry| entry.path().join("bin/pgbench"))
        .filter(|path| path.is_file())
        .max()
        .unwrap_or("pgbench".into())
}
