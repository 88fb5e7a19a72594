//! From JSON to the types of `request.rs`: names, types and ranges. A reader never gives up half way: what it cannot
//! read is a fault and stays at its default, so that the rest is looked at as well.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Hidden;
use super::fault::Faults;
use super::fields::{Fields, kind, text_complaint};
use super::request::{
    AudioRequest, ClipRequest, Credentials, HlsRequest, LoudnessRequest, OutputRequest, RenditionRequest,
    SourceRequest, StorageRequest, ThumbnailsRequest, TranscodeRequest, VideoRequest,
};
use crate::domain::JobStatus;

/// The names each object knows. A test compares them with the schemas.
pub(super) mod known {
    pub const REQUEST: &[&str] = &[
        "source",
        "storage",
        "outputs",
        "status_webhook_url",
        "refresh_url",
        "events",
        "queue",
        "priority",
        "max_attempts",
        "timeout_seconds",
        "run_at",
        "external_id",
        "metadata",
    ];
    pub const SOURCE: &[&str] = &["uri", "size_bytes", "sha256"];
    pub const STORAGE: &[&str] =
        &["endpoint", "region", "path_style", "output_prefix", "output_layout", "credentials"];
    pub const CREDENTIALS: &[&str] = &["access_key_id", "secret_access_key", "session_token", "expires_at"];
    pub const OUTPUT: &[&str] =
        &["name", "path", "upload_url", "preset", "container", "video", "audio", "hls", "thumbnails", "clip"];
    pub const VIDEO: &[&str] =
        &["codec", "width", "height", "crf", "bitrate_kbps", "max_bitrate_kbps", "fps"];
    pub const AUDIO: &[&str] = &["codec", "bitrate_kbps", "channels", "sample_rate", "loudness"];
    pub const LOUDNESS: &[&str] = &["target_lufs", "true_peak_db"];
    pub const HLS: &[&str] = &["segment_seconds", "segment_type", "renditions"];
    pub const RENDITION: &[&str] = &["height", "bitrate_kbps", "audio_bitrate_kbps"];
    pub const THUMBNAILS: &[&str] = &["count", "width", "height", "at_seconds"];
    pub const CLIP: &[&str] = &["start_seconds", "duration_seconds"];
}

/// Of one output.
pub(super) const MAX_THUMBNAILS: i64 = 100;
/// A signed url may carry a session token, so it is longer than others.
pub(super) const MAX_SIGNED_URL: usize = 4096;
/// Any other url.
pub(super) const MAX_URL: usize = 2048;

/// 2^50: beyond any file, and below 2^53, where the canonical form of numbers stops being exact.
const MAX_SIZE_BYTES: i64 = 1 << 50;

const DAY_SECONDS: f64 = 86400.0;

pub(super) fn request(body: &Value, faults: &Faults) -> TranscodeRequest {
    let Some(fields) = Fields::open(body, String::new(), known::REQUEST, faults) else {
        return TranscodeRequest::default();
    };
    fields.need("source", "say what to transcode, {\"uri\": \"s3://bucket/key\"}");
    fields.need("outputs", "say what to make, [{\"name\": …, \"path\": …, \"preset\": …}]");
    TranscodeRequest {
        source: fields.object("source", known::SOURCE).map(|fields| source(&fields)).unwrap_or_default(),
        storage: fields.object("storage", known::STORAGE).map(|fields| storage(&fields)),
        outputs: outputs(&fields),
        status_webhook_url: hidden(&fields, "status_webhook_url", MAX_URL),
        refresh_url: hidden(&fields, "refresh_url", MAX_URL),
        events: events(&fields),
        queue: fields.text("queue", 64).map(str::to_owned),
        priority: fields.integer("priority", 0..=1000),
        max_attempts: fields.integer("max_attempts", 1..=100),
        timeout_seconds: fields.integer("timeout_seconds", 10..=86400),
        run_at: fields.time("run_at"),
        external_id: fields.text("external_id", 255).map(str::to_owned),
        metadata: metadata(&fields),
    }
}

