//! A first look: a clip is made and posted; its phases, its webhooks, its timeline and its outputs are shown.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::house::{House, Plot, free_ports};
use super::{Cluster, tell};
use crate::cli::progress::Progress;
use crate::domain::transcode::StatusDocument;

/// Long enough to be seen, short enough not to bore.
const CLIP_SECONDS: u32 = 20;
const DONE_WITHIN: Duration = Duration::from_secs(120);

/// Shows one job from its request to its last webhook. Leaves its outputs and logs in `.euterpe/demo/`, and no process.
pub async fn demo() -> anyhow::Result<()> {
    let stop = super::interrupted()?;
    let dir = std::env::current_dir()?.join(".euterpe/demo");
    // What the last demo made would look like what this one makes.
    for old in ["storage", "keys", "api-key"] {
        let old = dir.join(old);
        let _ = if old.is_dir() { std::fs::remove_dir_all(&old) } else { std::fs::remove_file(&old) };
    }
    let database = Cluster::scratch("demo");
    let plot = Plot { dir, database: database.clone(), ports: free_ports([0, 0])? };
    let shown = open_and_show(plot, stop).await;
    let removed = std::fs::remove_dir_all(&database);
    shown?;
    removed.with_context(|| format!("cannot remove {}", database.display()))
}

async fn open_and_show(plot: Plot, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let mut stop = pin!(stop);
    let mut house = tokio::select! {
        opened = House::open(plot) => opened?,
        () = &mut stop => bail!("interrupted"),
    };
    let shown = tokio::select! {
        shown = show(&mut house) => shown,
        () = &mut stop => Err(anyhow::anyhow!("interrupted")),
    };
    house.close(super::interrupted()?).await;
    shown
}

async fn show(house: &mut House) -> anyhow::Result<()> {
    let mut webhooks = webhooks_of(house)?;
    let clip = house.storage().join("clip.mp4");
    make_clip(&clip).await?;
    tell(format_args!("ffmpeg made a clip of {CLIP_SECONDS} s: {}\n", clip.display()))?;

    let request = request(house, &clip);
    tell(format_args!("POST {}/transcode\n{request:#}\n", house.api.url()))?;
    let accepted = house.api.ask(Method::POST, "/transcode", &[], Some(&request)).await?.good()?;
    let job_id = accepted["job_id"].as_str().context("no job_id")?.to_owned();
    tell(format_args!("202 {accepted}\n"))?;

    let (status, heard) = follow(house, &job_id, &mut webhooks).await?;
    ensure!(status["status"] == "succeeded", "the job ended otherwise:\n{status:#}");
    tell(format_args!("\nGET /transcode/status?job_id={job_id}\n{status:#}\n"))?;
    tell("What happened, from psql (table euterpe.help names the rest):\n")?;
    timeline(house, &job_id).await?;
    tell("The outputs:")?;
    for output in status["outputs"].as_array().into_iter().flatten() {
        let word = |name: &str| output[name].as_str().unwrap_or_default();
        tell(format_args!("  {:<6} {}", word("name"), word("uri").trim_start_matches("file://")))?;
    }
    tell(format_args!(
        "\n{heard} webhooks arrived, each signature verified. Everything has been stopped; logs are in {}.",
        house.logs().display()
    ))?;
    tell("Next: `make dev` keeps it all running, README.md has the first job with curl.")?;
    Ok(())
}

/// Four kinds of output, small enough for any machine.
fn request(house: &House, clip: &Path) -> Value {
    let outputs = house.storage().join("outputs");
    json!({
        "source": {"uri": format!("file://{}", clip.display())},
        "storage": {"output_prefix": format!("file://{}/", outputs.display())},
        "outputs": [
            {"name": "480p", "path": "480p.mp4", "preset": "h264_480p"},
            {"name": "hls", "path": "hls/index.m3u8", "container": "hls",
             "video": {"codec": "h264", "height": 360, "crf": 28}, "audio": {"codec": "aac", "bitrate_kbps": 96}},
            {"name": "sound", "path": "sound.mp3", "preset": "mp3_192k"},
            {"name": "still", "path": "still.jpg", "preset": "thumbnail_jpg"}
        ],
        "status_webhook_url": house.webhook_url,
        "external_id": "my-first-job"
    })
}

