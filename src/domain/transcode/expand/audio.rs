//! The sound of an output: inline fields over preset, held against codec and container.

use super::{Expansion, Faulty, cannot_hold, listed, nothing_encoded};
use crate::domain::transcode::request::AudioRequest;
use crate::domain::transcode::spec::{AudioEncode, AudioSpec, LoudnessSpec};
use crate::domain::transcode::words::{AudioCodec, Container};

impl Expansion<'_> {
    pub(super) fn audio(&self, container: Container) -> Result<Option<AudioSpec>, Faulty> {
        let asked = self.asked.audio.clone().unwrap_or_default();
        let wanted = lay_audio(&asked, self.base.audio.as_ref());
        let codec = wanted.codec.unwrap_or(container.audio_codecs()[0]);
        if !container.audio_codecs().contains(&codec) {
            let field = if asked.codec.is_some() { "audio/codec" } else { "container" };
            self.fault(field, cannot_hold(container, codec, container.audio_codecs()));
            return Err(Faulty);
        }
        if matches!(codec, AudioCodec::Copy | AudioCodec::None) {
            self.refuse_audio_options(&asked, codec);
            return Ok((codec == AudioCodec::Copy).then_some(AudioSpec::Copy));
        }
        self.check_audio(&wanted, codec);
        let loudness = wanted.loudness.map(|loudness| LoudnessSpec {
            target_lufs: loudness.target_lufs,
            true_peak_db: loudness.true_peak_db.unwrap_or(-1.5),
        });
        Ok(Some(AudioSpec::Encode(AudioEncode {
            codec,
            bitrate_kbps: codec.bitrate_kbps().map(|(usual, _)| wanted.bitrate_kbps.unwrap_or(usual)),
            channels: wanted.channels,
            sample_rate: wanted.sample_rate,
            loudness,
        })))
    }

    fn check_audio(&self, wanted: &AudioRequest, codec: AudioCodec) {
        match (codec.bitrate_kbps(), wanted.bitrate_kbps) {
            (None, Some(_)) => {
                self.fault("audio/bitrate_kbps", format!("must be left out: {codec} is lossless"));
            }
            (Some((_, most)), Some(bitrate)) if bitrate > most => {
                self.fault("audio/bitrate_kbps", format!("must be at most {most} for {codec}"));
            }
            _ => {}
        }
        if wanted.channels.is_some_and(|channels| channels > codec.max_channels()) {
            self.fault("audio/channels", format!("must be at most {} for {codec}", codec.max_channels()));
        }
        if wanted.sample_rate.is_some_and(|rate| !codec.sample_rates().contains(&rate)) {
            self.fault(
                "audio/sample_rate",
                format!("must be one of {} for {codec}", listed(codec.sample_rates())),
            );
        }
    }

    fn refuse_audio_options(&self, asked: &AudioRequest, codec: AudioCodec) {
        for (field, is_there) in [
            ("bitrate_kbps", asked.bitrate_kbps.is_some()),
            ("channels", asked.channels.is_some()),
            ("sample_rate", asked.sample_rate.is_some()),
            ("loudness", asked.loudness.is_some()),
        ] {
            if is_there {
                self.fault(&format!("audio/{field}"), nothing_encoded(codec));
            }
        }
    }
}

/// Inline over preset. Another codec starts afresh.
fn lay_audio(asked: &AudioRequest, base: Option<&AudioRequest>) -> AudioRequest {
    let base = base.cloned().unwrap_or_default();
    let is_other = asked.codec.is_some() && asked.codec != base.codec;
    let base = if is_other { AudioRequest::default() } else { base };
    AudioRequest {
        codec: asked.codec.or(base.codec),
        bitrate_kbps: asked.bitrate_kbps.or(base.bitrate_kbps),
        channels: asked.channels.or(base.channels),
        sample_rate: asked.sample_rate.or(base.sample_rate),
        loudness: asked.loudness.clone().or(base.loudness),
    }
}
