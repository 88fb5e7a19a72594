//! Contract §5, §7 with real credentials that really expire: in-band refresh, its own counter, and every answer of a store.
//!
//! The cases of the notes on object storage: expired while queued, never updated, expired in mid-upload, outside the prefix,
//! an expired signed url, a changed source, 400 ExpiredToken, 423, 429 and 5xx, a source that ends early.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::pages::block;
use crate::support::owner::{Owner, written};
use crate::support::plant::{Plant, make, tiny_clip};
use crate::support::s3s::{self, S3, refusal};
use crate::support::seaweed::{self, Seaweed};
use crate::support::shelf::{Says, Shelf};

/// Nobody waits long here.
const QUICK: [(&str, &str); 2] =
    [("EUTERPE_REFRESH_WAIT_SECONDS", "1"), ("EUTERPE_REFRESH_REST_SECONDS", "1")];

fn clip(plant: &Plant) -> Vec<u8> {
    let path = plant.files().join("clip.mp4");
    tiny_clip(&path);
    std::fs::read(path).unwrap()
}

/// From a bucket to a bucket.
fn in_bucket(endpoint: &str, bucket: &str, source: &str, prefix: &str, credentials: &Value) -> Value {
    json!({
        "source": {"uri": format!("s3://{bucket}/{source}")},
        "storage": {"endpoint": endpoint, "path_style": true, "output_prefix": format!("s3://{bucket}/{prefix}"),
                    "credentials": credentials},
        "outputs": [{"name": "a", "path": "a.m4a", "preset": "aac_128k"}],
    })
}

/// Somebody who answers a refresh call with the keys of the server in this process.
async fn handing_over(plant: &Plant) -> Owner {
    let answer = || (200, json!({"credentials": written(&S3::credentials())}).to_string());
    Owner::start(plant.secret.clone(), move |_| std::future::ready(answer()).boxed()).await
}

/// The same with fresh credentials of the real server, which live for seconds.
async fn assuming_anew(plant: &Plant) -> Owner {
    let answer = async || {
        let keys = Seaweed::shared().await.assume_role().await;
        (200, json!({"credentials": written(&keys)}).to_string())
    };
    Owner::start(plant.secret.clone(), move |_| answer().boxed()).await
}

/// The way to every value, sorted.
fn keys_of(value: &Value) -> Vec<String> {
    let below = |(key, value): (&String, &Value)| match keys_of(value) {
        deeper if deeper.is_empty() => vec![key.clone()],
        deeper => deeper.iter().map(|rest| format!("{key}.{rest}")).collect(),
    };
    let mut keys: Vec<_> = value.as_object().into_iter().flatten().flat_map(below).collect();
    keys.sort();
    keys
}

/// Case 1: they expire while the job waits. One call, one version more, the same attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_expired_in_the_line_are_refreshed_in_band() {
    let (plant, weed) = (Plant::new().await, Seaweed::shared().await);
    weed.put("case1/clip.mp4", &clip(&plant)).await;
    let owner = assuming_anew(&plant).await;
    let keys = weed.assume_role().await;
    let short_lived = written(&keys);
    let mut request =
        in_bucket(&weed.endpoint, seaweed::BUCKET, "case1/clip.mp4", "out/job1/case1/", &short_lived);
    request["refresh_url"] = json!(owner.refresh_url);
    let job_id = plant.post(&request).await;
    // Their clock, not ours.
    weed.until_expired(&keys).await;
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.ended(&job_id).await;
    assert_eq!(status["status"], "succeeded", "{status:#}");
    assert_eq!((&status["attempt_count"], &status["credential_version"]), (&json!(1), &json!(2)));
    let asked = owner.asked();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(asked[0]["type"], "credentials.refresh_required");
    let shown = block("docs/faces/transcode.md", "```json refresh\n");
    assert_eq!(keys_of(&asked[0]), keys_of(&serde_json::from_str(&shown).unwrap()), "what the page shows");
    assert_eq!(
        (&asked[0]["data"]["job_id"], &asked[0]["data"]["credential_version"]),
        (&json!(job_id), &json!(1))
    );
    assert_eq!(
        (&asked[0]["data"]["phase"], &asked[0]["data"]["http_status"]),
        (&json!("fetching"), &json!(403))
    );
    assert!(weed.get("out/job1/case1/a.m4a").await.is_some());
}

