//! Contract §4, §11: a worker may die or be stopped at any moment. Another finishes; nothing is published twice or left.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::plant::{Plant, Pod, eventually, is_alive, long_clip, tiny_clip};
use crate::support::vault::Vault;

/// A job between signed urls: what the store holds, the job waits for.
fn between(vault: &Vault) -> Value {
    json!({
        "source": {"uri": format!("{}/in?X-Amz-Signature=1", vault.url)},
        "outputs": [{"name": "a", "upload_url": format!("{}/out?X-Amz-Signature=2", vault.url), "preset": "aac_128k"}],
    })
}

async fn with_clip(plant: &Plant) -> Vault {
    let (vault, clip) = (Vault::open().await, plant.files().join("clip.mp4"));
    tiny_clip(&clip);
    vault.put("/in", fs::read(clip).unwrap());
    vault
}

/// It ended well, once; and nothing of the dead is left.
async fn finished_by_another(plant: &Plant, job_id: &str) {
    let status = plant.ended(job_id).await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    assert!(status["worker_id"].is_null() || status["claim_version"] == 2, "{status:#}");
    let story = plant.story(job_id).await;
    assert_eq!(story.iter().filter(|step| *step == "succeeded").count(), 1, "{story:?}");
    let takers = format!(
        "select count(distinct split_part(worker_id, '#', 1)) from euterpe.job_timeline
          where job_id = '{job_id}' and worker_id like 'pod-%'"
    );
    assert_eq!(plant.db.one::<i64>(&takers).await, 2);
    eventually("no directory is left", || plant.attempts().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_fetching_another_finishes() {
    let plant = Plant::new().await;
    let vault = with_clip(&plant).await;
    vault.hold_gets(1);
    let mut first = plant.pod("pod-1", &[]).await;
    let job_id = plant.post(&between(&vault)).await;
    eventually("the download is held", || vault.held() == 1).await;
    eventually("it has a directory", || plant.attempts().len() == 1).await;
    first.kill();
    let _second = plant.pod("pod-2", &[]).await;
    finished_by_another(&plant, &job_id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_processing_another_finishes_and_no_ffmpeg_survives() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 120);
    let mut first = plant.pod("pod-1", &[("EUTERPE_FFMPEG_THREADS", "1")]).await;
    let request = plant.local("clip.mp4", &json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]));
    let job_id = plant.post(&request).await;
    let ffmpeg = ffmpeg_of(&plant, &first, &job_id).await;
    first.kill();
    eventually("the kernel stopped ffmpeg", || !is_alive(ffmpeg)).await;
    assert!(!plant.files().join("out/a.mp4").exists());
    let _second = plant.pod("pod-2", &[]).await;
    finished_by_another(&plant, &job_id).await;
    assert!(plant.files().join("out/a.mp4").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_uploading_another_finishes() {
    let plant = Plant::new().await;
    let vault = with_clip(&plant).await;
    vault.hold_puts(1);
    let mut first = plant.pod("pod-1", &[]).await;
    let job_id = plant.post(&between(&vault)).await;
    eventually("the upload is held", || vault.held() == 1).await;
    first.kill();
    assert!(vault.get("/out").is_none());
    let _second = plant.pod("pod-2", &[]).await;
    finished_by_another(&plant, &job_id).await;
    assert!(vault.get("/out").is_some());
}

/// The ffmpeg that encodes for a job.
async fn ffmpeg_of(plant: &Plant, pod: &Pod, job_id: &str) -> u32 {
    plant.until(job_id, |status| status["status"] == "processing").await;
    let is_ffmpeg =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "ffmpeg");
    eventually("it encodes", || pod.children().iter().any(is_ffmpeg)).await;
    pod.children().into_iter().find(is_ffmpeg).unwrap()
}

/// Contract §4: a worker that slept through its lease writes nothing and publishes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_past_its_lease_a_worker_drops_everything() {
    let plant = Plant::new().await;
    let vault = with_clip(&plant).await;
    long_clip(&plant.files().join("long.mp4"), 120);
    vault.put("/in", fs::read(plant.files().join("long.mp4")).unwrap());
    let mut request = between(&vault);
    request["outputs"][0]["preset"] = json!("h264_480p");
    let first = plant.pod("pod-1", &[("EUTERPE_FFMPEG_THREADS", "1")]).await;
    let job_id = plant.post(&request).await;
    let ffmpeg = ffmpeg_of(&plant, &first, &job_id).await;
    first.signal(Signal::STOP);
    let second = plant.pod("pod-2", &[]).await;
    plant.until(&job_id, |status| status["claim_version"] == 2 && status["status"] != "claimed").await;
    first.signal(Signal::CONT);
    eventually("the stale worker's ffmpeg is gone", || !is_alive(ffmpeg)).await;
    eventually("it knows", || first.said().contains("lost its claim")).await;
    finished_by_another(&plant, &job_id).await;
    let puts = vault.seen().iter().filter(|line| line.starts_with("PUT")).count();
    assert_eq!(puts, 1, "published by one of them only");
    assert!(first.children().is_empty() && second.children().is_empty());
}

