//! Watching a program: the clock, whether it gets on, what it uses and what it has written.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::param::{clock_ticks_per_second, page_size};

use super::end::cpu_limit;
use super::progress::Beat;
use crate::media::{Caps, MediaError};

/// What is known of a running program.
pub(super) struct Watch {
    caps: Caps,
    /// Whether it tells how far it is.
    is_heard: bool,
    started: Instant,
    advanced: Instant,
    at: Beat,
    /// When an output was last written to.
    written: Option<SystemTime>,
    /// Processor time at the last look, and when that was.
    spent: (Duration, Instant),
}

impl Watch {
    pub(super) fn new(caps: Caps, is_heard: bool) -> Self {
        let now = Instant::now();
        Self {
            caps,
            is_heard,
            started: now,
            advanced: now,
            at: Beat::default(),
            written: None,
            spent: (Duration::ZERO, now),
        }
    }

    pub(super) fn hear(&mut self, beat: Beat) {
        if beat.seconds > self.at.seconds || beat.frames > self.at.frames || beat.is_end {
            self.advanced = Instant::now();
        }
        self.at = beat;
    }

    /// Whether it said that it came to its end.
    pub(super) fn saw_end(&self) -> bool {
        self.at.is_end
    }

    /// Whether it can have used up its processor time by now: the kernel tells it so, and it may end between two looks.
    pub(super) fn may_be_spent(&self) -> bool {
        let (seen, at) = self.spent;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = at.elapsed().saturating_mul(u32::try_from(cores).unwrap_or(u32::MAX));
        seen.saturating_add(most) >= self.caps.cpu
    }

    /// What it must be stopped for, if anything.
    pub(super) fn breach(&mut self, pid: u32, out: &Path) -> Option<MediaError> {
        let (usage, outputs) = (Usage::of(pid).unwrap_or_default(), Outputs::below(out));
        self.spent = (usage.cpu, Instant::now());
        // The index of a large mp4 is put in front after the last picture: much is written, and nothing is told.
        if outputs.written > self.written {
            (self.written, self.advanced) = (outputs.written, Instant::now());
        }
        let error = if self.started.elapsed() > self.caps.wall {
            MediaError::new("encode_timeout", format!("it took longer than {} s", self.caps.wall.as_secs()))
        } else if self.is_heard && self.advanced.elapsed() > self.caps.stall {
            let seconds = self.caps.stall.as_secs();
            MediaError::new("encode_stalled", format!("there was no progress for {seconds} s"))
        } else if self.at.seconds > self.caps.duration.as_secs_f64() * 1.05 + 5.0 {
            // A source whose header says nothing, or lies.
            MediaError::new("duration_limit", "the source is longer than it says, and longer than allowed")
        } else if usage.cpu >= self.caps.cpu {
            cpu_limit()
        } else if usage.resident > self.caps.memory_bytes {
            MediaError::new("memory_limit", "it needs more memory than allowed")
        } else if outputs.largest > self.caps.output_bytes {
            MediaError::new("output_too_large", "an output grew beyond its limit")
        } else {
            return None;
        };
        Some(error)
    }
}

#[derive(Debug, Default)]
struct Usage {
    cpu: Duration,
    resident: u64,
}

impl Usage {
    /// As the kernel counts it for `pid`, which is alone in its group; `None` when it has just gone.
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold anything, also brackets.
        let (_, fields) = stat.rsplit_once(')')?;
        let field = |nth: usize| fields.split_whitespace().nth(nth)?.parse::<u64>().ok();
        let (user, system, pages) = (field(11)?, field(12)?, field(21)?);
        let millis = (user + system).saturating_mul(1000) / clock_ticks_per_second().max(1);
        Some(Self { cpu: Duration::from_millis(millis), resident: pages.saturating_mul(page_size() as u64) })
    }
}

/// What has been written so far. Outputs are directories; the kernel holds the size of each file, we hold their sum.
#[derive(Debug, Default)]
struct Outputs {
    largest: u64,
    written: Option<SystemTime>,
}

impl Outputs {
    fn below(out: &Path) -> Self {
        let mut seen = Self::default();
        for output in fs::read_dir(out).into_iter().flatten().flatten() {
            let mut size = 0;
            for file in fs::read_dir(output.path()).into_iter().flatten().flatten() {
                let Ok(file) = file.metadata() else { continue };
                size += file.len();
                seen.written = seen.written.max(file.modified().ok());
            }
            seen.largest = seen.largest.max(size);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_uses_is_seen() {
        let usage = Usage::of(std::process::id()).expect("we are running");
        assert!(usage.resident > 100_000, "{usage:?}");
    }
}
