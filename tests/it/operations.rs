//! Design §7: every statement and every answer of psql on our pages is what psql shows.

use std::process::Command;

use euterpe::domain::JobId;
use tokio_postgres::Config;

use crate::support::scene::Scene;
use crate::support::{TestDb, connect, url_of};

/// And how many blocks each has at least.
const PAGES: [(&str, usize); 2] = [("docs/operations.md", 10), ("README.md", 3)];

/// What psql prints, as this login, with the short cuts of docs/psqlrc and `:job` set.
pub fn psql(config: &Config, job: JobId, statements: &str) -> String {
    let url = url_of(config).replace("user=euterpe_test", &format!("user={}", config.get_user().unwrap()));
    let script =
        format!("\\i docs/psqlrc\n\\set QUIET 1\n\\pset columns 80\n\\set job '{job}'\n{statements}\n");
    let mut child = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", &url])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("psql is installed by make setup");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (shown, complaint) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{statements}: {complaint}");
    shown.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned()
}

/// A block of the page: ```` ```psql LOGIN JOB ````, statements after `euterpe=> `, then what psql printed.
///
/// `make schema` writes the answers; ids, ages and times differ from run to run and are not compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_show_what_psql_prints() {
    // Alone, so that nobody else's snapshot is the oldest.
    let scene = Scene::on(TestDb::alone().await).await;
    let mut config = scene.db.config();
    config.application_name("nightly-report");
    let holder = connect(&config).await;
    holder
        .batch_execute("begin isolation level repeatable read; select 1 from euterpe.queues")
        .await
        .unwrap();
    for (page, at_least) in PAGES {
        let blocks = compare(&scene, page);
        assert!(blocks >= at_least, "{page}: {blocks} blocks");
    }
}

/// Runs the statements of one page; says how many blocks it has.
fn compare(scene: &Scene, path: &str) -> usize {
    let page = std::fs::read_to_string(path).unwrap();
    // A page for psql is as wide as a terminal at night, the first page as a browser.
    let columns = if path == "README.md" { 110 } else { 80 };
    let (mut written, mut blocks, mut rest) = (String::new(), 0, page.as_str());
    while let Some((before, block)) = rest.split_once("```psql ") {
        let (head, block) = block.split_once('\n').unwrap();
        let (body, after) = block.split_once("\n```\n").unwrap();
        let (login, job) = head.split_once(' ').unwrap();
        let job = match job {
            "in_line" => scene.in_line,
            "delayed" => scene.delayed,
            "running" => scene.running,
            "succeeded" => scene.succeeded,
            "failed" => scene.failed,
            "dead" => scene.dead,
            other => panic!("{path}: no job {other}"),
        };
        let (mut made, mut statements) = (String::new(), Vec::new());
        for line in body.lines().filter_map(|line| line.strip_prefix("euterpe=> ")) {
            statements.push(line);
            let shown = psql(&scene.config_of(login), job, &format!("\\pset columns {columns}\n{line}"));
            made += &format!("euterpe=> {line}\n{shown}\n");
        }
        assert!(!statements.is_empty(), "{path}: a block without a statement");
        let made = made.trim_end_matches('\n');
        if std::env::var_os("EUTERPE_WRITE_SCHEMA").is_none() {
            assert_eq!(gist(body), gist(made), "{path}: `make schema` writes it, git shows the rest");
        }
        written += &format!("{before}```psql {head}\n{made}\n```\n");
        (blocks, rest) = (blocks + 1, after);
    }
    if std::env::var_os("EUTERPE_WRITE_SCHEMA").is_some() {
        std::fs::write(path, written + rest).unwrap();
    }
    blocks
}

/// What does not change from run to run: counts and words, no ids, no ages, no times, no widths.
fn gist(shown: &str) -> String {
    // Where psql wrapped a line, a dot ends the one and begins the other.
    let mut whole = String::new();
    for line in shown.lines() {
        match line.trim_start().strip_prefix("|.") {
            Some(rest) => whole = whole.trim_end_matches('.').to_owned() + rest,
            None => whole = whole + "\n" + line,
        }
    }
    let mut words = Vec::new();
    for line in whole.lines() {
        for word in line.split(|c: char| c.is_whitespace() || c == '|' || c == '+') {
            // Counts are compared; what digits are part of is an id, an age or a time, and a pid is one, too.
            let is_count = word.trim_matches(['(', ')', ';', ',', '.']).parse::<u16>().is_ok();
            let is_one_of_many = word.contains(|c: char| c.is_ascii_digit()) && !is_count;
            let is_pid = words.last() == Some(&"pid");
            if !word.is_empty() && !is_one_of_many && !is_pid && !word.trim_matches('-').is_empty() {
                words.push(word);
            }
        }
        words.push("\n");
    }
    words.join(" ")
}
