//! `file://`: a volume that workers share. Only below the requester's own directory of an allowed root, and never through
//! a symbolic link: each directory is opened from the one above it, without following, so that nobody can exchange one
//! for a link between our looking and our opening. Nothing climbs, because no name is `..`.

use std::ffi::OsString;
use std::fs::File as StdFile;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use bytes::BytesMut;
use futures_util::{StreamExt, stream};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, fsync, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use url::Url;
use uuid::Uuid;

use super::download::Opened;
use super::reading::{PIECE, Reading};
use super::{Cause, JobStorage, Published, StorageError};

impl JobStorage<'_> {
    /// Reads the source.
    pub(super) async fn open_file(&self, path: &str) -> Result<Opened, StorageError> {
        let inside = self.inside(Path::new(path))?;
        let (file, size) = blocking(move || inside.open()).await?;
        let body = stream::try_unfold(File::from_std(file), async |mut file| {
            let mut piece = BytesMut::with_capacity(PIECE);
            let read = file.read_buf(&mut piece).await.map_err(|error| trouble(&error))?;
            Ok((read > 0).then(|| (piece.freeze(), file)))
        });
        Ok(Opened { at: 0, total: Some(size), etag: None, body: body.boxed() })
    }

    /// Copies `file` to `path` under a hidden name, and gives it its own when it is complete.
    pub(super) async fn put_file(
        &self,
        file: &Path,
        path: &Path,
        on_bytes: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Published, StorageError> {
        let inside = self.inside(path)?;
        let mut reading = Reading::open(file).await?;
        let (draft, into) = blocking(move || inside.draft()).await?;
        let (mut into, mut so_far) = (File::from_std(into), 0);
        while let Some(piece) = reading.piece().await.map_err(|error| StorageError::local(&error))? {
            into.write_all(&piece).await.map_err(|error| trouble(&error))?;
            so_far += piece.len() as u64;
            on_bytes(so_far);
        }
        into.flush().await.map_err(|error| trouble(&error))?;
        into.sync_all().await.map_err(|error| trouble(&error))?;
        if !self.access.is_ours().await {
            return Err(StorageError::not_ours());
        }
        blocking(move || draft.show()).await?;
        let uri = Url::from_file_path(path).map(String::from).unwrap_or_default();
        Ok(Published { uri, size_bytes: so_far, sha256: reading.sha256() })
    }

    /// `path`, if it lies in the requester's directory of an allowed root.
    fn inside(&self, path: &Path) -> Result<Inside, StorageError> {
        let requester = self.requester.as_str();
        let found = self.carrier.file_roots.iter().find_map(|root| {
            let rest = path.strip_prefix(root.join(requester)).ok()?;
            let plain = |part| if let Component::Normal(name) = part { Some(name.to_owned()) } else { None };
            let mut dirs = vec![OsString::from(requester)];
            dirs.extend(rest.components().map(plain).collect::<Option<Vec<_>>>()?);
            let name = if dirs.len() > 1 { dirs.pop()? } else { return None };
            Some(Inside { root: root.clone(), dirs, name })
        });
        found.ok_or_else(|| {
            StorageError::new(
                Cause::Refused,
                "the file is not below the requester's directory of an allowed root",
            )
        })
    }
}

/// A place below a root.
struct Inside {
    root: PathBuf,
    dirs: Vec<OsString>,
    name: OsString,
}

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Inside {
    /// The directory it is in; `make` those that are missing.
    fn dir(&self, make: bool) -> Result<OwnedFd, Errno> {
        // The root is the operator's: it may be a link.
        let mut dir = openat(CWD, &self.root, DIR, Mode::empty())?;
        for name in &self.dirs {
            if make {
                match mkdirat(&dir, name, Mode::from(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            dir = openat(&dir, name, DIR | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(dir)
    }

    /// The file and its size, if it is a file and nothing else: opening a device or a pipe may already do something.
    fn open(&self) -> Result<(StdFile, u64), StorageError> {
        let opened = || {
            let dir = self.dir(false)?;
            let looked =
                openat(&dir, &self.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            if !is_file(&looked)? {
                return Err(Errno::LOOP);
            }
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = openat(&dir, &self.name, flags, Mode::empty())?;
            if is_file(&file)? { Ok(StdFile::from(file)) } else { Err(Errno::LOOP) }
        };
        let file = opened().map_err(|error| trouble(&error.into()))?;
        let size = file.metadata().map_err(|error| trouble(&error))?.len();
        Ok((file, size))
    }

    /// A new file beside it that nobody looks at.
    fn draft(self) -> Result<(Draft, StdFile), StorageError> {
        let draft = || {
            let dir = self.dir(true)?;
            let hidden = format!(".euterpe-{}.part", Uuid::new_v4().simple());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&dir, &hidden, flags, Mode::from(0o644))?;
            Ok((Draft { dir, hidden, name: self.name, is_shown: false }, StdFile::from(file)))
        };
        draft().map_err(|error: Errno| trouble(&error.into()))
    }
}

fn is_file(file: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

/// A file under a hidden name. It goes when it is dropped, unless it was given its own.
struct Draft {
    dir: OwnedFd,
    hidden: String,
    name: OsString,
    is_shown: bool,
}

impl Draft {
    fn show(mut self) -> Result<(), StorageError> {
        let mut shown = || {
            renameat(&self.dir, &self.hidden, &self.dir, &self.name)?;
            self.is_shown = true;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            fsync(openat(&self.dir, ".", flags, Mode::empty())?)
        };
        shown().map_err(|error| trouble(&error.into()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_shown {
            let _ = unlinkat(&self.dir, &self.hidden, AtFlags::empty()); // hidden, should the volume be gone
        }
    }
}

/// What a shared volume can do to us.
fn trouble(error: &io::Error) -> StorageError {
    let errno = Errno::from_io_error(error);
    match errno {
        Some(Errno::NOENT) => StorageError::new(Cause::NotFound, "there is no such file"),
        Some(Errno::LOOP | Errno::NOTDIR | Errno::ISDIR) => StorageError::new(
            Cause::Refused,
            "only plain files are read and written, and never through a symbolic link",
        ),
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NAMETOOLONG) => {
            StorageError::new(Cause::Refused, format!("the volume refuses it: {}", error.kind()))
        }
        _ => StorageError::new(Cause::Unavailable, format!("the volume failed: {}", error.kind())),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let gone = |_| StorageError::new(Cause::Unavailable, "the volume was not asked: the worker is ending");
    spawn_blocking(work).await.map_err(gone).flatten()
}
