//! docs/deployment.md: whoever copies its ten commands has a system that is ready.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::Alone;

const SERVICES: [(&str, &str); 3] =
    [("euterpe-api", "9464"), ("euterpe-webhook", "9465"), ("euterpe-transcode", "9466")];

/// A fresh server, an empty directory, and nothing of ours in the environment. Only ports are others: the usual ones
/// may be taken.
#[test]
fn the_ten_commands_run_as_they_are_written() {
    let page = fs::read_to_string("docs/deployment.md").unwrap();
    let section = page.split("## By hand, in ten commands\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks: Vec<_> =
        section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 4);
    let mut script = blocks.concat();
    let taken: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<_> = taken.iter().map(|one| one.local_addr().unwrap().port().to_string()).collect();
    drop(taken);
    for ((service, usual), port) in SERVICES.iter().zip(&ports) {
        let row = format!("| `{service}` | {usual} |");
        assert!(page.contains(&row), "the table of ports has no {row}");
        let start = format!(") {service} &");
        assert!(script.contains(&start) && script.contains(usual), "{service}");
        let elsewhere = format!(") EUTERPE_METRICS_LISTEN=127.0.0.1:{port} {service} &");
        script = script.replace(&start, &elsewhere).replace(usual, port);
    }
    let server = Alone::listening("by-hand");
    let (dir, programs) =
        (TempDir::new().unwrap(), Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap());
    let run = Command::new("timeout")
        .args(["120", "bash", "-euo", "pipefail", "-c"])
        .arg(format!("trap 'kill $(jobs -p); wait' EXIT\n{script}"))
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .envs([("PGHOST", "127.0.0.1"), ("PGUSER", "postgres"), ("PGPASSWORD", "a"), ("PASSWORD", "b")])
        .env("PGPORT", server.port.unwrap().to_string())
        .env("EUTERPE_HTTP_LISTEN", format!("127.0.0.1:{}", ports[3]))
        .env("EUTERPE_WORK_DIR", dir.path().join("work"))
        // This server is one of our tests', which are in a hurry.
        .env("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert!(out.contains("whsec_") && out.contains("\neut_"), "{out}");
    for port in &ports[..3] {
        assert!(out.contains(&format!("http://127.0.0.1:{port}/readyz is ready")), "{out}\n{err}");
    }
}
