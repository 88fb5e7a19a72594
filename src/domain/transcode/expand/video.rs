//! The pictures of an output: inline fields over preset, held against codec and container.

use super::{Expansion, Faulty, cannot_hold, nothing_encoded};
use crate::domain::transcode::request::VideoRequest;
use crate::domain::transcode::spec::{Rate, VideoEncode, VideoSpec};
use crate::domain::transcode::words::{Container, VideoCodec};

impl Expansion<'_> {
    pub(super) fn video(&self, container: Container) -> Result<Option<VideoSpec>, Faulty> {
        let asked = self.asked.video.clone().unwrap_or_default();
        if asked.crf.is_some() && asked.bitrate_kbps.is_some() {
            self.fault("video/bitrate_kbps", "stands beside crf: say one of them");
        }
        let wanted = lay_video(&asked, self.base.video.as_ref());
        let codec = wanted.codec.unwrap_or(container.video_codecs()[0]);
        if !container.video_codecs().contains(&codec) {
            let field = if asked.codec.is_some() { "video/codec" } else { "container" };
            self.fault(field, cannot_hold(container, codec, container.video_codecs()));
            return Err(Faulty);
        }
        if matches!(codec, VideoCodec::Copy | VideoCodec::None) {
            self.refuse_video_options(&asked, codec);
            return Ok((codec == VideoCodec::Copy).then_some(VideoSpec::Copy));
        }
        let (usual, range) = codec.crf();
        if wanted.crf.is_some_and(|crf| !range.contains(&crf)) {
            self.fault("video/crf", format!("must be from {} to {} for {codec}", range.start(), range.end()));
        }
        let rate = match wanted.bitrate_kbps {
            Some(bitrate) => Rate::BitrateKbps(bitrate),
            None => Rate::Crf(wanted.crf.unwrap_or(usual)),
        };
        if let (Rate::BitrateKbps(average), Some(most)) = (rate, wanted.max_bitrate_kbps)
            && most < average
        {
            self.fault("video/max_bitrate_kbps", "must not be less than bitrate_kbps");
        }
        Ok(Some(VideoSpec::Encode(VideoEncode {
            codec,
            width: wanted.width,
            height: wanted.height,
            rate,
            max_bitrate_kbps: wanted.max_bitrate_kbps,
            fps: wanted.fps,
        })))
    }

    fn refuse_video_options(&self, asked: &VideoRequest, codec: VideoCodec) {
        for (field, is_there) in [
            ("width", asked.width.is_some()),
            ("height", asked.height.is_some()),
            ("crf", asked.crf.is_some()),
            ("bitrate_kbps", asked.bitrate_kbps.is_some()),
            ("max_bitrate_kbps", asked.max_bitrate_kbps.is_some()),
            ("fps", asked.fps.is_some()),
        ] {
            if is_there {
                self.fault(&format!("video/{field}"), nothing_encoded(codec));
            }
        }
    }
}

/// Inline over preset. Another codec brings its own scale of quality, so the preset's is forgotten with it.
fn lay_video(asked: &VideoRequest, base: Option<&VideoRequest>) -> VideoRequest {
    let base = base.cloned().unwrap_or_default();
    let base = match asked.codec {
        None => base,
        Some(codec) if base.codec == Some(codec) => base,
        Some(VideoCodec::Copy | VideoCodec::None) => VideoRequest::default(),
        Some(_) => VideoRequest { crf: None, bitrate_kbps: None, max_bitrate_kbps: None, ..base },
    };
    let says_rate = asked.crf.is_some() || asked.bitrate_kbps.is_some();
    VideoRequest {
        codec: asked.codec.or(base.codec),
        width: asked.width.or(base.width),
        height: asked.height.or(base.height),
        crf: if says_rate { asked.crf } else { base.crf },
        bitrate_kbps: if says_rate { asked.bitrate_kbps } else { base.bitrate_kbps },
        max_bitrate_kbps: asked.max_bitrate_kbps.or(base.max_bitrate_kbps),
        fps: asked.fps.or(base.fps),
    }
}
