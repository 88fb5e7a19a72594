//! What is made of a source, and how: pure, no program runs here.
//!
//! [`choose`](choose::choose) decides every output (streams, sizes, encoders) and refuses what cannot be; [`runs`] writes
//! the command lines. Outputs that want the same part of the source share one run, and with that one decode; a clip has a
//! run of its own, which seeks to it instead of decoding everything before it. Stills seek too, one run each.

mod audio;
mod choose;
mod encoders;
mod loudness;
mod size;
mod stills;
mod video;

pub(super) use choose::{Chosen, Pictures, Rendition, Sound, What, choose};
pub(super) use encoders::encoder;
pub(super) use loudness::{Measured, measured};
pub(super) use stills::file as still;

use super::Caps;
use super::source::Source;
use crate::domain::transcode::{ClipSpec, Container, SegmentType};
use loudness::{measuring, target};

/// Of one block; a picture of 8192 × 4320 in ten bits has 106 MB.
const MAX_ALLOC: u64 = 1 << 30;

/// One run of ffmpeg.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    pub(super) arguments: Vec<String>,
    /// How long that which it makes is.
    pub(super) seconds: f64,
    /// Which output it is for, when it is for one.
    pub(super) output: Option<String>,
}

/// What a run may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) source: &'a Source,
    pub(super) caps: &'a Caps,
    pub(super) threads: usize,
}

/// Where each measurement of loudness comes from: one run per clip and target.
pub(super) fn measurements(outputs: &[Chosen], means: Means<'_>) -> Vec<(usize, Run)> {
    let wants = outputs.iter().enumerate().filter_map(|(nth, output)| Some((nth, output, target(output)?)));
    let run = |(nth, output, loudness): (usize, &Chosen, _)| {
        let mut arguments = head("info", means, output.clip);
        arguments.extend(measuring(output, &loudness, means.source));
        (nth, Run { arguments, seconds: output.seconds.unwrap_or(0.0), output: Some(output.name.clone()) })
    };
    wants.map(run).collect()
}

/// The runs that make `outputs`, given what was measured of each.
pub(super) fn runs(outputs: &[Chosen], measured: &[Option<Measured>], means: Means<'_>) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut clips: Vec<Option<ClipSpec>> = Vec::new();
    for (nth, output) in outputs.iter().enumerate() {
        if let What::Stills { times, size } = &output.what {
            runs.extend(stills::runs(nth, output, times, *size, means));
        } else if !clips.contains(&output.clip) {
            clips.push(output.clip);
            runs.push(shared(outputs, output.clip, measured, means));
        }
    }
    runs
}

/// Everything that is made of one part of the source.
fn shared(
    outputs: &[Chosen],
    clip: Option<ClipSpec>,
    measured: &[Option<Measured>],
    means: Means<'_>,
) -> Run {
    let mut arguments = head("level+warning", means, clip);
    let mut names = Vec::new();
    let mut seconds = 0.0_f64;
    for (nth, output) in outputs.iter().enumerate().filter(|(_, output)| output.clip == clip) {
        let loudness = measured.get(nth).and_then(Option::as_ref);
        match &output.what {
            What::Stills { .. } => continue,
            What::File { container, video, audio } => {
                let streams = Rendition { name: String::new(), video: video.clone(), audio: audio.clone() };
                arguments.extend(stream_arguments(&streams, loudness, means, *container, None));
                arguments.extend(owned(muxer(*container)));
                arguments.push(file(nth, *container));
            }
            What::Hls { segment_seconds, segment_type, renditions, .. } => {
                for (rung, rendition) in renditions.iter().enumerate() {
                    let cut = Some(*segment_seconds);
                    arguments.extend(stream_arguments(rendition, loudness, means, Container::Hls, cut));
                    arguments.extend(hls(nth, rung, *segment_seconds, *segment_type));
                }
            }
        }
        names.push(output.name.clone());
        seconds = seconds.max(output.seconds.unwrap_or(0.0));
    }
    Run { arguments, seconds, output: (names.len() == 1).then(|| names.remove(0)) }
}

