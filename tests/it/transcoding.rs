//! Contract §2–§5, §11 for real media: a claimed job is fetched, probed, encoded, checked, stored and finished.

use std::fs;

use serde_json::{Value, json};

use crate::support::plant::{Plant, eventually, long_clip, make, probe, tiny_clip};

/// A straight run, from the request to the facts of each output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_through_its_phases_and_says_what_it_made() {
    let plant = Plant::new().await;
    tiny_clip(&plant.files().join("clip.mp4"));
    let _pod = plant.pod("pod-1", &[]).await;
    let request = plant.local(
        "clip.mp4",
        &json!([
            {"name": "small", "path": "a/small.mp4", "container": "mp4", "video": {"codec": "h264", "height": 90}},
            {"name": "hls", "path": "hls/index.m3u8", "container": "hls", "video": {"codec": "h264", "height": 90}},
            {"name": "sound", "path": "sound.mp3", "preset": "mp3_192k"},
            {"name": "still", "path": "still.jpg", "preset": "thumbnail_jpg"}
        ]),
    );
    let job_id = plant.post(&request).await;
    let status = plant.ended(&job_id).await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    assert_eq!(
        plant.story(&job_id).await,
        ["queued", "claimed", "fetching", "processing", "uploading", "succeeded"]
    );
    assert_eq!((&status["attempt_count"], &status["error"]), (&json!(1), &Value::Null));
    let source = fs::metadata(plant.files().join("clip.mp4")).unwrap().len();
    assert_eq!(status["source"]["size_bytes"], source);
    assert_eq!(status["source"]["video"]["width"], 320);
    assert_eq!(status["source"]["audio"]["codec"], "aac");
    for (n, file) in ["a/small.mp4", "hls/index.m3u8", "sound.mp3", "still.jpg"].into_iter().enumerate() {
        let (said, path) = (&status["outputs"][n], plant.files().join("out").join(file));
        assert_eq!(said["uri"], format!("file://{}", path.display()));
        assert!(path.is_file(), "{file}");
    }
    let small = plant.files().join("out/a/small.mp4");
    let (said, bytes) = (&status["outputs"][0], fs::read(&small).unwrap());
    assert_eq!(said["size_bytes"], bytes.len());
    assert_eq!(said["sha256"], hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes)));
    assert_eq!((&said["video"]["height"], &said["video"]["codec"]), (&json!(90), &json!("h264")));
    assert_eq!(probe(&small)["streams"][0]["height"], 90);
    let hls = &status["outputs"][1];
    assert_eq!(hls["sha256"], Value::Null);
    assert_eq!(hls["file_count"], fs::read_dir(plant.files().join("out/hls")).unwrap().count());
    eventually("its directory is gone", || plant.attempts().is_empty()).await;
}

/// Contract §11: what cannot be done is said with its code, and the worker goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_trouble_has_its_code_and_leaves_nothing_behind() {
    let plant = Plant::new().await;
    let files = plant.files();
    tiny_clip(&files.join("clip.mp4"));
    make(&files.join("sound.wav"), "-f lavfi -i sine=frequency=440:duration=1");
    fs::write(files.join("empty.mp4"), "").unwrap();
    fs::write(files.join("notes.mp4"), "#EXTM3U\nfile:///etc/passwd\n").unwrap();
    fs::write(files.join("large.mp4"), vec![0; 3_000_000]).unwrap();
    std::os::unix::fs::symlink(files.join("clip.mp4"), files.join("link.mp4")).unwrap();
    let pod = plant.pod("pod-1", &[("EUTERPE_MAX_SOURCE_BYTES", "2000000")]).await;
    let mp4 = json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]);
    for (source, sha256, code) in [
        ("missing.mp4", None, "source_not_found"),
        ("empty.mp4", None, "media_unreadable"),
        ("notes.mp4", None, "media_unsupported_format"),
        ("large.mp4", None, "source_too_large"),
        ("sound.wav", None, "media_no_streams"),
        ("clip.mp4", Some("0".repeat(64)), "source_checksum_mismatch"),
    ] {
        let mut request = plant.local(source, &mp4);
        request["source"]["sha256"] = json!(sha256);
        let status = plant.run(&request).await;
        assert_eq!(
            (&status["status"], &status["error"]["code"]),
            (&json!("failed"), &json!(code)),
            "{status:#}"
        );
    }
    // A link leads who knows where.
    let status = plant.run(&plant.local("link.mp4", &mp4)).await;
    assert_ne!(status["status"], "succeeded", "{status:#}");
    let status = plant.run(&plant.local("clip.mp4", &mp4)).await;
    assert_eq!(status["status"], "succeeded", "the worker is alive: {status:#}");
    eventually("its directories are gone", || plant.attempts().is_empty()).await;
    assert!(pod.children().is_empty());
}

