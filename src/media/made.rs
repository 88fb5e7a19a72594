//! What was made, and how it is called where it goes.

use std::path::PathBuf;

use crate::domain::transcode::{AudioFacts, Container, Target, VideoFacts};

/// One output, checked and ready to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// In the order in which they must be published: segments, playlists, the master last.
    pub files: Vec<MadeFile>,
    /// What it is wrapped in.
    pub container: Container,
    /// Of all its files.
    pub size_bytes: u64,
    /// Its length.
    pub duration_seconds: Option<f64>,
    /// Average over pictures and sound.
    pub bitrate_kbps: Option<u32>,
    /// Its pictures, if any; of several renditions, the best.
    pub video: Option<VideoFacts>,
    /// Its sound, if any.
    pub audio: Option<AudioFacts>,
}

/// The type of a playlist: what leads to other files, and is published after them.
pub const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// One file of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeFile {
    /// Where it is now.
    pub path: PathBuf,
    /// Below the output prefix; for an upload url, the output's name.
    pub name: String,
    /// For the store.
    pub content_type: &'static str,
}

/// How the files of an output are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    whole: String,
}

impl Names {
    pub(super) fn of(target: &Target, output: &str) -> Self {
        let whole = match target {
            Target::Path(path) => path.clone(),
            Target::UploadOrigin(_) => output.to_owned(),
        };
        Self { whole }
    }

    /// The one that was asked for.
    pub(super) fn main(&self) -> String {
        self.whole.clone()
    }

    /// Of the `nth` of several, counted from 1: `%d` or `%03d` is the number.
    pub(super) fn numbered(&self, nth: usize) -> String {
        let number = || {
            let (before, rest) = self.whole.split_once('%')?;
            let (width, after) = rest.split_once('d')?;
            let width: usize = if width.is_empty() { 0 } else { width.parse().ok()? };
            Some(format!("{before}{nth:0width$}{after}"))
        };
        number().unwrap_or_else(|| self.whole.clone())
    }

    /// Beside the one that was asked for: its name without the ending, and `more`.
    pub(super) fn beside(&self, more: &str) -> String {
        format!("{}{}", self.dir(), self.file_beside(more))
    }

    /// The same without directories: how a playlist beside it calls it.
    pub(super) fn file_beside(&self, more: &str) -> String {
        let file = &self.whole[self.dir().len()..];
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        format!("{stem}{more}")
    }

    fn dir(&self) -> &str {
        self.whole.rfind('/').map_or("", |slash| &self.whole[..=slash])
    }
}

pub(super) fn content_type(container: Container) -> &'static str {
    match container {
        Container::Mp4 => "video/mp4",
        Container::Webm => "video/webm",
        Container::Mkv => "video/x-matroska",
        Container::Hls => PLAYLIST,
        Container::M4a => "audio/mp4",
        Container::Mp3 => "audio/mpeg",
        Container::Ogg => "audio/ogg",
        Container::Flac => "audio/flac",
        Container::Jpg => "image/jpeg",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_beside_the_one_that_was_asked_for() {
        let names = Names::of(&Target::Path("hls/v1.2/index.m3u8".into()), "hls");
        assert_eq!(names.beside("_720p_00000.ts"), "hls/v1.2/index_720p_00000.ts");
        assert_eq!(names.file_beside("_720p.m3u8"), "index_720p.m3u8");
        assert_eq!(Names::of(&Target::Path("a/%03d.jpg".into()), "x").numbered(7), "a/007.jpg");
        assert_eq!(Names::of(&Target::Path("a/s%d.jpg".into()), "x").numbered(12), "a/s12.jpg");
        assert_eq!(Names::of(&Target::UploadOrigin("https://x".into()), "still").numbered(1), "still");
    }
}
