//! README.md: a stranger who copies its commands succeeds, and whoever stops in the middle leaves nothing behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const EUTERPE: &str = env!("CARGO_BIN_EXE_euterpe");

/// An empty directory, with the programs where a build puts them.
fn checkout() -> TempDir {
    let dir = tempfile::Builder::new().prefix("eut-readme").tempdir().unwrap();
    // Postgres, which is not root, must be able to enter.
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("target")).unwrap();
    let programs = Path::new(EUTERPE).parent().unwrap();
    std::os::unix::fs::symlink(programs, dir.path().join("target/debug")).unwrap();
    dir
}

/// Should the test fail, it goes with the thread of the test.
fn start(dir: &TempDir, command: &str) -> Child {
    Command::new("/usr/bin/setpriv")
        .args(["--pdeathsig=TERM", EUTERPE, command])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn send(signal: Signal, child: &Child) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

/// Processes that were started for `dir` or by `pid`, and still run: each has one of them in its arguments or settings.
fn left_of(dir: &TempDir, pid: u32) -> Vec<String> {
    let marks = [dir.path().display().to_string(), format!("euterpe-{pid}-")];
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let said = entries.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let all = [read("cmdline"), read("environ")].concat();
        let all = String::from_utf8_lossy(&all).replace('\0', " ");
        (number != std::process::id() && marks.iter().any(|mark| all.contains(mark.as_str()))).then_some(all)
    });
    said.collect()
}

