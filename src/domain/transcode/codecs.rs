//! Which codec goes into which container, and what each codec can do.

use std::ops::RangeInclusive;

use super::words::{AudioCodec, Container, VideoCodec};

impl Container {
    /// What it can hold by way of pictures, the usual one first. `copy` is tried: only a probe of the source can tell.
    pub(super) fn video_codecs(self) -> &'static [VideoCodec] {
        use VideoCodec::{Av1, Copy, H264, Hevc, None, Vp9};
        match self {
            Self::Mp4 | Self::Mkv => &[H264, Hevc, Av1, Vp9, Copy, None],
            Self::Webm => &[Vp9, Av1, Copy, None],
            Self::Hls => &[H264, Hevc, Copy, None],
            Self::M4a | Self::Mp3 | Self::Ogg | Self::Flac | Self::Jpg => &[None],
        }
    }

    /// What it can hold by way of sound, the usual one first.
    pub(super) fn audio_codecs(self) -> &'static [AudioCodec] {
        use AudioCodec::{Aac, Copy, Flac, Mp3, None, Opus};
        match self {
            Self::Mp4 => &[Aac, Mp3, Opus, Copy, None],
            Self::Mkv => &[Aac, Mp3, Opus, Flac, Copy, None],
            Self::Webm => &[Opus, Copy, None],
            Self::Hls => &[Aac, Copy, None],
            Self::M4a => &[Aac, Copy],
            Self::Mp3 => &[Mp3, Copy],
            Self::Ogg => &[Opus, Copy],
            Self::Flac => &[Flac, Copy],
            Self::Jpg => &[None],
        }
    }

    /// How its files end, the usual one first.
    pub(super) fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Mp4 => &["mp4", "m4v"],
            Self::Webm => &["webm"],
            Self::Mkv => &["mkv"],
            Self::Hls => &["m3u8"],
            Self::M4a => &["m4a"],
            Self::Mp3 => &["mp3"],
            Self::Ogg => &["ogg", "opus", "oga"],
            Self::Flac => &["flac"],
            Self::Jpg => &["jpg", "jpeg"],
        }
    }
}

impl VideoCodec {
    /// The quality taken when a request says nothing, and the range it may say.
    pub(super) fn crf(self) -> (u8, RangeInclusive<u8>) {
        match self {
            Self::H264 | Self::Copy | Self::None => (23, 0..=51),
            Self::Hevc => (28, 0..=51),
            Self::Av1 => (35, 0..=63),
            Self::Vp9 => (32, 0..=63),
        }
    }
}

impl AudioCodec {
    /// The bitrate taken when a request says nothing, and the most there can be; `None`: it has no bitrate.
    pub(super) fn bitrate_kbps(self) -> Option<(u32, u32)> {
        match self {
            Self::Aac => Some((128, 512)),
            Self::Mp3 => Some((192, 320)),
            Self::Opus => Some((96, 510)),
            Self::Flac | Self::Copy | Self::None => None,
        }
    }

    /// The most channels it can have.
    pub(super) fn max_channels(self) -> u8 {
        if self == Self::Mp3 { 2 } else { 8 }
    }

    /// The sample rates it can have.
    pub(super) fn sample_rates(self) -> &'static [u32] {
        match self {
            Self::Opus => &[8000, 12000, 16000, 24000, 48000],
            Self::Mp3 => &[8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000],
            Self::Aac | Self::Flac | Self::Copy | Self::None => {
                &[8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000]
            }
        }
    }
}
