//! What everything is measured against: Postgres doing the least it can.

use std::process::Command;

use tokio_postgres::Client;

/// Bare single-row updates by primary key, one transaction each.
pub async fn updates_per_second(url: &str, client: &Client) -> f64 {
    client
        .batch_execute(
            "create table bare (id int primary key, n int) with (fillfactor = 50);
             insert into bare select g, 0 from generate_series(1, 10000) g; analyze bare",
        )
        .await
        .unwrap();
    let script = std::env::temp_dir().join(format!("euterpe-bare-{}.sql", std::process::id()));
    std::fs::write(&script, "\\set id random(1, 10000)\nupdate bare set n = n + 1 where id = :id;\n")
        .unwrap();
    let output = Command::new(pgbench_program())
        .args(["--no-vacuum", "--protocol=prepared", "--client=1", "--time=5", "--file"])
        .arg(&script)
        .arg(url)
        .output()
        .expect("pgbench comes with PostgreSQL");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    std::fs::remove_file(&script).unwrap();
    tps.unwrap_or_else(|| panic!("pgbench said:\n{said}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Debian keeps it beside the server, not on PATH.
fn pgbench_program() -> std::path::PathBuf {
    let beside = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    beside
        .map(|entry| entry.path().join("bin/pgbench"))
        .filter(|path| path.is_file())
        .max()
        .unwrap_or("pgbench".into())
}
