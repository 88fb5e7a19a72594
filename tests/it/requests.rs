//! Design §5.15, §6: what becomes of an accepted request. Presets are expanded, defaults decided, secrets apart.

use std::collections::BTreeSet;
use std::fs;

use euterpe::domain::transcode::{
    Accepted, CallbackSecret, CancelRequest, CredentialsUpdate, ErrorBody, ErrorCode, JobSpec, MediaSpec,
    Place, Policy, RedeliverRequest, Rejection, RetryRequest, StorageSecret, Target, parse_refresh_answer,
    parse_request,
};
use euterpe::domain::{EgressPolicy, EgressPorts, EventRef, JobId};
use serde_json::{Value, json};

use crate::support::requester;

fn ask(body: &Value, policy: &Policy) -> Result<Accepted, Rejection> {
    let now = "2026-11-18T06:00:00Z".parse().unwrap();
    parse_request(body.to_string().as_bytes(), policy, &requester("acme"), now)
}

fn accepted(body: &Value) -> (Accepted, JobSpec) {
    let policy = Policy { file_roots: vec!["/srv/media".into()], ..Policy::default() };
    let accepted = ask(body, &policy).unwrap_or_else(|refusal| panic!("{body}: {refusal:#?}"));
    let spec = JobSpec::read(&accepted.document).unwrap();
    (accepted, spec)
}

fn full() -> Value {
    json!({
        "source": {"uri": "s3://media-in/42/clip.mov", "size_bytes": 7},
        "storage": {
            "output_prefix": "s3://media-out/42",
            "credentials": {"access_key_id": "marked-1", "secret_access_key": "marked-2", "session_token": "marked-3",
                            "expires_at": "2026-11-18T07:00:00Z"}
        },
        "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}],
        "status_webhook_url": "https://App.example.com:8443/marked-4?token=marked-5",
        "refresh_url": "https://app.example.com/marked-6",
        "priority": 7, "max_attempts": 3, "external_id": "video-42", "metadata": {"tenant": "acme"},
        "run_at": "2026-11-18T06:30:00Z"
    })
}

/// Everything of an accepted request that is stored or printed in clear.
fn in_clear(accepted: &Accepted) -> String {
    format!("{accepted:?} {}", accepted.document)
}

#[test]
fn a_request_comes_apart_into_clear_and_secret() {
    let (accepted, spec) = accepted(&full());
    assert!(!in_clear(&accepted).contains("marked"), "{}", in_clear(&accepted));
    assert_eq!(spec.source.place, Place::S3 { bucket: "media-in".into(), key: "42/clip.mov".into() });
    assert_eq!(spec.storage.output_prefix, Some(Place::S3 { bucket: "media-out".into(), key: "42/".into() }));
    assert_eq!(spec.timeout_seconds, 7200);
    assert_eq!(accepted.callback_origin.as_deref(), Some("https://app.example.com:8443"));
    assert_eq!(accepted.event_filter, Some(vec!["transcode.*".into()]));
    assert_eq!((accepted.priority, accepted.max_attempts), (Some(7), Some(3)));
    assert_eq!((accepted.queue.as_str(), accepted.external_id.as_deref()), ("transcode", Some("video-42")));
    assert_eq!(accepted.metadata, Some(json!({"tenant": "acme"})));
    assert!(accepted.can_refresh);

    let storage = StorageSecret::read(accepted.storage_secret.unwrap().expose()).unwrap();
    let keys = storage.credentials.unwrap();
    assert_eq!(keys.access_key_id.expose(), "marked-1");
    assert_eq!(keys.secret_access_key.expose(), "marked-2");
    assert_eq!(keys.session_token.unwrap().expose(), "marked-3");
    assert_eq!(keys.expires_at.unwrap().to_string(), "2026-11-18T07:00:00Z");
    let callback = CallbackSecret::read(accepted.callback_secret.unwrap().expose()).unwrap();
    assert!(callback.status_webhook_url.unwrap().expose().ends_with("/marked-4?token=marked-5"));
    assert!(callback.refresh_url.unwrap().expose().ends_with("/marked-6"));
}

