//! Contract §11, R48–R53: the cage, the limits, and the end of every ffmpeg.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use euterpe::media::{Caps, WorkDir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::studio::{Studio, clip, media, outputs, tools};

/// Long enough that no machine has it done before it is looked at.
fn long() -> PathBuf {
    media(
        "long.avi",
        "-f lavfi -i testsrc2=s=640x360:r=25:d=90 -f lavfi -i sine=d=90 -c:v mpeg4 -q:v 5 -c:a mp2 -f avi",
    )
}

fn slow_output() -> Value {
    json!([{"name": "v", "path": "v.webm", "container": "webm", "video": {"codec": "vp9", "crf": 10}}])
}

/// The programs whose current directory is `dir`.
fn programs_in(dir: &Path) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_there = |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir);
    pids.filter(is_there).collect()
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The ffmpeg in `dir`, once it is one and not the launcher any more.
async fn running(dir: &Path) -> i32 {
    let is_ffmpeg =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == "ffmpeg");
    until("ffmpeg runs", || programs_in(dir).into_iter().find(is_ffmpeg)).await
}

/// By the launcher, as the worker would start it.
fn caged(dir: &WorkDir, program: &[&str]) -> Output {
    let mut command = Command::new(tools().launcher);
    command.args([
        "--launch-in-cage",
        &std::process::id().to_string(),
        "needed",
        "1000000",
        "60",
        "100000000000",
    ]);
    command.arg(dir.path()).arg("--").args(program).current_dir(dir.path()).stdin(Stdio::null());
    command.output().unwrap()
}

#[tokio::test]
async fn the_cage_is_whole_and_says_what_it_is_made_of() {
    let studio = Studio::open().await;
    let cage = studio.ffmpeg.cage();
    assert!(cage.starts_with("landlock ") && cage.ends_with(" + seccomp + rlimits"), "{cage}");
    assert!(studio.ffmpeg.version().starts_with(|c: char| c.is_ascii_digit() || c == 'n'));
}

/// As if a decoder had been taken over: ffmpeg itself, told to reach out.
#[tokio::test]
async fn ffmpeg_in_the_cage_reaches_nothing_else() {
    let studio = Studio::open().await;
    let dir = studio.dir(&clip());
    let marker = dir.path().join("marker");
    fs::write(&marker, "the marked content of another tenant").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let address = format!("tcp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let raw = |from: &str, to: &str| {
        caged(&dir, &["/usr/bin/ffmpeg", "-y", "-f", "s16le", "-i", from, "-f", "s16le", to])
    };
    let marker = marker.to_str().unwrap();
    for from in [marker, "/etc/passwd", "/proc/self/environ", "/proc/1/cmdline", &address] {
        let tried = raw(from, "out/x");
        assert!(!tried.status.success(), "{from}");
        let said = String::from_utf8_lossy(&tried.stderr);
        assert!(
            said.contains("Permission denied") || said.contains("Operation not permitted"),
            "{from}: {said}"
        );
    }
    for to in ["input", "escaped", "/tmp/eut-escaped"] {
        assert!(!raw("file:input", to).status.success(), "{to}");
    }
    assert!(raw("file:input", "out/y").status.success(), "what it may do, it can do");
    assert!(silent.accept().is_err(), "nobody called");
    assert!(!Path::new("/tmp/eut-escaped").exists() && !dir.path().join("escaped").exists());
    let written = fs::read_dir(dir.out()).unwrap().flatten().map(|file| fs::read(file.path()).unwrap());
    assert!(written.into_iter().all(|it| !String::from_utf8_lossy(&it).contains("marked content")));
}

#[tokio::test]
async fn the_launcher_does_not_start_for_a_parent_that_has_gone() {
    let studio = Studio::open().await;
    let dir = studio.dir(&clip());
    let mut command = Command::new(tools().launcher);
    command.args(["--launch-in-cage", "1", "needed", "1000000", "60", "100000000000"]).arg(dir.path());
    let tried = command.args(["--", "/usr/bin/ffmpeg", "-version"]).output().unwrap();
    assert_eq!(tried.status.code(), Some(125));
    assert!(tried.stdout.is_empty());
}

