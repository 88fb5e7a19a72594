//! ffmpeg, as the worker knows it: look at a source, make outputs of it.

use std::fmt::Display;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::check::Check;
use super::gate::admit;
use super::made::Made;
use super::plan::{self, Means, Run, choose, encoder, input_options};
use super::probe::{Probe, Stream};
use super::process::{Beat, Finished, Keeper, Speaks, Work};
use super::progress::{EncodeProgress, Whole};
use super::sniff::{HEAD, sniff};
use super::source::Source;
use super::tools::{self, Found, Tools};
use super::{Caps, MediaError, WorkDir};
use crate::domain::transcode::{OutputSpec, SourceFacts};

/// An ffmpeg that was looked at, in a cage that was tried.
#[derive(Debug)]
pub struct Ffmpeg {
    tools: Tools,
    keeper: Keeper,
    found: Found,
    cage: String,
}

impl Ffmpeg {
    /// Looks what this ffmpeg is and has, and tries the cage with canaries. Where a canary finds a way out and
    /// `need_cage`, there is no ffmpeg. It is tried in a directory below `place`.
    pub async fn find(tools: Tools, need_cage: bool, place: &Path) -> anyhow::Result<Self> {
        let keeper = Keeper::new(tools.launcher.clone(), need_cage);
        let found = tools::look(&tools, &keeper, need_cage, place).await?;
        let cage = found.level.to_string();
        Ok(Self { tools, keeper, found, cage })
    }

    /// The level in force, for logs and `/readyz`: `landlock 7 + seccomp + rlimits`.
    #[must_use]
    pub fn cage(&self) -> &str {
        &self.cage
    }

