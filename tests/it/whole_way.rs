//! The whole way of a job, and what must hold along all of it: memory that does not grow with the file, secrets that show
//! nowhere, webhooks that a stranger's library verifies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::BodyExt;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::owner::{Owner, written};
use crate::support::plant::{Plant, children_of, long_clip, tiny_clip};
use crate::support::s3s::{self, S3};
use crate::support::webhooks::Postman;

/// A store that makes its source while it is read and counts what is put, so that nobody here holds either.
async fn bottomless(size: u64) -> (String, Arc<AtomicU64>, AbortOnDropHandle<()>) {
    let put = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&put);
    let router = Router::new().fallback(move |request: Request<Body>| {
        let counted = Arc::clone(&counted);
        async move {
            if request.method() == Method::PUT {
                let mut body = request.into_body();
                while let Some(frame) = body.frame().await {
                    counted.fetch_add(frame.unwrap().into_data().unwrap().len() as u64, Ordering::SeqCst);
                }
                return "".into_response();
            }
            let header = Bytes::from(wav_header(size - 44));
            let piece = Bytes::from(vec![0x55; 1 << 20]);
            let data = size - 44;
            let pieces = (0..data.div_ceil(1 << 20)).map(move |n| {
                let left = data - n * (1 << 20);
                Ok::<_, std::io::Error>(piece.slice(..usize::try_from(left.min(1 << 20)).unwrap()))
            });
            let body = Body::from_stream(stream::iter([Ok(header)]).chain(stream::iter(pieces)));
            Response::builder().header("content-length", size).body(body).unwrap()
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, put, AbortOnDropHandle::new(task))
}

/// Sound of two channels, 192 kHz, 32 bits.
fn wav_header(data: u64) -> Vec<u8> {
    let data = u32::try_from(data).unwrap();
    let (rate, align) = (192_000_u32, 8_u16);
    let mut head = b"RIFF".to_vec();
    head.extend((data + 36).to_le_bytes());
    head.extend(b"WAVEfmt ");
    head.extend(16_u32.to_le_bytes());
    head.extend(1_u16.to_le_bytes());
    head.extend(2_u16.to_le_bytes());
    head.extend(rate.to_le_bytes());
    head.extend((rate * u32::from(align)).to_le_bytes());
    head.extend(align.to_le_bytes());
    head.extend(32_u16.to_le_bytes());
    head.extend(b"data");
    head.extend(data.to_le_bytes());
    head
}

/// The most memory that a worker ever had, in kilobytes, after one job of that size.
async fn peak_of(plant: &Plant, name: &str, size: u64) -> u64 {
    let (url, put, _server) = bottomless(size).await;
    let mut pod = plant.pod(name, &[]).await;
    let status = plant
        .run(&json!({
            "source": {"uri": format!("{url}/in?sig=1")},
            "outputs": [{"name": "a", "upload_url": format!("{url}/out?sig=2"), "container": "mkv",
                         "video": {"codec": "none"}, "audio": {"codec": "copy"}}],
        }))
        .await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    assert_eq!(status["source"]["size_bytes"], size);
    assert!(put.load(Ordering::SeqCst) > size, "all of it went out");
    let peak = pod.peak_kb();
    pod.signal(Signal::TERM);
    assert!(pod.wait().success());
    peak
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_grow_with_the_file() {
    let plant = Plant::new().await;
    let small = peak_of(&plant, "pod-small", 50_000_000).await;
    let large = peak_of(&plant, "pod-large", 1_050_000_000).await;
    assert!(large < small + 24_000, "{small} kB for 50 MB, {large} kB for 1 GB");
}

/// Everything about the children of a worker that others on the machine could see, and all names and beginnings of files.
#[derive(Default)]
struct Seen {
    processes: BTreeSet<Vec<u8>>,
    files: BTreeMap<String, Vec<u8>>,
}

fn look(pod: u32, plant: &Path, seen: &mut Seen) {
    for pid in children_of(pod) {
        for name in ["cmdline", "environ"] {
            seen.processes.insert(fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default());
        }
    }
    let mut dirs = vec![plant.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                seen.files.insert(path.display().to_string(), bytes);
            }
        }
    }
}

fn has(bytes: &[u8], wanted: &str) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

