//! Contract §6, design §6: what is wrong with a request is said all at once, each fault with its place and with what
//! would be right. Nothing of it is enqueued.
//!
//! [`ask`] is how a body reaches the reader; one test sends all of them over HTTP.

use std::collections::BTreeSet;
use std::fs;

use euterpe::domain::transcode::{Accepted, ErrorBody, ErrorCode, MAX_BODY_BYTES, Policy, parse_request};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::Api;
use crate::support::{TestDb, requester};

/// What the service says to a body, sent by acme.
fn ask(body: &[u8]) -> Result<Accepted, ErrorBody> {
    let policy = Policy { file_roots: vec!["/srv/media".into()], ..Policy::default() };
    let now = "2026-11-18T06:00:00Z".parse().unwrap();
    parse_request(body, &policy, &requester("acme"), now).map_err(ErrorBody::from)
}

/// Requests that are right; rows below change one thing in them.
#[derive(Debug, Clone, Copy)]
enum Base {
    S3,
    Signed,
    File,
}
use Base::{File, S3, Signed};

fn good(base: Base) -> Value {
    match base {
        S3 => json!({
            "source": {"uri": "s3://media-in/42/clip.mov"},
            "storage": {
                "endpoint": "https://s3.example.com", "region": "eu-west-1", "output_prefix": "s3://media-out/42/",
                "credentials": {"access_key_id": "AKIA", "secret_access_key": "secret"}
            },
            "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}],
            "status_webhook_url": "https://app.example.com/hooks?token=1"
        }),
        Signed => json!({
            "source": {"uri": "https://in.example.com/clip.mov?X-Amz-Signature=1"},
            "outputs": [{"name": "720p", "upload_url": "https://out.example.com/720p?sig=1", "preset": "h264_720p"}]
        }),
        File => json!({
            "source": {"uri": "file:///srv/media/acme/clip.mov"},
            "storage": {"output_prefix": "file:///srv/media/acme/out"},
            "outputs": [{"name": "audio", "path": "a.flac", "preset": "flac"}]
        }),
    }
}

/// Puts `new` at `pointer`, making what is missing on the way.
pub fn put(value: &mut Value, pointer: &str, new: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    if value.pointer(parent).is_none() {
        put(value, parent, json!({}));
    }
    match value.pointer_mut(parent).unwrap() {
        Value::Object(fields) => _ = fields.insert(name.to_owned(), new),
        Value::Array(items) if name == items.len().to_string() => items.push(new),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = new,
        other => panic!("{pointer} is below {other}"),
    }
}

fn changed(base: Base, pointer: &str, new: &str) -> Vec<u8> {
    let mut body = good(base);
    put(&mut body, pointer, serde_json::from_str(new).unwrap_or_else(|error| panic!("{new}: {error}")));
    body.to_string().into_bytes()
}

/// Bodies that are wrong as a whole: body, code, pointer (none: no details), a part of what is said.
#[rustfmt::skip]
const RAW: &[(&[u8], ErrorCode, Option<&str>, &str)] = &[
    (b"", ErrorCode::InvalidJson, None, "not JSON: EOF"),
    (b"   ", ErrorCode::InvalidJson, None, "EOF"),
    (b"{", ErrorCode::InvalidJson, None, "EOF"),
    (b"{\"source\": }", ErrorCode::InvalidJson, None, "column 12"),
    (b"{\"a\": 1,}", ErrorCode::InvalidJson, None, "trailing comma"),
    (b"{'a': 1}", ErrorCode::InvalidJson, None, "key must be a string"),
    (b"{a: 1}", ErrorCode::InvalidJson, None, "key must be a string"),
    (b"{} {}", ErrorCode::InvalidJson, None, "trailing characters"),
    (b"{}x", ErrorCode::InvalidJson, None, "trailing characters"),
    (b"{\"a\": NaN}", ErrorCode::InvalidJson, None, "expected value"),
    (b"{\"a\": 01}", ErrorCode::InvalidJson, None, "invalid number"),
    (b"{\"a\": 1e999}", ErrorCode::InvalidJson, None, "out of range"),
    (b"{\"a\": \"\n\"}", ErrorCode::InvalidJson, None, "control character"),
    (b"{\"a\": \"\\ud800\"}", ErrorCode::InvalidJson, None, "hex escape"),
    (b"{\"a\": \"\\x41\"}", ErrorCode::InvalidJson, None, "invalid escape"),
    (b"{\"a\": \"\xff\"}", ErrorCode::InvalidJson, None, "not UTF-8: byte 7"),
    (b"\xef\xbb\xbf{}", ErrorCode::InvalidJson, None, "expected value"),
    (b"source=s3", ErrorCode::InvalidJson, None, "not JSON"),
    (b"[]", ErrorCode::InvalidRequest, Some(""), "must be an object"),
    (b"[{\"uri\": 1}]", ErrorCode::InvalidRequest, Some(""), "not an array"),
    (b"null", ErrorCode::InvalidRequest, Some(""), "not null"),
    (b"\"s3://in/a\"", ErrorCode::InvalidRequest, Some(""), "not a string"),
    (b"42", ErrorCode::InvalidRequest, Some(""), "not a number"),
    (b"{}", ErrorCode::InvalidRequest, Some("/source"), "is needed"),
    (b"{}", ErrorCode::InvalidRequest, Some("/outputs"), "is needed"),
    (b"{\"source\": {}, \"source\": {}}", ErrorCode::InvalidRequest, Some("/source"), "twice"),
    (b"{\"source\": {\"uri\": \"a\", \"uri\": \"b\"}}", ErrorCode::InvalidRequest, Some("/source/uri"), "twice"),
    (b"{\"outputs\": [{\"name\": \"a\", \"na\\u006de\": \"b\"}]}", ErrorCode::InvalidRequest, Some("/outputs/0/name"), "twice"),
    (b"{\"metadata\": {\"a/b~c\": \"1\", \"a/b~c\": \"1\"}}", ErrorCode::InvalidRequest, Some("/metadata/a~1b~0c"), "twice"),
    (b"{\"external_id\": \"a\\u0000b\"}", ErrorCode::InvalidRequest, Some("/external_id"), "U+0000"),
    (b"{\"metadata\": {\"a\\u0000\": \"1\"}}", ErrorCode::InvalidRequest, Some("/metadata/a\0"), "U+0000"),
    (b"{\"events\": [\"\\u0000\"]}", ErrorCode::InvalidRequest, Some("/events/0"), "U+0000"),
];

