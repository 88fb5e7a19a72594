//! `POST /transcode`, as a client writes it (design §6). Presets are not yet expanded, nothing is yet checked against
//! anything else; `read.rs` makes these and `judge.rs` judges them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use utoipa::ToSchema;

use super::Hidden;
use super::words::{AudioCodec, Container, OutputLayout, Preset, SegmentType, VideoCodec};

/// A job to be done.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({
    "source": {"uri": "s3://media-in/42/clip.mov"},
    "storage": {
        "region": "eu-west-1", "output_prefix": "s3://media-out/42/",
        "credentials": {"access_key_id": "ASIA0EXAMPLE", "secret_access_key": "example", "session_token": "example"}
    },
    "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}],
    "status_webhook_url": "https://app.example.com/hooks/euterpe"
})))]
pub struct TranscodeRequest {
    /// What is to be transcoded.
    pub source: SourceRequest,
    /// Where outputs go, and how storage is reached. Not needed when everything has a signed url.
    pub storage: Option<StorageRequest>,
    /// What is to be made: all or nothing.
    #[schema(min_items = 1, max_items = 20)]
    pub outputs: Vec<OutputRequest>,
    /// Where events are sent, signed. Sealed as a whole.
    pub status_webhook_url: Option<Hidden>,
    /// Whom a worker asks for new credentials when storage refuses the old ones. Sealed as a whole.
    pub refresh_url: Option<Hidden>,
    /// Which events are sent: `transcode.*`, or some of `transcode.queued` … `transcode.dead_letter`.
    #[schema(default = json!(["transcode.*"]), max_items = 20, example = json!(["transcode.succeeded", "transcode.failed"]))]
    pub events: Option<Vec<String>>,
    /// Which line it waits in.
    #[schema(default = "transcode")]
    pub queue: Option<String>,
    /// Higher is earlier. Capped at what the requester may use.
    #[schema(minimum = 0, maximum = 1000, default = 100)]
    pub priority: Option<i32>,
    /// How often it is tried.
    #[schema(minimum = 1, maximum = 100, default = 5)]
    pub max_attempts: Option<i32>,
    /// How long one attempt may take.
    #[schema(minimum = 10, maximum = 86400, default = 7200)]
    pub timeout_seconds: Option<u32>,
    /// Not before this time; at most 30 days ahead.
    #[schema(example = "2026-11-18T06:00:00Z")]
    pub run_at: Option<Timestamp>,
    /// Your own name for it.
    #[schema(min_length = 1, max_length = 255, example = "video-42")]
    pub external_id: Option<String>,
    /// Handed back in every event and status: at most 16 entries of at most 256 bytes each.
    #[schema(example = json!({"tenant": "acme"}))]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// What is to be transcoded.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceRequest {
    /// `s3://bucket/key`, a signed `https://` url, or `file:///…` where the deployment allows it.
    #[schema(example = "s3://media-in/42/clip.mov")]
    pub uri: Hidden,
    /// Its size, if known: a worker then refuses what is too large before it downloads anything.
    #[schema(minimum = 1)]
    pub size_bytes: Option<u64>,
    /// What it must hash to: 64 lowercase hex digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: Option<String>,
}

/// Where outputs go, and how storage is reached.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageRequest {
    /// An S3-compatible server; without it, AWS.
    #[schema(example = "https://s3.eu-west-1.amazonaws.com")]
    pub endpoint: Option<String>,
    /// Its region.
    #[schema(default = "us-east-1", example = "eu-west-1")]
    pub region: Option<String>,
    /// Buckets as paths rather than as host names.
    #[schema(default = false)]
    pub path_style: Option<bool>,
    /// What every `path` stands below.
    #[schema(example = "s3://media-out/42/")]
    pub output_prefix: Option<String>,
    /// Where below it.
    #[schema(default = "exact")]
    pub output_layout: Option<OutputLayout>,
    /// Short-lived credentials: read the source, write below `output_prefix`. Sealed.
    pub credentials: Option<Credentials>,
}

/// Keys to object storage. They are sealed on arrival and never shown again.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The key's id.
    #[schema(max_length = 256)]
    pub access_key_id: Hidden,
    /// The key.
    #[schema(max_length = 256)]
    pub secret_access_key: Hidden,
    /// Of short-lived credentials.
    #[schema(max_length = 16384)]
    pub session_token: Option<Hidden>,
    /// When they end; a worker may refresh them before that.
    pub expires_at: Option<Timestamp>,
}