/// Case 1 again, with a requester that says yes and then puts them itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requester_may_put_new_credentials_instead_of_answering_them() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    s3.put("in/clip.mp4", &clip(&plant));
    let api = Arc::new((plant.api.client.clone(), plant.api.url.clone(), plant.api.key.clone()));
    let owner = Owner::start(plant.secret.clone(), move |asked| {
        let api = Arc::clone(&api);
        async move {
            let (client, url, key) = &*api;
            let body = json!({
                "job_id": asked["data"]["job_id"],
                "expected_credential_version": asked["data"]["credential_version"],
                "credentials": written(&S3::credentials()),
            });
            let put = client.put(format!("{url}/transcode/credentials")).bearer_auth(key).json(&body).send();
            assert_eq!(put.await.unwrap().status(), 200);
            (202, String::new())
        }
        .boxed()
    })
    .await;
    let wrong = json!({"access_key_id": "AKNOBODY", "secret_access_key": "nothing"});
    let mut request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/clip.mp4", "out/", &wrong);
    request["refresh_url"] = json!(owner.refresh_url);
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("succeeded"), &json!(2)),
        "{status:#}"
    );
    assert_eq!(owner.asked().len(), 1);
}

/// Without credentials in the request, a job begins with the refresh call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_credentials_begins_with_the_refresh_call() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    s3.put("in/clip.mp4", &clip(&plant));
    let owner = handing_over(&plant).await;
    let mut request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/clip.mp4", "out/", &Value::Null);
    request["refresh_url"] = json!(owner.refresh_url);
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("succeeded"), &json!(1)),
        "{status:#}"
    );
}

/// Case 2: yes, and nothing follows. Its own counter, no attempt; three in a row, and it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_never_come_end_the_job_without_costing_an_attempt() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    s3.put("in/clip.mp4", &clip(&plant));
    let owner =
        Owner::start(plant.secret.clone(), |_| async { (200, json!({"ok": true}).to_string()) }.boxed())
            .await;
    let wrong = json!({"access_key_id": "AKNOBODY", "secret_access_key": "nothing"});
    let mut request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/clip.mp4", "out/", &wrong);
    request["refresh_url"] = json!(owner.refresh_url);
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["error"]["code"]),
        (&json!("dead_letter"), &json!("credential_refresh_exhausted")),
        "{status:#}"
    );
    assert_eq!(owner.asked().len(), 3);
    assert_eq!((&status["attempt_count"], &status["credential_version"]), (&json!(1), &json!(1)));
    let story = plant.story(status["job_id"].as_str().unwrap()).await;
    assert_eq!(story.iter().filter(|step| *step == "queued").count(), 4, "{story:?}");
}

/// Case 3: they expire between two parts. The same upload goes on with the new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_expire_in_mid_upload_are_refreshed_and_the_upload_goes_on() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    // Noise, which nothing makes smaller: more than one request may carry.
    let noise = plant.files().join("noise.wav");
    make(&noise, "-f lavfi -i anoisesrc=r=192000:d=150:seed=1 -ac 2 -c:a pcm_s24le");
    s3.put("in/noise.wav", &std::fs::read(&noise).unwrap());
    let owner = handing_over(&plant).await;
    let good = written(&S3::credentials());
    let mut request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/noise.wav", "out/", &good);
    request["outputs"] = json!([{"name": "a", "path": "a.flac", "preset": "flac"}]);
    request["refresh_url"] = json!(owner.refresh_url);
    s3.refuse("UploadPart", [refusal(400, "ExpiredToken")]);
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("succeeded"), &json!(2)),
        "{status:#}"
    );
    assert_eq!(owner.asked()[0]["data"]["phase"], "uploading");
    assert_eq!(s3.asked("CreateMultipartUpload"), 1, "the same upload");
    let stored = s3.get("out/a.flac").unwrap();
    assert_eq!(status["outputs"][0]["size_bytes"], stored.len());
    assert_eq!(status["outputs"][0]["sha256"], hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&stored)));
}

