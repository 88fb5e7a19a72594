//! A source that passed the gate.

use super::probe::Probe;
use crate::domain::transcode::SourceFacts;

/// What a source turned out to be.
#[derive(Debug, Clone)]
pub struct Source {
    /// For the requester.
    pub facts: SourceFacts,
    pub(super) probe: Probe,
    /// Those that may read it.
    pub(super) demuxers: &'static str,
    /// Its length is an estimate of ffprobe's.
    pub(super) is_guess: bool,
}

impl Source {
    /// Which stream has the pictures.
    pub(super) fn video_index(&self) -> u32 {
        self.probe.video().map_or(0, |video| video.index)
    }

    /// Which stream has the sound.
    pub(super) fn audio_index(&self) -> u32 {
        self.probe.audio().map_or(0, |audio| audio.index)
    }
}
