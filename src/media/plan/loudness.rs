//! How loud: measured in a first run, then moved by one factor in the second, so that quiet and loud keep their distance.

use serde_json::Value;

use super::audio::mixed;
use super::choose::{Chosen, HowSound, Sound, What};
use super::owned;
use crate::domain::transcode::{AudioEncode, LoudnessSpec};
use crate::media::source::Source;

/// What was measured of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::media) struct Measured {
    loudness: f64,
    peak: f64,
    range: f64,
    threshold: f64,
    offset: f64,
}

/// The loudness that `output` asks for.
pub(in crate::media) fn target(output: &Chosen) -> Option<LoudnessSpec> {
    encoded(output).and_then(|(_, spec)| spec.loudness)
}

fn encoded(output: &Chosen) -> Option<(&Sound, &AudioEncode)> {
    let sound = match &output.what {
        What::File { audio, .. } => audio.as_ref(),
        What::Hls { renditions, .. } => renditions.first().and_then(|rendition| rendition.audio.as_ref()),
        What::Stills { .. } => None,
    }?;
    match &sound.how {
        HowSound::Encode { spec, .. } => Some((sound, spec)),
        HowSound::Copy => None,
    }
}

/// The arguments after the source of a run that only measures.
pub(super) fn measuring(output: &Chosen, target: &LoudnessSpec, source: &Source) -> Vec<String> {
    let stream = encoded(output).map_or(source.audio_index(), |(sound, _)| sound.stream);
    let mix = encoded(output).and_then(|(_, spec)| mixed(spec.channels));
    let mix = mix.map(|mix| mix + ",").unwrap_or_default();
    let filter =
        format!("{mix}loudnorm=I={}:TP={}:LRA=11:print_format=json", target.target_lufs, target.true_peak_db);
    owned(["-map", &format!("0:{stream}"), "-vn", "-sn", "-dn", "-af", &filter, "-f", "null", "-"])
}

/// Reads what loudnorm says at its end. `None` for silence, which no factor makes louder.
pub(in crate::media) fn measured(said: &str) -> Option<Measured> {
    let (_, json) = said.rsplit_once('{')?;
    let (json, _) = json.split_once('}')?;
    let values: Value = serde_json::from_str(&format!("{{{json}}}")).ok()?;
    let number = |name: &str, low: f64, high: f64| {
        let value: f64 = values.get(name)?.as_str()?.parse().ok()?;
        value.is_finite().then(|| value.clamp(low, high))
    };
    Some(Measured {
        loudness: number("input_i", -99.0, 0.0)?,
        peak: number("input_tp", -99.0, 99.0)?,
        range: number("input_lra", 0.0, 50.0)?,
        threshold: number("input_thresh", -99.0, 0.0)?,
        offset: number("target_offset", -99.0, 99.0)?,
    })
}

impl Measured {
    /// The second run. The range asked for is the one that was found: otherwise the filter would compress.
    pub(super) fn filter(&self, target: &LoudnessSpec) -> String {
        format!(
            "loudnorm=I={}:TP={}:LRA={}:measured_I={}:measured_TP={}:measured_LRA={}:measured_thresh={}:offset={}:linear=true",
            target.target_lufs,
            target.true_peak_db,
            self.range.clamp(11.0, 50.0),
            self.loudness,
            self.peak,
            self.range,
            self.threshold,
            self.offset
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_read_from_the_end_of_what_was_said() {
        let said = "[Parsed_loudnorm_0 @ 0x1] \n{\n\t\"input_i\" : \"-21.75\",\n\t\"input_tp\" : \"-18.06\",\n\
                    \t\"input_lra\" : \"0.00\",\n\t\"input_thresh\" : \"-31.75\",\n\t\"target_offset\" : \"0.10\"\n}\n";
        let measured = measured(said).expect("it was said");
        assert!((measured.loudness + 21.75).abs() < 1e-9);
        let filter = measured.filter(&LoudnessSpec { target_lufs: -16.0, true_peak_db: -1.5 });
        assert!(filter.contains("measured_I=-21.75") && filter.ends_with("linear=true"), "{filter}");
    }

    #[test]
    fn silence_is_left_alone() {
        assert_eq!(measured("{\"input_i\" : \"-inf\"}"), None);
    }
}