/// Case 4: credentials are for one prefix, the job writes to another. New ones do not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_outside_what_the_credentials_may_write_ends_the_job() {
    let (plant, weed) = (Plant::new().await, Seaweed::shared().await);
    weed.put("case4/clip.mp4", &clip(&plant)).await;
    let owner = assuming_anew(&plant).await;
    let fresh = written(&weed.assume_role().await);
    let mut request = in_bucket(&weed.endpoint, seaweed::BUCKET, "case4/clip.mp4", "elsewhere/", &fresh);
    request["refresh_url"] = json!(owner.refresh_url);
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["error"]["code"], &status["error"]["phase"]),
        (&json!("dead_letter"), &json!("credential_refresh_exhausted"), &json!("uploading")),
        "{status:#}"
    );
    assert_eq!(status["error"]["http_status"], 403);
    assert!(weed.get("elsewhere/a.m4a").await.is_none());
}

/// Keys that read and may not write: what is fetched and encoded for them is bounded, also when nobody can be asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_read_and_never_write_end_the_job_soon() {
    let (plant, s3) = (Plant::new().await, S3::start().await);
    s3.put("in/clip.mp4", &clip(&plant));
    s3.refuse("PutObject", std::iter::repeat_n(refusal(403, "AccessDenied"), 100));
    let request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/clip.mp4", "out/", &written(&S3::credentials()));
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["error"]["code"]),
        (&json!("dead_letter"), &json!("credential_refresh_exhausted")),
        "{status:#}"
    );
    assert!(status["error"]["message"].as_str().unwrap().contains("no refresh_url"), "{status:#}");
    assert_eq!(s3.asked("GetObject"), 4);
}

/// Case 5: a signed url has run out; the requester signs anew, for the same object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_urls_that_expired_are_signed_anew() {
    let (plant, weed) = (Plant::new().await, Seaweed::shared().await);
    weed.put("case5/clip.mp4", &clip(&plant)).await;
    let owner = Owner::start(plant.secret.clone(), |_| {
        async {
            let (weed, long) = (Seaweed::shared().await, Duration::from_secs(600));
            let source = weed.signed(Method::GET, "case5/clip.mp4", long).await;
            let upload = weed.signed(Method::PUT, "case5/a.m4a", long).await;
            (200, json!({"source_uri": source, "upload_urls": {"a": upload}}).to_string())
        }
        .boxed()
    })
    .await;
    let short = Duration::from_secs(1);
    let (source, upload) = (
        weed.signed(Method::GET, "case5/clip.mp4", short).await,
        weed.signed(Method::PUT, "case5/a.m4a", short).await,
    );
    let request = json!({
        "source": {"uri": source},
        "outputs": [{"name": "a", "upload_url": upload, "preset": "aac_128k"}],
        "refresh_url": owner.refresh_url,
    });
    let job_id = plant.post(&request).await;
    weed.until_url_expired(request["source"]["uri"].as_str().unwrap()).await;
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.ended(&job_id).await;
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("succeeded"), &json!(2)),
        "{status:#}"
    );
    assert_eq!(status["outputs"][0]["uri"], weed.endpoint, "of a signed url only the origin is told");
    assert!(weed.get("case5/a.m4a").await.is_some());
}

/// A refresh that leads to another object is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_that_leads_elsewhere_is_refused() {
    let (plant, weed) = (Plant::new().await, Seaweed::shared().await);
    weed.put("case5b/clip.mp4", &clip(&plant)).await;
    weed.put("case5b/other.mp4", &clip(&plant)).await;
    let owner = Owner::start(plant.secret.clone(), |_| {
        async {
            let (weed, long) = (Seaweed::shared().await, Duration::from_secs(600));
            let source = weed.signed(Method::GET, "case5b/other.mp4", long).await;
            let upload = weed.signed(Method::PUT, "case5b/a.m4a", long).await;
            (200, json!({"source_uri": source, "upload_urls": {"a": upload}}).to_string())
        }
        .boxed()
    })
    .await;
    let spoilt = |url: String| url.replace("X-Amz-Signature=", "X-Amz-Signature=0");
    let long = Duration::from_secs(600);
    let request = json!({
        "source": {"uri": spoilt(weed.signed(Method::GET, "case5b/clip.mp4", long).await)},
        "outputs": [{"name": "a", "upload_url": weed.signed(Method::PUT, "case5b/a.m4a", long).await, "preset": "aac_128k"}],
        "refresh_url": owner.refresh_url,
    });
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant.run(&request).await;
    assert_eq!(
        (&status["status"], &status["credential_version"]),
        (&json!("dead_letter"), &json!(1)),
        "{status:#}"
    );
    assert!(weed.get("case5b/a.m4a").await.is_none());
}

