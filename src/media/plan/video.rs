//! Arguments for pictures.

use super::choose::{EncodePictures, HowPictures, Pictures};
use super::owned;
use crate::domain::transcode::{Container, Rate};

/// How hard each encoder tries. `veryfast` is what services on processors take for H.264: a third of the time of
/// `medium` for a tenth more bytes at the same crf.
const X264_PRESET: &str = "veryfast";
const X265_PRESET: &str = "fast";
const SVT_PRESET: &str = "8";
const SPEED_VP9: &str = "4";
const SPEED_AOM: &str = "6";

pub(super) fn arguments(
    pictures: &Pictures,
    container: Container,
    cut_each: Option<u32>,
    threads: usize,
) -> Vec<String> {
    // Apple's players take HEVC by this name only.
    let is_tagged = pictures.codec == "hevc" && matches!(container, Container::Mp4 | Container::Hls);
    let mut arguments = if is_tagged { owned(["-tag:v", "hvc1"]) } else { Vec::new() };
    match &pictures.how {
        HowPictures::Copy => arguments.extend(owned(["-c:v", "copy"])),
        HowPictures::Encode(encode) => {
            arguments.extend(owned(["-c:v", encode.encoder, "-vf", &filter(encode)]));
            // A gap in a source stays a gap: frames are never made up to fill it.
            arguments.extend(owned(["-pix_fmt", "yuv420p", "-fps_mode", "vfr"]));
            arguments.extend(effort(encode.encoder, threads));
            arguments.extend(rate(encode, cut_each.is_some()));
            if let Some(seconds) = cut_each {
                arguments.extend(owned(["-force_key_frames", &format!("expr:gte(t,n_forced*{seconds})")]));
            }
        }
    }
    arguments
}

/// Turning as the source says has happened before this.
fn filter(encode: &EncodePictures) -> String {
    let fps = encode.fps.map(|fps| format!("fps={fps},")).unwrap_or_default();
    let (width, height) = encode.size;
    format!("{fps}scale={width}:{height},setsar=1")
}

fn effort(encoder: &str, threads: usize) -> Vec<String> {
    match encoder {
        "libx264" => owned(["-preset", X264_PRESET, "-profile:v", "high"]),
        // In the cage it cannot see how many processors there are.
        "libx265" => {
            owned(["-preset", X265_PRESET, "-x265-params", &format!("log-level=error:pools={threads}")])
        }
        "libvpx-vp9" => owned(["-deadline", "good", "-cpu-used", SPEED_VP9, "-row-mt", "1"]),
        "libsvtav1" => owned(["-preset", SVT_PRESET, "-svtav1-params", &format!("lp={threads}")]),
        "libaom-av1" => owned(["-cpu-used", SPEED_AOM, "-row-mt", "1"]),
        _ => Vec::new(),
    }
}

fn rate(encode: &EncodePictures, is_streamed: bool) -> Vec<String> {
    let mut arguments = match encode.rate {
        Rate::Crf(crf) => owned(["-crf", &crf.to_string()]),
        Rate::BitrateKbps(kbps) => owned(["-b:v", &format!("{kbps}k")]),
    };
    // Without it, libvpx takes crf for a mere upper bound of an average.
    if matches!(encode.rate, Rate::Crf(_)) && matches!(encode.encoder, "libvpx-vp9" | "libaom-av1") {
        arguments.extend(owned(["-b:v", "0"]));
    }
    let implied = match encode.rate {
        // A player chooses a rendition by its bandwidth; its peaks must stay near it.
        Rate::BitrateKbps(kbps) if is_streamed => Some(kbps.saturating_add(kbps / 2)),
        _ => None,
    };
    // SVT-AV1 refuses a ceiling over an average.
    let has_ceiling = !(encode.encoder == "libsvtav1" && matches!(encode.rate, Rate::BitrateKbps(_)));
    if let Some(most) = encode.max_bitrate_kbps.or(implied).filter(|_| has_ceiling) {
        let buffer = format!("{}k", most.saturating_mul(2));
        arguments.extend(owned(["-maxrate", &format!("{most}k"), "-bufsize", &buffer]));
    }
    arguments
}
