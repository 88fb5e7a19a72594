//! With what each codec is encoded, and which codec a container takes as it is.

use std::collections::BTreeSet;

use crate::domain::transcode::{Container, SegmentType};
use crate::media::MediaError;

/// The encoder for `codec` among those that this ffmpeg has.
pub(in crate::media) fn encoder(codec: &str, there: &BTreeSet<String>) -> Result<&'static str, MediaError> {
    let known: &[&'static str] = match codec {
        "h264" => &["libx264"],
        "hevc" => &["libx265"],
        "vp9" => &["libvpx-vp9"],
        // The second is much slower.
        "av1" => &["libsvtav1", "libaom-av1"],
        "aac" => &["aac"],
        "mp3" => &["libmp3lame"],
        "opus" => &["libopus"],
        "flac" => &["flac"],
        "mjpeg" => &["mjpeg"],
        _ => &[],
    };
    let missing =
        || MediaError::new("encoder_missing", format!("this worker's ffmpeg cannot encode {codec}"));
    known.iter().copied().find(|name| there.contains(*name)).ok_or_else(missing)
}

/// Whether pictures of `codec` can be put into `container` as they are.
pub(super) fn holds_video(container: Container, segments: Option<SegmentType>, codec: &str) -> bool {
    let held: &[&str] = match container {
        Container::Mp4 => &["h264", "hevc", "av1", "vp9", "mpeg4", "mpeg2video", "mpeg1video"],
        Container::Webm => &["vp8", "vp9", "av1"],
        Container::Mkv => &[
            "h264",
            "hevc",
            "av1",
            "vp8",
            "vp9",
            "mpeg4",
            "mpeg2video",
            "mpeg1video",
            "theora",
            "mjpeg",
            "prores",
            "ffv1",
            "wmv2",
            "wmv3",
            "vc1",
            "msmpeg4v3",
            "flv1",
            "h263",
        ],
        Container::Hls if segments == Some(SegmentType::Fmp4) => &["h264", "hevc", "av1"],
        Container::Hls => &["h264"],
        Container::M4a | Container::Mp3 | Container::Ogg | Container::Flac | Container::Jpg => &[],
    };
    held.contains(&codec)
}

/// Whether sound of `codec` can be put into `container` as it is.
pub(super) fn holds_audio(container: Container, codec: &str) -> bool {
    let held: &[&str] = match container {
        Container::Mp4 => &["aac", "mp3", "opus", "ac3", "eac3", "alac", "flac"],
        Container::Webm => &["opus", "vorbis"],
        Container::Mkv => &[
            "aac",
            "mp3",
            "mp2",
            "opus",
            "vorbis",
            "flac",
            "ac3",
            "eac3",
            "dts",
            "alac",
            "wmav2",
            "truehd",
            "pcm_s16le",
            "pcm_s24le",
            "pcm_s32le",
            "pcm_f32le",
            "pcm_u8",
        ],
        Container::Hls => &["aac", "mp3", "ac3", "eac3"],
        Container::M4a => &["aac", "alac"],
        Container::Mp3 => &["mp3"],
        Container::Ogg => &["opus", "vorbis", "flac"],
        Container::Flac => &["flac"],
        Container::Jpg => &[],
    };
    held.contains(&codec)
}
