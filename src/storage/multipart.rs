//! An upload in parts: read in order, sent a few at once, finished by one request. What is not finished is aborted, also
//! when whoever uploads is dropped; otherwise its parts would lie at the store, unseen and paid for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMultipartOptions, PutPayload};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::asking::{Step, pause};
use super::reading::Reading;
use super::s3::{self, Bucket, error_of};
use super::upload::of_type;
use super::{Carrier, Cause, JobStorage, Keys, StorageError};

/// S3 knows no more parts than this; a larger file has larger ones.
const MOST_PARTS: u64 = 10_000;
/// The most that beginning takes: nobody may be waiting who would lose patience.
const BEGIN: Duration = Duration::from_secs(60);
/// An abort gets so long and so many tries; a lifecycle rule of the bucket takes what even that leaves behind.
const ABORT: Duration = Duration::from_secs(20);
const ABORT_TRIES: u32 = 4;

impl JobStorage<'_> {
    /// A client for one request.
    pub(super) fn client(&self, bucket: &Bucket, keys: &Keys) -> Result<AmazonS3, StorageError> {
        self.carrier.client(bucket, keys)
    }

    /// Uploads `reading`; says what it hashes to.
    pub(super) async fn put_parts(
        &self,
        mut reading: Reading,
        bucket: &Bucket,
        key: &str,
        content_type: &str,
        on_bytes: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<String, StorageError> {
        let transfer = &self.carrier.transfer;
        let smallest = usize::try_from(reading.size_bytes.div_ceil(MOST_PARTS)).unwrap_or(usize::MAX);
        let part_bytes = transfer.part_bytes.max(smallest);
        let path = s3::path(key)?;
        let begin = |keys| self.carrier.begin(bucket.clone(), path.clone(), content_type, keys);
        let upload = &self.asked(Step::Unseen, begin).await?;

        let mut sending = FuturesUnordered::new();
        let (mut parts, mut sent, mut next, mut all_read) = (Vec::new(), 0, 0, false);
        loop {
            while !all_read && sending.len() < transfer.parts_at_once.max(1) {
                let payload: PutPayload = reading.pieces(part_bytes).await?.into_iter().collect();
                all_read = payload.content_length() < part_bytes;
                if payload.content_length() > 0 {
                    sending.push(self.put_part(upload, next, payload));
                    next += 1;
                }
            }
            let Some(part) = sending.next().await else { break };
            let (index, bytes, id) = part?;
            parts.push((index, id));
            sent += bytes as u64;
            on_bytes(sent);
        }
        drop(sending);
        parts.sort_unstable_by_key(|(index, _)| *index);
        let parts: Vec<PartId> = parts.into_iter().map(|(_, id)| id).collect();
        self.complete(upload, &parts, reading.size_bytes).await?;
        Ok(reading.sha256())
    }

    async fn put_part(
        &self,
        upload: &Unfinished,
        index: usize,
        payload: PutPayload,
    ) -> Result<(usize, usize, PartId), StorageError> {
        let put = |keys: Keys| {
            let (client, payload) = (self.client(&upload.bucket, &keys), payload.clone());
            upload.note(keys);
            async move { client?.put_part(&upload.path, &upload.id, index, payload).await.map_err(error_of) }
        };
        let id = self.asked(Step::Unseen, put).await?;
        Ok((index, payload.content_length(), id))
    }

    /// Makes the object of its parts.
    async fn complete(&self, upload: &Unfinished, parts: &[PartId], size: u64) -> Result<(), StorageError> {
        let mut asked_before = false;
        let complete = |keys: Keys| {
            let client = self.client(&upload.bucket, &keys);
            upload.note(keys);
            let again = std::mem::replace(&mut asked_before, true);
            async move {
                let client = client?;
                let made = client.complete_multipart(&upload.path, &upload.id, parts.to_vec()).await;
                match made.map_err(error_of) {
                    Ok(_) => Ok(()),
                    // It may have been made by a request whose answer was lost: then it is there, whole.
                    Err(error) if again && error.provider_code.as_deref() == Some("NoSuchUpload") => {
                        match client.head(&upload.path).await {
                            Ok(meta) if meta.size == size => Ok(()),
                            _ => Err(error),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
        };
        self.asked(Step::Seen, complete).await?;
        upload.finished.store(true, Ordering::Release);
        Ok(())
    }
}

/// An upload that is aborted when it goes, unless it was finished.
struct Unfinished {
    carrier: Arc<Carrier>,
    bucket: Bucket,
    path: Path,
    id: String,
    /// The last that were used: those that an abort will use.
    keys: Mutex<Keys>,
    finished: AtomicBool,
}

impl Unfinished {
    fn note(&self, keys: Keys) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Without a runtime the process is at its end.
        let (false, Ok(runtime)) = (*self.finished.get_mut(), Handle::try_current()) else { return };
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Ok(client) = self.carrier.client(&self.bucket, keys) else { return };
        let (path, id) = (self.path.clone(), self.id.clone());
        let aborting = async move {
            if timeout(ABORT, abort(&client, &path, &id)).await != Ok(true) {
                tracing::warn!("an upload in parts could not be aborted; a lifecycle rule of the bucket can");
            }
        };
        self.carrier.tasks.spawn_on(aborting, &runtime);
    }
}

/// Whether there is no such upload any more.
async fn abort(client: &AmazonS3, path: &Path, id: &String) -> bool {
    for failed in 1..=ABORT_TRIES {
        match client.abort_multipart(path, id).await.map_err(error_of) {
            Ok(()) => return true,
            Err(error) if error.provider_code.as_deref() == Some("NoSuchUpload") => return true,
            Err(error) if error.cause.passes() => {
                let Some(pause) = pause(failed, error.retry_after) else { return false };
                sleep(pause).await;
            }
            Err(_) => return false,
        }
    }
    false
}

impl Carrier {
    fn client(&self, bucket: &Bucket, keys: &Keys) -> Result<AmazonS3, StorageError> {
        bucket.client(&self.egress, self.transfer.idle, keys)
    }

    /// Begins an upload, in a task of its own: one that the store has begun is known to us, and aborted, also when
    /// nobody waits for it any more.
    fn begin(
        self: &Arc<Self>,
        bucket: Bucket,
        path: Path,
        content_type: &str,
        keys: Keys,
    ) -> impl Future<Output = Result<Unfinished, StorageError>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        let carrier = Arc::clone(self);
        let attributes = of_type(content_type);
        self.tasks.spawn(async move {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            let begun = match carrier.client(&bucket, &keys) {
                Ok(client) => {
                    let begun = timeout(BEGIN, client.create_multipart_opts(&path, options)).await;
                    let late = |_| StorageError::new(Cause::Timeout, "storage: no answer in time");
                    begun.map_err(late).and_then(|begun| begun.map_err(error_of))
                }
                Err(error) => Err(error),
            };
            let (keys, finished) = (Mutex::new(keys), AtomicBool::new(false));
            let _ = tell.send(begun.map(|id| Unfinished { carrier, bucket, path, id, keys, finished }));
        });
        let gone = || StorageError::new(Cause::Connection, "the upload was not begun");
        async move { told.await.unwrap_or_else(|_| Err(gone())) }
    }
}