#[tokio::test]
async fn each_limit_has_its_code() {
    let studio = Studio::open().await;
    let caps = Caps::default();
    let dir = studio.dir(&long());
    let source = studio.ffmpeg.inspect(&dir, &caps).await.unwrap();
    let small = json!([{"name": "v", "path": "v.mp4", "preset": "h264_480p"}]);
    let hls = json!([{"name": "v", "path": "v.m3u8", "container": "hls", "hls": {"segment_seconds": 2}}]);
    for (asked, caps, code) in [
        (small.clone(), Caps { output_bytes: 100_000, ..caps }, "output_too_large"),
        (hls, Caps { output_bytes: 2_000_000, ..caps }, "output_too_large"),
        (slow_output(), Caps { wall: Duration::from_millis(800), ..caps }, "encode_timeout"),
        (slow_output(), Caps { cpu: Duration::from_secs(1), ..caps }, "cpu_limit"),
        (slow_output(), Caps { memory_bytes: 20_000_000, ..caps }, "memory_limit"),
    ] {
        let dir = studio.dir(&long());
        let error = studio.ffmpeg.make(&dir, &source, &outputs(&asked), &caps, &|_| {}).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(programs_in(dir.path()).is_empty(), "{code}: it was ended and reaped");
    }
}

#[tokio::test]
async fn an_ffmpeg_that_stands_still_is_ended() {
    let studio = Studio::open().await;
    let caps = Caps { stall: Duration::from_secs(2), ..Caps::default() };
    let dir = studio.dir(&long());
    let source = studio.ffmpeg.inspect(&dir, &caps).await.unwrap();
    let asked = outputs(&slow_output());
    let stop = async {
        let pid = Pid::from_raw(running(dir.path()).await).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    };
    let making = studio.ffmpeg.make(&dir, &source, &asked, &caps, &|_| {});
    let (made, ()) = tokio::join!(timeout(Duration::from_secs(20), making), stop);
    let made = made.expect("it is not waited for");
    assert_eq!(made.unwrap_err().code, "encode_stalled");
    assert!(programs_in(dir.path()).is_empty());
}

#[tokio::test]
async fn who_stops_waiting_leaves_no_ffmpeg_and_no_directory() {
    let studio = Arc::new(Studio::open().await);
    let dir = studio.dir(&long());
    let path = dir.path().to_owned();
    let working = tokio::spawn({
        let studio = Arc::clone(&studio);
        async move {
            let caps = Caps::default();
            let source = studio.ffmpeg.inspect(&dir, &caps).await.unwrap();
            studio.ffmpeg.make(&dir, &source, &outputs(&slow_output()), &caps, &|_| {}).await.map(|_| ())
        }
    });
    let pid = running(&path).await;
    working.abort();
    assert!(working.await.unwrap_err().is_cancelled());
    assert!(path.exists(), "whoever stops it keeps its directory");
    timeout(Duration::from_secs(15), studio.ffmpeg.idle()).await.expect("it is stopped, not waited for");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "ended and reaped");
    assert!(!path.exists());
}

/// kill -9 of a worker: nobody is left to stop ffmpeg but the kernel.
#[tokio::test]
async fn an_ffmpeg_does_not_outlive_its_worker() {
    let studio = Studio::open().await;
    let dir = studio.dir(&clip());
    let script = r#""$0" --launch-in-cage $$ needed 1000000 60 100000000000 "$1" -- /usr/bin/ffmpeg -nostdin -v quiet \
        -f lavfi -i testsrc -f null - & wait"#;
    let mut worker = Command::new("sh");
    worker.args(["-c", script]).arg(tools().launcher).arg(dir.path());
    let mut worker = worker.current_dir(dir.path()).stdin(Stdio::null()).spawn().unwrap();
    let pid = running(dir.path()).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    until("ffmpeg has gone", || {
        // Whoever inherits it may not have reaped it yet.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        (status.is_empty() || status.contains("State:\tZ")).then_some(())
    })
    .await;
}
