//! Contract §9, design §5.9: two requests are the same when they ask for the same, however they are written down.

use std::collections::HashSet;

use euterpe::domain::transcode::{Policy, parse_request};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::requester;

fn hash_of(body: &str) -> [u8; 32] {
    let now = "2026-11-18T06:00:00Z".parse().unwrap();
    let accepted = parse_request(body.as_bytes(), &Policy::default(), &requester("acme"), now);
    accepted.unwrap_or_else(|refusal| panic!("{body}: {refusal:#?}")).request_hash
}

fn s3() -> Value {
    json!({
        "source": {"uri": "s3://media-in/42/clip.mov"},
        "storage": {
            "endpoint": "https://s3.example.com", "output_prefix": "s3://media-out/42/",
            "credentials": {"access_key_id": "AKIA", "secret_access_key": "old"}
        },
        "outputs": [
            {"name": "720p", "path": "720p.mp4", "preset": "h264_720p", "video": {"crf": 20}},
            {"name": "hls", "path": "hls/index.m3u8", "preset": "hls_ladder"},
            {"name": "still", "path": "still.jpg", "container": "jpg"},
            {"name": "a", "path": "a.m4a", "preset": "aac_128k", "audio": {"loudness": {"target_lufs": -16}}}
        ],
        "status_webhook_url": "https://app.example.com/hooks?token=1",
        "metadata": {"tenant": "acme", "empty": ""}
    })
}

/// What may be written out, or left out. From the documentation, not from the code.
const DEFAULTS: &[(&str, &str)] = &[
    ("/source/size_bytes", "null"),
    ("/source/sha256", "null"),
    ("/storage/region", "\"us-east-1\""),
    ("/storage/path_style", "false"),
    ("/storage/output_layout", "\"exact\""),
    ("/events", "[\"transcode.*\"]"),
    ("/queue", "\"transcode\""),
    ("/priority", "100"),
    ("/max_attempts", "5"),
    ("/timeout_seconds", "7200"),
    ("/run_at", "null"),
    ("/refresh_url", "null"),
    ("/external_id", "null"),
    ("/outputs/0/upload_url", "null"),
    ("/outputs/0/audio", "{}"),
    ("/outputs/0/clip", "{\"start_seconds\": 0.0}"),
    ("/outputs/1/hls", "{\"segment_seconds\": 6, \"segment_type\": \"mpegts\"}"),
    ("/outputs/1/video", "null"),
    ("/outputs/2/thumbnails", "{\"count\": 1}"),
    ("/outputs/3/audio/loudness/true_peak_db", "-1.50"),
];

fn set(value: &mut Value, pointer: &str, new: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let new = serde_json::from_str(new).unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(fields) => _ = fields.insert(name.to_owned(), new),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = new,
        other => panic!("{pointer} is below {other}"),
    }
}

/// `value` as text, with keys in an order and spaces in places that `choose` picks.
fn written(value: &Value, choose: &mut impl FnMut(usize) -> usize) -> String {
    let space = [" ", "", "\n\t", "  "][choose(4)];
    match value {
        Value::Object(fields) => {
            let mut left: Vec<_> = fields.iter().collect();
            let mut parts = Vec::new();
            while !left.is_empty() {
                let (name, value) = left.remove(choose(left.len()));
                // An escaped letter is the same letter.
                let name = if choose(4) == 0 { name.replace('e', "\\u0065") } else { name.clone() };
                parts.push(format!("{space}\"{name}\"{space}:{}", written(value, choose)));
            }
            format!("{{{}{space}}}", parts.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| written(item, choose)).collect();
            format!("[{space}{}]", items.join(&format!(",{space}")))
        }
        other => other.to_string(),
    }
}

/// Numbers below a bound, from a seed.
fn chooser(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    }
}

proptest! {
    #[test]
    fn order_space_escapes_defaults_and_credentials_make_no_difference(seed in any::<u64>()) {
        let mut choose = chooser(seed);
        let mut request = s3();
        for (pointer, default) in DEFAULTS {
            if choose(2) == 0 {
                set(&mut request, pointer, default);
            }
        }
        let keys = json!({"access_key_id": "ASIA", "secret_access_key": seed.to_string(), "session_token": "t",
                          "expires_at": "2026-11-18T07:00:00Z"});
        if choose(2) == 0 {
            set(&mut request, "/storage/credentials", &keys.to_string());
        }
        let text = written(&request, &mut choose);
        prop_assert_eq!(hash_of(&text), hash_of(&s3().to_string()), "{}", text);
    }

    #[test]
    fn two_ids_in_the_query_are_two_requests(a in 0u32..1000, b in 0u32..1000) {
        prop_assume!(a != b);
        let asks = |id: u32| signed(&format!("https://in.example.com/clip?id={id}&X-Amz-Signature=s"), "https://out.example.com/a");
        prop_assert_ne!(hash_of(&asks(a)), hash_of(&asks(b)));
    }
}