fn source(fields: &Fields<'_>) -> SourceRequest {
    fields.need("uri", "s3://bucket/key, or a signed https:// url");
    let sha256 = fields.text("sha256", 64);
    if sha256
        .is_some_and(|hash| hash.len() != 64 || !hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    {
        fields.fault("sha256", "must be 64 lowercase hex digits");
    }
    SourceRequest {
        uri: hidden(fields, "uri", MAX_SIGNED_URL).unwrap_or_default(),
        size_bytes: fields.integer("size_bytes", 1..=MAX_SIZE_BYTES),
        sha256: sha256.map(str::to_owned),
    }
}

fn storage(fields: &Fields<'_>) -> StorageRequest {
    StorageRequest {
        endpoint: fields.text("endpoint", MAX_URL).map(str::to_owned),
        region: fields.text("region", 64).map(str::to_owned),
        path_style: fields.flag("path_style"),
        output_prefix: fields.text("output_prefix", 1024).map(str::to_owned),
        output_layout: fields.word("output_layout"),
        credentials: credentials(fields),
    }
}

/// The `credentials` of an object.
pub(super) fn credentials(parent: &Fields<'_>) -> Option<Credentials> {
    let fields = parent.object("credentials", known::CREDENTIALS)?;
    fields.need("access_key_id", "the id of the key");
    fields.need("secret_access_key", "the key itself");
    Some(Credentials {
        access_key_id: visible(&fields, "access_key_id", 256).unwrap_or_default(),
        secret_access_key: visible(&fields, "secret_access_key", 256).unwrap_or_default(),
        session_token: visible(&fields, "session_token", 16384),
        expires_at: fields.time("expires_at"),
    })
}

fn outputs(fields: &Fields<'_>) -> Vec<OutputRequest> {
    let items = fields.list("outputs", 1..=20).unwrap_or_default();
    let places = (0..items.len()).map(|n| format!("/outputs/{n}"));
    items
        .iter()
        .zip(places)
        .map(|(item, at)| {
            let fields = Fields::open(item, at, known::OUTPUT, fields.faults);
            fields.map(|fields| output(&fields)).unwrap_or_default()
        })
        .collect()
}

fn output(fields: &Fields<'_>) -> OutputRequest {
    fields.need("name", "what the output is called in events and status");
    let name = fields.text("name", 64).unwrap_or_default();
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')) {
        fields.fault("name", "must be 1 to 64 of A-Z a-z 0-9 _ . -");
    }
    OutputRequest {
        name: name.to_owned(),
        path: fields.text("path", 512).map(str::to_owned),
        upload_url: hidden(fields, "upload_url", MAX_SIGNED_URL),
        preset: fields.word("preset"),
        container: fields.word("container"),
        video: fields.object("video", known::VIDEO).map(|fields| video(&fields)),
        audio: fields.object("audio", known::AUDIO).map(|fields| audio(&fields)),
        hls: fields.object("hls", known::HLS).map(|fields| hls(&fields)),
        thumbnails: fields.object("thumbnails", known::THUMBNAILS).map(|fields| thumbnails(&fields)),
        clip: fields.object("clip", known::CLIP).map(|fields| clip(&fields)),
    }
}

fn video(fields: &Fields<'_>) -> VideoRequest {
    VideoRequest {
        codec: fields.word("codec"),
        width: even(fields, "width"),
        height: even(fields, "height"),
        crf: fields.integer("crf", 0..=63),
        bitrate_kbps: fields.integer("bitrate_kbps", 16..=200_000),
        max_bitrate_kbps: fields.integer("max_bitrate_kbps", 16..=400_000),
        fps: fields.number("fps", 1.0..=120.0),
    }
}

fn audio(fields: &Fields<'_>) -> AudioRequest {
    AudioRequest {
        codec: fields.word("codec"),
        bitrate_kbps: fields.integer("bitrate_kbps", 8..=512),
        channels: fields.integer("channels", 1..=8),
        sample_rate: fields.integer("sample_rate", 8000..=96000),
        loudness: fields.object("loudness", known::LOUDNESS).map(|fields| loudness(&fields)),
    }
}

fn loudness(fields: &Fields<'_>) -> LoudnessRequest {
    fields.need("target_lufs", "-16 suits the web, -23 broadcast");
    LoudnessRequest {
        target_lufs: fields.number("target_lufs", -70.0..=-5.0).unwrap_or_default(),
        true_peak_db: fields.number("true_peak_db", -9.0..=0.0),
    }
}

