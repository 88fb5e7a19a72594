//! Our pages as a whole: every block has a test that runs it, every link leads somewhere, every test that is named exists.
//! And the blocks that no other test runs: each is read from its page and held against what it speaks of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::plant::{Plant, tiny_clip};
use crate::support::receiver::Receiver;
use crate::support::seaweed::free_ports;
use crate::support::webhooks::{deliver_as_usual, hooked};
use crate::support::{TestDb, bare_database, connect};

/// What stands between `begins` (the fence and what follows it) and the next fence.
pub fn block(page: &str, begins: &str) -> String {
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once(begins).unwrap_or_else(|| panic!("{page}: no block {begins:?}"));
    let body = begins.split_once('\n').map_or("", |(_, body)| body);
    format!("{body}{}", rest.split("```").next().unwrap())
}

/// Every page for people, below the root of the repository.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("."), "docs".into(), "sql".into(), "migrations".into()];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && dir != Path::new(".") {
                dirs.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path.strip_prefix("./").unwrap_or(&path).to_owned());
            }
        }
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

/// Page, what stands behind the fence, and the test that holds such a block or the bench that writes it.
const BLOCKS: [(&str, &str, &str); 29] = [
    ("README.md", "text commands", "pages::the_two_commands_are_there"),
    ("README.md", "sh", "readme::the_first_job_runs_as_it_is_written"),
    ("README.md", "text dev", "readme::the_first_job_runs_as_it_is_written"),
    ("README.md", "python", "receivers::the_page_shows_the_verifiers_as_they_are"),
    ("README.md", "psql", "operations::the_pages_show_what_psql_prints"),
    ("docs/backup.md", "sh dump", "by_hand::the_dump_of_one_server_is_restored_on_another"),
    ("docs/backup.md", "sh restore", "by_hand::the_dump_of_one_server_is_restored_on_another"),
    ("docs/cli.md", "console", "cli_page::the_page_shows_the_help_of_every_command_as_it_is"),
    ("docs/deployment.md", "sh", "by_hand::the_ten_commands_run_as_they_are_written"),
    ("docs/deployment.md", "sql", "pages::the_logins_of_the_page_can_be_made"),
    ("docs/deployment.md", "sql queue", "pages::a_second_queue_is_made_as_the_page_says"),
    ("docs/faces/transcode.md", "json", "requests::the_examples_of_the_page_are_accepted"),
    (
        "docs/faces/transcode.md",
        "json refresh",
        "refreshing::credentials_that_expired_in_the_line_are_refreshed_in_band",
    ),
    ("docs/faces/transcode.md", "json request", "requests::the_examples_of_the_page_are_accepted"),
    ("docs/faces/transcode.md", "json retry", "requests::cancel_and_retry_name_a_job"),
    ("docs/faces/transcode.md", "sh", "first_job::the_commands_of_the_page_run_as_they_are_written"),
    ("docs/faces/transcode.md", "sh s3", "pages::s3_on_ones_own_machine_works_as_it_is_written"),
    ("docs/operations.md", "psql", "operations::the_pages_show_what_psql_prints"),
    ("docs/plans.md", "text", "benches/people.rs"),
    ("docs/rolling-upgrades.md", "sql", "pages::the_questions_before_a_drop_can_be_asked"),
    ("docs/security.md", "text", "pages::a_key_file_looks_like_the_one_on_the_page"),
    ("docs/webhooks.md", "text", "pages::what_arrives_is_what_the_page_shows"),
    ("docs/webhooks.md", "javascript", "receivers::the_page_shows_the_verifiers_as_they_are"),
    ("docs/webhooks.md", "python", "receivers::the_page_shows_the_verifiers_as_they_are"),
    ("docs/webhooks.md", "rust", "receivers::the_page_shows_the_verifiers_as_they_are"),
    (
        "migrations/online/README.md",
        "sql",
        "online::an_index_built_under_load_is_complete_although_its_builder_was_killed",
    ),
    // Pictures say what the text beside them says.
    ("README.md", "text picture", ""),
    ("docs/ARCHITECTURE.md", "text picture", ""),
    ("docs/outbox.md", "text picture", ""),
];