#[test]
fn each_default_alone_makes_no_difference_and_another_value_does() {
    let plain = hash_of(&s3().to_string());
    for (pointer, default) in DEFAULTS {
        let mut request = s3();
        set(&mut request, pointer, default);
        assert_eq!(hash_of(&request.to_string()), plain, "{pointer} = {default}");
    }
    let mut seen = HashSet::from([plain]);
    for (pointer, other) in [
        ("/source/uri", "\"s3://media-in/43/clip.mov\""),
        ("/source/size_bytes", "7"),
        ("/storage/endpoint", "\"https://s3.example.net\""),
        ("/storage/region", "\"eu-west-1\""),
        ("/storage/path_style", "true"),
        ("/storage/output_layout", "\"per_claim\""),
        ("/storage/output_prefix", "\"s3://media-out/43/\""),
        ("/events", "[\"transcode.succeeded\"]"),
        ("/priority", "101"),
        ("/max_attempts", "6"),
        ("/timeout_seconds", "7201"),
        ("/run_at", "\"2026-11-18T07:00:00Z\""),
        ("/refresh_url", "\"https://app.example.com/refresh\""),
        ("/status_webhook_url", "\"https://app.example.com/hooks?token=2\""),
        ("/external_id", "\"video-42\""),
        ("/metadata", "{}"),
        ("/metadata", "{\"tenant\": \"zenith\", \"empty\": \"\"}"),
        ("/outputs/0/name", "\"hd\""),
        ("/outputs/0/path", "\"hd.mp4\""),
        ("/outputs/0/preset", "\"h264_480p\""),
        ("/outputs/0/container", "\"mp4\""),
        ("/outputs/0/video", "{\"crf\": 21}"),
        ("/outputs/0/video", "{\"crf\": 20, \"fps\": 25}"),
        ("/outputs/0/video", "{}"),
        ("/outputs/0/audio", "{\"codec\": \"none\"}"),
        ("/outputs/0/clip", "{\"start_seconds\": 1}"),
        ("/outputs/1/hls", "{\"segment_seconds\": 4}"),
        ("/outputs/2/thumbnails", "{\"width\": 320}"),
        ("/outputs/3/audio", "{}"),
        ("/outputs/3/audio/loudness/true_peak_db", "-2"),
    ] {
        let mut request = s3();
        set(&mut request, pointer, other);
        assert!(seen.insert(hash_of(&request.to_string())), "{pointer} = {other}");
    }
    let mut fewer = s3();
    fewer["outputs"].as_array_mut().unwrap().pop();
    assert!(seen.insert(hash_of(&fewer.to_string())), "one output less");
}

fn signed(source: &str, upload: &str) -> String {
    json!({"source": {"uri": source}, "outputs": [{"name": "a", "upload_url": upload, "preset": "flac"}]})
        .to_string()
}

/// Pairs of urls: signed at two times, by every scheme we know.
#[test]
fn the_same_object_signed_anew_is_the_same_object() {
    for (first, again) in [
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F1&X-Amz-Date=1&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=1&x-id=GetObject",
            "https://b.s3.amazonaws.com/k?x-id=GetObject&X-Amz-Security-Token=t&X-Amz-Date=2&x-amz-signature=2&X-Amz-Credential=B",
        ),
        (
            "https://storage.googleapis.com/b/k?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Date=1&X-Goog-Signature=1",
            "https://storage.googleapis.com/b/k?X-Goog-Date=2&X-Goog-Signature=2&X-Goog-Expires=60",
        ),
        (
            "https://a.blob.core.windows.net/c/k?sv=2024-11-04&st=1&se=2&sr=b&sp=r&sig=a%2Bb",
            "https://a.blob.core.windows.net/c/k?sp=r&st=3&se=4&spr=https&sv=2025-01-05&sr=b&sig=c%2Fd",
        ),
        (
            "https://d1.cloudfront.net/k?Expires=1&Signature=a&Key-Pair-Id=K1",
            "https://d1.cloudfront.net/k?Policy=p&Signature=b&Key-Pair-Id=K2",
        ),
        (
            "https://b.s3.amazonaws.com/k?AWSAccessKeyId=A&Expires=1&Signature=a",
            "https://B.s3.amazonaws.com/k?AWSAccessKeyId=B&Signature=b&Expires=2",
        ),
    ] {
        let asks = |source: &str| hash_of(&signed(source, "https://out.example.com/a"));
        assert_eq!(asks(first), asks(again), "{first}");
        let uploads = |upload: &str| hash_of(&signed("https://in.example.com/a", upload));
        assert_eq!(uploads(first), uploads(again), "{first}");
        let bare = first.split_once('?').unwrap().0;
        assert_ne!(asks(first), asks(&bare.replace("/k", "/other")), "{first}");
    }
}

/// What looks like a signature and is none, or stands beside one.
#[test]
fn parameters_that_are_no_signature_count() {
    let asks = |query: &str| {
        hash_of(&signed(&format!("https://in.example.com/clip?{query}"), "https://out.example.com/a"))
    };
    for (a, b) in [
        ("id=42", "id=43"),
        ("id=42&X-Amz-Signature=1", "id=43&X-Amz-Signature=1"),
        ("versionId=1&X-Goog-Signature=1", "versionId=2&X-Goog-Signature=1"),
        ("st=1", "st=2"),
        ("sig=1", "sig=2"),
        ("Expires=1", "Expires=2"),
        ("Policy=1", "Policy=2"),
        ("Signature=1", "Signature=2"),
        ("X-Amz-Date=1", "X-Amz-Date=2"),
        ("a=1&a=2", "a=2&a=1"),
    ] {
        assert_ne!(asks(a), asks(b), "{a} and {b}");
    }
}

/// A golden value: stored hashes of older releases must stay what they are.
#[test]
fn the_hash_of_a_known_request_does_not_move() {
    let least = json!({
        "source": {"uri": "s3://media-in/42/clip.mov"},
        "storage": {"output_prefix": "s3://media-out/42/", "credentials": {"access_key_id": "a", "secret_access_key": "b"}},
        "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}]
    });
    let canonical = r#"{"outputs":[{"name":"720p","path":"720p.mp4","preset":"h264_720p"}],"source":{"uri":"s3://media-in/42/clip.mov"},"storage":{"output_prefix":"s3://media-out/42/"}}"#;
    let by_hand: [u8; 32] = Sha256::digest(canonical).into();
    assert_eq!(hash_of(&least.to_string()), by_hand);
}