#[test]
fn of_signed_urls_only_the_origin_is_in_clear() {
    let (accepted, spec) = accepted(&json!({
        "source": {"uri": "https://in.example.com/marked-1?X-Amz-Signature=marked-2"},
        "outputs": [{"name": "a", "upload_url": "https://out.example.com:8443/marked-3?sig=marked-4", "preset": "flac"}]
    }));
    assert!(!in_clear(&accepted).contains("marked"), "{}", in_clear(&accepted));
    assert_eq!(spec.source.place, Place::Signed { origin: "https://in.example.com".into() });
    assert_eq!(spec.outputs[0].target, Target::UploadOrigin("https://out.example.com:8443".into()));
    assert!(accepted.callback_secret.is_none() && accepted.event_filter.is_none() && !accepted.can_refresh);
    let storage = StorageSecret::read(accepted.storage_secret.unwrap().expose()).unwrap();
    assert_eq!(
        storage.source_uri.unwrap().expose(),
        "https://in.example.com/marked-1?X-Amz-Signature=marked-2"
    );
    assert_eq!(storage.upload_urls["a"].expose(), "https://out.example.com:8443/marked-3?sig=marked-4");
}

#[test]
fn a_job_on_files_has_nothing_to_seal() {
    let (accepted, spec) = accepted(&json!({
        "source": {"uri": "file:///srv/media/acme/in%20put.mov"},
        "storage": {"output_prefix": "file:///srv/media/acme/out/"},
        "outputs": [{"name": "a", "path": "a.flac", "preset": "flac"}]
    }));
    assert_eq!(spec.source.place, Place::File { path: "/srv/media/acme/in put.mov".into() });
    assert!(accepted.storage_secret.is_none());
}

/// The specification of one output, as JSON.
fn media(output: &Value) -> Value {
    let mut body = full();
    body["outputs"] = json!([output]);
    let (_, spec) = accepted(&body);
    let media = serde_json::to_value(&spec.outputs[0].media).unwrap();
    assert_eq!(
        serde_json::from_value::<MediaSpec>(media.clone()).unwrap(),
        spec.outputs[0].media,
        "there and back"
    );
    media
}

#[test]
fn every_preset_expands_to_what_the_page_says() {
    let encode = |codec: &str, height: u32, rate: Value| json!({"encode": {"codec": codec, "width": null, "height": height, "rate": rate, "max_bitrate_kbps": null, "fps": null}});
    let sound = |codec: &str, bitrate: Value| json!({"encode": {"codec": codec, "bitrate_kbps": bitrate, "channels": null, "sample_rate": null, "loudness": null}});
    let file = |container: &str, video: Value, audio: Value| json!({"kind": "file", "container": container, "video": video, "audio": audio});
    let rung = |height: u32, kbps: u32, audio: u32| json!({"name": format!("{height}p"), "video": encode("h264", height, json!({"bitrate_kbps": kbps})), "audio": sound("aac", json!(audio))});
    for (preset, path, expected) in [
        (
            "h264_480p",
            "a.mp4",
            file("mp4", encode("h264", 480, json!({"crf": 23})), sound("aac", json!(128))),
        ),
        (
            "h264_720p",
            "a.mp4",
            file("mp4", encode("h264", 720, json!({"crf": 23})), sound("aac", json!(128))),
        ),
        (
            "h264_1080p",
            "a.mp4",
            file("mp4", encode("h264", 1080, json!({"crf": 23})), sound("aac", json!(128))),
        ),
        (
            "hls_ladder",
            "a.m3u8",
            json!({"kind": "hls", "segment_seconds": 6, "segment_type": "mpegts",
                   "renditions": [rung(1080, 5000, 128), rung(720, 2800, 128), rung(480, 1400, 96), rung(360, 800, 96)]}),
        ),
        ("remux_mp4", "a.mp4", file("mp4", json!("copy"), json!("copy"))),
        ("aac_128k", "a.m4a", file("m4a", Value::Null, sound("aac", json!(128)))),
        ("mp3_192k", "a.mp3", file("mp3", Value::Null, sound("mp3", json!(192)))),
        ("opus_96k", "a.ogg", file("ogg", Value::Null, sound("opus", json!(96)))),
        ("flac", "a.flac", file("flac", Value::Null, sound("flac", Value::Null))),
        (
            "thumbnail_jpg",
            "a.jpg",
            json!({"kind": "thumbnails", "count": 1, "width": 640, "height": null, "at_seconds": null}),
        ),
    ] {
        assert_eq!(media(&json!({"name": "a", "path": path, "preset": preset})), expected, "{preset}");
    }
}