fn hls(fields: &Fields<'_>) -> HlsRequest {
    let items = fields.list("renditions", 1..=8);
    let renditions = items.map(|items| {
        let places = (0..items.len()).map(|n| format!("{}/{n}", fields.pointer("renditions")));
        let opened = items.iter().zip(places).map(|(item, at)| {
            let fields = Fields::open(item, at, known::RENDITION, fields.faults);
            fields.map(|fields| rendition(&fields)).unwrap_or_default()
        });
        opened.collect()
    });
    HlsRequest {
        segment_seconds: fields.integer("segment_seconds", 1..=30),
        segment_type: fields.word("segment_type"),
        renditions,
    }
}

fn rendition(fields: &Fields<'_>) -> RenditionRequest {
    fields.need("height", "in lines, such as 720");
    fields.need("bitrate_kbps", "of its pictures, such as 2800");
    RenditionRequest {
        height: even(fields, "height").unwrap_or_default(),
        bitrate_kbps: fields.integer("bitrate_kbps", 16..=200_000).unwrap_or_default(),
        audio_bitrate_kbps: fields.integer("audio_bitrate_kbps", 8..=512),
    }
}

fn thumbnails(fields: &Fields<'_>) -> ThumbnailsRequest {
    ThumbnailsRequest {
        count: fields.integer("count", 1..=MAX_THUMBNAILS),
        width: fields.integer("width", 16..=8192),
        height: fields.integer("height", 16..=8192),
        at_seconds: fields.number("at_seconds", 0.0..=DAY_SECONDS),
    }
}

fn clip(fields: &Fields<'_>) -> ClipRequest {
    ClipRequest {
        start_seconds: fields.number("start_seconds", 0.0..=DAY_SECONDS),
        duration_seconds: fields.number("duration_seconds", 0.1..=DAY_SECONDS),
    }
}

fn events(fields: &Fields<'_>) -> Option<Vec<String>> {
    let items = fields.list("events", 1..=20)?;
    let is_known = |name: &str| {
        let status = name.strip_prefix("transcode.");
        status.is_some_and(|status| status == "*" || status.parse::<JobStatus>().is_ok())
    };
    for (n, item) in items.iter().enumerate() {
        if !item.as_str().is_some_and(is_known) {
            let message = "must be transcode.* or transcode. and a status, such as transcode.succeeded";
            fields.faults.add(&format!("/events/{n}"), message);
        }
    }
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Strings only: a number would come back as another one from a client that reads doubles.
fn metadata(fields: &Fields<'_>) -> Option<BTreeMap<String, String>> {
    let value = fields.get("metadata")?;
    let Some(entries) = value.as_object() else {
        fields.fault("metadata", format!("must be an object of strings, not {}", kind(value)));
        return None;
    };
    if entries.len() > 16 {
        fields.fault("metadata", format!("must have at most 16 entries, not {}", entries.len()));
    }
    let mut kept = BTreeMap::new();
    for (name, value) in entries.iter().take(16) {
        let at = super::fault::below("/metadata", name);
        if let Some(complaint) = text_complaint(name, 256) {
            fields.faults.add(&at, format!("its name {complaint}"));
        }
        match value.as_str() {
            None => fields.faults.add(&at, format!("must be a string, not {}", kind(value))),
            Some(text) if text.len() > 256 => {
                fields.faults.add(&at, format!("must have at most 256 bytes, not {}", text.len()));
            }
            Some(text) => _ = kept.insert(name.clone(), text.to_owned()),
        }
    }
    Some(kept)
}

/// Encoders work on blocks of two by two.
fn even(fields: &Fields<'_>, name: &str) -> Option<u32> {
    let number: u32 = fields.integer(name, 16..=8192)?;
    if number % 2 == 1 {
        fields.fault(name, "must be even");
    }
    Some(number)
}

pub(super) fn hidden(fields: &Fields<'_>, name: &str, most: usize) -> Option<Hidden> {
    fields.text(name, most).map(|text| Hidden::new(text.to_owned()))
}

/// Keys go into a header, where nothing else may stand.
fn visible(fields: &Fields<'_>, name: &str, most: usize) -> Option<Hidden> {
    let text = fields.text(name, most)?;
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        fields.fault(name, "must be visible ASCII characters without spaces");
    }
    Some(Hidden::new(text.to_owned()))
}
