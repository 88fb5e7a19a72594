//! Each output held against the source: which streams, how large, with which encoder; or why not. Nothing has run yet.

use std::collections::BTreeSet;

use super::encoders::{encoder, holds_audio, holds_video};
use super::size::fit;
use super::stills::moments;
use crate::domain::transcode::{
    AudioEncode, AudioSpec, ClipSpec, Container, MediaSpec, OutputSpec, Rate, RenditionSpec, SegmentType,
    Target, VideoEncode, VideoSpec,
};
use crate::media::MediaError;
use crate::media::source::Source;

/// An output, decided.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) struct Chosen {
    pub(in crate::media) name: String,
    pub(in crate::media) target: Target,
    pub(in crate::media) clip: Option<ClipSpec>,
    /// How long it should become, where that is known.
    pub(in crate::media) seconds: Option<f64>,
    pub(in crate::media) what: What,
}

impl Chosen {
    /// Whether pictures or sound stay as they are.
    pub(in crate::media) fn copies(&self) -> bool {
        let copies = |video: &Option<Pictures>, audio: &Option<Sound>| {
            video.as_ref().is_some_and(|it| it.how == HowPictures::Copy)
                || audio.as_ref().is_some_and(|it| it.how == HowSound::Copy)
        };
        match &self.what {
            What::File { video, audio, .. } => copies(video, audio),
            What::Hls { renditions, .. } => renditions.iter().any(|it| copies(&it.video, &it.audio)),
            What::Stills { .. } => false,
        }
    }
}

/// What it is.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) enum What {
    File { container: Container, video: Option<Pictures>, audio: Option<Sound> },
    Hls { segment_seconds: u32, segment_type: SegmentType, renditions: Vec<Rendition>, has_master: bool },
    Stills { times: Vec<f64>, size: (u32, u32) },
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) struct Rendition {
    pub(in crate::media) name: String,
    pub(in crate::media) video: Option<Pictures>,
    pub(in crate::media) audio: Option<Sound>,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) struct Pictures {
    pub(in crate::media) stream: u32,
    /// What they will be.
    pub(in crate::media) codec: String,
    pub(in crate::media) how: HowPictures,
}

