//! `make bench`: a whole job beside bare ffmpeg with the same arguments and a bare copy both ways; three outputs in one pass
//! beside three jobs of one output each. Ratios within one run.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use euterpe::crypto::new_key;
use euterpe::dev::Cluster;
use euterpe::domain::transcode::{Policy, parse_request};
use euterpe::domain::{JobId, NewJob, RequesterId};
use euterpe::store::{NewRequester, Store, Wakeups, migrate};
use serde_json::{Value, json};
use tokio_postgres::Config;

#[path = "bare/mod.rs"]
mod bare;

const ROUNDS: usize = 3;
const CLIP_SECONDS: u32 = 20;

#[tokio::main]
async fn main() {
    let bench = bare::Bench::start();
    let dir = tempfile::Builder::new().prefix("eut-bench").tempdir().unwrap();
    run(&bench.cluster, dir.path()).await;
    bench.end();
}

struct Bench {
    store: Store,
    acme: RequesterId,
    files: PathBuf,
    worker: Child,
}

async fn run(cluster: &Cluster, dir: &Path) {
    let database = cluster.url("postgres");
    let config: Config = database.parse().unwrap();
    migrate::migrate(&config).await.unwrap();
    let store = Store::connect(config.clone(), 4).with_wakeups(Wakeups::connect(config));
    let acme: RequesterId = "acme".parse().unwrap();
    store.add_requester(&NewRequester::named(acme.clone())).await.unwrap();
    let files = dir.join("files/acme");
    fs::create_dir_all(&files).unwrap();
    clip(&files.join("clip.mp4"));
    let worker = start_worker(&database, dir);
    let mut bench = Bench { store, acme, files, worker };

    let one = json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]);
    let three = json!([
        {"name": "a", "path": "a.mp4", "preset": "h264_480p"},
        {"name": "b", "path": "b.mp4", "container": "mp4", "video": {"codec": "h264", "height": 360}},
        {"name": "c", "path": "c.m4a", "preset": "aac_128k"}
    ]);
    bench.job(&one).await; // the first job of a process also warms its caches
    println!("a clip of {CLIP_SECONDS} s, 1280x720, h264 and aac; the median of {ROUNDS}:");
    for (name, outputs) in [("one output", &one), ("three outputs", &three)] {
        let (mut whole, mut alone) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (seconds, commands) = bench.job(outputs).await;
            whole.push(seconds);
            alone.push(bench.bare(&commands, dir));
        }
        let (whole, alone) = (median(whole), median(alone));
        println!(
            "{name:<14} job {whole:.2} s, bare ffmpeg and two copies {alone:.2} s: {:.2}",
            whole / alone
        );
    }
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        together.push(bench.job(&three).await.0);
        let mut seconds = 0.0;
        for output in three.as_array().unwrap() {
            seconds += bench.job(&json!([output])).await.0;
        }
        apart.push(seconds);
    }
    let (together, apart) = (median(together), median(apart));
    println!(
        "three outputs in one pass {together:.2} s, as three jobs {apart:.2} s: {:.2}",
        together / apart
    );
    println!("memory of the worker at most: {} kB", peak_kb(bench.worker.id()));
    bench.worker.kill().unwrap();
    bench.worker.wait().unwrap();
}