/// Contract §10: a job with keys, and the marks of all its secrets are in no process, no file, no log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_a_job_shows_in_processes_files_or_logs() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    let clip = plant.files().join("clip.mp4");
    long_clip(&clip, 20);
    s3.put("in/clip.mp4", &fs::read(&clip).unwrap());
    let owner = Owner::start(plant.secret.clone(), |_| {
        async { (200, json!({"credentials": written(&S3::credentials())}).to_string()) }.boxed()
    })
    .await;
    let pod = plant.pod("pod-1", &[("RUST_LOG", "trace"), ("EUTERPE_LOG", "json")]).await;
    let (pid, work, over) = (pod.pid(), plant.work_dir(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (also, until) = (Arc::clone(&seen), Arc::clone(&over));
    let looker = std::thread::spawn(move || {
        while !until.load(Ordering::SeqCst) {
            look(pid, &work, &mut also.lock().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let status = plant
        .run(&json!({
            "source": {"uri": format!("s3://{}/in/clip.mp4", s3s::BUCKET)},
            "storage": {"endpoint": s3.endpoint, "path_style": true, "output_prefix": format!("s3://{}/out/", s3s::BUCKET),
                        "credentials": {"access_key_id": "EUTMARK-id", "secret_access_key": "EUTMARK-key",
                                        "session_token": "EUTMARK-token"}},
            "outputs": [{"name": "a", "path": "a.mp4", "preset": "h264_480p"}],
            "refresh_url": format!("{}&mark=EUTMARK-url", owner.refresh_url),
        }))
        .await;
    over.store(true, Ordering::SeqCst);
    looker.join().unwrap();
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("succeeded"), &json!(2)),
        "{status:#}"
    );

    let seen = seen.lock().unwrap();
    let log = pod.said();
    // The search can find: what is not secret is there.
    assert!(seen.processes.iter().any(|seen| has(seen, "libx264")), "the encoder was seen at work");
    assert!(seen.files.values().any(|bytes| has(bytes, "ftyp")), "the source was seen");
    assert!(log.contains("job advances"), "{log}");
    for mark in ["EUTMARK", s3s::SECRET, &plant.secret.expose().to_string()[6..]] {
        assert!(!seen.processes.iter().any(|seen| has(seen, mark)), "{mark} in a process");
        let found: Vec<_> =
            seen.files.iter().filter(|(_, bytes)| has(bytes, mark)).map(|(name, _)| name).collect();
        assert!(found.is_empty(), "{mark} in {found:?}");
        assert!(!log.contains(mark), "{mark} in the log");
        assert!(!status.to_string().contains(mark), "{mark} in the status");
    }
}

/// A receiver in Python that knows nothing of us but the library of Standard Webhooks, and writes down what it accepted.
struct Stranger {
    process: Child,
    port: u16,
}

const STRANGER: &str = r#"
import http.server, json, sys
from standardwebhooks.webhooks import Webhook
secret, port, book = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "a")
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        event = Webhook(secret).verify(body, {name.lower(): value for name, value in self.headers.items()})
        book.write(json.dumps(event) + "\n"); book.flush()
        self.send_response(204); self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", port), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
"#;

impl Stranger {
    fn start(secret: &str, port: u16, book: &Path) -> Self {
        let mut process = Command::new("target/tools/bin/python")
            .args(["-c", STRANGER, secret, &port.to_string()])
            .arg(book)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().expect("it listens") }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Contract §8 end to end: real jobs, a receiver that dies in the middle and comes back, every event there, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_of_real_jobs_reaches_a_receiver_that_restarts() {
    let plant = Plant::new().await;
    tiny_clip(&plant.files().join("clip.mp4"));
    let book = plant.files().join("book");
    fs::File::create(&book).unwrap().flush().unwrap();
    let secret = plant.secret.expose().to_string();
    let first = Stranger::start(&secret, 0, &book);
    let port = first.port;
    let _postman = Postman::start(&plant.db, &[]);
    let _pod = plant.pod("pod-1", &[]).await;
    let mut jobs = Vec::new();
    for n in 0..4 {
        let mut request =
            plant.local("clip.mp4", &json!([{"name": "a", "path": format!("{n}.flac"), "preset": "flac"}]));
        request["status_webhook_url"] = json!(format!("http://127.0.0.1:{port}/hooks"));
        jobs.push(plant.post(&request).await);
    }
    plant.ended(&jobs[0]).await;
    drop(first);
    for job in &jobs {
        assert_eq!(plant.ended(job).await["status"], "succeeded");
    }
    let _second = Stranger::start(&secret, port, &book);
    let delivered = "select bool_and(status = 'delivered') from euterpe.job_outbox_events";
    crate::support::until(&plant.db.client().await, delivered).await;

    let said = fs::read_to_string(&book).unwrap();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for job in &jobs {
        let mut seen = BTreeSet::new();
        let of_job = events.iter().filter(|event| event["data"]["job_id"] == **job);
        // What came twice is known by its id; the rest is 1, 2, 3 … to the end.
        let sequences: Vec<_> = of_job
            .filter(|event| seen.insert(event["event_id"].as_str().unwrap().to_owned()))
            .map(|event| event["sequence"].as_i64().unwrap())
            .collect();
        assert_eq!(sequences, [1, 2, 3, 4, 5, 6], "{job}");
    }
    let last = events.iter().find(|event| event["type"] == "transcode.succeeded").unwrap();
    assert_eq!(last["data"]["outputs"][0]["container"], "flac");
}