#[test]
fn inline_fields_override_the_preset() {
    let of = |inline: Value| {
        let mut output = json!({"name": "a", "path": "a", "preset": "h264_720p"});
        output.as_object_mut().unwrap().extend(inline.as_object().unwrap().clone());
        media(&output)
    };
    let rate = |media: &Value| media["video"]["encode"]["rate"].clone();
    assert_eq!(rate(&of(json!({"video": {"crf": 18}}))), json!({"crf": 18}));
    let by_size = of(json!({"video": {"bitrate_kbps": 900}}));
    assert_eq!(rate(&by_size), json!({"bitrate_kbps": 900}), "a bitrate takes the place of the preset's crf");
    assert_eq!(by_size["video"]["encode"]["height"], 720);
    let other = of(json!({"video": {"codec": "av1"}, "container": "mkv"}));
    assert_eq!(rate(&other), json!({"crf": 35}), "another codec has another scale");
    assert_eq!(other["video"]["encode"]["height"], 720, "its size stays");
    assert_eq!(of(json!({"video": {"codec": "copy"}}))["video"], json!("copy"));
    assert_eq!(of(json!({"audio": {"codec": "none"}}))["audio"], Value::Null);
    assert_eq!(of(json!({"audio": {"codec": "opus"}}))["audio"]["encode"]["bitrate_kbps"], 96);
    assert_eq!(of(json!({"audio": {"channels": 1}}))["audio"]["encode"]["bitrate_kbps"], 128);
}

#[test]
fn a_container_alone_is_enough() {
    for (container, path, video, audio) in [
        ("mp4", "a.mp4", json!("h264"), json!("aac")),
        ("mkv", "a.mkv", json!("h264"), json!("aac")),
        ("webm", "a.webm", json!("vp9"), json!("opus")),
        ("m4a", "a.m4a", Value::Null, json!("aac")),
        ("mp3", "a.mp3", Value::Null, json!("mp3")),
        ("ogg", "a.opus", Value::Null, json!("opus")),
        ("flac", "a.flac", Value::Null, json!("flac")),
    ] {
        let media = media(&json!({"name": "a", "path": path, "container": container}));
        assert_eq!(media["video"]["encode"]["codec"], video, "{container}");
        assert_eq!(media["audio"]["encode"]["codec"], audio, "{container}");
    }
}

#[test]
fn credentials_may_be_left_to_the_refresh_url() {
    let mut body = full();
    body["storage"]["credentials"] = Value::Null;
    let (accepted, _) = accepted(&body);
    assert!(accepted.can_refresh && accepted.storage_secret.is_none());
}

#[test]
fn a_deployment_may_allow_more_and_less() {
    let mut body = full();
    body["storage"]["endpoint"] = json!("http://127.0.0.1:8333");
    let with = |ports| {
        let egress = EgressPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true, ports };
        Policy { egress, ..Policy::default() }
    };
    ask(&body, &with(EgressPorts::UsualAnd(vec![8333]))).unwrap();
    let refused = ask(&body, &with(EgressPorts::default())).unwrap_err();
    assert_eq!(refused.faults[0].pointer, "/storage/endpoint");
    assert!(refused.faults[0].message.contains("port 443 or 8443"), "{refused:?}");
    ask(&body, &Policy::default()).unwrap_err();

    let small = Policy { max_source_bytes: Some(6), ..Policy::default() };
    let refused = ask(&full(), &small).unwrap_err();
    assert_eq!(refused.faults[0].pointer, "/source/size_bytes");

    let queues = Policy { queues: vec!["transcode".into(), "bulk".into()], ..Policy::default() };
    let mut body = full();
    body["queue"] = json!("bulk");
    assert_eq!(ask(&body, &queues).unwrap().queue, "bulk");
    body["source"]["uri"] = json!("file:///srv/media/acme/a");
    let refused = ask(&body, &queues).unwrap_err();
    assert!(refused.faults[0].message.contains("not served here"), "{refused:?}");
}

const JOB: &str = "01939f6e-8f00-7c3a-b2d1-0242ac120042";

fn job() -> JobId {
    JobId(JOB.parse().unwrap())
}