/// Contract §11, case 12 of the notes with lowered caps: an output that grows beyond its limit is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_beyond_its_cap_is_stopped_and_nothing_of_it_is_published() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 20);
    let _pod = plant.pod("pod-1", &[("EUTERPE_MAX_OUTPUT_BYTES", "200000")]).await;
    let outputs = json!([
        {"name": "a", "path": "a.mp4", "container": "mp4", "video": {"codec": "h264", "bitrate_kbps": 8000}}
    ]);
    let status = plant.run(&plant.local("clip.mp4", &outputs)).await;
    assert_eq!(
        (&status["status"], &status["error"]["code"]),
        (&json!("failed"), &json!("output_too_large")),
        "{status:#}"
    );
    assert!(!plant.files().join("out/a.mp4").exists());
}

/// Progress is heard while ffmpeg works, with its speed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_carried_by_heartbeats() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 400);
    let _pod = plant.pod("pod-1", &[("EUTERPE_FFMPEG_THREADS", "1")]).await;
    let outputs = json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]);
    let job_id = plant.post(&plant.local("clip.mp4", &outputs)).await;
    let status = plant
        .until(&job_id, |status| {
            status["progress"]["phase"] == "processing" && status["progress"]["percent"].as_f64() > Some(0.0)
        })
        .await;
    assert!(status["progress"]["percent"].as_f64().unwrap() < 100.0, "{status:#}");
    assert!(status["progress"]["speed"].as_f64().is_some(), "{status:#}");
    plant.api.post("/transcode/cancel", &json!({"job_id": job_id})).send().await.unwrap();
}

/// Design §5.16: outputs of each claim in a directory of their own, for who asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_per_claim_layout_each_claim_has_its_own_place() {
    let plant = Plant::new().await;
    tiny_clip(&plant.files().join("clip.mp4"));
    let _pod = plant.pod("pod-1", &[]).await;
    let outputs = json!([
        {"name": "a", "path": "a.flac", "preset": "flac"},
        {"name": "odd", "path": "50%70000d off.jpg", "preset": "thumbnail_jpg"}
    ]);
    let mut request = plant.local("clip.mp4", &outputs);
    request["storage"]["output_layout"] = json!("per_claim");
    let status = plant.run(&request).await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    let uri = status["outputs"][0]["uri"].as_str().unwrap();
    let place = format!("/out/{}/1-", status["job_id"].as_str().unwrap());
    assert!(uri.contains(&place) && uri.ends_with("/a.flac"), "{uri}");
    assert!(fs::metadata(uri.strip_prefix("file://").unwrap()).is_ok());
    // A name is a name, whatever is in it; as a uri it is escaped.
    let odd = status["outputs"][1]["uri"].as_str().unwrap();
    assert!(odd.ends_with("/50%2570000d%20off.jpg"), "{odd}");
}

/// A worker without room claims nothing, says so, and another takes the job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_room_does_not_claim() {
    let plant = Plant::new().await;
    tiny_clip(&plant.files().join("clip.mp4"));
    let mut full = plant.pod("pod-full", &[("EUTERPE_MIN_FREE_DISK_BYTES", "4000000000000000")]).await;
    let mut tight = plant.pod("pod-tight", &[("EUTERPE_MIN_FREE_MEMORY_BYTES", "4000000000000000")]).await;
    full.until_said("low disk").await;
    tight.until_said("low memory").await;
    let request = plant.local("clip.mp4", &json!([{"name": "a", "path": "a.flac", "preset": "flac"}]));
    let job_id = plant.post(&request).await;
    let _pod = plant.pod("pod-1", &[]).await;
    let status = plant.ended(&job_id).await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    let workers = "select count(distinct worker_id) from euterpe.job_timeline where worker_id like 'pod-%'";
    assert_eq!(plant.db.one::<i64>(workers).await, 1);
    let address = full.said().lines().find_map(|line| {
        let (_, rest) = line.split_once("health and metrics listen=")?;
        Some(rest.split_whitespace().next()?.to_owned())
    });
    let ready =
        reqwest::get(format!("http://{}/readyz", address.unwrap())).await.unwrap().text().await.unwrap();
    assert!(ready.contains("\"cage\": \"landlock ") && ready.contains("low disk"), "{ready}");
    let detail =
        "select detail ->> 'no_room' like 'low disk%' from euterpe.workers where worker_id like 'pod-full#%'";
    assert!(plant.db.one::<bool>(detail).await);
}

/// An attempt has an end, whatever the encoder thinks of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_ends_when_its_timeout_is_over() {
    let plant = Plant::new().await;
    long_clip(&plant.files().join("clip.mp4"), 1800);
    let pod = plant.pod("pod-1", &[("EUTERPE_FFMPEG_THREADS", "1")]).await;
    let mut request =
        plant.local("clip.mp4", &json!([{"name": "a", "path": "a.mp4", "preset": "h264_480p"}]));
    request["timeout_seconds"] = json!(10);
    request["max_attempts"] = json!(1);
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["error"]["code"]),
        (&json!("dead_letter"), &json!("encode_timeout")),
        "{status:#}"
    );
    eventually("no ffmpeg is left", || pod.children().is_empty()).await;
    eventually("its directory is gone", || plant.attempts().is_empty()).await;
}
