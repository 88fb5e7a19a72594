//! From an output as it is asked for to an output as it will be made: the preset below, the inline fields above, and
//! everything decided that was left open. What cannot be made is a fault.

mod audio;
mod video;

use std::fmt::Display;

use super::fault::Faults;
use super::preset::recipe;
use super::request::{HlsRequest, OutputRequest};
use super::spec::{AudioEncode, AudioSpec, ClipSpec, MediaSpec, Rate, RenditionSpec, VideoEncode, VideoSpec};
use super::words::{Container, SegmentType, VideoCodec};

/// A fault was found, and is among the others.
struct Faulty;

/// The request for one output and the preset it names.
struct Expansion<'a> {
    asked: &'a OutputRequest,
    base: OutputRequest,
    at: &'a str,
    faults: &'a Faults,
}

/// What `asked` means; `None` when it cannot be, with the reasons among the faults.
pub(super) fn media(asked: &OutputRequest, at: &str, faults: &Faults) -> Option<MediaSpec> {
    let base = asked.preset.map(recipe).unwrap_or_default();
    let expansion = Expansion { asked, base, at, faults };
    let Some(container) = asked.container.or(expansion.base.container) else {
        expansion.fault("container", "is needed where there is no preset, such as mp4 or hls");
        return None;
    };
    expansion.refuse_strangers(container);
    let media = match container {
        Container::Jpg => Some(expansion.thumbnails()),
        Container::Hls => expansion.hls(),
        _ => {
            let (video, audio) = expansion.streams(container)?;
            Some(MediaSpec::File { container, video, audio })
        }
    };
    media.inspect(|_| expansion.check_path(container))
}

pub(super) fn clip(asked: &OutputRequest) -> Option<ClipSpec> {
    let clip = asked.clip.as_ref()?;
    let start_seconds = clip.start_seconds.unwrap_or(0.0);
    let is_all = start_seconds == 0.0 && clip.duration_seconds.is_none();
    (!is_all).then_some(ClipSpec { start_seconds, duration_seconds: clip.duration_seconds })
}