#[test]
fn new_credentials_are_keys_or_signed_urls() {
    let policy = Policy::default();
    let update =
        |body: Value| CredentialsUpdate::parse(body.to_string().as_bytes(), &policy, &requester("acme"));
    let keys = json!({"access_key_id": "a", "secret_access_key": "marked"});

    let update_keys =
        update(json!({"job_id": JOB, "expected_credential_version": 1, "credentials": keys})).unwrap();
    assert_eq!((update_keys.job_id, update_keys.expected_credential_version), (job(), 1));
    assert!(!format!("{update_keys:?}").contains("marked"));
    assert_eq!(update_keys.into_secret().credentials.unwrap().secret_access_key.expose(), "marked");

    let urls = json!({"job_id": JOB, "expected_credential_version": 0, "source_uri": "https://in.example.com/a?sig=2",
                      "upload_urls": {"720p": "https://out.example.com/b?sig=2"}});
    assert_eq!(
        update(urls).unwrap().into_secret().upload_urls["720p"].expose(),
        "https://out.example.com/b?sig=2"
    );

    for (body, pointer) in [
        (json!({"job_id": JOB, "expected_credential_version": 1}), "/credentials"),
        (json!({"job_id": JOB, "credentials": keys}), "/expected_credential_version"),
        (json!({"expected_credential_version": 1, "credentials": keys}), "/job_id"),
        (json!({"job_id": "42", "expected_credential_version": 1, "credentials": keys}), "/job_id"),
        (
            json!({"job_id": JOB, "expected_credential_version": -1, "credentials": keys}),
            "/expected_credential_version",
        ),
        (
            json!({"job_id": JOB, "expected_credential_version": 1, "credentials": {}}),
            "/credentials/access_key_id",
        ),
        (
            json!({"job_id": JOB, "expected_credential_version": 1, "credentials": keys, "source_uri": "https://a.example.com"}),
            "/credentials",
        ),
        (
            json!({"job_id": JOB, "expected_credential_version": 1, "source_uri": "https://10.0.0.1/"}),
            "/source_uri",
        ),
        (json!({"job_id": JOB, "expected_credential_version": 1, "upload_urls": {}}), "/upload_urls"),
        (json!({"job_id": JOB, "expected_credential_version": 1, "upload_urls": {"a": 1}}), "/upload_urls/a"),
        (
            json!({"job_id": JOB, "expected_credential_version": 1, "upload_urls": {"a": "http://x.example.com"}}),
            "/upload_urls/a",
        ),
        (json!({"job_id": JOB, "expected_credential_version": 1, "credentials": keys, "why": 1}), "/why"),
        (json!([JOB]), ""),
    ] {
        let refused = update(body.clone()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidRequest);
        assert!(refused.faults.iter().any(|fault| fault.pointer == pointer), "{body}: {refused:?}");
    }
    let answer = json!({"credentials": keys}).to_string();
    assert!(
        parse_refresh_answer(answer.as_bytes(), &policy, &requester("acme")).unwrap().credentials.is_some()
    );
    parse_refresh_answer(b"{}", &policy, &requester("acme")).unwrap_err();
}

#[test]
fn new_credentials_fit_the_job_they_are_for() {
    let policy = Policy::default();
    let answer =
        |body: Value| parse_refresh_answer(body.to_string().as_bytes(), &policy, &requester("acme")).unwrap();
    let keys = || answer(json!({"credentials": {"access_key_id": "a", "secret_access_key": "b"}}));
    let urls = |source: &str, name: &str, upload: &str| {
        answer(json!({"source_uri": source, "upload_urls": {name: upload}}))
    };
    let good = || urls("https://in.example.com/a?sig=2", "x", "https://out.example.com/b?sig=2");

    let (_, on_keys) = accepted(&full());
    on_keys.check_refresh(&keys()).unwrap();
    on_keys.check_refresh(&good()).unwrap_err();

    let (first, on_urls) = accepted(&json!({
        "source": {"uri": "https://in.example.com/a?sig=1"},
        "outputs": [{"name": "x", "upload_url": "https://out.example.com/b?sig=1", "preset": "flac"}]
    }));
    on_urls.check_refresh(&good()).unwrap();
    for (new, pointer) in [
        (keys(), "/credentials"),
        (urls("https://in.example.net/a", "x", "https://out.example.com/b"), "/source_uri"),
        (urls("https://in.example.com/a", "x", "https://out.example.com:8443/b"), "/upload_urls/x"),
        (urls("https://in.example.com/a", "y", "https://out.example.com/b"), "/upload_urls/x"),
        (urls("https://in.example.com/a", "y", "https://out.example.com/b"), "/upload_urls/y"),
        (answer(json!({"source_uri": "https://in.example.com/a"})), "/upload_urls/x"),
    ] {
        let refused = on_urls.check_refresh(&new).unwrap_err();
        assert!(refused.faults.iter().any(|fault| fault.pointer == pointer), "{pointer}: {refused:?}");
    }

    let old = StorageSecret::read(first.storage_secret.unwrap().expose()).unwrap();
    assert!(good().leads_where(&old));
    assert!(!urls("https://in.example.com/other?sig=2", "x", "https://out.example.com/b").leads_where(&old));
    assert!(!urls("https://in.example.com/a", "x", "https://out.example.com/other").leads_where(&old));
}

