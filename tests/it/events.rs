//! Contract §8, transactional part: every transition writes its event, in its transaction.

use euterpe::domain::{JobFailure, JobStatus, NewJob};
use euterpe::store::Found;
use serde_json::{Value, json};

use crate::support::{TestDb, requester, worker};

fn with_webhook(filter: &[&str]) -> NewJob {
    NewJob {
        external_id: Some("video-42".into()),
        metadata: Some(json!({"tenant": "acme \"quoted\" ü"})),
        event_filter: Some(filter.iter().map(|&f| f.to_owned()).collect()),
        callback_origin: Some("https://example.com".into()),
        ..NewJob::default()
    }
}

async fn payloads(db: &TestDb) -> Vec<Value> {
    db.rows(
        "select payload from euterpe.job_outbox_events where payload is not null order by job_id, sequence",
    )
    .await
    .iter()
    .map(|row| serde_json::from_str(row.get(0)).unwrap())
    .collect()
}

#[tokio::test]
async fn the_payload_of_a_straight_run_says_what_the_design_says() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    let id = db.enqueue_with(with_webhook(&["transcode.*"])).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Uploading).await;
    let outputs = json!([{"name": "720p", "uri": "s3://out/720p.mp4"}]);
    db.store().complete_jobs(&pod, &[(job.claim, None, outputs.clone())]).await.unwrap();

    let bodies = payloads(&db).await;
    assert_eq!(bodies.len(), 6);
    let steps = ["queued", "claimed", "fetching", "processing", "uploading", "succeeded"];
    for (n, (body, status)) in bodies.iter().zip(steps).enumerate() {
        assert_eq!(body["type"], format!("transcode.{status}"));
        assert_eq!(body["event_id"], format!("evt_{}_{}", id.0.simple(), n + 1));
        assert_eq!(body["sequence"], n + 1);
        assert!(body["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        let data = &body["data"];
        assert_eq!(data["job_id"], id.to_string());
        assert_eq!(data["external_id"], "video-42");
        assert_eq!(data["status"], status);
        assert_eq!(data["previous_status"], if n == 0 { Value::Null } else { steps[n - 1].into() });
        assert_eq!(data["final"], status == "succeeded");
        assert_eq!(data["metadata"]["tenant"], "acme \"quoted\" ü");
        assert_eq!(data["attempt_count"], i32::from(n >= 2));
        assert_eq!(data.get("outputs"), (status == "succeeded").then_some(&outputs));
        assert!(data.get("error").is_none());
    }
}

#[tokio::test]
async fn failed_and_dead_letter_carry_the_normalized_error_and_say_what_is_final() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    for (code, expected) in [
        ("media_unreadable", &[("transcode.failed", true)][..]),
        ("egress_blocked", &[("transcode.failed", false), ("transcode.dead_letter", true)]),
        ("storage_unavailable", &[("transcode.queued", false)]),
    ] {
        let id = db.enqueue_with(with_webhook(&["transcode.*"])).await;
        let job = db.claim(&pod).await;
        db.advance_to(&pod, job.claim, JobStatus::Fetching).await;
        let failure = JobFailure {
            code: code.into(),
            message: "as it is".into(),
            http_status: Some(503),
            provider_code: Some("SlowDown".into()),
            ..JobFailure::default()
        };
        db.store().fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();

        let bodies = payloads(&db).await;
        let mine: Vec<_> =
            bodies.iter().filter(|body| body["data"]["job_id"] == id.to_string()).skip(3).collect();
        assert_eq!(mine.len(), expected.len(), "{code}");
        for (body, (kind, is_final)) in mine.iter().zip(expected) {
            assert_eq!(
                (&body["type"], &body["data"]["final"]),
                (&(*kind).into(), &(*is_final).into()),
                "{code}"
            );
            assert_eq!(body["data"]["reason"], code);
            if *kind == "transcode.queued" {
                assert!(body["data"].get("error").is_none());
            } else {
                let error = &body["data"]["error"];
                assert_eq!(error["code"], code);
                assert_eq!(error["message"], "as it is");
                assert_eq!(
                    (&error["http_status"], &error["provider_code"]),
                    (&503.into(), &"SlowDown".into())
                );
            }
        }
    }
}

/// Every time in `value`, by its name.
fn times_in(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| match field.as_str() {
                Some(text) if name.ends_with("_at") || name == "at" || name == "timestamp" => {
                    vec![(name.clone(), text.to_owned())]
                }
                _ => times_in(field),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(times_in).collect(),
        _ => Vec::new(),
    }
}

/// A receiver may compare the time in a webhook with that in the status document as text.
#[tokio::test]
async fn times_are_written_alike_everywhere_and_metadata_is_an_object() {
    let db = TestDb::fresh().await;
    db.run(&format!("alter database {} set timezone = 'Asia/Kolkata'", db.config().get_dbname().unwrap()))
        .await;
    let store = db.store_as("euterpe_test", 1);
    let pod = worker("pod");
    let id = db.enqueue_with(NewJob { metadata: None, ..with_webhook(&["transcode.*"]) }).await;
    let job = db.claim(&pod).await;
    db.advance_to(&pod, job.claim, JobStatus::Processing).await;
    store.heartbeat_jobs(&pod, &[(job.claim, Some(json!({"percent": 1})))], None).await.unwrap();
    let failure = |code: &str| JobFailure { code: code.into(), ..JobFailure::default() };
    let read = async || {
        let document = store.read_job(&requester("acme"), id).await.unwrap();
        let Found::Here(document) = document else { panic!("{document:?}") };
        document.document
    };
    let mut seen = times_in(&read().await);
    store.fail_jobs(&pod, &[(job.claim, failure("storage_unavailable"))]).await.unwrap();
    let document = read().await;
    seen.extend(times_in(&document));
    let Found::Here(events) = store.read_events(&requester("acme"), id).await.unwrap() else {
        panic!("no events")
    };
    seen.extend(times_in(&events));
    let bodies = payloads(&db).await;
    seen.extend(bodies.iter().flat_map(times_in));

    for name in ["created_at", "started_at", "updated_at", "next_attempt_at", "occurred_at", "timestamp"] {
        assert!(seen.iter().any(|(seen, _)| seen == name), "no {name} in {seen:?}");
    }
    for (name, time) in &seen {
        assert!(time.len() == "2026-11-18T12:00:00.123456Z".len() && time.ends_with('Z'), "{name}: {time}");
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{name}: {time}");
    }
    assert_eq!(events[0]["timestamp"], bodies[0]["timestamp"]);
    assert_eq!((&document["metadata"], &bodies[0]["data"]["metadata"]), (&json!({}), &json!({})));
}

/// Filtered events, and all events of a job without a webhook, are in the timeline as `skipped`.
#[tokio::test]
async fn what_nobody_wants_is_skipped_but_numbered() {
    let db = TestDb::fresh().await;
    let pod = worker("pod");
    for (job, wanted) in [
        (NewJob::default(), 0),
        (with_webhook(&[]), 0),
        (with_webhook(&["transcode.succeeded", "transcode.failed"]), 1),
        (with_webhook(&["transcode.*"]), 6),
    ] {
        let id = db.enqueue_with(job).await;
        let job = db.claim(&pod).await;
        db.succeed(&pod, job.claim).await;
        let sql = format!(
            "select count(*) filter (where status in ('waiting', 'ready')), count(*) filter (where status = 'skipped')
               from euterpe.job_outbox_events where job_id = '{id}'"
        );
        let row = &db.rows(&sql).await[0];
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (wanted, 6 - wanted));
    }
}