/// Cases 6, 7, 8: what each answer of a store does to the job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_answers_decides_what_becomes_of_the_job() {
    let plant = Plant::new().await;
    let bytes = clip(&plant);
    let owner = handing_over(&plant).await;
    let _pod = plant.pod("pod-1", &QUICK).await;
    let late = |status, code| s3s::Refusal { retry_after: Some(60), ..refusal(status, code) };
    for (answer, status, code, version) in [
        (refusal(412, "PreconditionFailed"), "failed", "source_changed", 1),
        (refusal(404, "NoSuchKey"), "failed", "source_not_found", 1),
        (refusal(400, "ExpiredToken"), "succeeded", "", 2),
        (refusal(401, "Unauthorized"), "succeeded", "", 2),
        (refusal(403, "AccessDenied"), "succeeded", "", 2),
        (refusal(423, "Locked"), "queued", "storage_locked", 1),
        (late(429, "TooManyRequests"), "queued", "storage_rate_limited", 1),
        (late(503, "SlowDown"), "queued", "storage_rate_limited", 1),
        (refusal(500, "InternalError"), "queued", "storage_unavailable", 1),
        (refusal(502, "BadGateway"), "queued", "storage_unavailable", 1),
        (refusal(418, "Teapot"), "failed", "storage_refused", 1),
    ] {
        let s3 = S3::start().await;
        s3.put("in/clip.mp4", &bytes);
        // What may pass is asked again a few times before the job goes back to the line.
        let times = if status == "queued" { 4 } else { 1 };
        s3.refuse("GetObject", std::iter::repeat_n(answer.clone(), times));
        let good = written(&S3::credentials());
        let mut request = in_bucket(&s3.endpoint, s3s::BUCKET, "in/clip.mp4", "out/", &good);
        request["refresh_url"] = json!(owner.refresh_url);
        let job_id = plant.post(&request).await;
        let found = plant
            .until(&job_id, |found| {
                found["status"] == status && (status != "queued" || !found["error"].is_null())
            })
            .await;
        assert_eq!(found["credential_version"], version, "{answer:?} {found:#}");
        if !code.is_empty() {
            let error = &found["error"];
            assert_eq!(
                (&error["code"], &error["http_status"]),
                (&json!(code), &json!(answer.status)),
                "{found:#}"
            );
            assert_eq!(error["provider_code"], answer.code);
        }
        if status == "queued" {
            assert!(!found["next_attempt_at"].is_null() && found["attempt_count"] == 1, "{found:#}");
            plant.api.post("/transcode/cancel", &json!({"job_id": job_id})).send().await.unwrap();
        }
    }
}

/// Case 11: a source that ends early is tried once more, and then it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_ends_early_is_no_source() {
    let plant = Plant::new().await;
    let shelf =
        Shelf::start(|_, _| Says::This(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this".to_vec()))
            .await;
    let _pod = plant.pod("pod-1", &QUICK).await;
    let status = plant
        .run(&json!({
            "source": {"uri": format!("http://{}/clip.mp4?sig=1", shelf.address)},
            "outputs": [{"name": "a", "upload_url": format!("http://{}/a?sig=2", shelf.address), "preset": "aac_128k"}],
        }))
        .await;
    assert_eq!(
        (&status["status"], &status["error"]["code"]),
        (&json!("failed"), &json!("source_truncated")),
        "{status:#}"
    );
    assert_eq!(status["attempt_count"], 2);
}
