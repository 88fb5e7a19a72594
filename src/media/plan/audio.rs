//! Arguments for sound.

use super::choose::{HowSound, Sound};
use super::loudness::Measured;
use super::owned;
use crate::domain::transcode::AudioCodec;
use crate::media::source::Source;

/// The layouts that Opus and its container have names for; others are brought to the nearest.
const OPUS_LAYOUTS: &str = "aformat=channel_layouts=mono|stereo|3.0|quad|5.0|5.1|6.1|7.1";

pub(super) fn arguments(sound: &Sound, measured: Option<&Measured>, source: &Source) -> Vec<String> {
    let HowSound::Encode { encoder, spec } = &sound.how else { return owned(["-c:a", "copy"]) };
    let mut arguments = owned(["-c:a", *encoder]);
    if let Some(kbps) = spec.bitrate_kbps {
        arguments.extend(owned(["-b:a", &format!("{kbps}k")]));
    }
    if let Some(channels) = spec.channels {
        arguments.extend(owned(["-ac", &channels.to_string()]));
    }
    let loudness = spec.loudness.as_ref().zip(measured).map(|(target, was)| was.filter(target));
    let filters: Vec<String> = mixed(spec.channels)
        .filter(|_| loudness.is_some())
        .into_iter()
        .chain(loudness.clone())
        .chain((spec.codec == AudioCodec::Opus).then(|| OPUS_LAYOUTS.to_owned()))
        .collect();
    if !filters.is_empty() {
        arguments.extend(["-af".to_owned(), filters.join(",")]);
    }
    // The filter works at 192 kHz; nobody asked for that.
    let back = loudness.map(|_| usual_rate(spec.codec, source));
    if let Some(rate) = spec.sample_rate.or(back) {
        arguments.extend(owned(["-ar", &rate.to_string()]));
    }
    arguments
}

/// Loudness is that of what is heard in the end, so mixing comes first.
pub(super) fn mixed(channels: Option<u8>) -> Option<String> {
    let layout = match channels? {
        1 => "mono",
        2 => "stereo",
        _ => return None,
    };
    Some(format!("aformat=channel_layouts={layout}"))
}

/// The source's own where the codec has it, else 48 kHz, which all have.
fn usual_rate(codec: AudioCodec, source: &Source) -> u32 {
    let rate = source.facts.audio.as_ref().and_then(|audio| audio.sample_rate);
    match (codec, rate) {
        (AudioCodec::Opus, _) | (_, None) => 48_000,
        (_, Some(rate @ (22_050 | 24_000 | 32_000 | 44_100 | 48_000))) => rate,
        _ => 48_000,
    }
}