impl Pictures {
    /// How large they become, where that is ours to say.
    pub(in crate::media) fn size(&self) -> Option<(u32, u32)> {
        match &self.how {
            HowPictures::Copy => None,
            HowPictures::Encode(encode) => Some(encode.size),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) enum HowPictures {
    Copy,
    Encode(EncodePictures),
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) struct EncodePictures {
    pub(in crate::media) encoder: &'static str,
    pub(in crate::media) size: (u32, u32),
    /// Only where the source has more.
    pub(in crate::media) fps: Option<f64>,
    pub(in crate::media) rate: Rate,
    pub(in crate::media) max_bitrate_kbps: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) struct Sound {
    pub(in crate::media) stream: u32,
    /// What it will be.
    pub(in crate::media) codec: String,
    pub(in crate::media) how: HowSound,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::media) enum HowSound {
    Copy,
    Encode { encoder: &'static str, spec: AudioEncode },
}

/// Decides every output, or says why one cannot be.
pub(in crate::media) fn choose(
    outputs: &[OutputSpec],
    source: &Source,
    encoders: &BTreeSet<String>,
) -> Result<Vec<Chosen>, MediaError> {
    let of = |output: &OutputSpec| {
        let choice = Choice { source, encoders, clip: output.clip };
        let what = choice.what(&output.media).map_err(|error| named(&output.name, &error))?;
        let clip = if matches!(what, What::Stills { .. }) { None } else { output.clip };
        let seconds = choice.part().map_err(|error| named(&output.name, &error))?.1;
        Ok(Chosen { name: output.name.clone(), target: output.target.clone(), clip, seconds, what })
    };
    outputs.iter().map(of).collect()
}

fn named(output: &str, error: &MediaError) -> MediaError {
    MediaError::new(error.code, format!("output {output}: {}", error.message))
}

struct Choice<'a> {
    source: &'a Source,
    encoders: &'a BTreeSet<String>,
    clip: Option<ClipSpec>,
}

impl Choice<'_> {
    fn what(&self, media: &MediaSpec) -> Result<What, MediaError> {
        Ok(match media {
            MediaSpec::File { container, video, audio } => {
                let (video, audio) = self.streams(video.as_ref(), audio.as_ref(), *container, None)?;
                What::File { container: *container, video, audio }
            }
            MediaSpec::Hls { segment_seconds, segment_type, renditions } => What::Hls {
                segment_seconds: *segment_seconds,
                segment_type: *segment_type,
                renditions: self.renditions(renditions, *segment_type)?,
                has_master: renditions.len() > 1,
            },
            MediaSpec::Thumbnails { count, width, height, at_seconds } => {
                let video = self.source.probe.video().ok_or_else(no_pictures)?;
                encoder("mjpeg", self.encoders)?;
                let (start, length) = self.part()?;
                if at_seconds.is_some_and(|at| length.is_some_and(|length| at > length)) {
                    return Err(beyond("the moment of the picture"));
                }
                let length = video.duration().map_or(length, |own| Some(length.unwrap_or(own).min(own)));
                let picture = 1.0 / video.fps().unwrap_or(25.0);
                let times = moments(start, length.unwrap_or(0.0), *count, *at_seconds, picture);
                What::Stills { times, size: fit(video.shown(), *width, *height) }
            }
        })
    }

    /// Where the asked part begins and how long it is.
    fn part(&self) -> Result<(f64, Option<f64>), MediaError> {
        let whole = self.source.facts.duration_seconds;
        let Some(clip) = self.clip else { return Ok((0.0, whole)) };
        let rest = whole.map(|whole| whole - clip.start_seconds);
        if rest.is_some_and(|rest| rest <= 0.0) {
            return Err(beyond("the clip"));
        }
        let length = match (rest, clip.duration_seconds) {
            (Some(rest), Some(length)) => Some(rest.min(length)),
            (rest, length) => rest.or(length),
        };
        Ok((clip.start_seconds, length))
    }

    /// None above the source; the lowest stays, so that there is one.
    fn renditions(
        &self,
        asked: &[RenditionSpec],
        segments: SegmentType,
    ) -> Result<Vec<Rendition>, MediaError> {
        let high = self.source.probe.video().map_or(0, |video| video.shown().1);
        let height = |rendition: &RenditionSpec| match &rendition.video {
            Some(VideoSpec::Encode(video)) => video.height,
            _ => None,
        };
        let fits = |rendition: &&RenditionSpec| height(rendition).is_none_or(|height| height <= high);
        let mut taken: Vec<&RenditionSpec> = asked.iter().filter(fits).collect();
        if taken.is_empty() {
            taken.extend(asked.last());
        }
        let decide = |rendition: &RenditionSpec| {
            let (video, audio) = (rendition.video.as_ref(), rendition.audio.as_ref());
            let (video, audio) = self.streams(video, audio, Container::Hls, Some(segments))?;
            Ok(Rendition { name: rendition.name.clone(), video, audio })
        };
        taken.into_iter().map(decide).collect()
    }

    fn streams(
        &self,
        video: Option<&VideoSpec>,
        audio: Option<&AudioSpec>,
        container: Container,
        segments: Option<SegmentType>,
    ) -> Result<(Option<Pictures>, Option<Sound>), MediaError> {
        let video = video.map(|video| self.pictures(video, container, segments)).transpose()?;
        let audio = match (audio, self.source.probe.audio()) {
            (None, _) => None,
            // Pictures without sound are still what was asked for; nothing at all is not.
            (Some(_), None) if video.is_some() => None,
            (Some(_), None) => return Err(MediaError::new("media_no_streams", "the source has no sound")),
            (Some(audio), Some(_)) => Some(self.sound(audio, container)?),
        };
        Ok((video, audio))
    }

    fn pictures(
        &self,
        asked: &VideoSpec,
        container: Container,
        segments: Option<SegmentType>,
    ) -> Result<Pictures, MediaError> {
        let stream = self.source.probe.video().ok_or_else(no_pictures)?;
        match asked {
            VideoSpec::Copy if holds_video(container, segments, &stream.codec_name) => Ok(Pictures {
                stream: stream.index,
                codec: stream.codec_name.clone(),
                how: HowPictures::Copy,
            }),
            VideoSpec::Copy => Err(cannot_hold(container, &stream.codec_name)),
            VideoSpec::Encode(encode) => {
                let codec = encode.codec.to_string();
                let how = HowPictures::Encode(EncodePictures {
                    encoder: encoder(&codec, self.encoders)?,
                    size: fit(stream.shown(), encode.width, encode.height),
                    fps: fewer(encode, stream.fps()),
                    rate: encode.rate,
                    max_bitrate_kbps: encode.max_bitrate_kbps,
                });
                Ok(Pictures { stream: stream.index, codec, how })
            }
        }
    }

    fn sound(&self, asked: &AudioSpec, container: Container) -> Result<Sound, MediaError> {
        let Some(stream) = self.source.probe.audio() else {
            return Err(MediaError::new("media_no_streams", "the source has no sound"));
        };
        let (codec, how) = match asked {
            AudioSpec::Copy if holds_audio(container, &stream.codec_name) => {
                (stream.codec_name.clone(), HowSound::Copy)
            }
            AudioSpec::Copy => return Err(cannot_hold(container, &stream.codec_name)),
            AudioSpec::Encode(spec) => {
                let codec = spec.codec.to_string();
                let encoder = encoder(&codec, self.encoders)?;
                (codec, HowSound::Encode { encoder, spec: spec.clone() })
            }
        };
        Ok(Sound { stream: stream.index, codec, how })
    }
}

/// The rate asked for, where the source has more pictures than that.
fn fewer(encode: &VideoEncode, has: Option<f64>) -> Option<f64> {
    encode.fps.filter(|asked| has.is_none_or(|has| has > *asked + 0.01))
}

fn no_pictures() -> MediaError {
    MediaError::new("media_no_streams", "the source has no pictures")
}

fn beyond(what: &str) -> MediaError {
    MediaError::new("media_no_streams", format!("{what} lies beyond the end of the source: nothing is there"))
}

fn cannot_hold(container: Container, codec: &str) -> MediaError {
    let message = format!("{container} cannot hold {codec} as it is; ask for a codec instead of copy");
    MediaError::new("media_unsupported_format", message)
}
