//! ffprobe's answer, as far as we read it. It comes from a program that has read a stranger's file, so everything in it may
//! be missing or absurd.

use serde::Deserialize;

use crate::domain::transcode::{AudioFacts, VideoFacts};

/// What ffprobe says of a file.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Probe {
    #[serde(default)]
    pub(super) streams: Vec<Stream>,
    #[serde(default)]
    pub(super) format: Format,
    /// The first few.
    #[serde(default)]
    packets: Vec<Packet>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Packet {
    #[serde(default)]
    side_data_list: Vec<SideData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Format {
    #[serde(default)]
    pub(super) format_name: String,
    duration: Option<String>,
}

/// One stream. Numbers that ffprobe writes as text stay text until they are asked for.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Stream {
    pub(super) index: u32,
    #[serde(default)]
    codec_type: String,
    #[serde(default)]
    pub(super) codec_name: String,
    #[serde(default)]
    codec_tag_string: String,
    #[serde(default)]
    pub(super) profile: String,
    pub(super) level: Option<i64>,
    width: Option<i64>,
    height: Option<i64>,
    sample_aspect_ratio: Option<String>,
    avg_frame_rate: Option<String>,
    r_frame_rate: Option<String>,
    channels: Option<u32>,
    sample_rate: Option<String>,
    duration: Option<String>,
    #[serde(default)]
    disposition: Disposition,
    #[serde(default)]
    side_data_list: Vec<SideData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Disposition {
    #[serde(default)]
    attached_pic: u8,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SideData {
    #[serde(default)]
    side_data_type: String,
    rotation: Option<f64>,
}

impl Probe {
    /// The first with pictures. Cover art is none.
    pub(super) fn video(&self) -> Option<&Stream> {
        self.streams.iter().find(|it| it.is_video() && it.disposition.attached_pic == 0)
    }

    /// The first with sound.
    pub(super) fn audio(&self) -> Option<&Stream> {
        self.streams.iter().find(|it| it.is_audio() && !it.codec_name.is_empty())
    }

    /// By the name of a stream, or by what comes with its packets: ffprobe shows a sealed stream under the name of what is
    /// in it.
    pub(super) fn is_encrypted(&self) -> bool {
        let tags = ["encv", "enca", "drms", "drmi", "drmt"];
        let data = self.streams.iter().flat_map(|it| &it.side_data_list);
        let mut data = data.chain(self.packets.iter().flat_map(|it| &it.side_data_list));
        self.streams.iter().any(|it| tags.contains(&it.codec_tag_string.as_str()))
            || data.any(|it| it.side_data_type.starts_with("Encryption"))
    }

    /// Of the file, or of its longest stream.
    pub(super) fn duration(&self) -> Option<f64> {
        let streams = self.streams.iter().filter_map(|stream| seconds(stream.duration.as_deref()));
        seconds(self.format.duration.as_deref()).or_else(|| streams.reduce(f64::max))
    }
}

impl Stream {
    pub(super) fn is_video(&self) -> bool {
        self.codec_type == "video"
    }

    pub(super) fn is_audio(&self) -> bool {
        self.codec_type == "audio"
    }

    pub(super) fn duration(&self) -> Option<f64> {
        seconds(self.duration.as_deref())
    }

    /// Width × height as they are stored.
    pub(super) fn pixels(&self) -> u64 {
        let side = |side: Option<i64>| u64::try_from(side.unwrap_or(0)).unwrap_or(0);
        side(self.width).saturating_mul(side(self.height))
    }

    /// As it is shown: turned as its matrix says, with square pixels, and never larger than it is stored.
    pub(super) fn shown(&self) -> (u32, u32) {
        let side = |side: Option<i64>| f64::from(u32::try_from(side.unwrap_or(0)).unwrap_or(0));
        let (mut width, mut height) = (side(self.width), side(self.height));
        let aspect = self.sample_aspect_ratio.as_deref().and_then(|it| ratio(it, ':')).unwrap_or(1.0);
        if aspect > 1.0 {
            height /= aspect;
        } else {
            width *= aspect;
        }
        let turned = self.side_data_list.iter().find_map(|data| data.rotation).unwrap_or(0.0);
        if (turned.abs() % 180.0 - 90.0).abs() < 1.0 {
            std::mem::swap(&mut width, &mut height);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // they came from u32 and only shrank
        let whole = |side: f64| side.round().max(1.0) as u32;
        (whole(width), whole(height))
    }

    /// Pictures a second: on average, else as the codec says.
    pub(super) fn fps(&self) -> Option<f64> {
        let rate = |text: Option<&str>| ratio(text?, '/').filter(|rate| *rate > 0.0);
        rate(self.avg_frame_rate.as_deref()).or_else(|| rate(self.r_frame_rate.as_deref()))
    }

    pub(super) fn channels(&self) -> Option<u32> {
        self.channels.filter(|channels| *channels > 0)
    }

    pub(super) fn sample_rate(&self) -> Option<u32> {
        self.sample_rate.as_deref()?.parse().ok()
    }

    pub(super) fn video_facts(&self) -> VideoFacts {
        let (width, height) = self.shown();
        let fps = self.fps().map(|fps| (fps * 1000.0).round() / 1000.0);
        VideoFacts { codec: self.codec_name.clone(), width, height, fps }
    }

    pub(super) fn audio_facts(&self) -> AudioFacts {
        AudioFacts {
            codec: self.codec_name.clone(),
            channels: self.channels(),
            sample_rate: self.sample_rate(),
        }
    }
}

fn seconds(text: Option<&str>) -> Option<f64> {
    text?.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0)
}

/// `30000/1001` or `4:3`; nothing where a side is zero.
fn ratio(text: &str, between: char) -> Option<f64> {
    let (over, under) = text.split_once(between)?;
    let (over, under): (f64, f64) = (over.parse().ok()?, under.parse().ok()?);
    (over > 0.0 && under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(json: &str) -> Stream {
        serde_json::from_str(json).expect("a stream")
    }

    #[test]
    fn a_picture_is_as_large_as_it_is_shown() {
        let turned = r#"{"index": 0, "codec_type": "video", "width": 320, "height": 180,
                         "side_data_list": [{"side_data_type": "Display Matrix", "rotation": -90}]}"#;
        assert_eq!(stream(turned).shown(), (180, 320));
        let wide = r#"{"index": 0, "width": 720, "height": 576, "sample_aspect_ratio": "64:45"}"#;
        assert_eq!(stream(wide).shown(), (720, 405));
        let unknown = r#"{"index": 0, "width": 720, "height": 576, "sample_aspect_ratio": "0:1"}"#;
        assert_eq!(stream(unknown).shown(), (720, 576));
    }

    #[test]
    fn cover_art_is_no_video() {
        let probe: Probe = serde_json::from_str(
            r#"{"streams": [{"index": 0, "codec_type": "video", "codec_name": "mjpeg", "disposition": {"attached_pic": 1}},
                            {"index": 1, "codec_type": "audio", "codec_name": "mp3"}], "format": {"duration": "2.5"}}"#,
        )
        .expect("a probe");
        assert!(probe.video().is_none());
        assert_eq!(probe.audio().map(|audio| audio.index), Some(1));
        assert_eq!(probe.duration(), Some(2.5));
    }
}
