//! What a worker reads: the request with presets expanded, everything decided, and no secret in it. Kept as the job's
//! request document; a worker of the next release reads what this one wrote, so fields are added, never changed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::words::{AudioCodec, Container, OutputLayout, SegmentType, VideoCodec};

/// A job, ready to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Of this form: 1.
    pub version: u16,
    /// What is to be transcoded.
    pub source: SourceSpec,
    /// How storage is reached.
    pub storage: StorageSpec,
    /// What is to be made.
    pub outputs: Vec<OutputSpec>,
    /// How long one attempt may take.
    pub timeout_seconds: u32,
}

impl JobSpec {
    /// The form that this release writes.
    pub const VERSION: u16 = 1;

    /// Reads a job's request document.
    pub fn read(document: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(document)
    }
}

/// A thing in some storage. Of a signed url only the origin is in clear; the rest is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case")]
pub enum Place {
    /// In object storage: a key, or a prefix that ends in `/` or is empty.
    S3 {
        /// Its bucket.
        bucket: String,
        /// Its key.
        key: String,
    },
    /// Behind a signed url.
    Signed {
        /// Scheme, host and port.
        origin: String,
    },
    /// On a volume that workers share.
    File {
        /// Absolute, below an allowed root.
        path: String,
    },
}

/// What is to be transcoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// Where it is.
    pub place: Place,
    /// How large the requester says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What it must hash to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// How storage is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSpec {
    /// An S3-compatible server; without it, AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Its region.
    pub region: String,
    /// Buckets as paths rather than as host names.
    pub path_style: bool,
    /// What every path stands below; absent when all outputs are uploaded to signed urls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_prefix: Option<Place>,
    /// Where below it.
    pub output_layout: OutputLayout,
}

/// One output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// What it is called.
    pub name: String,
    /// Where it goes.
    pub target: Target,
    /// What it is.
    pub media: MediaSpec,
    /// Which part of the source; absent: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<ClipSpec>,
}

/// Where an output goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Below the output prefix.
    Path(String),
    /// To the signed url that is sealed under the output's name; this is its origin.
    UploadOrigin(String),
}

/// What an output is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MediaSpec {
    /// One file.
    File {
        /// What it is wrapped in.
        container: Container,
        /// Its pictures, if any.
        video: Option<VideoSpec>,
        /// Its sound, if any.
        audio: Option<AudioSpec>,
    },
    /// A playlist and its segments; with a master playlist when there is more than one rendition.
    Hls {
        /// Length of a segment.
        segment_seconds: u32,
        /// What segments are wrapped in.
        segment_type: SegmentType,
        /// Highest first.
        renditions: Vec<RenditionSpec>,
    },
    /// JPEG pictures.
    Thumbnails {
        /// How many.
        count: u32,
        /// At most so wide.
        width: Option<u32>,
        /// At most so high.
        height: Option<u32>,
        /// When, of a single one; absent: a tenth of the way in.
        at_seconds: Option<f64>,
    },
}

impl MediaSpec {
    /// Whether it is more than one file, which a signed url cannot take.
    #[must_use]
    pub fn is_many_files(&self) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Hls { .. } => true,
            Self::Thumbnails { count, .. } => *count > 1,
        }
    }
}

/// One quality of an HLS output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenditionSpec {
    /// What its playlist is called: `720p`.
    pub name: String,
    /// Its pictures, if any.
    pub video: Option<VideoSpec>,
    /// Its sound, if any.
    pub audio: Option<AudioSpec>,
}

/// What becomes of the pictures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VideoSpec {
    /// They stay as they are.
    Copy,
    /// They are encoded.
    Encode(VideoEncode),
}

/// How pictures are encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoEncode {
    /// With what.
    pub codec: VideoCodec,
    /// At most so wide.
    pub width: Option<u32>,
    /// At most so high.
    pub height: Option<u32>,
    /// How good.
    pub rate: Rate,
    /// Never more than this.
    pub max_bitrate_kbps: Option<u32>,
    /// At most so many a second.
    pub fps: Option<f64>,
}

/// How good pictures are: by quality or by size, never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Constant quality.
    Crf(u8),
    /// Average bitrate.
    BitrateKbps(u32),
}

/// What becomes of the sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AudioSpec {
    /// It stays as it is.
    Copy,
    /// It is encoded.
    Encode(AudioEncode),
}

/// How sound is encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AudioEncode {
    /// With what.
    pub codec: AudioCodec,
    /// Average bitrate; flac has none.
    pub bitrate_kbps: Option<u32>,
    /// How many channels; absent: as the source.
    pub channels: Option<u8>,
    /// In Hz; absent: as the source, or the nearest the codec has.
    pub sample_rate: Option<u32>,
    /// How loud; absent: as the source.
    pub loudness: Option<LoudnessSpec>,
}

/// How loud, by EBU R 128.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoudnessSpec {
    /// Integrated loudness.
    pub target_lufs: f64,
    /// True peak.
    pub true_peak_db: f64,
}

/// Which part of the source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClipSpec {
    /// From here.
    pub start_seconds: f64,
    /// So long; absent: to the end.
    pub duration_seconds: Option<f64>,
}
