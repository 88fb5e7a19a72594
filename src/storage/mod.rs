//! Where media is: object storage, signed urls, volumes that workers share. Streams both ways in bounded memory.
//!
//! Every request goes through [`crate::egress`], AWS or not, and is signed with the keys of that moment. What fails is
//! asked again here when asking may help ([`asking`]): with newer keys, or after a pause. A source is read by
//! [`download`], whatever it lies in ([`s3`], [`signed`], [`files`]); an output is written by [`upload`], [`signed`] or [`files`].

mod answers;
mod asking;
mod download;
mod failure;
mod files;
mod multipart;
mod reading;
mod s3;
mod signed;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

pub use answers::{ANSWERS, Row, classify};
pub use failure::{Cause, Doing, StorageError};

use crate::domain::RequesterId;
use crate::domain::transcode::{JobSpec, Place, StorageSecret};
use crate::egress::Egress;

/// How things are carried.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Of a multipart upload.
    pub part_bytes: usize,
    /// So many parts are in flight; memory is their number times their size.
    pub parts_at_once: usize,
    /// Up to here a file is put by one request.
    pub single_put_bytes: u64,
    /// So long without a byte, and a request has failed.
    pub idle: Duration,
    /// Of one request, while what fails may pass.
    pub tries: u32,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            part_bytes: 16 * 1024 * 1024,
            parts_at_once: 4,
            single_put_bytes: 64 * 1024 * 1024,
            idle: Duration::from_secs(30),
            tries: 4,
        }
    }
}

/// The way to storage. One per process.
pub struct Storage {
    carrier: Arc<Carrier>,
}

/// What outlives a single transfer: it cleans up behind one that was dropped.
struct Carrier {
    egress: Arc<Egress>,
    file_roots: Vec<PathBuf>,
    transfer: Transfer,
    tasks: TaskTracker,
}

impl Storage {
    /// Through `egress`, and to `file_roots` for `file://`.
    #[must_use]
    pub fn new(egress: Arc<Egress>, file_roots: Vec<PathBuf>, transfer: Transfer) -> Self {
        Self { carrier: Arc::new(Carrier { egress, file_roots, transfer, tasks: TaskTracker::new() }) }
    }

    /// The storage of one job.
    #[must_use]
    pub fn of<'a>(
        &'a self,
        spec: &'a JobSpec,
        requester: &'a RequesterId,
        access: &'a dyn Access,
    ) -> JobStorage<'a> {
        JobStorage { carrier: &self.carrier, spec, requester, access }
    }

    /// Waits until everything is cleaned up that dropped transfers left at a store. Bounded: each task is.
    pub async fn idle(&self) {
        self.carrier.tasks.close();
        self.carrier.tasks.wait().await;
        self.carrier.tasks.reopen();
    }
}

/// The storage of one job.
pub struct JobStorage<'a> {
    carrier: &'a Arc<Carrier>,
    spec: &'a JobSpec,
    requester: &'a RequesterId,
    access: &'a dyn Access,
}

/// A source that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// How large it is.
    pub size_bytes: u64,
    /// What it hashes to, in hex.
    pub sha256: String,
}

/// An output that is where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Where; of a signed url only the origin.
    pub uri: String,
    /// How large it is.
    pub size_bytes: u64,
    /// What it hashes to, in hex.
    pub sha256: String,
}

/// Where an output goes.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A path below `storage.output_prefix`, which begins with a directory of this claim's own.
    Below(&'a str),
    /// The signed url that is sealed under this output's name.
    Upload(&'a str),
}

impl JobStorage<'_> {
    /// Puts `file` at `to`; `on_bytes` hears how much of it has gone. Nothing shows before it is complete, nor when the
    /// job is no longer ours.
    pub async fn publish(
        &self,
        file: &Path,
        to: &Destination<'_>,
        content_type: &str,
        on_bytes: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Published, StorageError> {
        // `object_store` takes for granted what a header can hold.
        if HeaderValue::from_str(content_type).is_err() {
            return Err(StorageError::new(Cause::Refused, "the content type holds odd characters"));
        }
        match (to, &self.spec.storage.output_prefix) {
            (Destination::Upload(name), _) => self.put_signed(file, name, content_type, on_bytes).await,
            (Destination::Below(path), Some(Place::S3 { bucket, key })) => {
                check_path(path)?;
                self.put_s3(file, bucket, &format!("{key}{path}"), content_type, on_bytes).await
            }
            (Destination::Below(path), Some(Place::File { path: prefix })) => {
                check_path(path)?;
                self.put_file(file, &Path::new(prefix).join(path), on_bytes).await
            }
            (Destination::Below(_), _) => {
                Err(StorageError::new(Cause::Refused, "the request has no output_prefix to write below"))
            }
        }
    }
}

/// A path that could climb or be read in two ways goes nowhere: it would leave what the keys are meant for.
fn check_path(path: &str) -> Result<(), StorageError> {
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.contains('\\') && !part.chars().any(char::is_control)
    };
    if path.split('/').all(is_plain) {
        return Ok(());
    }
    Err(StorageError::new(Cause::Refused, "the output's path must be plain names with / between them"))
}

/// What opens the doors of storage now.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Their `credential_version`.
    pub version: i32,
    /// Keys or signed urls.
    pub secret: Arc<StorageSecret>,
}

/// What a transfer asks of whoever does the job.
pub trait Access: Send + Sync {
    /// The keys as they are now. Asked for each request, so that a refresh takes effect in the middle of an upload.
    fn keys(&self) -> Keys;

    /// Storage refused the keys of `version`: waits until there are newer ones. `false`: there will be none now, and
    /// the transfer ends with `refused`.
    fn renew<'a>(&'a self, version: i32, refused: &'a StorageError) -> BoxFuture<'a, bool>;

    /// A request has worked, so the keys are good.
    fn worked(&self);

    /// Asked right before each publish: is the job still ours? No answer while the database is away.
    fn is_ours(&self) -> BoxFuture<'_, bool>;
}

/// Looks on while a source arrives.
pub trait Arrival: Send + Sync {
    /// Before the first byte is written: so large it says it is. An error ends the transfer: there is no room for it.
    fn expects(&self, size_bytes: Option<u64>) -> Result<(), StorageError>;

    /// So much is about to be there. An error ends the transfer: there is no room for more.
    fn has(&self, bytes: u64) -> Result<(), StorageError>;
}