#[test]
fn cancel_and_retry_name_a_job() {
    let body = json!({"job_id": JOB}).to_string();
    assert_eq!(CancelRequest::parse(body.as_bytes()).unwrap().job_id, job());
    CancelRequest::parse(b"{}").unwrap_err();
    CancelRequest::parse(br#"{"job_id": 1, "job_id": 2}"#).unwrap_err();

    let retry = |body: Value| {
        RetryRequest::parse(body.to_string().as_bytes(), &Policy::default(), &requester("acme"))
    };
    assert!(retry(json!({"job_id": JOB})).unwrap().into_secret().is_none());
    let keys = json!({"access_key_id": "a", "secret_access_key": "b"});
    assert!(retry(json!({"job_id": JOB, "credentials": keys})).unwrap().into_secret().is_some());
    retry(json!({"job_id": JOB, "expected_credential_version": 1})).unwrap_err();
    let shown = blocks("docs/faces/transcode.md", "json retry\n");
    assert_eq!(shown.len(), 1);
    assert!(retry(shown[0].clone()).unwrap().into_secret().is_some());
}

#[test]
fn a_redelivery_is_of_an_event_a_job_or_a_time() {
    let parse = |body: Value| RedeliverRequest::parse(body.to_string().as_bytes());
    let event = EventRef { job_id: job(), sequence: 6 };
    assert_eq!(parse(json!({"event_id": event.to_string()})).unwrap(), RedeliverRequest::Event(event));
    assert_eq!(parse(json!({"job_id": JOB})).unwrap(), RedeliverRequest::Job(job()));
    let range =
        parse(json!({"since": "2026-11-18T06:00:00Z", "until": "2026-11-18T08:00:00+01:00"})).unwrap();
    assert!(matches!(range, RedeliverRequest::Range { since, until } if since < until));
    for body in [
        json!({}),
        json!({"job_id": JOB, "event_id": event.to_string()}),
        json!({"job_id": JOB, "since": "2026-11-18T06:00:00Z"}),
        json!({"since": "2026-11-18T06:00:00Z"}),
        json!({"since": "2026-11-18T06:00:00Z", "until": "2026-11-18T06:00:00Z"}),
        json!({"event_id": "evt_1"}),
        json!({"event_id": format!("{event}x")}),
        json!({"event_id": event.to_string().replace("_6", "_06")}),
        json!({"event_id": event.to_string().to_uppercase()}),
    ] {
        assert_eq!(parse(body.clone()).unwrap_err().code, ErrorCode::InvalidRequest, "{body}");
    }
}

/// The fenced blocks of a page that begin with `fence`.
fn blocks(page: &str, fence: &str) -> Vec<Value> {
    let text = fs::read_to_string(page).unwrap();
    let parts =
        text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(fence).map(str::to_owned));
    parts
        .map(|block| serde_json::from_str(&block).unwrap_or_else(|error| panic!("{error}: {block}")))
        .collect()
}

#[test]
fn the_examples_of_the_page_are_accepted() {
    let examples = blocks("docs/faces/transcode.md", "json request\n");
    assert_eq!(examples.len(), 4);
    for example in &examples {
        accepted(example);
    }
    let errors = blocks("docs/faces/transcode.md", "json\n");
    let shown: ErrorBody = serde_json::from_value(errors[0].clone()).unwrap();
    let mut wrong = full();
    wrong["outputs"][0]["path"] = json!("../a.mp4");
    wrong["priority"] = json!("high");
    let mut said = ErrorBody::from(ask(&wrong, &Policy::default()).unwrap_err());
    said.error.details.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    assert_eq!(said, shown);
}