/// Where an output that is one file is made.
pub(super) fn file(nth: usize, container: Container) -> String {
    format!("out/{nth}/media.{container}")
}

/// How a rendition is called while it is made: worker-chosen, like every name that ffmpeg sees.
pub(super) fn rung_stem(nth: usize, rung: usize) -> String {
    format!("out/{nth}/r{rung}")
}

/// Up to and with the source.
fn head(level: &str, means: Means<'_>, clip: Option<ClipSpec>) -> Vec<String> {
    let mut head = owned([
        "-hide_banner",
        "-nostdin",
        "-loglevel",
        level,
        "-nostats",
        "-progress",
        "pipe:1",
        "-stats_period",
        "1",
        "-xerror",
        "-y",
        "-max_alloc",
    ]);
    head.push(MAX_ALLOC.to_string());
    head.extend(input_options("file", means.source.demuxers, means.caps));
    head.extend(owned(["-max_pixels", &means.caps.pixels.to_string()]));
    head.extend(owned(["-threads", &means.threads.to_string()]));
    if let Some(clip) = clip {
        head.extend(["-ss".to_owned(), clip.start_seconds.to_string()]);
        head.extend(
            clip.duration_seconds.into_iter().flat_map(|length| ["-t".to_owned(), length.to_string()]),
        );
    }
    head.extend(owned(["-i", "file:input"]));
    head
}

/// What holds for whoever opens a source, ffprobe too: no other protocol, no other demuxer, no endless search. One
/// stream more than allowed may be seen, so that it is seen.
pub(super) fn input_options(protocols: &str, demuxers: &str, caps: &Caps) -> Vec<String> {
    let streams = caps.streams.saturating_add(1).to_string();
    owned([
        "-protocol_whitelist",
        protocols,
        "-format_whitelist",
        demuxers,
        "-max_streams",
        &streams,
        "-probesize",
        "20000000",
        "-analyzeduration",
        "10000000",
    ])
}

fn stream_arguments(
    streams: &Rendition,
    loudness: Option<&Measured>,
    means: Means<'_>,
    container: Container,
    cut_each: Option<u32>,
) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut map = |stream: u32| arguments.extend(["-map".to_owned(), format!("0:{stream}")]);
    streams.video.iter().for_each(|video| map(video.stream));
    streams.audio.iter().for_each(|audio| map(audio.stream));
    arguments.extend(owned([
        "-sn",
        "-dn",
        "-map_metadata",
        "-1",
        "-map_chapters",
        "-1",
        "-max_muxing_queue_size",
        "1024",
    ]));
    if let Some(video) = &streams.video {
        arguments.extend(video::arguments(video, container, cut_each, means.threads));
    }
    if let Some(audio) = &streams.audio {
        arguments.extend(audio::arguments(audio, loudness, means.source));
    }
    arguments.extend(owned(["-threads", &means.threads.to_string()]));
    arguments
}

fn muxer(container: Container) -> &'static [&'static str] {
    match container {
        Container::Mp4 => &["-movflags", "+faststart", "-f", "mp4"],
        Container::M4a => &["-movflags", "+faststart", "-f", "ipod"],
        Container::Webm => &["-f", "webm"],
        Container::Mkv => &["-f", "matroska"],
        Container::Mp3 => &["-f", "mp3"],
        Container::Ogg => &["-f", "ogg"],
        Container::Flac => &["-f", "flac"],
        Container::Jpg => &["-f", "mjpeg"],
        Container::Hls => &["-f", "hls"],
    }
}

fn hls(nth: usize, rung: usize, seconds: u32, segments: SegmentType) -> Vec<String> {
    let stem = rung_stem(nth, rung);
    let (kind, ending) = match segments {
        SegmentType::Mpegts => ("mpegts", "ts"),
        SegmentType::Fmp4 => ("fmp4", "m4s"),
    };
    let mut arguments = owned(muxer(Container::Hls));
    arguments.extend(owned([
        "-hls_time",
        &seconds.to_string(),
        "-hls_playlist_type",
        "vod",
        "-hls_segment_type",
        kind,
        "-hls_flags",
        "independent_segments",
        "-hls_fmp4_init_filename",
        &format!("r{rung}_init.mp4"),
        "-hls_segment_filename",
        &format!("{stem}_%05d.{ending}"),
        &format!("{stem}.m3u8"),
    ]));
    arguments
}

