//! The check after: an exit code of 0 is no proof. Every output is probed, in the cage, and held against what was asked.

mod ladder;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::ffmpeg::Ffmpeg;
use super::made::{Made, MadeFile, Names, content_type};
use super::plan::{self, Chosen, Pictures, Sound, What};
use super::probe::{Probe, Stream};
use super::source::Source;
use super::{Caps, MediaError, WorkDir};
use crate::domain::transcode::{Container, VideoFacts};

/// What is needed to check an output.
pub(super) struct Check<'a> {
    pub(super) ffmpeg: &'a Ffmpeg,
    pub(super) dir: &'a Arc<WorkDir>,
    pub(super) source: &'a Source,
    pub(super) caps: &'a Caps,
}

impl Check<'_> {
    /// Takes output `nth` as it lies in the work directory.
    pub(super) async fn output(&self, nth: usize, chosen: &Chosen) -> Result<Made, MediaError> {
        let made = match &chosen.what {
            What::File { container, video, audio } => {
                self.file(nth, chosen, *container, video.as_ref(), audio.as_ref()).await
            }
            What::Stills { times, size } => self.stills(nth, chosen, times.len(), *size).await,
            What::Hls { renditions, has_master, segment_type, .. } => {
                self.hls(nth, chosen, renditions, *has_master, *segment_type).await
            }
        };
        let made = made.map_err(|error| MediaError {
            message: format!("output {}: {}", chosen.name, error.message),
            ..error
        })?;
        if made.size_bytes > self.caps.output_bytes {
            return Err(MediaError::new("output_too_large", "an output grew beyond its limit"));
        }
        Ok(made)
    }

    async fn file(
        &self,
        nth: usize,
        chosen: &Chosen,
        container: Container,
        video: Option<&Pictures>,
        audio: Option<&Sound>,
    ) -> Result<Made, MediaError> {
        let file = plan::file(nth, container);
        let path = self.dir.path().join(&file);
        let size_bytes = size_of(&path)?;
        let probe =
            self.ffmpeg.probe(self.dir, &format!("file:{file}"), demuxers(container), self.caps).await?;
        is_as_asked(&probe, video, audio)?;
        let duration = probe.duration();
        self.is_as_long(chosen, video, audio, duration)?;
        let name = Names::of(&chosen.target, &chosen.name).main();
        Ok(Made {
            files: vec![MadeFile { path, name, content_type: content_type(container) }],
            container,
            size_bytes,
            duration_seconds: duration,
            bitrate_kbps: bitrate(size_bytes, duration),
            video: probe.video().map(Stream::video_facts),
            audio: probe.audio().map(Stream::audio_facts),
        })
    }

    async fn stills(
        &self,
        nth: usize,
        chosen: &Chosen,
        count: usize,
        size: (u32, u32),
    ) -> Result<Made, MediaError> {
        let names = Names::of(&chosen.target, &chosen.name);
        let (mut files, mut size_bytes, mut video) = (Vec::new(), 0, None);
        for still in 0..count {
            let file = plan::still(nth, still);
            let path = self.dir.path().join(&file);
            size_bytes += size_of(&path)?;
            // They all come from the same command; the first stands for the others.
            if still == 0 {
                let probe = self
                    .ffmpeg
                    .probe(self.dir, &format!("file:{file}"), demuxers(Container::Jpg), self.caps)
                    .await?;
                let stream = probe.streams.first().filter(|stream| stream.codec_name == "mjpeg");
                video = stream.map(Stream::video_facts);
                if video.as_ref().is_none_or(|video| (video.width, video.height) != size) {
                    return Err(invalid("a picture is not what was asked for"));
                }
            }
            let content_type = content_type(Container::Jpg);
            files.push(MadeFile {
                path,
                name: if count == 1 { names.main() } else { names.numbered(still + 1) },
                content_type,
            });
        }
        let video = video.map(|video| VideoFacts { fps: None, ..video });
        Ok(Made {
            files,
            container: Container::Jpg,
            size_bytes,
            duration_seconds: None,
            bitrate_kbps: None,
            video,
            audio: None,
        })
    }

    /// Within a second or a twentieth. What cannot be known beforehand is not held against an output.
    fn is_as_long(
        &self,
        chosen: &Chosen,
        video: Option<&Pictures>,
        audio: Option<&Sound>,
        got: Option<f64>,
    ) -> Result<(), MediaError> {
        let Some(expected) = self.expected(chosen, video.is_some(), audio.is_some()) else { return Ok(()) };
        let got = got.ok_or_else(|| invalid("it has no length"))?;
        let tolerance = (expected * 0.05).max(1.0);
        // A copy begins at the nearest picture that stands alone, and so may be longer.
        let is_copy = chosen.clip.is_some() && chosen.copies();
        if got < expected - tolerance || (got > expected + tolerance && !is_copy) {
            return Err(invalid(&format!("it is {got:.2} s long and should be {expected:.2} s")));
        }
        Ok(())
    }

    fn expected(&self, chosen: &Chosen, has_video: bool, has_audio: bool) -> Option<f64> {
        let (video, audio) = (self.source.probe.video(), self.source.probe.audio());
        let whole = chosen.seconds.filter(|_| !self.source.is_guess)?;
        match (has_video, has_audio) {
            // Half of a source may be shorter than the whole.
            (true, false) if audio.is_some() => video?.duration().map(|own| own.min(whole)),
            (false, true) if video.is_some() => audio?.duration().map(|own| own.min(whole)),
            _ => Some(whole),
        }
        .filter(|_| chosen.clip.is_none() || (has_video, has_audio) == (video.is_some(), audio.is_some()))
    }
}

