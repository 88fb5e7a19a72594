//! Where media is: object storage, signed urls, volumes that workers share. Streams both ways in bounded memory.

mod failure;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use failure::{Cause, Doing, StorageError};

use crate::domain::transcode::StorageSecret;

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

    /// So much has arrived.
    fn has(&self, bytes: u64);
}
