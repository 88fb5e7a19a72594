//! What an end means: one table from exit codes and signals to our codes.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::tail::Tail;
use crate::media::MediaError;
use crate::media::cage::LAUNCH_FAILED;

/// The disk is full. No code of a job: the handler hands the job back, another worker may have room.
pub const NO_ROOM: &str = "no_room";

/// ffmpeg's exit code when a signal asked it to end.
const ASKED_TO_END: i32 = 255;
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// Why there is nothing; `None`: it ended well.
///
/// Words of ffmpeg may be words of the source: that the disk is full counts only when it is.
pub(super) fn meaning(
    status: ExitStatus,
    said: &Tail,
    is_full: bool,
    may_be_spent: bool,
) -> Option<MediaError> {
    if status.success() {
        return None;
    }
    let text = said.text();
    if status.code() == Some(LAUNCH_FAILED) {
        tracing::error!(said = said.told(), "a launch failed");
        return Some(MediaError::new("internal", "ffmpeg could not be run"));
    }
    let error = match status.signal() {
        Some(SIGXFSZ) => MediaError::new("output_too_large", "an output grew beyond its limit"),
        Some(SIGXCPU) => cpu_limit(),
        Some(SIGKILL) => MediaError::new("encode_killed", "ffmpeg was killed, perhaps for its memory"),
        Some(signal) => MediaError::new("encode_failed", format!("ffmpeg was ended by signal {signal}")),
        // ffmpeg takes SIGXCPU for a polite request and ends by itself; nobody else asks it to.
        None if status.code() == Some(ASKED_TO_END) && may_be_spent => cpu_limit(),
        None if is_full => MediaError::new(NO_ROOM, "the disk of this worker is full"),
        None if text.contains("File too large") => {
            MediaError::new("output_too_large", "an output grew beyond its limit")
        }
        None => MediaError::new("encode_failed", format!("ffmpeg failed: {}", said.told())),
    };
    Some(error)
}

pub(super) fn cpu_limit() -> MediaError {
    MediaError::new("cpu_limit", "it needs more processor time than allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_code() {
        let code = |raw: i32| {
            meaning(ExitStatus::from_raw(raw), &Tail::default(), false, true).map(|error| error.code)
        };
        assert_eq!(code(0), None);
        assert_eq!(code(25), Some("output_too_large"));
        assert_eq!(code(24), Some("cpu_limit"));
        assert_eq!(code(9), Some("encode_killed"));
        assert_eq!(code(11), Some("encode_failed"));
        assert_eq!(code(1 << 8), Some("encode_failed"));
        assert_eq!(code(255 << 8), Some("cpu_limit"));
        let full = meaning(ExitStatus::from_raw(1 << 8), &Tail::default(), true, false);
        assert_eq!(full.map(|error| error.code), Some(NO_ROOM));
    }
}