/// The streams are those that were asked for, encoded as asked.
fn is_as_asked(probe: &Probe, video: Option<&Pictures>, audio: Option<&Sound>) -> Result<(), MediaError> {
    let codecs = |wanted: Option<&str>, got: Option<&Stream>, what: &str| {
        let got = got.map(|stream| stream.codec_name.as_str());
        if wanted == got {
            return Ok(());
        }
        Err(invalid(&format!(
            "its {what} are {} and should be {}",
            got.unwrap_or("none"),
            wanted.unwrap_or("none")
        )))
    };
    codecs(video.map(|video| video.codec.as_str()), probe.video(), "pictures")?;
    codecs(audio.map(|audio| audio.codec.as_str()), probe.audio(), "sounds")?;
    let shown = probe.video().map(Stream::shown);
    if let Some(size) = video.and_then(Pictures::size)
        && shown != Some(size)
    {
        return Err(invalid(&format!("its pictures are {shown:?} and should be {size:?}")));
    }
    Ok(())
}

/// Of a file that is one: no link, and not empty.
pub(super) fn size_of(path: &Path) -> Result<u64, MediaError> {
    let found = fs::symlink_metadata(path).ok().filter(|file| file.is_file() && file.len() > 0);
    found.map(|file| file.len()).ok_or_else(|| invalid("nothing was made"))
}

pub(super) fn invalid(message: &str) -> MediaError {
    MediaError::new("output_invalid", message)
}

fn bitrate(size_bytes: u64, seconds: Option<f64>) -> Option<u32> {
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // an average, for people; `as` keeps to the bounds of u32
    let kbps = (size_bytes as f64 * 8.0 / seconds / 1000.0).round() as u32;
    Some(kbps)
}

fn demuxers(container: Container) -> &'static str {
    match container {
        Container::Mp4 | Container::M4a => "mov,mp4,m4a,3gp,3g2,mj2",
        Container::Webm | Container::Mkv => "matroska,webm",
        Container::Mp3 => "mp3",
        Container::Ogg => "ogg",
        Container::Flac => "flac",
        Container::Jpg => "jpeg_pipe,image2",
        Container::Hls => "mpegts,mov,mp4,m4a,3gp,3g2,mj2",
    }
}
