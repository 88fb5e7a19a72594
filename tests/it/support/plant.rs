//! The whole of it as a requester meets it: the real API, real workers as processes of their own, media made by ffmpeg.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use euterpe::crypto::SigningSecret;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api::{Api, KEK};
use super::{TestDb, url_of};

pub struct Plant {
    pub db: TestDb,
    pub api: Api,
    /// What acme's webhooks and refresh calls are signed with.
    pub secret: SigningSecret,
    dir: TempDir,
}

/// What every process here is told: loopback stands for the public internet.
fn common(root: &Path) -> Vec<(String, String)> {
    [
        ("EUTERPE_KEKS", KEK.to_owned()),
        ("EUTERPE_ALLOW_HTTP", "true".into()),
        ("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8".into()),
        ("EUTERPE_EGRESS_PORTS", "any".into()),
        ("EUTERPE_FILE_STORAGE", root.join("files").display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

impl Plant {
    pub async fn new() -> Self {
        let db = TestDb::fresh().await;
        let dir = tempfile::Builder::new().prefix("eut-plant").tempdir().unwrap();
        fs::create_dir_all(dir.path().join("files/acme")).unwrap();
        fs::create_dir_all(dir.path().join("work")).unwrap();
        let settings = common(dir.path());
        let settings: Vec<_> = settings
            .iter()
            .filter(|(name, _)| name != "EUTERPE_KEKS")
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let api = Api::start_with(&db, &settings).await;
        let secret = db.add_signing_secret("acme").await;
        Self { db, api, secret, dir }
    }

    /// Where acme's files are.
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("files/acme")
    }

    /// Where workers work.
    pub fn work_dir(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The directories of attempts that are there now, of any worker.
    pub fn attempts(&self) -> Vec<PathBuf> {
        let inside =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        inside(self.work_dir())
            .filter(|path| path.is_dir())
            .flat_map(inside)
            .filter(|path| path.is_dir())
            .collect()
    }

    pub async fn pod(&self, name: &str, settings: &[(&str, &str)]) -> Pod {
        let database = url_of(&self.db.config()).replace("user=euterpe_test", "user=euterpe_transcode");
        let log = self.dir.path().join(format!("{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_euterpe-transcode"));
        command
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .envs(common(self.dir.path()))
            .env("EUTERPE_DATABASE_URL", database)
            .env("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")
            .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
            .env("EUTERPE_WORK_DIR", self.work_dir())
            .env("EUTERPE_MIN_FREE_DISK_BYTES", "1000000")
            .env("EUTERPE_LEASE_SECONDS", "5")
            .env("EUTERPE_POLL_MS", "50-100")
            .env("POD_NAME", name)
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap());
        let mut pod = Pod { process: command.spawn().unwrap(), log };
        pod.until_said("ready to work").await;
        pod
    }

    /// A job from a file of acme's to files of acme's.
    pub fn local(&self, source: &str, outputs: &Value) -> Value {
        let files = self.files();
        json!({
            "source": {"uri": format!("file://{}/{source}", files.display())},
            "storage": {"output_prefix": format!("file://{}/out/", files.display())},
            "outputs": outputs,
        })
    }

    /// Posts it; it must be accepted.
    pub async fn post(&self, request: &Value) -> String {
        let answer = self.api.post("/transcode", request).send().await.unwrap();
        let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
        assert_eq!(status, 202, "{body:#}");
        body["job_id"].as_str().unwrap().to_owned()
    }

    pub async fn status(&self, job_id: &str) -> Value {
        let path = format!("/transcode/status?job_id={job_id}");
        loop {
            let answer = self.api.get(&path).send().await.unwrap();
            if answer.status() == 200 {
                return answer.json().await.unwrap();
            }
            assert_eq!(answer.status(), 429, "{:?}", answer.text().await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for a status that `is` what the test waits for.
    pub async fn until(&self, job_id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let status = self.status(job_id).await;
            if is(&status) {
                return status;
            }
            assert!(Instant::now() < end, "it never came to that: {status:#}");
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// Waits until it has ended.
    pub async fn ended(&self, job_id: &str) -> Value {
        let ends = ["succeeded", "failed", "dead_letter"];
        self.until(job_id, |status| ends.contains(&status["status"].as_str().unwrap())).await
    }

    /// Posts it and waits until it has ended.
    pub async fn run(&self, request: &Value) -> Value {
        let job_id = self.post(request).await;
        self.ended(&job_id).await
    }

    /// The types of its events, in order.
    pub async fn story(&self, job_id: &str) -> Vec<String> {
        let sql = format!(
            "select replace(type, 'transcode.', '') from euterpe.job_outbox_events where job_id = '{job_id}' order by sequence"
        );
        self.db.rows(&sql).await.iter().map(|row| row.get(0)).collect()
    }
}

/// A running `euterpe-transcode`.
pub struct Pod {
    process: Child,
    log: PathBuf,
}

impl Pod {
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub async fn until_said(&mut self, words: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.said().contains(words) {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "it never said {words:?}: {}", self.said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap(), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// `kill -9`, and it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// The processes it started that are still there, but not those that nobody has looked after yet.
    pub fn children(&self) -> Vec<u32> {
        children_of(self.process.id())
    }

    /// The most kilobytes that it ever had in memory.
    pub fn peak_kb(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Living children of a process, by /proc.
pub fn children_of(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // pid (name) state parent …
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let mut fields = after.split(' ');
        let (state, ppid) = (fields.next(), fields.next());
        state != Some("Z") && ppid == Some(&parent.to_string())
    })
    .collect()
}

/// Whether a process is there and at work.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with('Z'))
}

/// Polls until it is so.
pub async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// ffmpeg makes `path`, from its own generators.
pub fn make(path: &Path, arguments: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let made = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-loglevel", "error", "-y"])
        .args(arguments.split_whitespace())
        .arg(path)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A second of pictures and sound.
pub fn tiny_clip(path: &Path) {
    make(
        path,
        "-f lavfi -i testsrc=size=320x180:rate=15:duration=1 -f lavfi -i sine=frequency=440:duration=1 \
         -c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac",
    );
}

/// Some minutes of pictures, made by repeating a second: quick to make, slow to encode.
pub fn long_clip(path: &Path, seconds: u32) {
    let second = path.with_extension("second.mp4");
    make(
        &second,
        "-f lavfi -i testsrc2=size=640x360:rate=30:duration=1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p",
    );
    make(path, &format!("-stream_loop {} -i {} -c copy", seconds - 1, second.display()));
    fs::remove_file(second).unwrap();
}

/// What ffprobe says of a file, in its own words.
pub fn probe(path: &Path) -> Value {
    let probed = Command::new("ffprobe")
        .args(["-v", "error", "-print_format", "json", "-show_format", "-show_streams"])
        .arg(path)
        .output()
        .unwrap();
    assert!(probed.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&probed.stderr));
    serde_json::from_slice(&probed.stdout).unwrap()
}
