//! How much any source may cost us (contract §11; design §5.13): a file of 5 KB can hold a core for hours.

use std::time::Duration;

/// The most that one job may take. Every one of them is a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Of one run of ffmpeg, by the clock.
    pub wall: Duration,
    /// Of one run of ffmpeg, by the processor.
    pub cpu: Duration,
    /// Without any progress.
    pub stall: Duration,
    /// Of one output.
    pub output_bytes: u64,
    /// Of a source.
    pub duration: Duration,
    /// Width × height.
    pub pixels: u64,
    /// Pictures of a source.
    pub frames: u64,
    /// Streams of a source.
    pub streams: u32,
    /// Resident memory of ffmpeg.
    pub memory_bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(2 * 3600),
            cpu: Duration::from_secs(8 * 3600),
            stall: Duration::from_secs(120),
            output_bytes: 100_000_000_000,
            duration: Duration::from_secs(6 * 3600),
            pixels: 8192 * 4320,
            frames: 6 * 3600 * 120,
            streams: 16,
            memory_bytes: 4 * 1024 * 1024 * 1024,
        }
    }
}