/// Cancelled in the middle: ffmpeg is gone within a heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_is_stopped_at_the_next_heartbeat() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 1800);
    let pod = plant.pod("pod-1", &[("EUTERPE_FFMPEG_THREADS", "1")]).await;
    let request = plant.local("clip.mp4", &json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]));
    let job_id = plant.post(&request).await;
    let ffmpeg = ffmpeg_of(&plant, &pod, &job_id).await;
    let answer = plant.api.post("/transcode/cancel", &json!({"job_id": job_id})).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    eventually("ffmpeg is gone", || !is_alive(ffmpeg)).await;
    eventually("its directory is gone", || plant.attempts().is_empty()).await;
    let status = plant.status(&job_id).await;
    assert_eq!((&status["status"], &status["error"]["code"]), (&json!("failed"), &json!("cancelled")));
    assert!(!plant.files().join("out/a.mp4").exists());
}

/// SIGTERM: what is at work when the drain is over goes back, uncounted; the process ends well and leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_a_worker_hands_back_what_it_cannot_finish() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 1800);
    let settings = [
        ("EUTERPE_DRAIN_SECONDS", "0"),
        ("EUTERPE_TRANSCODE_CONCURRENCY", "1"),
        ("EUTERPE_FFMPEG_THREADS", "1"),
    ];
    let mut pod = plant.pod("pod-1", &settings).await;
    let request = plant.local("clip.mp4", &json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]));
    let (job_id, next) = (plant.post(&request).await, plant.post(&request).await);
    let ffmpeg = ffmpeg_of(&plant, &pod, &job_id).await;
    pod.signal(Signal::TERM);
    assert!(pod.wait().success(), "{}", pod.said());
    assert!(!is_alive(ffmpeg), "ffmpeg ended before its worker");
    let status = plant.status(&job_id).await;
    assert_eq!((&status["status"], &status["attempt_count"]), (&json!("queued"), &json!(0)), "{status:#}");
    let reason =
        format!("select reason from euterpe.job_timeline where job_id = '{job_id}' and reason is not null");
    assert_eq!(plant.db.one::<String>(&reason).await, "worker_shutdown");
    assert_eq!(plant.story(&next).await, ["queued"], "never begun");
    assert_eq!(
        fs::read_dir(plant.work_dir())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
}

/// And what can be finished within the drain is finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_a_worker_finishes_what_it_can() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 60);
    let mut pod = plant.pod("pod-1", &[]).await;
    let request = plant.local("clip.mp4", &json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]));
    let job_id = plant.post(&request).await;
    ffmpeg_of(&plant, &pod, &job_id).await;
    pod.signal(Signal::TERM);
    assert!(pod.wait().success(), "{}", pod.said());
    assert_eq!(plant.status(&job_id).await["status"], "succeeded");
}
