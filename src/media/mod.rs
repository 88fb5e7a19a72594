//! ffmpeg and its cage: what a source is, and what is made of it.

mod cage;
mod caps;
mod check;
mod ffmpeg;
mod gate;
mod hls;
mod made;
mod plan;
mod probe;
mod process;
mod progress;
mod sniff;
mod source;
mod tools;
mod workdir;

pub use cage::launch_if_asked;
pub use caps::Caps;
pub use ffmpeg::Ffmpeg;
pub use made::{Made, MadeFile, PLAYLIST};
pub use process::NO_ROOM;
pub use progress::EncodeProgress;
pub use source::Source;
pub use tools::Tools;
pub use workdir::WorkDir;

/// Why there is no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct MediaError {
    /// One of `euterpe.error_codes`, or [`NO_ROOM`].
    pub code: &'static str,
    /// In words, for the requester.
    pub message: String,
}

impl MediaError {
    /// Of `code`.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