fn owned<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> Vec<String> {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::domain::transcode::{OutputSpec, SourceFacts};

    fn source() -> Source {
        let probe = json!({
            "streams": [{"index": 0, "codec_type": "video", "codec_name": "h264", "width": 1280, "height": 720,
                         "avg_frame_rate": "25/1"},
                        {"index": 2, "codec_type": "audio", "codec_name": "aac"}],
            "format": {"duration": "60"}
        });
        let facts = SourceFacts {
            size_bytes: 1,
            container: None,
            duration_seconds: Some(60.0),
            video: None,
            audio: None,
        };
        let probe = serde_json::from_value(probe).expect("a probe");
        Source { facts, probe, demuxers: "mov", is_guess: false }
    }

    fn planned(outputs: serde_json::Value) -> Vec<Run> {
        let outputs: Vec<OutputSpec> = serde_json::from_value(outputs).expect("outputs");
        let there = ["libx264", "aac", "libmp3lame", "mjpeg"].map(str::to_owned);
        let source = source();
        let chosen = choose(&outputs, &source, &BTreeSet::from(there)).expect("they can be made");
        runs(&chosen, &[], Means { source: &source, caps: &Caps::default(), threads: 2 })
    }

    fn video(name: &str, height: u32) -> serde_json::Value {
        let encode = json!({"codec": "h264", "width": null, "height": height, "rate": {"crf": 23},
                            "max_bitrate_kbps": null, "fps": 50.0});
        json!({"name": name, "target": {"path": name},
               "media": {"kind": "file", "container": "mp4", "video": {"encode": encode}, "audio": "copy"}})
    }

    #[test]
    fn three_outputs_are_one_run_and_one_decode() {
        let sound = json!({"name": "c", "target": {"path": "c"}, "media": {"kind": "file", "container": "mp3",
            "video": null, "audio": {"encode": {"codec": "mp3", "bitrate_kbps": 192, "channels": null,
                                                "sample_rate": null, "loudness": null}}}});
        let runs = planned(json!([video("a", 360), video("b", 1080), sound]));
        assert_eq!(runs.len(), 1);
        let line = runs[0].arguments.join(" ");
        assert_eq!(line.matches("-i file:input").count(), 1);
        assert!(
            line.contains("scale=640:360,setsar=1") && line.contains("scale=1280:720,setsar=1"),
            "{line}"
        );
        assert!(!line.contains("fps=50"), "frames are not made up: {line}");
        for file in ["-f mp4 out/0/media.mp4", "-f mp4 out/1/media.mp4", "-f mp3 out/2/media.mp3"] {
            assert!(line.contains(file), "{line}");
        }
        assert!(line.contains("-map 0:2"), "the stream that was probed: {line}");
    }

    #[test]
    fn a_clip_has_a_run_of_its_own_that_seeks() {
        let mut clip = video("b", 360);
        clip["clip"] = json!({"start_seconds": 30.0, "duration_seconds": 5.0});
        let runs = planned(json!([video("a", 360), clip]));
        assert_eq!(runs.len(), 2);
        assert!(runs[1].arguments.join(" ").contains("-ss 30 -t 5 -i file:input"));
        assert!((runs[1].seconds - 5.0).abs() < 1e-9);
        assert_eq!(runs[1].output.as_deref(), Some("b"));
    }

    #[test]
    fn an_encoder_that_is_missing_is_said_before_anything_runs() {
        let mut asked = video("a", 360);
        asked["media"]["video"]["encode"]["codec"] = json!("av1");
        let outputs: Vec<OutputSpec> = serde_json::from_value(json!([asked])).expect("outputs");
        let refused = choose(&outputs, &source(), &BTreeSet::new()).map_err(|error| error.code);
        assert_eq!(refused, Err("encoder_missing"));
    }
}
