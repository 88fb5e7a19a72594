//! Watching a program: the clock, whether it gets on, what it uses and what it has written.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

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
}

impl Watch {
    pub(super) fn new(caps: Caps, is_heard: bool) -> Self {
        let now = Instant::now();
        Self { caps, is_heard, started: now, advanced: now, at: Beat::default() }
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

    /// What it must be stopped for, if anything.
    pub(super) fn breach(&self, pid: u32, out: &Path) -> Option<MediaError> {
        let usage = Usage::of(pid).unwrap_or_default();
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
        } else if largest_output(out) > self.caps.output_bytes {
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

/// Outputs are directories below `out`; the kernel holds the size of each file, we hold their sum.
fn largest_output(out: &Path) -> u64 {
    let outputs = fs::read_dir(out).into_iter().flatten().flatten();
    outputs.map(|output| size_of_files(&output.path())).max().unwrap_or(0)
}

fn size_of_files(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
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
