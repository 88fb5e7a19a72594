//! `file://`: nobody reads or writes outside the directory that is theirs, whatever lies in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use euterpe::domain::transcode::{JobSpec, Place, StorageSecret};
use euterpe::storage::{Cause, Destination, Storage};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::storage::{SMALL, fetch, noise, output, publish, sha256, storage};
use crate::support::hands::{Hands, spec};
use crate::support::requester;

/// A volume with the directories of acme and globex.
struct Volume {
    dir: TempDir,
    storage: Storage,
}

impl Volume {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["root/acme/in", "root/globex", "outside"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("root/globex/theirs.mov"), "theirs").unwrap();
        fs::write(dir.path().join("outside/secret.mov"), "secret").unwrap();
        let storage = storage(SMALL, vec!["/nowhere".into(), dir.path().join("root")]);
        Self { dir, storage }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn job(&self, source: &str, outputs: &str) -> JobSpec {
        let place = |below| Place::File { path: self.path(below).to_str().unwrap().to_owned() };
        spec("", place(source), Some(place(outputs)))
    }

    /// Every name below acme's directory.
    fn names(&self) -> Vec<String> {
        fn walk(dir: &Path, names: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                names.push(entry.file_name().unwrap().to_str().unwrap().to_owned());
                if entry.is_dir() && !entry.is_symlink() {
                    walk(&entry, names);
                }
            }
        }
        let mut names = Vec::new();
        walk(&self.path("root/acme"), &mut names);
        names.sort();
        names
    }
}

fn nobody() -> Hands {
    Hands::with(StorageSecret::default())
}

#[tokio::test]
async fn files_come_and_go_and_appear_only_whole() {
    let (volume, hands) = (Volume::new(), nobody());
    let bytes = noise(3_000_000);
    fs::write(volume.path("root/acme/in/clip.mov"), &bytes).unwrap();
    let spec = volume.job("root/acme/in/clip.mov", "root/acme/out");
    assert!(fetch(&volume.storage, &spec, &hands).await.unwrap() == bytes);
    let published = publish(&volume.storage, &spec, &hands, "1/hls/a b.mp4", &bytes).await.unwrap();
    let there = volume.path("root/acme/out/1/hls/a b.mp4");
    assert_eq!(published.uri, format!("file://{}", there.to_str().unwrap().replace(' ', "%20")));
    assert_eq!((published.size_bytes, published.sha256), (3_000_000, sha256(&bytes)));
    assert!(fs::read(&there).unwrap() == bytes);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&there), mode(there.parent().unwrap())), (0o644, 0o755));
    assert_eq!(volume.names(), ["1", "a b.mp4", "clip.mov", "hls", "in", "out"], "no draft is left");
    let missing = volume.job("root/acme/in/none.mov", "root/acme/out");
    assert_eq!(fetch(&volume.storage, &missing, &hands).await.unwrap_err().cause, Cause::NotFound);
}

#[tokio::test]
async fn nothing_is_read_through_a_link_or_from_somebody_elses_directory() {
    let (volume, hands) = (Volume::new(), nobody());
    let at = |below: &str| volume.path(&format!("root/acme/{below}"));
    symlink(volume.path("outside/secret.mov"), at("link.mov")).unwrap();
    symlink(volume.path("outside"), at("linked")).unwrap();
    symlink("../globex", at("neighbour")).unwrap();
    fs::write(at("in/clip.mov"), "mine").unwrap();
    symlink("in/clip.mov", at("own.mov")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from(0o644), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for source in [
        "root/acme/link.mov",
        "root/acme/linked/secret.mov",
        "root/acme/neighbour/theirs.mov",
        "root/acme/own.mov",
        "root/acme/pipe",
        "root/acme/socket",
        "root/acme/in",
        "root/acme",
        "root/acme/../globex/theirs.mov",
        "root/acme/in/../../globex/theirs.mov",
        "root/globex/theirs.mov",
        "outside/secret.mov",
        "root/acme/in/clip.mov/x",
    ] {
        let spec = volume.job(source, "root/acme/out");
        let fetched = tokio::time::timeout(Duration::from_secs(20), fetch(&volume.storage, &spec, &hands));
        let error = fetched.await.expect("a pipe is not waited for").unwrap_err();
        assert_eq!(error.cause, Cause::Refused, "{source}: {error}");
        assert!(!error.to_string().contains(volume.dir.path().to_str().unwrap()), "{error}");
    }
    let spec = volume.job("root/acme/in/clip.mov", "root/acme/out");
    assert_eq!(fetch(&volume.storage, &spec, &hands).await.unwrap(), b"mine");
}

#[tokio::test]
async fn nothing_is_written_through_a_link_or_into_somebody_elses_directory() {
    let (volume, hands) = (Volume::new(), nobody());
    symlink(volume.path("outside"), volume.path("root/acme/linked")).unwrap();
    symlink("../globex", volume.path("root/acme/neighbour")).unwrap();
    for outputs in
        ["root/acme/linked", "root/acme/linked/deep", "root/acme/neighbour", "root/globex", "outside"]
    {
        let spec = volume.job("root/acme/in/clip.mov", outputs);
        let error = publish(&volume.storage, &spec, &hands, "a.mp4", b"x").await.unwrap_err();
        assert_eq!(error.cause, Cause::Refused, "{outputs}: {error}");
    }
    let spec = volume.job("root/acme/in/clip.mov", "root/acme/out");
    let error = publish(&volume.storage, &spec, &hands, "../../globex/a.mp4", b"x").await.unwrap_err();
    assert_eq!(error.cause, Cause::Refused);
    let count = |below| fs::read_dir(volume.path(below)).unwrap().count();
    assert_eq!((count("outside"), count("root/globex")), (1, 1), "as they were");

    // A link where the output should be is replaced, not written through.
    fs::create_dir(volume.path("root/acme/out")).unwrap();
    symlink(volume.path("outside/secret.mov"), volume.path("root/acme/out/a.mp4")).unwrap();
    publish(&volume.storage, &spec, &hands, "a.mp4", b"new").await.unwrap();
    assert_eq!(fs::read(volume.path("outside/secret.mov")).unwrap(), b"secret");
    assert_eq!(fs::read(volume.path("root/acme/out/a.mp4")).unwrap(), b"new");
}

#[tokio::test]
async fn a_job_that_is_lost_and_a_copy_that_is_dropped_leave_no_file() {
    let (volume, hands) = (Volume::new(), nobody());
    let spec = volume.job("root/acme/in/clip.mov", "root/acme/out");
    hands.ours_for.store(0, Ordering::SeqCst);
    let error = publish(&volume.storage, &spec, &hands, "a.mp4", b"x").await.unwrap_err();
    assert_eq!(error.cause, Cause::NotOurs);
    assert_eq!(volume.names(), ["in", "out"]);

    hands.ours_for.store(9, Ordering::SeqCst);
    let (_dir, file) = output(&noise(20_000_000));
    let (acme, seen) = (requester("acme"), tokio::sync::Notify::new());
    let job = volume.storage.of(&spec, &acme, &hands);
    let on_bytes = |_| seen.notify_one();
    tokio::select! {
        biased;
        () = seen.notified() => {}
        published = job.publish(&file, &Destination::Below("a.mp4"), "video/mp4", &on_bytes) => panic!("{published:?}"),
    }
    assert_eq!(volume.names(), ["in", "out"]);
}