/// Nobody adds a command or an output to a page that nobody looks at again.
#[test]
fn every_block_has_a_test_that_holds_it() {
    let mut there = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
        for info in fences.step_by(2) {
            let info = if info.starts_with("psql ") { "psql" } else { info };
            there.insert((page.to_str().unwrap().to_owned(), info.to_owned()));
        }
    }
    let known = BLOCKS.map(|(page, info, _)| (page.to_owned(), info.to_owned()));
    assert_eq!(there, known.into_iter().collect());
    for (page, info, test) in BLOCKS {
        let is_held = is_a_test(test) || Path::new(test).is_file() || info == "text picture";
        assert!(is_held, "{page}, {info}: {test}");
    }
}

/// Whether `file::test` is one of ours, or `module::tests::test` one beside what it tests.
pub fn is_a_test(reference: &str) -> bool {
    let Some((module, test)) = reference.rsplit_once("::") else { return false };
    let source = match module.strip_suffix("::tests") {
        Some(module) => format!("src/{}.rs", module.replace("::", "/")),
        // The two lanes of an exam are modules of one file.
        None => format!("tests/it/{}.rs", module.split("::").next().unwrap_or(module)),
    };
    let is_there =
        |source: String| ["(", "<"].iter().any(|next| source.contains(&format!("fn {test}{next}")));
    fs::read_to_string(source).is_ok_and(is_there)
}

/// What a page says to hold names tests that exist; or a module of ours.
#[test]
fn every_test_that_a_page_names_exists() {
    let mut named = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let words = text.split('`').filter(|word| word.contains("::") && !word.contains(char::is_whitespace));
        for reference in
            words.filter(|word| word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':'))
        {
            let module = format!("src/{}", reference.replace("::", "/"));
            let is_module = Path::new(&module).is_dir() || Path::new(&format!("{module}.rs")).is_file();
            assert!(is_module || is_a_test(reference), "{} names {reference}", page.display());
            named += 1;
        }
    }
    assert!(named > 400, "{named}");
}

/// As the forge makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("https://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, place) =
                link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
            let there = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(there.exists(), "{}: {link}", page.display());
            if let Some(place) = place {
                let target = fs::read_to_string(&there).unwrap();
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == place);
                assert!(is_there, "{}: {link}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 120, "{followed}");
}

/// README.md: what it tells a stranger to type is there, and `make help` has it.
#[test]
fn the_two_commands_are_there() {
    let help = Command::new("make").arg("help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = block("README.md", "```text commands\n");
    let commands: Vec<_> = commands.lines().filter_map(|line| line.split('#').next()).collect();
    assert_eq!(commands.iter().map(|line| line.trim()).collect::<Vec<_>>(), ["make demo", "make test"]);
    for target in ["demo", "test"] {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(target)), "{help}");
    }
}

/// docs/deployment.md: the logins can be made as they are written, each in its group.
#[tokio::test]
async fn the_logins_of_the_page_can_be_made() {
    let database = bare_database().await;
    let sql = block("docs/deployment.md", "```sql\ncreate role api_1").replace('…', "a password");
    let client = connect(&database.config()).await;
    // Roles belong to the whole server: what the page makes is taken back.
    client.batch_execute(&format!("begin; create role migrator login; {sql}")).await.unwrap();
    let members = "select string_agg(m.rolname || ' ' || g.rolname, ', ' order by m.rolname)
                     from pg_auth_members a join pg_roles m on m.oid = a.member join pg_roles g on g.oid = a.roleid
                    where m.rolname in ('api_1', 'transcode_1', 'webhook_1', 'ada', 'migrator')";
    let members: String = client.query_one(members, &[]).await.unwrap().get(0);
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(
        members,
        "ada euterpe_operator, api_1 euterpe_api, migrator euterpe_owner, transcode_1 euterpe_transcode, \
         webhook_1 euterpe_webhook"
    );
}

/// docs/deployment.md: an operator makes a queue as it is written, and what is written is what is there without it.
#[tokio::test]
async fn a_second_queue_is_made_as_the_page_says() {
    let db = TestDb::fresh().await;
    let mut config = db.config();
    config.user("euterpe_operator");
    connect(&config).await.simple_query(&block("docs/deployment.md", "```sql queue\n")).await.unwrap();
    let settings =
        "select (lease_seconds, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms)::text
                      from euterpe.queues where name = ";
    let made: String = db.one(&format!("{settings} 'fast'")).await;
    assert_eq!(made, db.one::<String>(&format!("{settings} 'transcode'")).await);
}

/// docs/rolling-upgrades.md: what to look at before something is dropped can be looked at.
#[tokio::test]
async fn the_questions_before_a_drop_can_be_asked() {
    let db = TestDb::fresh().await;
    let looker = db.client().await;
    for begins in ["```sql\nselect application_name", "```sql\nselect funcname"] {
        looker.simple_query(&block("docs/rolling-upgrades.md", begins)).await.unwrap();
    }
}

/// docs/security.md: a key file looks like that; `euterpe kek new` writes its lines.
#[test]
fn a_key_file_looks_like_the_one_on_the_page() {
    let shape = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let made = Command::new(env!("CARGO_BIN_EXE_euterpe")).args(["kek", "new", "--pepper"]).output().unwrap();
    let mut shown = shape(&block("docs/security.md", "```text\n# kek ID"));
    shown.dedup();
    assert_eq!(shown, shape(&String::from_utf8(made.stdout).unwrap()));
    // And one of that form is read, with what stands behind a #.
    let key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let page = block("docs/security.md", "```text\n# kek ID").replace('…', key);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), page).unwrap();
    let path = file.path().display().to_string();
    let env = |name: &str| match name {
        "EUTERPE_KEK_FILE" => Some(path.clone()),
        "EUTERPE_ACTIVE_KEK" => Some("2026-11-18-3f9a".into()),
        _ => None,
    };
    assert_eq!(euterpe::crypto::Keyring::from_env(env).unwrap().ids().count(), 2);
}

