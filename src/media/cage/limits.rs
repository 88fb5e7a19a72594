//! How much one program in the cage may use, as plain words of its command line.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::media::Caps;

/// What the kernel holds by itself, however busy the worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one file.
    pub file_bytes: u64,
    /// Of the processor.
    pub cpu_seconds: u64,
    /// Of addresses. Generous: an ffmpeg that is refused memory may hang instead of ending, so the worker looks at what
    /// is resident and this is only the last wall.
    pub address_bytes: u64,
}

/// Files that it may have open: a ladder of ten renditions needs some thirty.
const OPEN_FILES: u64 = 256;

impl Limits {
    /// Those of `caps`.
    #[must_use]
    pub fn of(caps: &Caps) -> Self {
        Self {
            file_bytes: caps.output_bytes,
            cpu_seconds: caps.cpu.as_secs().max(1),
            address_bytes: caps.memory_bytes.saturating_mul(4).saturating_add(16 << 30),
        }
    }

    pub(super) fn words(self) -> [String; 3] {
        [self.file_bytes, self.cpu_seconds, self.address_bytes].map(|limit| limit.to_string())
    }

    pub(super) fn read(words: &mut impl Iterator<Item = String>) -> Option<Self> {
        let mut next = || words.next()?.parse().ok();
        Some(Self { file_bytes: next()?, cpu_seconds: next()?, address_bytes: next()? })
    }

    /// From here on, for this process and what it becomes.
    pub(super) fn apply(self) -> io::Result<()> {
        // ffmpeg takes SIGXCPU for a polite request, so there is a hard wall a little further on.
        let hard = self.cpu_seconds.saturating_add(5);
        for (resource, current, maximum) in [
            (Resource::Fsize, self.file_bytes, self.file_bytes),
            (Resource::Cpu, self.cpu_seconds, hard),
            (Resource::As, self.address_bytes, self.address_bytes),
            (Resource::Nofile, OPEN_FILES, OPEN_FILES),
            (Resource::Core, 0, 0),
        ] {
            setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?;
        }
        Ok(())
    }
}