    /// As ffmpeg says it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.found.version
    }

    /// Whether it can encode `codec`, a word of the contract such as `h264` or `opus`.
    #[must_use]
    pub fn has(&self, codec: impl Display) -> bool {
        encoder(&codec.to_string(), &self.found.encoders).is_ok()
    }

    /// Until every ffmpeg that was dropped has ended.
    pub async fn idle(&self) {
        self.keeper.idle().await;
    }

    /// Looks at `dir.input()`: sniffed, probed in the cage, held against the caps.
    pub async fn inspect(&self, dir: &Arc<WorkDir>, caps: &Caps) -> Result<Source, MediaError> {
        let (head, size_bytes) = head(dir).map_err(|error| {
            tracing::error!(error = %error, "a source cannot be read");
            MediaError::new("internal", "the source that was fetched cannot be read")
        })?;
        let demuxers = sniff(&head)?.demuxers;
        let (probe, is_guess) = self.look_at(dir, "file:input", demuxers, caps).await?;
        admit(&probe, caps)?;
        let facts = SourceFacts {
            size_bytes,
            container: Some(probe.format.format_name.clone()).filter(|name| !name.is_empty()),
            duration_seconds: probe.duration(),
            video: probe.video().map(Stream::video_facts),
            audio: probe.audio().map(Stream::audio_facts),
        };
        Ok(Source { facts, probe, demuxers, is_guess })
    }

    /// Makes all of `outputs` below `dir.out()` and checks each; answers them in the same order.
    pub async fn make(
        &self,
        dir: &Arc<WorkDir>,
        source: &Source,
        outputs: &[OutputSpec],
        caps: &Caps,
        on_progress: &(dyn Fn(EncodeProgress) + Send + Sync),
    ) -> Result<Vec<Made>, MediaError> {
        let chosen = choose(outputs, source, &self.found.encoders)?;
        for nth in 0..chosen.len() {
            std::fs::create_dir(dir.out().join(nth.to_string())).map_err(|error| {
                tracing::error!(error = %error, "no place for an output");
                MediaError::new("internal", "there is no place for an output")
            })?;
        }
        let means = Means { source, caps, threads: self.tools.threads };
        let measurements = plan::measurements(&chosen, means);
        let mut measured = vec![None; chosen.len()];
        let planned = plan::runs(&chosen, &measured, means);
        let whole = Whole::of(measurements.iter().map(|(_, run)| run).chain(&planned));
        for (nth, run) in measurements {
            let finished = self.run(dir, run, caps, &whole, on_progress).await?;
            measured[nth] = plan::measured(&finished.said.text());
        }
        for run in plan::runs(&chosen, &measured, means) {
            self.run(dir, run, caps, &whole, on_progress).await?;
        }
        let check = Check { ffmpeg: self, dir, source, caps };
        let mut made = Vec::with_capacity(chosen.len());
        for (nth, output) in chosen.iter().enumerate() {
            made.push(check.output(nth, output).await?);
        }
        on_progress(EncodeProgress { percent: 100.0, output: None, speed: None, eta_seconds: Some(0.0) });
        Ok(made)
    }

    async fn run(
        &self,
        dir: &Arc<WorkDir>,
        run: Run,
        caps: &Caps,
        whole: &Whole,
        on_progress: &(dyn Fn(EncodeProgress) + Send + Sync),
    ) -> Result<Finished, MediaError> {
        let Run { arguments, seconds, output } = run;
        let program = self.tools.ffmpeg.clone();
        let work = Work { program, arguments, speaks: Speaks::Progress, dir: Arc::clone(dir), caps: *caps };
        let on_beat = |beat: Beat| on_progress(whole.at(beat, seconds, output.clone()));
        let mut finished = self.keeper.run(work, &on_beat).await?;
        if let Some(failure) = finished.failure.take() {
            return Err(failure);
        }
        whole.done(seconds);
        Ok(finished)
    }

    /// What ffprobe says of a file that we made.
    pub(super) async fn probe(
        &self,
        dir: &Arc<WorkDir>,
        uri: &str,
        demuxers: &str,
        caps: &Caps,
    ) -> Result<Probe, MediaError> {
        let probed = self.look_at(dir, uri, demuxers, caps).await;
        probed.map(|(probe, _)| probe).map_err(|error| match error.code {
            "media_unreadable" | "media_unsupported_format" => super::check::invalid("it cannot be read"),
            _ => error,
        })
    }

    /// The probe, and whether the length is a guess.
    async fn look_at(
        &self,
        dir: &Arc<WorkDir>,
        uri: &str,
        demuxers: &str,
        caps: &Caps,
    ) -> Result<(Probe, bool), MediaError> {
        let mut arguments: Vec<String> =
            ["-hide_banner", "-v", "warning", "-max_alloc", "1073741824"].map(str::to_owned).into();
        // Segments of fragmented mp4, which are ours, are read behind what they all need.
        let protocols = if uri.starts_with("concat:") { "file,concat" } else { "file" };
        arguments.extend(input_options(protocols, demuxers, caps));
        let packets = "packet=stream_index:packet_side_data=side_data_type";
        arguments.extend(["-read_intervals", "%+#8", "-show_entries", packets].map(str::to_owned));
        let asked = ["-print_format", "json", "-show_format", "-show_streams", "-i", uri];
        arguments.extend(asked.map(str::to_owned));
        let finished = tools::answer(&self.keeper, &self.tools.ffprobe, arguments, dir, caps).await?;
        let said = finished.said.text();
        if said.contains("max_streams") {
            return Err(MediaError::new(
                "stream_limit",
                format!("it has more than {} streams", caps.streams),
            ));
        }
        if said.contains("DRM protected") {
            return Err(MediaError::new("media_drm", "it is encrypted"));
        }
        if let Some(failure) = finished.failure {
            return Err(match failure.code {
                "encode_failed" if said.contains("not on whitelist") => {
                    MediaError::new("media_unsupported_format", "it is in no format that we take")
                }
                "encode_failed" => MediaError::new(
                    "media_unreadable",
                    format!("it cannot be read: {}", finished.said.told()),
                ),
                _ => failure,
            });
        }
        let unreadable = |_| MediaError::new("media_unreadable", "nothing can be told of it");
        let probe: Probe = serde_json::from_slice(&finished.answer).map_err(unreadable)?;
        // Larger than ffmpeg itself believes in: it says so, and shows no size.
        let is_absurd = said.contains("Picture size") && said.contains("is invalid");
        if is_absurd && probe.video().is_some_and(|video| video.pixels() == 0) {
            return Err(MediaError::new("pixel_limit", "its pictures have more pixels than allowed"));
        }
        Ok((probe, said.contains("Estimating duration from bitrate")))
    }
}

/// The beginning of a source, and how long it is.
fn head(dir: &WorkDir) -> std::io::Result<(Vec<u8>, u64)> {
    let source = std::fs::File::open(dir.input())?;
    let size = source.metadata()?.len();
    let mut head = Vec::with_capacity(HEAD);
    source.take(HEAD as u64).read_to_end(&mut head)?;
    Ok((head, size))
}