/// Its transcode worker.
fn worker_of(dev: &Child) -> Pid {
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_ours = |pid: &&String| {
        let stat = stat(pid);
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        // The kernel keeps fifteen letters of a name.
        stat.contains("(euterpe-transco)") && parent == Some(&dev.id().to_string())
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let pids: Vec<_> = pids.collect();
    Pid::from_raw(pids.iter().find(is_ours).unwrap().parse().unwrap()).unwrap()
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it did not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_first_job_runs_as_it_is_written() {
    let page = fs::read_to_string("README.md").unwrap();
    let blocks: Vec<_> =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1);
    let dir = checkout();
    let mut dev = start(&dir, "dev");
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C stops everything"));
    assert!(up, "{:?}", dev.wait_with_output());

    let run = Command::new("bash")
        .args(["-euo", "pipefail", "-c", blocks[0]])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    // "Post it again with the same Idempotency-Key: the same job_id, byte for byte."
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    let first = read("job.json");
    let post = blocks[0].split("cat job.json").next().unwrap();
    let again = Command::new("bash").args(["-euo", "pipefail", "-c", post]).current_dir(dir.path()).status();
    assert!(again.unwrap().success());
    assert_eq!(read("job.json"), first);
    assert!(out.contains("\"status\":\"succeeded\""), "{out}\n{err}");
    assert!(out.contains("480p.mp4") && out.contains("still.jpg"), "{out}\n{err}");
    let shown = crate::pages::block("README.md", "```text dev\n");
    let but_the_job = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    let webhooks = lines.by_ref().map_while(Result::ok).filter(|line| line.starts_with("webhook"));
    let told: Vec<_> = webhooks.take(shown.lines().count()).map(|line| but_the_job(&line)).collect();
    assert_eq!(told, shown.lines().map(but_the_job).collect::<Vec<_>>());

    send(Signal::INT, &dev);
    assert!(wait(&mut dev).success());
    assert_eq!(left_of(&dir, dev.id()), Vec::<String>::new());
    // And again: what it locked is free.
    let mut again = start(&dir, "dev");
    let mut lines = BufReader::new(again.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C stops everything")));
    send(Signal::INT, &again);
    assert!(wait(&mut again).success());
}

#[test]
fn the_demo_shows_everything_and_leaves_only_its_outputs() {
    let dir = checkout();
    let mut demo = start(&dir, "demo");
    let pid = demo.id();
    let output = {
        let mut said = String::new();
        demo.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        said
    };
    assert!(wait(&mut demo).success(), "{output}");
    for shown in [
        "202 {",
        "transcode.succeeded    verified",
        "\"status\": \"succeeded\"",
        "uploading -> succeeded",
        "dev-transcode#",
        "480p.mp4",
    ] {
        assert!(output.contains(shown), "no {shown:?} in\n{output}");
    }
    assert!(dir.path().join(".euterpe/demo/storage/demo/outputs/hls/index.m3u8").is_file());
    nothing_is_left_of_demo(&dir, pid, "at its end");
}

fn nothing_is_left_of_demo(dir: &TempDir, pid: u32, when: &str) {
    assert_eq!(left_of(dir, pid), Vec::<String>::new(), "{when}");
    let database = format!("/dev/shm/euterpe-{pid}-demo");
    assert!(!Path::new(&database).exists(), "{when}");
}

/// At moments spread over its life: before Postgres is there, while it migrates, while it encodes. By Ctrl-C, and by
/// whoever closes the terminal.
#[test]
fn the_demo_may_be_interrupted_at_any_moment() {
    let moments = [10, 300, 900, 1800, 3000, 4500];
    for (moment, signal) in
        moments.into_iter().zip([Signal::INT, Signal::INT, Signal::HUP].into_iter().cycle())
    {
        let dir = checkout();
        let mut demo = start(&dir, "demo");
        std::thread::sleep(Duration::from_millis(moment)); // a moment of another process's life, not of our time
        send(signal, &demo);
        wait(&mut demo);
        nothing_is_left_of_demo(&dir, demo.id(), &format!("{signal:?} after {moment} ms"));
    }
}

/// One of them hangs. Whoever presses Ctrl-C twice has waited long enough.
#[test]
fn a_second_ctrl_c_ends_everything_at_once() {
    let dir = checkout();
    let mut dev = start(&dir, "dev");
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C stops everything")));
    kill_process(worker_of(&dev), Signal::STOP).unwrap();
    send(Signal::INT, &dev);
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "stopping"));
    let asked = Instant::now();
    send(Signal::INT, &dev);
    assert_eq!(wait(&mut dev).code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let gone = Instant::now() + Duration::from_secs(10);
    while !left_of(&dir, dev.id()).is_empty() {
        assert!(Instant::now() < gone, "{:?}", left_of(&dir, dev.id()));
        std::thread::sleep(Duration::from_millis(20)); // Postgres shuts down by itself
    }
}

/// Whoever takes a line back at the prompt of psql still has a database.
#[test]
fn ctrl_c_at_the_prompt_of_psql_ends_neither_it_nor_its_postgres() {
    let dir = checkout();
    let mut script = Command::new("script")
        // exec: a shell in between would take the Ctrl-C for itself, too.
        .args([
            "-qefc",
            &format!("exec timeout --foreground 60 {EUTERPE} psql -- -X -P pager=off"),
            "/dev/null",
        ])
        .current_dir(dir.path())
        .env("TERM", "dumb")
        .env_remove("PAGER")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut typed, mut shown) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut until_shown = |wanted: &str| {
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let said = || String::from_utf8_lossy(&seen).into_owned();
            assert_eq!(shown.read(&mut byte).unwrap(), 1, "no {wanted:?} in {}", said());
            seen.push(byte[0]);
        }
    };
    until_shown("=");
    typed.write_all(b"select 1 +\x03").unwrap();
    until_shown("^C");
    typed.write_all(b"select 40 + 2 as answer;\n").unwrap();
    until_shown(" 42");
    typed.write_all(b"\\q\n").unwrap();
    assert!(wait(&mut script).success());
    assert_eq!(left_of(&dir, script.id()), Vec::<String>::new());
}

/// `make demo | head`: it is told so by its first line that nobody reads, and stops in order.
#[test]
fn the_demo_may_lose_its_reader() {
    let dir = checkout();
    let mut demo = start(&dir, "demo");
    drop(demo.stdout.take());
    assert!(!wait(&mut demo).success());
    let mut said = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.starts_with("euterpe: Broken pipe"), "{said}");
    nothing_is_left_of_demo(&dir, demo.id(), "without a reader");
}
