//! ffmpeg and its cage: what a source is, and what is made of it.

mod cage;
mod caps;
mod workdir;

pub use cage::{Level, Limits, launch_if_asked};
pub use caps::Caps;
pub use workdir::WorkDir;

/// Why there is no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct MediaError {
    /// One of `euterpe.error_codes`.
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