/// The page's full example says everything that can be said, so a field that is added gets explained.
#[test]
fn the_full_example_has_every_field() {
    let mut said = BTreeSet::new();
    for example in blocks("docs/faces/transcode.md", "json request\n") {
        names(&example, &mut said);
    }
    let schemas = schemas();
    for schema in REQUEST_SCHEMAS {
        for field in properties(&schemas, schema) {
            assert!(said.contains(&field), "{schema}.{field} is in no example");
        }
    }
}

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            names(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

const REQUEST_SCHEMAS: &[&str] = &[
    "TranscodeRequest",
    "SourceRequest",
    "StorageRequest",
    "Credentials",
    "OutputRequest",
    "VideoRequest",
    "AudioRequest",
    "LoudnessRequest",
    "HlsRequest",
    "RenditionRequest",
    "ThumbnailsRequest",
    "ClipRequest",
];

/// Every schema that a request or an answer needs, by name.
fn schemas() -> Value {
    use euterpe::domain::transcode as t;
    #[derive(utoipa::OpenApi)]
    #[openapi(components(schemas(
        t::TranscodeRequest,
        CredentialsUpdate,
        CancelRequest,
        RetryRequest,
        t::RedeliverBody,
        t::AcceptedAnswer,
        t::StatusDocument,
        t::JobList,
        t::Timeline,
        t::CredentialVersion,
        t::Redelivered,
        ErrorBody,
    )))]
    struct Document;
    let document = serde_json::to_value(<Document as utoipa::OpenApi>::openapi()).unwrap();
    document["components"]["schemas"].clone()
}

fn properties(schemas: &Value, name: &str) -> BTreeSet<String> {
    let fields =
        schemas[name]["properties"].as_object().unwrap_or_else(|| panic!("no schema {name}: {schemas:#}"));
    fields.keys().cloned().collect()
}

/// A schema that lets unknown fields pass, or names one that the reader refuses, would lie to generated clients.
#[test]
fn schemas_and_reader_know_the_same_fields() {
    let schemas = schemas();
    let refused_names = |pointer: &str| -> BTreeSet<String> {
        let mut body = json!({"source": {}, "storage": {"credentials": {}}, "outputs": [
            {"video": {}, "audio": {"loudness": {}}, "hls": {"renditions": [{}]}, "thumbnails": {}, "clip": {}}
        ]});
        body.pointer_mut(pointer).unwrap()["zzz"] = json!(1);
        let refusal = ask(&body, &Policy::default()).unwrap_err();
        let place = format!("{pointer}/zzz");
        let fault = refusal.faults.iter().find(|fault| fault.pointer == place).unwrap();
        let (_, known) = fault.message.split_once("there are: ").unwrap();
        known.split(", ").map(str::to_owned).collect()
    };
    for (schema, pointer) in REQUEST_SCHEMAS.iter().zip([
        "",
        "/source",
        "/storage",
        "/storage/credentials",
        "/outputs/0",
        "/outputs/0/video",
        "/outputs/0/audio",
        "/outputs/0/audio/loudness",
        "/outputs/0/hls",
        "/outputs/0/hls/renditions/0",
        "/outputs/0/thumbnails",
        "/outputs/0/clip",
    ]) {
        assert_eq!(properties(&schemas, schema), refused_names(pointer), "{schema}");
        assert_eq!(schemas[schema]["additionalProperties"], json!(false), "{schema}");
    }
}

/// Every reference leads somewhere, and secrets are write-only.
#[test]
fn schemas_are_complete_and_hide_secrets() {
    let schemas = schemas();
    let text = schemas.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.get(name).is_some(), "{name} is missing");
    }
    assert_eq!(schemas["Hidden"]["writeOnly"], json!(true));
    assert_eq!(schemas["ErrorCode"]["enum"].as_array().unwrap().len(), ErrorCode::ALL.len());
    assert!(
        properties(&schemas, "StatusDocument")
            .is_superset(&BTreeSet::from(["job_id".into(), "timings_ms".into()]))
    );
}