/// One thing changed in a request that is right: base, where, to what, where the fault is, a part of what is said.
#[rustfmt::skip]
const CHANGED: &[(Base, &str, &str, &str, &str)] = &[
    // names
    (S3, "/sorce", "1", "/sorce", "did you mean source?"),
    (S3, "/webhook_url", "1", "/webhook_url", "did you mean status_webhook_url?"),
    (S3, "/statusWebhookUrl", r#""https://a.example.com""#, "/statusWebhookUrl", "status_webhook_url"),
    (S3, "/source/url", r#""s3://a/b""#, "/source/url", "did you mean uri?"),
    (S3, "/source/etag", "1", "/source/etag", "there are: uri, size_bytes, sha256"),
    (S3, "/storage/bucket", "1", "/storage/bucket", "unknown field"),
    (S3, "/storage/credentials/session", "1", "/storage/credentials/session", "did you mean session_token?"),
    (S3, "/outputs/0/ffmpeg_args", r#"["-i"]"#, "/outputs/0/ffmpeg_args", "unknown field"),
    (S3, "/outputs/0/video/quality", "1", "/outputs/0/video/quality", "unknown field"),
    (S3, "/outputs/0/video/bitrate", "1", "/outputs/0/video/bitrate", "did you mean bitrate_kbps?"),
    (S3, "/outputs/0/audio/samplerate", "1", "/outputs/0/audio/samplerate", "did you mean sample_rate?"),
    (S3, "/outputs/0/clip/start", "1", "/outputs/0/clip/start", "did you mean start_seconds?"),
    (S3, "/", "1", "/", "unknown field"),
    // types
    (S3, "/source", "[]", "/source", "must be an object"),
    (S3, "/source", r#""s3://media-in/a""#, "/source", "not a string"),
    (S3, "/source", "null", "/source", "is needed"),
    (S3, "/storage", "[{}]", "/storage", "not an array"),
    (S3, "/storage/credentials", r#"["a", "b"]"#, "/storage/credentials", "not an array"),
    (S3, "/outputs", "{}", "/outputs", "must be an array"),
    (S3, "/outputs/0", "[]", "/outputs/0", "not an array"),
    (S3, "/outputs/0", r#""h264_720p""#, "/outputs/0", "not a string"),
    (S3, "/outputs/0/video", "[720]", "/outputs/0/video", "not an array"),
    (S3, "/outputs/0/name", "720", "/outputs/0/name", "must be a string, not a number"),
    (S3, "/storage/path_style", r#""true""#, "/storage/path_style", "true or false, not a string"),
    (S3, "/storage/path_style", "1", "/storage/path_style", "true or false"),
    (S3, "/priority", r#""100""#, "/priority", "integer from 0 to 1000, not a string"),
    (S3, "/priority", "100.0", "/priority", "fraction"),
    (S3, "/priority", "1e2", "/priority", "fraction"),
    (S3, "/metadata", r#"[["a", "b"]]"#, "/metadata", "an object of strings"),
    (S3, "/metadata/count", "42", "/metadata/count", "must be a string, not a number"),
    (S3, "/metadata/a", "null", "/metadata/a", "must be a string"),
    (S3, "/metadata/a", r#"{"b": "c"}"#, "/metadata/a", "must be a string, not an object"),
    (S3, "/events", r#""transcode.*""#, "/events", "must be an array"),
    (S3, "/events", "[1]", "/events/0", "transcode.*"),
    // numbers
    (S3, "/priority", "-1", "/priority", "from 0 to 1000"),
    (S3, "/priority", "1001", "/priority", "from 0 to 1000"),
    (S3, "/priority", "99999999999999999999", "/priority", "out of range"),
    (S3, "/max_attempts", "0", "/max_attempts", "from 1 to 100"),
    (S3, "/max_attempts", "101", "/max_attempts", "from 1 to 100"),
    (S3, "/timeout_seconds", "9", "/timeout_seconds", "from 10 to 86400"),
    (S3, "/timeout_seconds", "86401", "/timeout_seconds", "from 10 to 86400"),
    (S3, "/source/size_bytes", "0", "/source/size_bytes", "from 1 to"),
    (S3, "/source/size_bytes", "1.5", "/source/size_bytes", "fraction"),
    (S3, "/source/size_bytes", "9007199254740993", "/source/size_bytes", "from 1 to"),
    (S3, "/outputs/0/video/height", "15", "/outputs/0/video/height", "from 16 to 8192"),
    (S3, "/outputs/0/video/height", "721", "/outputs/0/video/height", "even"),
    (S3, "/outputs/0/video/width", "10000", "/outputs/0/video/width", "from 16 to 8192"),
    (S3, "/outputs/0/video/crf", "64", "/outputs/0/video/crf", "from 0 to 63"),
    (S3, "/outputs/0/video/crf", "52", "/outputs/0/video/crf", "from 0 to 51 for h264"),
    (S3, "/outputs/0/video/crf", "-1", "/outputs/0/video/crf", "from 0 to 63"),
    (S3, "/outputs/0/video/bitrate_kbps", "0", "/outputs/0/video/bitrate_kbps", "from 16"),
    (S3, "/outputs/0/video/fps", "0", "/outputs/0/video/fps", "from 1 to 120"),
    (S3, "/outputs/0/video/fps", r#""25""#, "/outputs/0/video/fps", "a number from 1 to 120, not a string"),
    (S3, "/outputs/0/audio/channels", "9", "/outputs/0/audio/channels", "from 1 to 8"),
    (S3, "/outputs/0/audio/sample_rate", "44000", "/outputs/0/audio/sample_rate", "one of 8000, 11025"),
    (S3, "/outputs/0/audio/loudness", "{}", "/outputs/0/audio/loudness/target_lufs", "is needed"),
    (S3, "/outputs/0/audio/loudness", r#"{"target_lufs": 0}"#, "/outputs/0/audio/loudness/target_lufs", "from -70 to -5"),
    (S3, "/outputs/0/clip/start_seconds", "-1", "/outputs/0/clip/start_seconds", "from 0"),
    (S3, "/outputs/0/clip/duration_seconds", "0", "/outputs/0/clip/duration_seconds", "from 0.1"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.jpg", "container": "jpg", "thumbnails": {"count": 0}}"#, "/outputs/0/thumbnails/count", "from 1 to 100"),
    // source
    (S3, "/source", "{}", "/source/uri", "is needed"),
    (S3, "/source/uri", r#""""#, "/source/uri", "must not be empty"),
    (S3, "/source/uri", r#""clip.mov""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""/srv/media/acme/clip.mov""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""ftp://media.example.com/a""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""gs://bucket/a""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""s3:media-in/a""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""concat:a|b""#, "/source/uri", "must begin with s3://"),
    (S3, "/source/uri", r#""s3://media-in""#, "/source/uri", "must name an object"),
    (S3, "/source/uri", r#""s3://media-in/""#, "/source/uri", "must name an object"),
    (S3, "/source/uri", r#""s3:///a""#, "/source/uri", "bucket"),
    (S3, "/source/uri", r#""s3://Media/a""#, "/source/uri", "bucket"),
    (S3, "/source/uri", r#""s3://me/a""#, "/source/uri", "3 to 63"),
    (S3, "/source/uri", r#""s3://10.0.0.1/a""#, "/source/uri", "bucket"),
    (S3, "/source/uri", r#""s3://user:pass@media-in/a""#, "/source/uri", "bucket"),
    (S3, "/source/uri", r#""s3://media-in/a/../b""#, "/source/uri", "must not climb"),
    (S3, "/source/uri", r#""s3://media-in//b""#, "/source/uri", "leading /"),
    (S3, "/source/uri", r#""s3://media-in/a//b""#, "/source/uri", "empty part"),
    (S3, "/source/uri", r#""s3://media-in/a?X-Amz-Signature=1""#, "/source/uri", "no query"),
    (S3, "/source/uri", r#""s3://media-in/a\nb""#, "/source/uri", "control characters"),
    (S3, "/source/sha256", r#""abc""#, "/source/sha256", "64 lowercase hex"),
    (S3, "/source/sha256", r#""E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855""#, "/source/sha256", "lowercase"),
    (Signed, "/source/uri", r#""http://in.example.com/clip.mov""#, "/source/uri", "plain http is not allowed"),
    (Signed, "/source/uri", r#""https://user:pass@in.example.com/clip""#, "/source/uri", "user or password"),
    (Signed, "/source/uri", r#""https://127.0.0.1/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://2130706433/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://0x7f.1/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://0177.0.0.1/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://[::ffff:10.0.0.1]/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://[64:ff9b::7f00:1]/clip""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://169.254.169.254/latest""#, "/source/uri", "not public"),
    (Signed, "/source/uri", r#""https://localhost./clip""#, "/source/uri", "public host name"),
    (Signed, "/source/uri", r#""https://in.example.com/a b""#, "/source/uri", "percent-encode"),
    (Signed, "/source/uri", r#""https://in.example.com\\@127.0.0.1/""#, "/source/uri", "backslashes"),
    (Signed, "/source/uri", r#""https:///clip""#, "/source/uri", "absolute https"),
    // files
    (File, "/source/uri", r#""file:///srv/media/zenith/clip.mov""#, "/source/uri", "directory acme"),
    (File, "/source/uri", r#""file:///etc/passwd""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme-2/a""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme/../zenith/a""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme/%2e%2e/zenith/a""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme/..%2fzenith/a""#, "/source/uri", "allowed root"),
    (File, "/source/uri", r#""file:///srv/media/acme/a%00b""#, "/source/uri", "absolute file"),
    (File, "/source/uri", r#""file://host/srv/media/acme/a""#, "/source/uri", "without a host"),
    (File, "/source/uri", r#""file:///srv/media/acme/a?b""#, "/source/uri", "query"),
    (File, "/storage/output_prefix", r#""file:///srv/media/zenith/""#, "/storage/output_prefix", "directory acme"),
    // storage
    (S3, "/storage", "null", "/storage/output_prefix", "is needed where an output has a path"),
    (S3, "/storage/output_prefix", "null", "/storage/output_prefix", "is needed"),
    (S3, "/storage/output_prefix", r#""media-out/42""#, "/storage/output_prefix", "must begin with s3:// or file://"),
    (S3, "/storage/output_prefix", r#""https://out.example.com/""#, "/storage/output_prefix", "upload_url"),
    (S3, "/storage/output_prefix", r#""s3://media-out/../x""#, "/storage/output_prefix", "must not climb"),
    (S3, "/storage/output_prefix", r#""s3://M/""#, "/storage/output_prefix", "bucket"),
    (S3, "/storage/endpoint", r#""s3.example.com""#, "/storage/endpoint", "https://"),
    (S3, "/storage/endpoint", r#""http://s3.example.com""#, "/storage/endpoint", "plain http"),
    (S3, "/storage/endpoint", r#""https://minio:9000""#, "/storage/endpoint", "public host name"),
    (S3, "/storage/endpoint", r#""https://s3.example.com:9000""#, "/storage/endpoint", "port 443 or 8443"),
    (S3, "/storage/endpoint", r#""https://10.1.2.3:9000""#, "/storage/endpoint", "not public"),
    (S3, "/storage/endpoint", r#""https://s3.example.com/minio""#, "/storage/endpoint", "host and port only"),
    (S3, "/storage/endpoint", r#""https://s3.example.com?a=1""#, "/storage/endpoint", "host and port only"),
    (S3, "/storage/region", r#""eu west 1""#, "/storage/region", "such as eu-west-1"),
    (S3, "/storage/output_layout", r#""per_job""#, "/storage/output_layout", "exact, per_claim"),
    (S3, "/storage/credentials", "null", "/storage/credentials", "or a refresh_url"),
    (S3, "/storage/credentials", "{}", "/storage/credentials/access_key_id", "is needed"),
    (S3, "/storage/credentials/secret_access_key", r#""""#, "/storage/credentials/secret_access_key", "not be empty"),
    (S3, "/storage/credentials/access_key_id", r#""a b""#, "/storage/credentials/access_key_id", "visible ASCII"),
    (S3, "/storage/credentials/session_token", r#""a\r\nx: y""#, "/storage/credentials/session_token", "control"),
    (S3, "/storage/credentials/expires_at", r#""tomorrow""#, "/storage/credentials/expires_at", "RFC 3339"),
    (S3, "/storage/credentials/expires_at", "1700000000", "/storage/credentials/expires_at", "must be a string"),
    (File, "/storage/credentials", r#"{"access_key_id": "a", "secret_access_key": "b"}"#, "/storage/credentials", "left out"),
    (Signed, "/storage", r#"{"credentials": {"access_key_id": "a", "secret_access_key": "b"}}"#, "/storage/credentials", "nothing in this job is s3://"),
    (Signed, "/storage/output_prefix", r#""s3://media-out/""#, "/outputs/0/upload_url", "do not go together"),
    (Signed, "/outputs/0", r#"{"name": "a", "path": "a.mp4", "preset": "h264_480p"}"#, "/storage/output_prefix", "is needed"),
    // outputs
    (S3, "/outputs", "[]", "/outputs", "1 to 20 entries, not 0"),
    (S3, "/outputs/0", "{}", "/outputs/0/name", "is needed"),
    (S3, "/outputs/0", "{}", "/outputs/0/path", "or an upload_url"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.mp4"}"#, "/outputs/0/container", "where there is no preset"),
    (S3, "/outputs/0/name", r#""a b""#, "/outputs/0/name", "1 to 64 of A-Z"),
    (S3, "/outputs/0/name", r#""a/b""#, "/outputs/0/name", "1 to 64 of A-Z"),
    (S3, "/outputs/1", r#"{"name": "720p", "path": "b.mp4", "preset": "h264_480p"}"#, "/outputs/1/name", "differ from that of /outputs/0"),
    (S3, "/outputs/1", r#"{"name": "b", "path": "720p.mp4", "preset": "h264_480p"}"#, "/outputs/1/path", "differ from that of /outputs/0"),
    (S3, "/outputs/1", r#"{"name": "b", "path": "720p.mp4/b.mp4", "preset": "h264_480p"}"#, "/outputs/1/path", "below the path of /outputs/0"),
    (S3, "/outputs", r#"[{"name": "a", "path": "h/i.m3u8", "preset": "hls_ladder"}, {"name": "b", "path": "h/i_720p.m3u8", "container": "hls"}]"#, "/outputs/1/path", "names that /outputs/0 makes"),
    (S3, "/outputs", r#"[{"name": "a", "path": "h/i.M3U8", "preset": "hls_ladder"}, {"name": "b", "path": "h/i_00000.ts", "preset": "h264_480p"}]"#, "/outputs/1/path", "names that /outputs/0 makes"),
    (S3, "/outputs", r#"[{"name": "a", "path": "t_%03d.jpg", "container": "jpg", "thumbnails": {"count": 3}}, {"name": "b", "path": "t_002.jpg", "preset": "thumbnail_jpg"}]"#, "/outputs/1/path", "names that /outputs/0 makes"),
    (S3, "/outputs", r#"[{"name": "a", "path": "t_%d.jpg", "container": "jpg", "thumbnails": {"count": 10}}, {"name": "b", "path": "t_%02d.jpg", "container": "jpg", "thumbnails": {"count": 10}}]"#, "/outputs/1/path", "names that /outputs/0 makes"),
    (S3, "/outputs", r#"[{"name": "a", "path": "t_1%d.jpg", "container": "jpg", "thumbnails": {"count": 9}}, {"name": "b", "path": "t_%02d.jpg", "container": "jpg", "thumbnails": {"count": 20}}]"#, "/outputs/1/path", "names that /outputs/0 makes"),
    (S3, "/outputs/0/path", r#""../720p.mp4""#, "/outputs/0/path", "must not climb"),
    (S3, "/outputs/0/path", r#""a/../../720p.mp4""#, "/outputs/0/path", "must not climb"),
    (S3, "/outputs/0/path", r#""/720p.mp4""#, "/outputs/0/path", "must be relative"),
    (S3, "/outputs/0/path", r#""a\\b.mp4""#, "/outputs/0/path", "backslash"),
    (S3, "/outputs/0/path", r#""a//b.mp4""#, "/outputs/0/path", "empty part"),
    (S3, "/outputs/0/path", r#""a/""#, "/outputs/0/path", "empty part"),
    (S3, "/outputs/0/path", r#""./a.mp4""#, "/outputs/0/path", "a dot"),
    (S3, "/outputs/0/path", r#""""#, "/outputs/0/path", "must not be empty"),
    (S3, "/outputs/0/path", r#""a\tb.mp4""#, "/outputs/0/path", "control characters"),
    (S3, "/outputs/0/path", r#""a\u007fb.mp4""#, "/outputs/0/path", "control characters"),
    (S3, "/outputs/0/path", r#""720p.mkv""#, "/outputs/0/path", "must end in .mp4"),
    (S3, "/outputs/0/upload_url", r#""https://out.example.com/a""#, "/outputs/0/upload_url", "say one of them"),
    (Signed, "/outputs/0/upload_url", r#""s3://media-out/a""#, "/outputs/0/upload_url", "https://"),
    (Signed, "/outputs/0/upload_url", r#""https://192.168.0.1/a""#, "/outputs/0/upload_url", "not public"),
    (Signed, "/outputs/0/preset", r#""hls_ladder""#, "/outputs/0/upload_url", "takes one file"),
    (Signed, "/outputs/0", r#"{"name": "t", "upload_url": "https://o.example.com/", "container": "jpg", "thumbnails": {"count": 3}}"#, "/outputs/0/upload_url", "takes one file"),
    // codecs and containers
    (S3, "/outputs/0/preset", r#""h264_4k""#, "/outputs/0/preset", "h264_480p"),
    (S3, "/outputs/0/preset", r#""h264-720p""#, "/outputs/0/preset", "did you mean h264_720p?"),
    (S3, "/outputs/0/container", r#""avi""#, "/outputs/0/container", "mp4, webm, mkv"),
    (S3, "/outputs/0/container", r#""webm""#, "/outputs/0/container", "webm holds vp9, av1, copy, none, not h264"),
    (S3, "/outputs/0/container", r#""mp3""#, "/outputs/0/container", "not h264"),
    (S3, "/outputs/0/video/codec", r#""h265""#, "/outputs/0/video/codec", "hevc"),
    (S3, "/outputs/0/video/codec", r#""libx264""#, "/outputs/0/video/codec", "there are: h264"),
    (S3, "/outputs/0/audio/codec", r#""flac""#, "/outputs/0/audio/codec", "mp4 holds aac, mp3, opus, copy, none, not flac"),
    (S3, "/outputs/0/video", r#"{"crf": 20, "bitrate_kbps": 2000}"#, "/outputs/0/video/bitrate_kbps", "say one of them"),
    (S3, "/outputs/0/video", r#"{"bitrate_kbps": 2000, "max_bitrate_kbps": 1000}"#, "/outputs/0/video/max_bitrate_kbps", "not be less"),
    (S3, "/outputs/0/video", r#"{"codec": "copy", "height": 480}"#, "/outputs/0/video/height", "nothing is encoded"),
    (S3, "/outputs/0/video", r#"{"codec": "none", "crf": 20}"#, "/outputs/0/video/crf", "with codec none"),
    (S3, "/outputs/0/audio", r#"{"codec": "copy", "loudness": {"target_lufs": -16}}"#, "/outputs/0/audio/loudness", "nothing is encoded"),
    (S3, "/outputs/0/audio", r#"{"codec": "mp3", "bitrate_kbps": 384}"#, "/outputs/0/audio/bitrate_kbps", "at most 320 for mp3"),
    (S3, "/outputs/0/audio", r#"{"codec": "mp3", "channels": 6}"#, "/outputs/0/audio/channels", "at most 2 for mp3"),
    (S3, "/outputs/0/audio", r#"{"codec": "opus", "sample_rate": 44100}"#, "/outputs/0/audio/sample_rate", "24000, 48000 for opus"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.mp4", "container": "mp4", "video": {"codec": "none"}, "audio": {"codec": "none"}}"#, "/outputs/0", "pictures or sound"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.mp3", "preset": "mp3_192k", "video": {"codec": "h264"}}"#, "/outputs/0/video/codec", "mp3 holds none"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.flac", "preset": "flac", "audio": {"bitrate_kbps": 100}}"#, "/outputs/0/audio/bitrate_kbps", "lossless"),
    (S3, "/outputs/0/hls", r#"{"segment_seconds": 4}"#, "/outputs/0/hls", "only an hls output"),
    (S3, "/outputs/0/thumbnails", r#"{"count": 2}"#, "/outputs/0/thumbnails", "only a jpg output"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.jpg", "preset": "thumbnail_jpg", "video": {"height": 100}}"#, "/outputs/0/video", "thumbnails {width, height}"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a.jpg", "container": "jpg", "thumbnails": {"count": 3}}"#, "/outputs/0/path", "thumb_%03d.jpg"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a_%03d_%d.jpg", "container": "jpg", "thumbnails": {"count": 3}}"#, "/outputs/0/path", "one number"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a_%s.jpg", "container": "jpg", "thumbnails": {"count": 3}}"#, "/outputs/0/path", "one number"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "a_%d.jpg", "container": "jpg", "thumbnails": {"count": 3, "at_seconds": 1}}"#, "/outputs/0/thumbnails/at_seconds", "spread evenly"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "hls/index.mp4", "preset": "hls_ladder"}"#, "/outputs/0/path", ".m3u8"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "hls/index", "container": "hls"}"#, "/outputs/0/path", ".m3u8"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "preset": "hls_ladder", "video": {"height": 480}}"#, "/outputs/0/video/height", "says its own"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "preset": "hls_ladder", "video": {"codec": "copy"}}"#, "/outputs/0/video/codec", "h264 or hevc"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "preset": "hls_ladder", "video": {"codec": "hevc"}}"#, "/outputs/0/hls/segment_type", "fmp4 for hevc"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "video": {"codec": "vp9"}}"#, "/outputs/0/video/codec", "hls holds h264, hevc"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "hls": {"renditions": []}}"#, "/outputs/0/hls/renditions", "1 to 8"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "hls": {"renditions": [{"height": 720}]}}"#, "/outputs/0/hls/renditions/0/bitrate_kbps", "is needed"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "hls": {"renditions": [{"height": 720, "bitrate_kbps": 900}, {"height": 720, "bitrate_kbps": 800}]}}"#, "/outputs/0/hls/renditions", "different heights"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "hls": {"segment_seconds": 0}}"#, "/outputs/0/hls/segment_seconds", "from 1 to 30"),
    (S3, "/outputs/0", r#"{"name": "a", "path": "i.m3u8", "container": "hls", "hls": {"segment_type": "ts"}}"#, "/outputs/0/hls/segment_type", "mpegts, fmp4"),
    // callbacks
    (S3, "/status_webhook_url", r#""app.example.com/hook""#, "/status_webhook_url", "absolute https"),
    (S3, "/status_webhook_url", r#""http://app.example.com/hook""#, "/status_webhook_url", "plain http"),
    (S3, "/status_webhook_url", r#""https://app.internal/hook""#, "/status_webhook_url", "public host name"),
    (S3, "/status_webhook_url", r#""https://me@app.example.com/hook""#, "/status_webhook_url", "user or password"),
    (S3, "/status_webhook_url", r#""https://app.example.com/#x""#, "/status_webhook_url", "fragment"),
    (S3, "/status_webhook_url", r#""https://app.example.com:6379/""#, "/status_webhook_url", "port 443 or 8443"),
    (S3, "/refresh_url", r#""https://app.example.com:22/""#, "/refresh_url", "port 443 or 8443"),
    (S3, "/status_webhook_url", r#""https://app.example.com:0/""#, "/status_webhook_url", "port of 1 to 65535"),
    (S3, "/refresh_url", r#""https://[fd00::1]/refresh""#, "/refresh_url", "not public"),
    (S3, "/refresh_url", r#""javascript:alert(1)""#, "/refresh_url", "https://"),
    (S3, "/events", "[]", "/events", "1 to 20 entries"),
    (S3, "/events", r#"["transcode.done"]"#, "/events/0", "such as transcode.succeeded"),
    (S3, "/events", r#"["transcode.*", "*"]"#, "/events/1", "transcode.*"),
    (Signed, "/events", r#"["transcode.*"]"#, "/events", "no status_webhook_url"),
    // the rest
    (S3, "/queue", r#""webhook""#, "/queue", "must be one of transcode"),
    (S3, "/queue", r#""""#, "/queue", "must not be empty"),
    (S3, "/run_at", r#""2026-12-18T06:00:01Z""#, "/run_at", "30 days"),
    (S3, "/run_at", r#""2026-11-18 06:00""#, "/run_at", "RFC 3339"),
    (S3, "/run_at", r#""2026-11-18T06:00:00""#, "/run_at", "with its offset"),
    (S3, "/external_id", r#""""#, "/external_id", "must not be empty"),
    (S3, "/external_id", r#""a\u0007""#, "/external_id", "control characters"),
];

/// Everything that is said about a body, one per line, behind its code.
fn refusal(body: &[u8]) -> ErrorBody {
    match ask(body) {
        Err(refusal) => refusal,
        Ok(_) => panic!("accepted: {}", String::from_utf8_lossy(body)),
    }
}

fn says(refusal: &ErrorBody, pointer: &str, part: &str) -> bool {
    refusal.error.details.iter().any(|fault| fault.pointer == pointer && fault.message.contains(part))
}

#[test]
fn what_is_wrong_as_a_whole_is_refused_with_its_code() {
    for (body, code, pointer, part) in RAW {
        let refusal = refusal(body);
        let body = String::from_utf8_lossy(body);
        assert_eq!(refusal.error.code, *code, "{body}");
        match pointer {
            None => assert!(refusal.error.message.contains(part), "{body}: {refusal:?}"),
            Some(pointer) => assert!(says(&refusal, pointer, part), "{body}: {refusal:?}"),
        }
    }
}

#[test]
fn one_wrong_thing_is_one_fault_at_its_place_saying_what_would_be_right() {
    assert!(RAW.len() + CHANGED.len() >= 120, "{} rows", RAW.len() + CHANGED.len());
    let mut wrong = Vec::new();
    for (base, place, new, pointer, part) in CHANGED {
        let refusal = refusal(&changed(*base, place, new));
        assert_eq!(refusal.error.code, ErrorCode::InvalidRequest, "{place} = {new}");
        // Without its output or its storage a request lacks several things.
        let lacks_much = matches!(*new, "{}" | "null");
        if !says(&refusal, pointer, part) || (refusal.error.details.len() > 1 && !lacks_much) {
            wrong.push(format!("{base:?} {place} = {new}: {:#?}", refusal.error.details));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every row through the real service, over connections that are kept: the same words, and nothing is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_bad_input_is_refused_alike_and_uses_up_neither_a_job_nor_a_key() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.requesters set requests_per_second = 100000, request_burst = 100000").await;
    let api = Api::start_with(&db, &[("EUTERPE_FILE_STORAGE", "/srv/media")]).await;
    let send = |key: usize, body: Vec<u8>| {
        let request = api.request(Method::POST, "/transcode").header("content-type", "application/json");
        request.header("idempotency-key", key.to_string()).body(body).send()
    };
    let raw = RAW.iter().map(|(body, ..)| body.to_vec());
    // Whether a time is thirty days ahead depends on the clock, and this service has the real one.
    let rows = CHANGED.iter().filter(|(.., part)| *part != "30 days");
    let bodies: Vec<_> = raw.chain(rows.map(|(base, place, new, ..)| changed(*base, place, new))).collect();
    assert!(bodies.len() >= 120, "{} rows", bodies.len());
    for (key, body) in bodies.iter().enumerate() {
        let expected = refusal(body);
        let answer = send(key, body.clone()).await.unwrap();
        let (status, kept) = (answer.status().as_u16(), !answer.headers().contains_key("connection"));
        let said: ErrorBody = answer.json().await.unwrap();
        let shown = String::from_utf8_lossy(body);
        assert_eq!((status, kept), (expected.error.code.http_status(), true), "{shown}");
        assert_eq!(said, expected, "{shown}");
    }
    let left = "select (select count(*) from euterpe.inbox_jobs) + (select count(*) from euterpe.job_secrets)
                     + (select count(*) from euterpe.job_outbox_events)
                     + (select count(*) from euterpe.idempotency_keys)";
    assert_eq!(db.one::<i64>(left).await, 0);
    // Each key is free: another request may have it, and is no replay.
    for key in 0..bodies.len() {
        let answer = send(key, good(S3).to_string().into_bytes()).await.unwrap();
        assert_eq!(answer.status(), 202);
        assert!(!answer.headers().contains_key("idempotency-replayed"), "{key}");
    }
}

/// What a check that refuses everything would get wrong.
#[test]
fn what_is_right_is_accepted() {
    for base in [S3, Signed, File] {
        ask(good(base).to_string().as_bytes()).unwrap_or_else(|refusal| panic!("{base:?}: {refusal:#?}"));
    }
    for (base, place, new) in [
        (S3, "/storage/region", "null"),
        (S3, "/storage/endpoint", "null"),
        (S3, "/storage/path_style", "true"),
        (S3, "/storage/output_layout", r#""per_claim""#),
        (S3, "/storage/output_prefix", r#""s3://media-out""#),
        (S3, "/storage/credentials/session_token", r#""t/+=""#),
        (S3, "/storage/credentials/expires_at", r#""2020-01-01T00:00:00+01:00""#),
        (S3, "/source/uri", r#""s3://media-in/Ümläut #1 (50%).mov""#),
        (S3, "/source/size_bytes", "734003200"),
        (S3, "/source/sha256", r#""e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#),
        (S3, "/outputs/0/path", r#""2026/11/720p""#),
        (S3, "/outputs/0/path", r#""..a/b..c/...mp4""#),
        (S3, "/outputs/0/video", r#"{"bitrate_kbps": 2000, "fps": 29.97}"#),
        (S3, "/outputs/0/video", r#"{"codec": "av1", "crf": 60}"#),
        (S3, "/outputs/0/clip", r#"{"start_seconds": 12.5, "duration_seconds": 3}"#),
        (S3, "/outputs/1", r#"{"name": "h", "path": "h/i.m3u8", "preset": "hls_ladder"}"#),
        (S3, "/outputs/1", r#"{"name": "h", "path": "h/i.m3u8", "preset": "h264_480p", "container": "hls"}"#),
        (
            S3,
            "/outputs/1",
            r#"{"name": "t", "path": "t_%03d.jpg", "preset": "thumbnail_jpg", "thumbnails": {"count": 9}}"#,
        ),
        (S3, "/outputs/1", r#"{"name": "w", "path": "w.webm", "container": "webm"}"#),
        (
            S3,
            "/outputs/1",
            r#"{"name": "a", "path": "a.m4a", "preset": "aac_128k", "audio": {"loudness": {"target_lufs": -16}}}"#,
        ),
        (S3, "/outputs/1", r#"{"name": "r", "path": "r.mp4", "preset": "remux_mp4"}"#),
        (Signed, "/outputs/0/preset", r#""thumbnail_jpg""#),
        (Signed, "/source/uri", r#""https://8.8.8.8:8443/clip?id=1""#),
        (S3, "/status_webhook_url", "null"),
        (S3, "/refresh_url", r#""https://app.example.com/refresh""#),
        (S3, "/events", r#"["transcode.succeeded", "transcode.dead_letter"]"#),
        (S3, "/priority", "0"),
        (S3, "/priority", "1000"),
        (S3, "/run_at", r#""2026-12-18T06:00:00Z""#),
        (S3, "/run_at", r#""1999-01-01T00:00:00Z""#),
        (S3, "/external_id", r#""video 42 ✓""#),
        (S3, "/metadata", r#"{"a": "", "b": "x"}"#),
    ] {
        let accepted = ask(&changed(base, place, new));
        accepted.unwrap_or_else(|refusal| panic!("{base:?} {place} = {new}: {refusal:#?}"));
    }
}

#[test]
fn several_faults_are_reported_together() {
    let body = json!({
        "source": {"uri": "ftp://a", "size": 1},
        "outputs": [{"name": "a b", "path": "../a", "preset": "h264_720p", "video": {"crf": 99}}, 7],
        "priority": "high",
        "queue": "other",
        "status_webhook_url": "https://localhost/",
    });
    let refusal = refusal(body.to_string().as_bytes());
    let places: BTreeSet<_> = refusal.error.details.iter().map(|fault| fault.pointer.as_str()).collect();
    let expected = [
        "/source/uri",
        "/source/size",
        "/outputs/0/name",
        "/outputs/0/path",
        "/outputs/0/video/crf",
        "/outputs/1",
        "/priority",
        "/queue",
        "/status_webhook_url",
        "/storage/output_prefix",
    ];
    assert_eq!(places, BTreeSet::from(expected));
    assert_eq!(refusal.error.message, "10 things in the request are wrong");
}

#[test]
fn a_thousand_faults_are_fifty() {
    let fields: Vec<String> = (0..1000).map(|n| format!("\"x{n}\": 1")).collect();
    let refusal = refusal(format!("{{{}}}", fields.join(",")).as_bytes());
    assert_eq!(refusal.error.details.len(), 50);
    assert!(refusal.error.message.contains("more than 50"), "{}", refusal.error.message);
}

#[test]
fn thirty_two_levels_may_enclose_each_other_and_no_more() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = refusal(format!("{{\"x\": {}}}", nested(31)).as_bytes());
    assert!(!deepest.error.details.iter().any(|fault| fault.message.contains("deeply")), "{deepest:?}");
    for depth in [32, 33, 200, 20_000] {
        let refusal = refusal(format!("{{\"x\": {}}}", nested(depth)).as_bytes());
        let pointer = format!("/x{}", "/0".repeat(31));
        assert!(says(&refusal, &pointer, "nested too deeply"), "{depth}: {refusal:?}");
    }
    let objects = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
    assert!(says(&refusal(objects.as_bytes()), &"/a".repeat(32), "nested too deeply"));
}

#[test]
fn a_body_of_256_kib_is_read_and_one_byte_more_is_not() {
    let mut body = good(S3).to_string().into_bytes();
    body.resize(MAX_BODY_BYTES, b' ');
    ask(&body).unwrap();
    body.push(b' ');
    let refusal = refusal(&body);
    assert_eq!(refusal.error.code, ErrorCode::BodyTooLarge);
    assert_eq!(ErrorCode::BodyTooLarge.http_status(), 413);
}

#[test]
fn texts_lists_and_urls_have_their_limits() {
    let text = |length: usize| format!("\"{}\"", "a".repeat(length));
    let url = |length: usize| format!("\"https://app.example.com/{}\"", "a".repeat(length - 24));
    let outputs = |n: usize| {
        let list: Vec<_> = (0..n)
            .map(|n| json!({"name": n.to_string(), "path": format!("{n}.flac"), "preset": "flac"}))
            .collect();
        json!(list).to_string()
    };
    let entries = |n: usize| {
        let map: serde_json::Map<_, _> = (0..n).map(|n| (n.to_string(), json!("x"))).collect();
        Value::Object(map).to_string()
    };
    for (place, most, over) in [
        ("/external_id", text(255), text(256)),
        ("/metadata/key", text(256), text(257)),
        ("/metadata", entries(16), entries(17)),
        ("/outputs", outputs(20), outputs(21)),
        ("/outputs/0/name", text(64), text(65)),
        ("/outputs/0/path", text(255), text(256)),
        ("/status_webhook_url", url(2048), url(2049)),
        ("/storage/credentials/secret_access_key", text(256), text(257)),
        ("/storage/credentials/session_token", text(16384), text(16385)),
    ] {
        ask(&changed(S3, place, &most)).unwrap_or_else(|refusal| panic!("{place}: {refusal:#?}"));
        let refusal = refusal(&changed(S3, place, &over));
        assert!(refusal.error.details.iter().any(|fault| fault.pointer == place), "{place}: {refusal:?}");
    }
    let long_name = format!("/metadata/{}", "k".repeat(257));
    assert!(!refusal(&changed(S3, &long_name, "\"x\"")).error.details.is_empty());
}

/// Whatever is wrong with a field, its text does not come back: it may be a secret, also one in the wrong place.
#[test]
fn no_refusal_repeats_a_value() {
    let secret = "pa55w0rd";
    let mut seen = 0;
    for (base, place, new, ..) in CHANGED {
        let Ok(Value::String(text)) = serde_json::from_str(new) else { continue };
        for spoilt in [format!("{text}{secret}"), format!("{secret}{text}"), format!("{text}{secret}\u{7}")] {
            let Err(refusal) = ask(&changed(*base, place, &json!(spoilt).to_string())) else { continue };
            let said = serde_json::to_string(&refusal).unwrap();
            assert!(!said.contains(secret), "{place} = {spoilt}: {said}");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen} values were refused");
}

/// docs/errors.md lists the codes of HTTP answers as the type has them, and those of jobs as the database has them.
#[tokio::test]
async fn the_page_of_error_codes_is_the_list_of_error_codes() {
    let db = TestDb::fresh().await;
    let jobs = "select format('| `%s` | %s | %s | %s |', code, class, policy, meaning) from euterpe.error_codes order by class, code";
    let mut expected: Vec<String> = ErrorCode::ALL
        .iter()
        .map(|code| format!("| `{}` | {} | {} |", code.as_str(), code.http_status(), code.meaning()))
        .collect();
    expected.extend(db.rows(jobs).await.iter().map(|row| row.get::<_, String>(0)));
    let page = fs::read_to_string("docs/errors.md").unwrap();
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(listed, expected, "the page should have these rows:\n{}", expected.join("\n"));
}

#[test]
fn a_code_says_one_thing() {
    let words: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(words.len(), ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        assert!((400..600).contains(&code.http_status()), "{code}");
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
    }
}