/// docs/webhooks.md: what arrives has exactly the headers that the page shows, besides those of any request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_is_what_the_page_shows() {
    let (db, receiver) = (TestDb::fresh().await, Receiver::kind().await);
    db.add_signing_secret("acme").await;
    db.ended(hooked("acme", &receiver.url())).await;
    let working = deliver_as_usual(&db);
    let got = receiver.until_got(1).await.remove(0);
    working.stop().await;
    let page = block("docs/webhooks.md", "```text\nPOST /your/path\n");
    let head = page.split("\n\n").next().unwrap();
    let mut shown: Vec<_> =
        head.split_whitespace().filter_map(|word| word.strip_suffix(':')).map(str::to_owned).collect();
    let usual = ["host", "connection", "content-length", "user-agent"];
    let mut sent: Vec<_> = got
        .headers
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| !usual.contains(&name.as_str()))
        .collect();
    shown.sort();
    sent.sort();
    assert_eq!(sent, shown);
    for field in ["type", "timestamp", "event_id", "sequence", "data"] {
        assert!(page.contains(&format!("\"{field}\"")) && !got.json()[field].is_null(), "{field}");
    }
}

/// docs/faces/transcode.md: S3 on one's own machine, as it is written; only ports and places are others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_ones_own_machine_works_as_it_is_written() {
    let plant = Plant::new().await;
    tiny_clip(&plant.files().join("clip.mp4"));
    let _pod = plant.pod("pod-1", &[]).await;
    let dir = tempfile::tempdir().unwrap();
    let root = std::env::current_dir().unwrap();
    std::os::unix::fs::symlink(root.join("target"), dir.path().join("target")).unwrap();
    let [master, volume, filer, port, admin] = free_ports();
    let mut ports = format!(" -s3.port.iceberg=0 -s3.port.lance=0 -s3.port={port}");
    for (name, port) in
        [("master", master), ("volume", volume), ("filer", filer), ("admin", admin), ("s3", port)]
    {
        let grpc = port + 10_000;
        ports += &format!(" -{name}.port.grpc={grpc}");
        if name != "s3" {
            ports += &format!(" -{name}.port={port}");
        }
    }
    for name in ["filer", "s3"] {
        ports += &format!(" -{name}.localSocket={}", dir.path().join(name).display());
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap();
    let script = block("docs/faces/transcode.md", "```sh s3\n")
        .replacen("-bucket=media", &format!("-bucket=media{ports}"), 1)
        .replace("127.0.0.1:8333", &format!("127.0.0.1:{port}"))
        .replace("target/debug", programs.to_str().unwrap());
    let run = tokio::process::Command::new("timeout")
        .args([
            "120",
            "bash",
            "-euo",
            "pipefail",
            "-c",
            &format!("trap 'kill -KILL $(jobs -p)' EXIT\n{script}"),
        ])
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env("MEDIA", plant.files())
        .env("EUTERPE_API", &plant.api.url)
        .env("EUTERPE_API_KEY", &plant.api.key)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("succeeded"), "{said}");
}