async fn make_clip(path: &Path) -> anyhow::Result<()> {
    let picture = format!("testsrc2=size=1280x720:rate=30:duration={CLIP_SECONDS}");
    let sound = format!("sine=frequency=440:duration={CLIP_SECONDS}");
    let made = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i", &picture])
        .args(["-f", "lavfi", "-i", &sound, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"])
        .args(["-c:a", "aac", "-movflags", "+faststart"])
        .arg(path)
        .stdin(Stdio::null())
        // In a group of its own: Ctrl-C reaches us, and we say that we were interrupted, not that ffmpeg failed.
        .process_group(0)
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run ffmpeg; `make setup` installs it")?;
    ensure!(made.status.success(), "ffmpeg made no clip: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

/// What the receiver says, as it says it.
fn webhooks_of(house: &mut House) -> anyhow::Result<mpsc::UnboundedReceiver<Value>> {
    let output = house.receiver_output().context("the receiver says nothing")?;
    let (says, said) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(event) = serde_json::from_str(&line) {
                let _ = says.send(event); // nobody looks any more
            }
        }
    });
    Ok(said)
}

/// Until the job has ended and its last webhook is there: the status document, and how many webhooks came.
async fn follow(
    house: &mut House,
    job_id: &str,
    webhooks: &mut mpsc::UnboundedReceiver<Value>,
) -> anyhow::Result<(Value, usize)> {
    let mut progress = Progress::new(false);
    let (mut status, mut heard, end) = (Value::Null, 0, Instant::now() + DONE_WITHIN);
    let path = format!("/transcode/status?job_id={job_id}");
    let mut is_told = false;
    while !(is_told && is_final(&status)) {
        house.check()?;
        if Instant::now() > end {
            bail!("not done after {} s: {status:#}", DONE_WITHIN.as_secs());
        }
        if !is_final(&status) {
            status = house.api.ask(Method::GET, &path, &[], None).await?.good()?;
            progress.show(&StatusDocument::deserialize(&status)?);
        }
        // Between two looks: whatever arrives.
        let until = Instant::now() + Duration::from_millis(200);
        while let Ok(Some(event)) =
            timeout(until.saturating_duration_since(Instant::now()), webhooks.recv()).await
        {
            let (verdict, event) = (event["verdict"].as_str().unwrap_or_default(), &event["event"]);
            let what = event["type"].as_str().unwrap_or_default();
            progress.pause(|| tell(format_args!("webhook {} {what:<22} {verdict}", event["sequence"])))?;
            ensure!(verdict.starts_with("verified"), "a webhook was not verified");
            heard += 1;
            is_told |= event["data"]["final"] == true;
        }
    }
    progress.done();
    Ok((status, heard))
}

fn is_final(status: &Value) -> bool {
    matches!(status["status"].as_str(), Some("succeeded" | "failed" | "dead_letter"))
}

async fn timeline(house: &House, job_id: &str) -> anyhow::Result<()> {
    let query = format!(
        "select sequence as seq, to_char(at, 'HH24:MI:SS.MS') as time, step, claim_version as claim, worker_id as worker
           from job_timeline where job_id = '{job_id}' order by at, sequence"
    );
    let told = Command::new(psql_program())
        .arg(house.database_url())
        .args(["-X", "-P", "footer=off", "-c", &query])
        .env("PGOPTIONS", "-c search_path=euterpe")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cannot run psql; `make setup` installs it")?;
    ensure!(told.success(), "psql failed");
    Ok(())
}

fn psql_program() -> PathBuf {
    Cluster::program("psql").unwrap_or_else(|| PathBuf::from("psql"))
}
