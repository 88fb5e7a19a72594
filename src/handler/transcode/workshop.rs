//! Where the work is done: a directory of this process, and how much room there is.
//!
//! `<EUTERPE_WORK_DIR>/w-<boot>/<job>-<claim>/`. A process holds a lock on its directory while it lives; one without a
//! lock belongs to nobody any more, and whoever comes by removes it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::process::geteuid;
use uuid::Uuid;

use super::memory;
use crate::domain::Claim;
use crate::media::WorkDir;
use crate::worker::Gate;

/// What must stay free: with less, nothing more is claimed.
#[derive(Debug, Clone, Copy)]
pub struct Spare {
    /// Bytes of disk.
    pub disk: u64,
    /// Bytes of memory.
    pub memory: u64,
}

/// This process's own directory, and the book of what its jobs have been promised.
#[derive(Debug)]
pub struct Workshop {
    root: PathBuf,
    dir: PathBuf,
    spare: Spare,
    /// Bytes promised to jobs and not yet written: the disk does not know of them.
    promised: Mutex<u64>,
    was_open: AtomicBool,
    _lock: File,
}

impl Workshop {
    /// Removes what dead processes left below `root`, and makes a directory for this one.
    pub fn open(root: &Path, spare: Spare) -> io::Result<Self> {
        // ffmpeg's launcher stands elsewhere when it reads the path.
        let root = &std::path::absolute(root)?;
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        insist_on_ours(root)?;
        // One at a time: a directory that is being made has no lock yet.
        let door = lock_file(&root.join("lock"))?;
        flock(&door, FlockOperation::LockExclusive)?;
        sweep(root)?;
        let dir = root.join(format!("w-{}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = lock_file(&dir.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let (root, promised) = (root.to_owned(), Mutex::new(0));
        Ok(Self { root, dir, spare, promised, was_open: AtomicBool::new(true), _lock: lock })
    }

    /// What [`Workshop::open`] would meet at `root`: the bytes that are free there. Nothing is left of the attempt.
    pub fn try_out(root: &Path) -> io::Result<u64> {
        let root = &std::path::absolute(root)?;
        let missing: Vec<_> = root.ancestors().take_while(|path| !path.exists()).collect();
        let tried = try_below(root);
        for dir in missing {
            let _ = fs::remove_dir(dir); // a worker that has begun here meanwhile keeps it
        }
        tried
    }

    /// A directory for one attempt. Whoever begins a job may be taking over from one who died: tidies up first.
    pub fn dir_for(&self, claim: &Claim) -> io::Result<WorkDir> {
        let door = lock_file(&self.root.join("lock"))?;
        if flock(&door, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep(&self.root)?;
        }
        WorkDir::create(&self.dir, &format!("{}-{}", claim.job_id, claim.version))
    }

    /// This process's own directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Promises `bytes` of disk to a job; `None`: there are not so many now.
    pub fn promise(self: &Arc<Self>, bytes: u64) -> io::Result<Option<Promise>> {
        let promise = Promise { shop: Arc::clone(self), left: Mutex::default() };
        Ok(promise.grow(bytes)?.then_some(promise))
    }

    /// Whether so much could be there if nothing else were.
    pub fn could_hold(&self, bytes: u64) -> io::Result<bool> {
        let disk = statvfs(&self.dir)?;
        let all = disk.f_blocks.saturating_mul(disk.f_frsize);
        Ok(bytes.saturating_add(self.spare.disk) <= all)
    }

    /// Why nothing more is claimed; `None`: there is room.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let promised = *self.promised();
        match self.free() {
            Ok(free) if free.saturating_sub(promised) < self.spare.disk => Some(format!(
                "low disk: {free} bytes free, {promised} promised, {} must stay free",
                self.spare.disk
            )),
            Err(error) => Some(format!("the work directory cannot be looked at: {error}")),
            Ok(_) => memory::available().filter(|free| *free < self.spare.memory).map(|free| {
                format!("low memory: {free} bytes available, {} must stay available", self.spare.memory)
            }),
        }
    }

    fn free(&self) -> io::Result<u64> {
        let disk = statvfs(&self.dir)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for Workshop {
    fn is_open(&self) -> bool {
        let complaint = self.complaint();
        let is_open = complaint.is_none();
        metrics::gauge!("euterpe_worker_has_room").set(f64::from(u8::from(is_open)));
        if self.was_open.swap(is_open, Ordering::Relaxed) != is_open {
            if let Some(why) = complaint {
                tracing::warn!(why, "no room: nothing is claimed");
            } else {
                tracing::info!("there is room again");
            }
        }
        is_open
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What is left in it, if anything, is removed by the next start.
        let _ = fs::remove_file(self.dir.join("lock")).and_then(|()| fs::remove_dir(&self.dir));
    }
}

/// Disk that a job has been promised. Shrinks as the job writes, for what is written the disk shows itself.
#[derive(Debug)]
pub struct Promise {
    shop: Arc<Workshop>,
    /// Promised, and of that written.
    left: Mutex<(u64, u64)>,
}

impl Promise {
    /// Makes it `bytes` in all, never less than it was; `false`: there are not so many, and it stays as it is.
    pub fn grow(&self, bytes: u64) -> io::Result<bool> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut promised = self.shop.promised();
        let more = bytes.saturating_sub(left.0);
        let free = self.shop.free()?.saturating_sub(*promised);
        if more > 0 && free < more.saturating_add(self.shop.spare.disk) {
            return Ok(false);
        }
        *promised += more;
        left.0 += more;
        Ok(true)
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The job has written `bytes` so far.
    pub fn written(&self, bytes: u64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, before) = *left;
        let now = bytes.min(all).max(before);
        *self.shop.promised() -= now - before;
        *left = (all, now);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let (all, written) = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *self.shop.promised() -= all - written;
    }
}

fn try_below(root: &Path) -> io::Result<u64> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    insist_on_ours(root)?;
    // Never made here: whoever made it may be waiting for it.
    let door = root.join("lock");
    if door.exists() {
        OpenOptions::new().write(true).open(&door)?;
    }
    let dir = root.join(format!("w-{}", Uuid::new_v4().simple()));
    DirBuilder::new().mode(0o700).create(&dir)?;
    let free = statvfs(&dir).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    fs::remove_dir(&dir)?;
    Ok(free?)
}

/// A directory below /tmp may have been made by anybody, who could then exchange what is in it.
fn insist_on_ours(root: &Path) -> io::Result<()> {
    let about = fs::metadata(root)?;
    let is_known = about.uid() == geteuid().as_raw() || about.uid() == 0;
    // Sticky or not: in /tmp itself anybody could hold our lock, and we would wait for ever.
    let is_open = about.mode() & 0o022 != 0;
    if is_known && !is_open {
        return Ok(());
    }
    Err(io::Error::other(
        "it belongs to somebody else, or others may write to it: name a directory below it, or chmod 700 it",
    ))
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Removes the directories of processes that are no more. The caller holds the lock of the root.
fn sweep(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("w-"));
        if !is_ours || !path.is_dir() {
            continue;
        }
        let is_dead = lock_file(&path.join("lock"))
            .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_dead && let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(%error, "cannot remove what a dead worker left");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workshop(root: &Path) -> Arc<Workshop> {
        Arc::new(Workshop::open(root, Spare { disk: 0, memory: 0 }).expect("a directory"))
    }

    /// Two jobs that both find room must find it together; what is written is counted by the disk, not twice.
    #[test]
    fn room_is_promised_once() {
        let root = tempfile::tempdir().expect("a directory");
        let shop = workshop(root.path());
        let free = shop.free().expect("a disk");
        let first = shop.promise(free / 4 * 3).expect("a disk").expect("there is room");
        assert!(shop.promise(free / 2).expect("a disk").is_none(), "not for both");
        first.written(free / 2);
        assert_eq!(*shop.promised(), free / 4 * 3 - free / 2);
        first.written(10); // a download that began again
        assert_eq!(*shop.promised(), free / 4 * 3 - free / 2);
        drop(first);
        assert_eq!(*shop.promised(), 0);
        assert!(shop.promise(free / 2).expect("a disk").is_some());
    }

    #[test]
    fn a_promise_grows_while_there_is_room() {
        let root = tempfile::tempdir().expect("a directory");
        let shop = workshop(root.path());
        let free = shop.free().expect("a disk");
        let promise = shop.promise(1000).expect("a disk").expect("there is room");
        assert!(promise.grow(2000).expect("a disk"));
        assert!(promise.grow(500).expect("a disk"), "less is no news");
        assert!(!promise.grow(free * 2).expect("a disk"));
        assert_eq!((promise.bytes(), *shop.promised()), (2000, 2000));
        assert!(!shop.could_hold(u64::MAX / 2).expect("a disk"));
    }

    /// A doctor leaves nothing, and says what a worker would meet.
    #[test]
    fn what_is_tried_out_is_as_it_was_before() {
        let root = tempfile::tempdir().expect("a directory");
        let (new, file) = (root.path().join("not/yet"), root.path().join("file"));
        assert!(Workshop::try_out(&new).expect("room") > 0);
        assert!(!root.path().join("not").exists());
        fs::write(&file, "").expect("a file");
        for wrong in [&file, &file.join("below")] {
            let spare = Spare { disk: 0, memory: 0 };
            let worker = Workshop::open(wrong, spare).expect_err("no directory").to_string();
            assert_eq!(Workshop::try_out(wrong).expect_err("no directory").to_string(), worker);
        }
        let shop = workshop(root.path());
        Workshop::try_out(root.path()).expect("room");
        assert!(shop.dir.exists());
        assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 3, "lock, file, its own");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let open = |mode| {
            fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(mode))
                .expect("ours");
            Workshop::open(root.path(), Spare { disk: 0, memory: 0 }).is_ok()
        };
        assert_eq!([0o700, 0o755, 0o777, 0o1777].map(open), [true, true, false, false]);
    }

    #[test]
    fn what_the_dead_left_is_removed_and_the_living_are_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let living = workshop(root.path());
        let dead = root.path().join("w-dead");
        fs::create_dir_all(dead.join("job-1/out")).expect("a directory");
        fs::write(dead.join("lock"), "").expect("a file");
        let stranger = root.path().join("not-ours");
        fs::create_dir(&stranger).expect("a directory");
        let next = workshop(root.path());
        assert!(!dead.exists() && stranger.exists() && living.dir.exists() && next.dir.exists());
    }
}
