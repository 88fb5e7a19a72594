//! HLS: every file that a playlist names is there, nothing else is, the lengths add up, and segments can be read. Then the
//! playlists are written as they will be published.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::{Check, bitrate, demuxers, invalid, is_as_asked, size_of};
use crate::domain::transcode::{Container, SegmentType};
use crate::media::MediaError;
use crate::media::hls::{MediaPlaylist, Variant, codec_name, master};
use crate::media::made::{Made, MadeFile, Names, content_type};
use crate::media::plan::{self, Chosen, Rendition};
use crate::media::probe::{Probe, Stream};

/// No playlist is longer: that would be a hundred thousand segments.
const MAX_PLAYLIST: u64 = 16 * 1024 * 1024;

/// One rendition that passed.
struct Passed {
    playlist: MediaPlaylist,
    /// By segment.
    sizes: Vec<u64>,
    init_size: u64,
    first: Probe,
}

impl Check<'_> {
    pub(super) async fn hls(
        &self,
        nth: usize,
        chosen: &Chosen,
        renditions: &[Rendition],
        has_master: bool,
        segments: SegmentType,
    ) -> Result<Made, MediaError> {
        let names = Names::of(&chosen.target, &chosen.name);
        let (mut files, mut playlists, mut variants, mut facts) = (Vec::new(), Vec::new(), Vec::new(), None);
        let mut size_bytes = 0;
        for (rung, rendition) in renditions.iter().enumerate() {
            let passed = self.rendition(nth, rung, chosen, rendition).await?;
            size_bytes += passed.sizes.iter().sum::<u64>() + passed.init_size;
            let more = if has_master { format!("_{}", rendition.name) } else { String::new() };
            // `r0_00001.ts` is published as `index_720p_00001.ts`.
            let called = |file: &str| format!("{more}{}", file.trim_start_matches(&format!("r{rung}")));
            for file in passed.playlist.init.iter().chain(passed.playlist.segments.iter().map(|it| &it.file))
            {
                files.push(MadeFile {
                    path: self.dir.out().join(nth.to_string()).join(file),
                    name: names.beside(&called(file)),
                    content_type: segment_type(file, segments),
                });
            }
            let text = passed.playlist.write(|file| names.file_beside(&called(file)));
            let name = if has_master { names.beside(&format!("{more}.m3u8")) } else { names.main() };
            playlists.push(self.publish(nth, &format!("published{rung}.m3u8"), name, &text)?);
            variants.push(variant(&passed, names.file_beside(&format!("{more}.m3u8"))));
            facts.get_or_insert(passed);
        }
        let best = facts.ok_or_else(|| invalid("nothing was made"))?;
        files.extend(playlists);
        if has_master {
            let text = master(&variants, best.playlist.version);
            files.push(self.publish(nth, "master.m3u8", names.main(), &text)?);
        }
        let seconds = best.playlist.seconds();
        Ok(Made {
            files,
            container: Container::Hls,
            size_bytes,
            duration_seconds: Some(seconds),
            bitrate_kbps: bitrate(best.sizes.iter().sum(), Some(seconds)),
            video: best.first.video().map(Stream::video_facts),
            audio: best.first.audio().map(Stream::audio_facts),
        })
    }

    async fn rendition(
        &self,
        nth: usize,
        rung: usize,
        chosen: &Chosen,
        rendition: &Rendition,
    ) -> Result<Passed, MediaError> {
        let stem = plan::rung_stem(nth, rung);
        let path = self.dir.path().join(format!("{stem}.m3u8"));
        if size_of(&path)? > MAX_PLAYLIST {
            return Err(invalid("its playlist is absurdly long"));
        }
        let text = fs::read_to_string(&path).map_err(|_| invalid("its playlist cannot be read"))?;
        let playlist = MediaPlaylist::read(&text).filter(|it| it.is_ended && !it.segments.is_empty());
        let playlist = playlist.ok_or_else(|| invalid("its playlist is not whole"))?;
        self.names_what_is_there(nth, rung, &playlist)?;

        let size = |file: &str| size_of(&self.dir.out().join(nth.to_string()).join(file));
        let sizes = playlist.segments.iter().map(|it| size(&it.file)).collect::<Result<Vec<_>, _>>()?;
        let init_size = playlist.init.as_deref().map(size).transpose()?.unwrap_or(0);
        let (video, audio) = (rendition.video.as_ref(), rendition.audio.as_ref());
        self.is_as_long(chosen, video, audio, Some(playlist.seconds()))?;
        let first = self.segment(nth, &playlist, 0).await?;
        is_as_asked(&first, video, audio)?;
        let last = self.segment(nth, &playlist, playlist.segments.len() - 1).await?;
        // The last one may be shorter than the other kind of stream.
        if last.video().is_none() && last.audio().is_none() {
            return Err(invalid("its last segment cannot be read"));
        }
        Ok(Passed { playlist, sizes, init_size, first })
    }

    /// Exactly: what a playlist names and what lies there.
    fn names_what_is_there(
        &self,
        nth: usize,
        rung: usize,
        playlist: &MediaPlaylist,
    ) -> Result<(), MediaError> {
        let own = format!("r{rung}_");
        let named: BTreeSet<String> = playlist
            .segments
            .iter()
            .map(|segment| segment.file.clone())
            .chain(playlist.init.clone())
            .collect();
        let there = fs::read_dir(self.dir.out().join(nth.to_string())).into_iter().flatten().flatten();
        let there: BTreeSet<String> = there
            .filter_map(|file| file.file_name().into_string().ok())
            .filter(|name| name.starts_with(&own))
            .collect();
        if named == there { Ok(()) } else { Err(invalid("its playlist does not name exactly its segments")) }
    }

    async fn segment(&self, nth: usize, playlist: &MediaPlaylist, at: usize) -> Result<Probe, MediaError> {
        let segment = &playlist.segments[at].file;
        let uri = match &playlist.init {
            Some(init) => format!("concat:out/{nth}/{init}|out/{nth}/{segment}"),
            None => format!("file:out/{nth}/{segment}"),
        };
        self.ffmpeg.probe(self.dir, &uri, demuxers(Container::Hls), self.caps).await
    }

    /// A playlist of ours, among the files that ffmpeg wrote. It must be new: nothing is followed.
    fn publish(&self, nth: usize, file: &str, name: String, text: &str) -> Result<MadeFile, MediaError> {
        let path: PathBuf = self.dir.out().join(nth.to_string()).join(file);
        let mut options = OpenOptions::new();
        let written =
            options.write(true).create_new(true).open(&path).and_then(|mut it| it.write_all(text.as_bytes()));
        written.map_err(|error| {
            tracing::error!(error = %error, "a playlist could not be written");
            MediaError::new("internal", "a playlist could not be written")
        })?;
        Ok(MadeFile { path, name, content_type: content_type(Container::Hls) })
    }
}

