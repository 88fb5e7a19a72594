//! Dockerfile and docker-compose.yml, as far as they can be held without a Docker engine: the composition is judged by the
//! schema of the Compose Specification, and the files of the image are assembled by the Dockerfile's own lines and run as
//! the containers run them, as uid 10001 without capabilities on a read-only root.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::TestDb;
use crate::support::api::{KEK, PEPPER};

const COMPOSE: &str = "docker-compose.yml";

fn tool(name: &str) -> Command {
    let path = format!("target/tools/bin/{name}");
    assert!(Path::new(&path).exists(), "there is no {path}: `make setup` installs it");
    Command::new(path)
}

fn judge(file: &Path) -> Output {
    tool("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(file).output().unwrap()
}

#[test]
fn the_composition_is_valid_by_the_compose_specification() {
    let judged = judge(Path::new(COMPOSE));
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
    // A judge that accepts everything would be none.
    let mut wrong = tempfile::Builder::new().suffix(".yml").tempfile().unwrap();
    let text = fs::read_to_string(COMPOSE).unwrap();
    wrong.write_all(text.replacen("read_only: true", "read_onyl: true", 1).as_bytes()).unwrap();
    assert!(!judge(wrong.path()).status.success());
}

/// The composition with its anchors resolved.
fn composition() -> Value {
    let script = "import json, sys, ruamel.yaml; \
                  print(json.dumps(ruamel.yaml.YAML(typ='safe', pure=True).load(open(sys.argv[1]))))";
    let output = tool("python").args(["-c", script, COMPOSE]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every container of ours is without root, without capabilities and read-only; what it waits for exists.
#[test]
fn every_container_of_ours_is_hardened_and_waits_for_what_is_there() {
    let composition = composition();
    let services = composition["services"].as_object().unwrap();
    let mut ours = 0;
    for (name, service) in services {
        for (other, how) in service["depends_on"].as_object().into_iter().flatten() {
            let waited_for = services.get(other).unwrap_or_else(|| panic!("{name} waits for {other}"));
            if how["condition"] == "service_completed_successfully" {
                assert_eq!(waited_for["restart"], "no", "{name} waits for the end of {other}");
            } else {
                assert!(
                    waited_for["healthcheck"]["test"].is_array(),
                    "{name} waits for the health of {other}"
                );
            }
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let volume = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(composition["volumes"].as_object().unwrap().contains_key(volume), "{name}: {volume}");
        }
        if service["image"] != format!("euterpe:{}", env!("CARGO_PKG_VERSION")) {
            continue;
        }
        ours += 1;
        assert_eq!(service["user"], "10001:10001", "{name}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(service["security_opt"][0], "no-new-privileges:true", "{name}");
        for secret in ["EUTERPE_KEKS", "EUTERPE_KEY_PEPPER", "POSTGRES_PASSWORD"] {
            assert!(service["environment"][secret].is_null(), "{name}: {secret} belongs into a file");
        }
    }
    assert_eq!(ours, 8, "keys, migrate, requester, api, transcode, webhook, receiver, cli");
    assert_eq!(services["transcode"]["deploy"]["replicas"], 2);
}

/// A setting that nobody reads is a typing error.
#[test]
fn images_and_composition_set_what_the_programs_read() {
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        words.filter(|word| word.starts_with("EUTERPE_")).map(str::to_owned).collect()
    };
    let page = fs::read_to_string("docs/deployment.md").unwrap();
    let known: BTreeSet<_> =
        page.lines().filter(|line| line.starts_with("| `EUTERPE_")).flat_map(&names).collect();
    for file in ["Dockerfile", COMPOSE] {
        let set = names(&fs::read_to_string(file).unwrap());
        assert!(set.len() > 3 && set.is_subset(&known), "{file}: {:?}", set.difference(&known));
    }
}

/// The settings of a service, as its programs read them.
fn settings_of(service: &Value) -> impl Fn(&str) -> Option<String> {
    let settings = service["environment"].clone();
    move |name| match &settings[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Who calls others is allowed to call those that are there to be called, where they listen.
#[test]
fn the_receiver_and_the_store_may_be_called_where_they_listen() {
    let composition = composition();
    let services = &composition["services"];
    let listens = services["receiver"]["command"].as_array().unwrap();
    let at = listens.iter().position(|word| word == "--listen").unwrap() + 1;
    let receiver = listens[at].as_str().unwrap().replace("0.0.0.0", "http://receiver");
    for name in ["api", "transcode", "webhook"] {
        let policy = euterpe::config::policy(settings_of(&services[name])).unwrap();
        for url in [format!("{receiver}/hooks"), "http://s3:8333".into()] {
            assert!(policy.egress.check(&url).is_ok(), "{name}: {url}");
        }
        let subnet = composition["networks"]["default"]["ipam"]["config"][0]["subnet"].as_str().unwrap();
        let address = subnet.split('/').next().unwrap().parse().unwrap();
        assert!(policy.egress.allows(address), "{name}: {subnet}");
    }
}

fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.len() - 1);
    number.parse::<u64>().unwrap() << if unit == "g" { 30 } else { 20 }
}

/// What a tmpfs holds counts against the memory of its container: both must fit, and whoever looks for room finds it.
#[test]
fn what_a_worker_may_take_fits_into_what_its_container_has() {
    let composition = composition();
    let worker = &composition["services"]["transcode"];
    let scratch = worker["tmpfs"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let sizes: Vec<_> = scratch
        .map(|one| (one.split(':').next().unwrap(), bytes(one.split("size=").nth(1).unwrap())))
        .collect();
    let settings = settings_of(worker);
    let at_once = euterpe::config::transcode_pace(&settings).unwrap().concurrency as u64;
    let encoding = at_once * euterpe::config::caps(&settings).unwrap().memory_bytes;
    let limit = bytes(worker["deploy"]["resources"]["limits"]["memory"].as_str().unwrap());
    let itself = 512 << 20;
    let scratch: u64 = sizes.iter().map(|(_, size)| size).sum();
    assert!(scratch + encoding + itself <= limit, "{scratch} + {encoding} of {limit}");
    // A source, its outputs, and what must stay free.
    let most = euterpe::config::policy(&settings).unwrap().max_source_bytes.unwrap();
    let spare = euterpe::config::spare(&settings).unwrap().disk;
    let work = sizes.iter().find(|(place, _)| *place == "/work").unwrap().1;
    assert!(2 * most + spare <= work, "{most} {work}");
    // The doctor looks at the same directory, on a read-only root.
    assert_eq!(composition["services"]["cli"]["tmpfs"], worker["tmpfs"]);
}

/// The tree of the image, with the programs under test.
fn tree() -> TempDir {
    let dir = TempDir::new().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap();
    let made = Command::new("scripts/image-tree").arg(dir.path()).arg(programs).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

fn inside(tree: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new("scripts/image-run");
    command
        .arg(tree.path())
        .args(words)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command
}

fn said(mut command: Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn every_program_of_the_image_runs_without_root_on_a_read_only_root() {
    let tree = tree();
    assert_eq!(said(inside(&tree, &["id", "-u"])), (true, "10001\n".into()));
    let (_, capabilities) = said(inside(&tree, &["grep", "CapEff", "/proc/self/status"]));
    assert!(capabilities.trim().ends_with("0000000000000000"), "{capabilities}");
    for place in ["/usr/local/bin/x", "/keys/x", "/etc/x", "/usr/bin/x"] {
        let (could, says) = said(inside(&tree, &["touch", place]));
        assert!(!could && says.contains("Read-only file system"), "{says}");
    }
    assert_eq!(said(inside(&tree, &["touch", "/tmp/x", "/work/x"])), (true, String::new()));

    let programs: BTreeSet<_> = fs::read_dir(tree.path().join("usr/local/bin"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let cargo = fs::read_to_string("Cargo.toml").unwrap();
    let built: BTreeSet<_> = cargo
        .split("[[bin]]\nname = \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    assert_eq!(programs, built, "the image has every program");
    for program in &programs {
        let (could, says) = said(inside(&tree, &[program, "--version"]));
        assert!(could, "{program}: {says}");
    }
}

/// A service that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// From an empty database to a service that says that it is ready, and every program of it from the image's tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_migrated_and_served_from_the_tree_of_the_image() {
    let mut db = TestDb::listening().await;
    db.run("create database whole").await;
    let port = db.server().port.unwrap();
    let url = |user: &str| format!("host=127.0.0.1 port={port} user={user} dbname=whole sslmode=disable");
    let tree = tree();
    let mut migrate = inside(&tree, &["euterpe-migrate"]);
    migrate.env("EUTERPE_DATABASE_URL", url("postgres"));
    let (could, says) = said(migrate);
    assert!(could && says.contains("applied V1") && says.contains("loaded  all of sql/"), "{says}");

    let log = TempDir::new().unwrap();
    let log = log.path().join("log");
    let mut api = inside(&tree, &["euterpe-api"]);
    api.env("EUTERPE_DATABASE_URL", url("euterpe_api"))
        .envs([("EUTERPE_KEKS", KEK), ("EUTERPE_KEY_PEPPER", PEPPER), ("EUTERPE_LOG", "json")])
        .envs([("EUTERPE_HTTP_LISTEN", "127.0.0.1:0"), ("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")])
        .env("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let mut api = Running(api.spawn().unwrap());
    let health = loop {
        let said = fs::read_to_string(&log).unwrap();
        assert!(api.0.try_wait().unwrap().is_none(), "{said}");
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines
            .filter(|line| line["message"] == "health and metrics")
            .find_map(|line| line["listen"].as_str().map(|address| format!("http://{address}/readyz")));
        if let Some(health) = found {
            break health;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(said(inside(&tree, &["euterpe", "health", &health])), (true, format!("{health} is ready\n")));

    // Where the composition runs it, the doctor has nothing to complain of but this server, which is in a hurry. The
    // service may still be at its first upkeep.
    let begun = Instant::now();
    loop {
        let mut doctor = inside(&tree, &["euterpe", "--json", "doctor"]);
        doctor.env("EUTERPE_DATABASE_URL", url("euterpe_operator")).envs([
            ("EUTERPE_KEKS", KEK),
            ("EUTERPE_KEY_PEPPER", PEPPER),
            ("EUTERPE_WORK_DIR", "/work"),
        ]);
        let (_, found) = said(doctor);
        let found: Value = serde_json::from_str(&found).unwrap_or_else(|_| panic!("{found}"));
        let checks = found["checks"].as_array().unwrap().iter();
        let wrong: Vec<_> = checks.filter(|one| one["ok"] == false).map(|one| &one["check"]).collect();
        if wrong == ["durability"] {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{wrong:?}: {found:#}");
    }
}
