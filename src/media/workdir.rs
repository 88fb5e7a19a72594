//! One attempt's own directory: nobody else looks in, and it goes when the last one who works in it has gone.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A private directory. Shared as `Arc`: a task that still stops an ffmpeg keeps it.
#[derive(Debug)]
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// Makes `<root>/<name>`, which must not exist, with room for a source and for outputs.
    pub fn create(root: &Path, name: &str) -> io::Result<Self> {
        let dir = Self(root.join(name));
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(&dir.0)?;
        set_permissions(&dir.0, Permissions::from_mode(0o700))?; // whatever the umask says
        builder.create(dir.out())?;
        Ok(dir)
    }

    /// All of it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The source. Its own name never gets here.
    #[must_use]
    pub fn input(&self) -> PathBuf {
        self.0.join("input")
    }

    /// The only directory that ffmpeg may write to.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.0.join("out")
    }
}

impl WorkDir {
    /// How much is in it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        size_of(&self.0)
    }
}

fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let about = entry.metadata().ok()?;
        Some(if about.is_dir() { size_of(&entry.path()) } else { about.len() })
    });
    sizes.sum()
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(error = %error, "a work directory is left behind; the next start removes it");
        }
    }
}