fn variant(passed: &Passed, file: String) -> Variant {
    let lengths = passed.playlist.segments.iter().map(|segment| segment.seconds);
    let peak = passed.sizes.iter().zip(lengths).map(|(size, seconds)| bits(*size, seconds)).max();
    let (video, audio) = (passed.first.video(), passed.first.audio());
    let codec = |stream: &Stream| codec_name(&stream.codec_name, &stream.profile, stream.level);
    // All of them or none: a list with a hole would be wrong.
    let codecs: Option<Vec<String>> = video.into_iter().chain(audio).map(codec).collect();
    Variant {
        file,
        peak: peak.unwrap_or(0),
        average: bits(passed.sizes.iter().sum(), passed.playlist.seconds()),
        size: video.map(Stream::shown),
        fps: video.and_then(Stream::fps),
        codecs: codecs.map(|codecs| codecs.join(",")),
    }
}

/// A second.
fn bits(size: u64, seconds: f64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // a bandwidth, rounded up
    let bits = (size as f64 * 8.0 / seconds.max(0.001)).ceil() as u64;
    bits
}

fn segment_type(file: &str, segments: SegmentType) -> &'static str {
    match segments {
        SegmentType::Mpegts => "video/mp2t",
        SegmentType::Fmp4 if file.ends_with("_init.mp4") => "video/mp4",
        SegmentType::Fmp4 => "video/iso.segment",
    }
}
