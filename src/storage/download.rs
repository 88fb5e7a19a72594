//! A source into a file: streamed, bounded, taken up where it broke off, and checked.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sha2::{Digest, Sha256};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::sleep;

use super::asking::{Step, pause};
use super::s3::{self, Bucket};
use super::{Arrival, Cause, Fetched, JobStorage, StorageError};
use crate::domain::transcode::Place;

/// A source is opened so often at most, however well each piece of it arrives.
const OPENINGS: u32 = 200;

/// A source that can be read.
pub(super) struct Opened {
    /// From this byte on.
    pub(super) at: u64,
    /// Of so many.
    pub(super) total: Option<u64>,
    /// Which one it is.
    pub(super) etag: Option<String>,
    pub(super) body: BoxStream<'static, Result<Bytes, StorageError>>,
}

impl JobStorage<'_> {
    /// Streams the source into the new file `into`, at most `max_bytes`. Without success there is no file.
    pub async fn fetch(
        &self,
        into: &Path,
        max_bytes: u64,
        arrival: &dyn Arrival,
    ) -> Result<Fetched, StorageError> {
        let mut landing = Landing::new(into).await?;
        self.land(&mut landing, max_bytes, arrival).await?;
        let fetched = landing.end().await?;
        let wanted = &self.spec.source;
        if wanted.size_bytes.is_some_and(|size| size != fetched.size_bytes) {
            return Err(not_as_said("size_bytes"));
        }
        if wanted.sha256.as_ref().is_some_and(|sha256| !sha256.eq_ignore_ascii_case(&fetched.sha256)) {
            return Err(not_as_said("sha256"));
        }
        landing.stays = true;
        Ok(fetched)
    }

    async fn land(
        &self,
        landing: &mut Landing,
        max_bytes: u64,
        arrival: &dyn Arrival,
    ) -> Result<(), StorageError> {
        let mut broken = StorageError::new(Cause::Truncated, "the source ended early");
        let (mut failed, mut may_start_again) = (0, true);
        for _ in 0..OPENINGS {
            let opened = match self.open(landing.next(), landing.etag.clone()).await {
                Err(error) if error.http_status == Some(416) && may_start_again => {
                    may_start_again = false;
                    landing.start_again().await?;
                    continue;
                }
                opened => opened?,
            };
            let is_resumed = landing.take(opened.at, opened.total, opened.etag.clone()).await?;
            if !is_resumed {
                self.check_size(opened.total, max_bytes)?;
                arrival.expects(opened.total)?;
            }
            let before = landing.at;
            match landing.pour(opened, max_bytes, arrival).await {
                Ok(()) => return Ok(()),
                Err(error) if error.cause.passes() || error.cause == Cause::Truncated => broken = error,
                Err(error) => return Err(error),
            }
            // As long as it gets on, it may break as often as it likes.
            failed = if is_resumed && landing.at > before { 1 } else { failed + 1 };
            if failed >= self.carrier.transfer.tries {
                break;
            }
            if let Some(pause) = pause(failed, None) {
                sleep(pause).await;
            }
        }
        if broken.cause == Cause::Connection {
            broken.cause = Cause::Truncated;
        }
        Err(broken)
    }

    /// The source from byte `at` on.
    async fn open(&self, at: u64, etag: Option<String>) -> Result<Opened, StorageError> {
        match &self.spec.source.place {
            Place::S3 { bucket, key } => {
                let bucket = Bucket::of(&self.spec.storage, bucket);
                let open = |keys| {
                    let (client, etag) = (self.client(&bucket, &keys), etag.clone());
                    async move { s3::open(&client?, key, at, etag).await }
                };
                self.asked(Step::Unseen, open).await
            }
            Place::Signed { .. } => {
                self.asked(Step::Unseen, |keys| self.open_signed(keys, at, etag.clone())).await
            }
            Place::File { path } => self.open_file(path).await,
        }
    }

    /// Before a byte is written.
    fn check_size(&self, total: Option<u64>, max_bytes: u64) -> Result<(), StorageError> {
        if total.is_some_and(|total| total > max_bytes) {
            return Err(too_large(max_bytes));
        }
        match (self.spec.source.size_bytes, total) {
            (Some(said), Some(total)) if said != total => Err(not_as_said("size_bytes")),
            _ => Ok(()),
        }
    }
}

/// The file that a source goes into. It goes when it is dropped, unless it may stay.
struct Landing {
    path: PathBuf,
    file: File,
    at: u64,
    sha256: Sha256,
    total: Option<u64>,
    etag: Option<String>,
    stays: bool,
}

impl Landing {
    async fn new(path: &Path) -> Result<Self, StorageError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path).await;
        let file = file.map_err(|error| StorageError::local(&error))?;
        let (path, sha256) = (path.to_owned(), Sha256::new());
        Ok(Self { path, file, at: 0, sha256, total: None, etag: None, stays: false })
    }

    /// Where to go on: at the beginning, if nothing says that it would still be the same thing.
    fn next(&self) -> u64 {
        if self.etag.is_some() { self.at } else { 0 }
    }

    /// Whether what was opened goes on where we are; otherwise we begin again.
    async fn take(
        &mut self,
        at: u64,
        total: Option<u64>,
        etag: Option<String>,
    ) -> Result<bool, StorageError> {
        if at > 0 && at != self.at {
            return Err(StorageError::new(Cause::Refused, "storage sent another part than it was asked for"));
        }
        if at == 0 {
            self.start_again().await?;
            (self.total, self.etag) = (total, etag);
            return Ok(false);
        }
        if etag != self.etag || total != self.total {
            return Err(StorageError::new(Cause::Changed, "the source changed while it was read"));
        }
        Ok(true)
    }

    async fn pour(
        &mut self,
        mut opened: Opened,
        max_bytes: u64,
        arrival: &dyn Arrival,
    ) -> Result<(), StorageError> {
        while let Some(piece) = opened.body.next().await {
            let piece = piece?;
            let now = self.at + piece.len() as u64;
            if now > max_bytes {
                return Err(too_large(max_bytes));
            }
            if self.total.is_some_and(|total| now > total) {
                return Err(StorageError::new(Cause::Changed, "the source is longer than was announced"));
            }
            arrival.has(now)?;
            self.file.write_all(&piece).await.map_err(|error| StorageError::local(&error))?;
            self.sha256.update(&piece);
            self.at = now;
        }
        if self.total.is_some_and(|total| self.at < total) {
            return Err(StorageError::new(Cause::Truncated, "the source ended early"));
        }
        Ok(())
    }

    async fn start_again(&mut self) -> Result<(), StorageError> {
        let emptied = async {
            self.file.set_len(0).await?;
            self.file.seek(SeekFrom::Start(0)).await
        };
        emptied.await.map_err(|error| StorageError::local(&error))?;
        (self.at, self.sha256, self.total, self.etag) = (0, Sha256::new(), None, None);
        Ok(())
    }

    async fn end(&mut self) -> Result<Fetched, StorageError> {
        self.file.flush().await.map_err(|error| StorageError::local(&error))?;
        let sha256 = hex::encode(self.sha256.finalize_reset());
        Ok(Fetched { size_bytes: self.at, sha256 })
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.stays {
            let _ = std::fs::remove_file(&self.path); // its directory goes with the job
        }
    }
}

fn too_large(max_bytes: u64) -> StorageError {
    StorageError::new(Cause::TooLarge, format!("the source is larger than the {max_bytes} bytes allowed"))
}

fn not_as_said(field: &str) -> StorageError {
    StorageError::new(
        Cause::Checksum,
        format!("the source is not what the request says: its {field} differs"),
    )
}
