//! Contract §9, design §5.9: when two requests are the same request.
//!
//! SHA-256 over the canonical form (RFC 8785) of what was asked, without what may differ between two tries of one call:
//! spelling, defaults written out or left out, credentials, and the signatures of signed urls.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::signed_url;

/// Of the rules below. Another version makes every key conflict, so rules are added only where no stored request
/// could have met them.
pub const REQUEST_HASH_VERSION: i16 = 1;

/// Fields that mean the same when they are left out; `*` is any entry of an array.
const DEFAULTS: &[(&str, &str)] = &[
    ("storage/region", r#""us-east-1""#),
    ("storage/path_style", "false"),
    ("storage/output_layout", r#""exact""#),
    ("events", r#"["transcode.*"]"#),
    ("queue", r#""transcode""#),
    ("priority", "100"),
    ("max_attempts", "5"),
    ("timeout_seconds", "7200"),
    ("outputs/*/clip/start_seconds", "0"),
    ("outputs/*/hls/segment_seconds", "6"),
    ("outputs/*/hls/segment_type", r#""mpegts""#),
    ("outputs/*/thumbnails/count", "1"),
    ("outputs/*/audio/loudness/true_peak_db", "-1.5"),
];

/// The hash of an accepted request.
#[must_use]
pub(super) fn request_hash(request: &Value) -> [u8; 32] {
    let mut request = request.clone();
    if let Some(Value::Object(storage)) = request.get_mut("storage") {
        storage.remove("credentials");
    }
    each(&mut request, "source/uri", &mut unsign);
    each(&mut request, "outputs/*/upload_url", &mut unsign);
    for (path, default) in DEFAULTS {
        each(&mut request, path, &mut |value| {
            if canonical(value) == default.as_bytes() {
                *value = Value::Null;
            }
        });
    }
    prune(&mut request);
    Sha256::digest(canonical(&request)).into()
}

fn unsign(value: &mut Value) {
    if let Value::String(url) = value {
        *url = signed_url::without_signature(url);
    }
}

/// Does `change` to whatever stands at `path`.
fn each(value: &mut Value, path: &str, change: &mut dyn FnMut(&mut Value)) {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let inside: Vec<&mut Value> = match value {
        Value::Array(items) if name == "*" => items.iter_mut().collect(),
        Value::Object(fields) => fields.get_mut(name).into_iter().collect(),
        _ => return,
    };
    for value in inside {
        if rest.is_empty() { change(value) } else { each(value, rest, change) }
    }
}

/// Null and {} say nothing. Where presence alone means something (loudness), a field in it is required.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, value| {
                !value.is_null() && value.as_object().is_none_or(|inner| !inner.is_empty())
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn canonical(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("a parsed JSON value has a canonical form")
}