/// One output. Say what it is with `preset`, with `container`, or with a preset and what differs from it.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(
    json!({"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}),
    json!({"name": "hls", "path": "hls/index.m3u8", "container": "hls",
           "video": {"codec": "h264", "height": 480, "crf": 26}, "audio": {"codec": "aac", "bitrate_kbps": 96}})
))]
pub struct OutputRequest {
    /// What it is called in events and status. No two outputs share one.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,64}$", example = "720p")]
    pub name: String,
    /// Where it goes, below `storage.output_prefix`. Either this or `upload_url`.
    #[schema(max_length = 512, example = "720p.mp4")]
    pub path: Option<String>,
    /// A signed url that takes one file by PUT. Sealed.
    pub upload_url: Option<Hidden>,
    /// What to begin with.
    pub preset: Option<Preset>,
    /// What it is wrapped in.
    pub container: Option<Container>,
    /// Its pictures. Absent: what suits the container; `{"codec": "none"}`: none.
    pub video: Option<VideoRequest>,
    /// Its sound. Absent: what suits the container; `{"codec": "none"}`: none.
    pub audio: Option<AudioRequest>,
    /// How HLS is cut.
    pub hls: Option<HlsRequest>,
    /// Which pictures to take, of `jpg`.
    pub thumbnails: Option<ThumbnailsRequest>,
    /// Which part of the source.
    pub clip: Option<ClipRequest>,
}

/// Pictures. Never upscaled: `width` and `height` are upper bounds, the aspect ratio is kept.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VideoRequest {
    /// How they are encoded.
    pub codec: Option<VideoCodec>,
    /// At most so wide; even.
    #[schema(minimum = 16, maximum = 8192, multiple_of = 2)]
    pub width: Option<u32>,
    /// At most so high; even.
    #[schema(minimum = 16, maximum = 8192, multiple_of = 2)]
    pub height: Option<u32>,
    /// Constant quality, lower is better: 0–51, of vp9 and av1 0–63. Either this or `bitrate_kbps`.
    #[schema(minimum = 0, maximum = 63)]
    pub crf: Option<u8>,
    /// Average bitrate. Either this or `crf`.
    #[schema(minimum = 16, maximum = 200_000)]
    pub bitrate_kbps: Option<u32>,
    /// Never more than this.
    #[schema(minimum = 16, maximum = 400_000)]
    pub max_bitrate_kbps: Option<u32>,
    /// At most so many pictures a second.
    #[schema(minimum = 1, maximum = 120, example = 29.97)]
    pub fps: Option<f64>,
}

/// Sound.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AudioRequest {
    /// How it is encoded.
    pub codec: Option<AudioCodec>,
    /// Average bitrate; flac has none.
    #[schema(minimum = 8, maximum = 512)]
    pub bitrate_kbps: Option<u32>,
    /// How many; absent: as the source.
    #[schema(minimum = 1, maximum = 8)]
    pub channels: Option<u8>,
    /// In Hz; absent: as the source, or the nearest the codec has.
    #[schema(minimum = 8000, maximum = 96000, example = 48000)]
    pub sample_rate: Option<u32>,
    /// Evens out the loudness, in two passes (EBU R 128).
    pub loudness: Option<LoudnessRequest>,
}

/// How loud, by EBU R 128.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoudnessRequest {
    /// Integrated loudness.
    #[schema(minimum = -70, maximum = -5, example = -16)]
    pub target_lufs: f64,
    /// True peak.
    #[schema(minimum = -9, maximum = 0, default = -1.5)]
    pub true_peak_db: Option<f64>,
}

/// How HLS is cut.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HlsRequest {
    /// Length of a segment.
    #[schema(minimum = 1, maximum = 30, default = 6)]
    pub segment_seconds: Option<u32>,
    /// What segments are wrapped in.
    #[schema(default = "mpegts")]
    pub segment_type: Option<SegmentType>,
    /// Several qualities under a master playlist. Those above the source's height are left out.
    #[schema(min_items = 1, max_items = 8)]
    pub renditions: Option<Vec<RenditionRequest>>,
}

/// One quality of a ladder.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenditionRequest {
    /// At most so high; even. No two renditions share one.
    #[schema(minimum = 16, maximum = 8192, multiple_of = 2, example = 720)]
    pub height: u32,
    /// Average bitrate of its pictures.
    #[schema(minimum = 16, maximum = 200_000, example = 2800)]
    pub bitrate_kbps: u32,
    /// Average bitrate of its sound; absent: what `audio` says.
    #[schema(minimum = 8, maximum = 512, example = 128)]
    pub audio_bitrate_kbps: Option<u32>,
}

/// Which pictures to take.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThumbnailsRequest {
    /// How many, evenly spread. More than one need a number in `path`, such as `thumb_%03d.jpg`.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub count: Option<u32>,
    /// At most so wide.
    #[schema(minimum = 16, maximum = 8192)]
    pub width: Option<u32>,
    /// At most so high.
    #[schema(minimum = 16, maximum = 8192)]
    pub height: Option<u32>,
    /// When, of a single one; absent: a tenth of the way in.
    #[schema(minimum = 0, maximum = 86400)]
    pub at_seconds: Option<f64>,
}

/// Which part of the source.
#[derive(Debug, Clone, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClipRequest {
    /// From here.
    #[schema(minimum = 0, maximum = 86400, default = 0)]
    pub start_seconds: Option<f64>,
    /// So long; absent: to the end.
    #[schema(minimum = 0.1, maximum = 86400)]
    pub duration_seconds: Option<f64>,
}