impl Expansion<'_> {
    fn fault(&self, field: &str, message: impl Into<String>) {
        self.faults.add(&format!("{}/{field}", self.at), message);
    }

    /// Objects that mean nothing for this container.
    fn refuse_strangers(&self, container: Container) {
        let is_jpg = container == Container::Jpg;
        let strangers = [
            (
                "video",
                is_jpg && self.asked.video.is_some(),
                "a jpg output has thumbnails {width, height} instead",
            ),
            ("audio", is_jpg && self.asked.audio.is_some(), "a picture has no sound"),
            ("thumbnails", !is_jpg && self.asked.thumbnails.is_some(), "only a jpg output has them"),
            ("hls", container != Container::Hls && self.asked.hls.is_some(), "only an hls output has it"),
        ];
        for (field, _, why) in strangers.into_iter().filter(|(_, is_there, _)| *is_there) {
            self.fault(field, format!("must be left out: {why}"));
        }
    }

    /// A name that says one thing over a file that is another is a mistake; a name without ending is not.
    fn check_path(&self, container: Container) {
        let Some(path) = &self.asked.path else { return };
        let ending = path.rsplit('/').next().and_then(|file| file.rsplit_once('.')).map(|(_, ending)| ending);
        let ending = ending.unwrap_or_default().to_ascii_lowercase();
        let all = || <Container as super::words::Word>::ALL.iter().flat_map(|other| other.extensions());
        let is_others =
            !container.extensions().contains(&ending.as_str()) && all().any(|other| *other == ending);
        if is_others || (container == Container::Hls && ending != "m3u8") {
            self.fault(
                "path",
                format!("must end in .{} for container {container}", container.extensions()[0]),
            );
        }
    }

    /// Pictures and sound; at least one of them.
    fn streams(&self, container: Container) -> Option<(Option<VideoSpec>, Option<AudioSpec>)> {
        let (video, audio) = (self.video(container), self.audio(container));
        let (Ok(video), Ok(audio)) = (video, audio) else { return None };
        if video.is_none() && audio.is_none() {
            self.faults.add(self.at, "must have pictures or sound; both codecs are none");
            return None;
        }
        Some((video, audio))
    }

    fn thumbnails(&self) -> MediaSpec {
        let base = self.base.thumbnails.clone().unwrap_or_default();
        let asked = self.asked.thumbnails.clone().unwrap_or_default();
        let count = asked.count.or(base.count).unwrap_or(1);
        if count > 1 && asked.at_seconds.is_some() {
            self.fault(
                "thumbnails/at_seconds",
                "must be left out where count is more than 1: they are spread evenly",
            );
        }
        if count > 1 && self.asked.path.as_ref().is_some_and(|path| !has_one_number(path)) {
            self.fault("path", "must hold one number for several thumbnails, such as thumb_%03d.jpg");
        }
        // A requested bound replaces the preset's, whichever side it is on.
        let bounds_asked = asked.width.is_some() || asked.height.is_some();
        let width = if bounds_asked { asked.width } else { base.width };
        MediaSpec::Thumbnails { count, width, height: asked.height, at_seconds: asked.at_seconds }
    }

    fn hls(&self) -> Option<MediaSpec> {
        let base = self.base.hls.clone().unwrap_or_default();
        let asked = self.asked.hls.clone().unwrap_or_default();
        let segment_type = asked.segment_type.or(base.segment_type).unwrap_or(SegmentType::Mpegts);
        let ladder = HlsRequest { renditions: asked.renditions.or(base.renditions), ..HlsRequest::default() };
        let renditions = match ladder.renditions {
            Some(_) => self.ladder(&ladder)?,
            None => vec![self.single()?],
        };
        let is_hevc = |rendition: &RenditionSpec| matches!(&rendition.video, Some(VideoSpec::Encode(video)) if video.codec == VideoCodec::Hevc);
        if segment_type == SegmentType::Mpegts && renditions.iter().any(is_hevc) {
            self.fault("hls/segment_type", "must be fmp4 for hevc");
        }
        let segment_seconds = asked.segment_seconds.or(base.segment_seconds).unwrap_or(6);
        Some(MediaSpec::Hls { segment_seconds, segment_type, renditions })
    }

    fn single(&self) -> Option<RenditionSpec> {
        let (video, audio) = self.streams(Container::Hls)?;
        Some(RenditionSpec { name: "main".into(), video, audio })
    }

    /// The renditions say height and bitrate, so `video` must not.
    fn ladder(&self, ladder: &HlsRequest) -> Option<Vec<RenditionSpec>> {
        let inline = self.asked.video.clone().unwrap_or_default();
        for (field, is_there) in [
            ("width", inline.width.is_some()),
            ("height", inline.height.is_some()),
            ("crf", inline.crf.is_some()),
            ("bitrate_kbps", inline.bitrate_kbps.is_some()),
            ("max_bitrate_kbps", inline.max_bitrate_kbps.is_some()),
        ] {
            if is_there {
                self.fault(
                    &format!("video/{field}"),
                    "must be left out: each of hls.renditions says its own",
                );
            }
        }
        let (video, audio) = self.streams(Container::Hls)?;
        let Some(VideoSpec::Encode(video)) = video else {
            self.fault("video/codec", "must be h264 or hevc where there are renditions");
            return None;
        };
        let mut rungs = ladder.renditions.clone().unwrap_or_default();
        rungs.sort_by_key(|rung| std::cmp::Reverse(rung.height));
        if rungs.windows(2).any(|pair| pair[0].height == pair[1].height) {
            self.fault("hls/renditions", "must have different heights");
        }
        let made = rungs.iter().map(|rung| {
            let video = VideoEncode {
                height: Some(rung.height),
                rate: Rate::BitrateKbps(rung.bitrate_kbps),
                ..video.clone()
            };
            let audio = audio.clone().map(|audio| with_bitrate(audio, rung.audio_bitrate_kbps));
            RenditionSpec { name: format!("{}p", rung.height), video: Some(VideoSpec::Encode(video)), audio }
        });
        Some(made.collect())
    }
}

fn with_bitrate(audio: AudioSpec, bitrate_kbps: Option<u32>) -> AudioSpec {
    match audio {
        AudioSpec::Encode(audio) => {
            AudioSpec::Encode(AudioEncode { bitrate_kbps: bitrate_kbps.or(audio.bitrate_kbps), ..audio })
        }
        AudioSpec::Copy => AudioSpec::Copy,
    }
}

/// `%d` or `%03d`, once.
fn has_one_number(path: &str) -> bool {
    let Some((_, rest)) = path.split_once('%') else { return false };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let width = &rest[..digits];
    let is_width = width.is_empty() || (width.len() == 2 && width.starts_with('0') && width <= "06");
    is_width && rest[digits..].starts_with('d') && !rest.contains('%')
}

fn cannot_hold(container: Container, codec: impl Display, held: &[impl Display]) -> String {
    format!("cannot be: {container} holds {}, not {codec}", listed(held))
}

fn nothing_encoded(codec: impl Display) -> String {
    format!("must be left out: with codec {codec} nothing is encoded")
}

fn listed(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