impl Bench {
    /// Seconds from the enqueue to the end, and the ffmpeg commands that were seen meanwhile.
    async fn job(&mut self, outputs: &Value) -> (f64, Vec<Vec<String>>) {
        let request = json!({
            "source": {"uri": format!("file://{}/clip.mp4", self.files.display())},
            "storage": {"output_prefix": format!("file://{}/out/", self.files.display())},
            "outputs": outputs,
        });
        let root = self.files.parent().unwrap().to_owned();
        let policy = Policy { file_roots: vec![root], ..Policy::default() };
        let now = jiff::Timestamp::now();
        let accepted = parse_request(request.to_string().as_bytes(), &policy, &self.acme, now).unwrap();
        let job = NewJob { request: accepted.document, ..NewJob::default() };
        let (seen, over) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicBool::new(false)));
        let looker = look(self.worker.id(), Arc::clone(&seen), Arc::clone(&over));
        let begun = Instant::now();
        let id = self.store.enqueue_job(&self.acme, "transcode", &job).await.unwrap().job_id;
        self.until_done(id).await;
        let seconds = begun.elapsed().as_secs_f64();
        over.store(true, Ordering::SeqCst);
        looker.join().unwrap();
        let commands = seen.lock().unwrap().iter().cloned().collect();
        (seconds, commands)
    }

    async fn until_done(&self, id: JobId) {
        loop {
            let last = self.store.job_timeline(id).await.unwrap().pop().unwrap();
            if last.step.ends_with("succeeded") {
                return;
            }
            assert!(!last.step.ends_with("failed"), "{last:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The same commands without us: copy in, ffmpeg, copy out.
    fn bare(&self, commands: &[Vec<String>], dir: &Path) -> f64 {
        let place = dir.join("bare");
        let begun = Instant::now();
        for n in 0..3 {
            fs::create_dir_all(place.join(format!("out/{n}"))).unwrap();
        }
        fs::copy(self.files.join("clip.mp4"), place.join("input")).unwrap();
        assert!(!commands.is_empty(), "no ffmpeg was seen at work");
        for command in commands {
            let ran = Command::new(&command[0])
                .args(&command[1..])
                .current_dir(&place)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert!(ran.success(), "{command:?}");
        }
        fs::create_dir_all(place.join("there")).unwrap();
        for entry in (0..3).flat_map(|n| fs::read_dir(place.join(format!("out/{n}"))).unwrap()) {
            let path = entry.unwrap().path();
            fs::copy(&path, place.join("there").join(path.file_name().unwrap())).unwrap();
        }
        let seconds = begun.elapsed().as_secs_f64();
        fs::remove_dir_all(&place).unwrap();
        seconds
    }
}

/// Notes every ffmpeg that encodes for `worker`, with its arguments.
fn look(
    worker: u32,
    seen: Arc<Mutex<BTreeSet<Vec<String>>>>,
    over: Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            let children =
                fs::read_to_string(format!("/proc/{worker}/task/{worker}/children")).unwrap_or_default();
            let threads = fs::read_dir(format!("/proc/{worker}/task")).into_iter().flatten().flatten();
            let all = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
            for pid in all
                .chain([children])
                .flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words: Vec<_> = line
                    .split(|byte| *byte == 0)
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                let words = words[..words.len().saturating_sub(1)].to_vec();
                if words.first().is_some_and(|name| name.ends_with("ffmpeg"))
                    && words.contains(&"-progress".into())
                {
                    seen.lock().unwrap().insert(words);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

fn start_worker(database: &str, dir: &Path) -> Child {
    let log = dir.join("worker.log");
    let worker = Command::new(env!("CARGO_BIN_EXE_euterpe-transcode"))
        .env("EUTERPE_DATABASE_URL", database)
        .env("EUTERPE_KEKS", format!("bench:{}", *new_key()))
        .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
        .env("EUTERPE_FILE_STORAGE", dir.join("files"))
        .env("EUTERPE_WORK_DIR", dir.join("work"))
        .env("EUTERPE_TRANSCODE_CONCURRENCY", "1")
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    while !fs::read_to_string(&log).unwrap().contains("ready to work") {
        std::thread::sleep(Duration::from_millis(10));
    }
    worker
}

fn clip(path: &Path) {
    let made = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-nostdin", "-y", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size=1280x720:rate=30:duration={CLIP_SECONDS}"))
        .args(["-f", "lavfi", "-i"])
        .arg(format!("sine=frequency=440:duration={CLIP_SECONDS}"))
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
