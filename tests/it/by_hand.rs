//! docs/deployment.md: whoever copies its ten commands has a system that is ready. docs/backup.md: and whoever copies those
//! there has it again after a fire.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::pages::block;
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

/// As the superuser of `server`, with the programs of this release.
fn run(server: &Alone, dir: &TempDir, script: &str) -> (i32, String) {
    let programs = Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap();
    let url = format!("postgres://postgres:a@127.0.0.1:{}/euterpe", server.port.unwrap());
    let run = Command::new("timeout")
        .args(["120", "bash", "-euo", "pipefail", "-c", script])
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .envs([("PGHOST", "127.0.0.1"), ("PGUSER", "postgres"), ("PGPASSWORD", "a")])
        .env("PGPORT", server.port.unwrap().to_string())
        .env("EUTERPE_DATABASE_URL", url)
        .output()
        .unwrap();
    (run.status.code().unwrap(), String::from_utf8([run.stdout, run.stderr].concat()).unwrap())
}

/// One server is dumped while a job is in somebody's hands; another one, that never heard of us, gets it.
#[test]
fn the_dump_of_one_server_is_restored_on_another() {
    const PAGE: &str = "docs/backup.md";
    let (lost, dir) = (Alone::listening("dumped"), TempDir::new().unwrap());
    let jobs = "createdb euterpe; euterpe-migrate > /dev/null; psql -qAt euterpe -v ON_ERROR_STOP=1 <<'SQL'
        create role api_1 login password 'b' in role euterpe_api;
        select euterpe.add_requester_v1('studio');
        select * from euterpe.enqueue_job_v1('studio', '{}');
        select * from euterpe.enqueue_job_v1('studio', '{}');
        select * from euterpe.claim_jobs_v1('transcode', 'pod-1#00000000', 1);\nSQL";
    let (code, said) = run(&lost, &dir, jobs);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&lost, &dir, &block(PAGE, "```sh dump\n"));
    assert_eq!(code, 0, "{said}");
    drop(lost);

    // Whoever forgets the roles is told so.
    let found = Alone::listening("restored");
    let (code, said) = run(&found, &dir, "pg_restore --create --dbname=postgres euterpe.dump");
    assert!(code != 0 && said.contains("role \"euterpe_owner\" does not exist"), "{said}");
    let (code, said) = run(&found, &dir, "euterpe-migrate status");
    assert!(code == 3 && said.contains("belongs to postgres, not to euterpe_owner"), "{said}");
    assert!(said.contains("there is no role euterpe_api") && said.contains(PAGE), "{said}");

    let (code, said) = run(&found, &dir, &format!("dropdb euterpe\n{}", block(PAGE, "```sh restore\n")));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("took jobs from their workers   |         1"), "{said}");
    assert!(said.contains("(0 rows)"), "orphan_check_v1 finds nothing: {said}");
    let look =
        "PGUSER=api_1 PGPASSWORD=b psql -qAt euterpe -c \"select euterpe.count_open_jobs_v1('studio', 10)\"";
    assert_eq!(run(&found, &dir, look), (0, "2\n".into()), "a login came along, and its rights");
}
