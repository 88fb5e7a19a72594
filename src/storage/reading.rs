//! An output on our own disk: read once from the front, hashed on the way, a piece at a time.

use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::StorageError;

/// So much is read, hashed and handed on at once. Small, so that sending it shows that bytes move.
pub(super) const PIECE: usize = 64 * 1024;

/// A file that is being read.
pub(super) struct Reading {
    file: File,
    pub(super) size_bytes: u64,
    left: u64,
    sha256: Sha256,
}

impl Reading {
    pub(super) async fn open(path: &Path) -> Result<Self, StorageError> {
        let opened = async {
            let file = File::open(path).await?;
            let size_bytes = file.metadata().await?.len();
            Ok((file, size_bytes))
        };
        let (file, size_bytes) = opened.await.map_err(|error: io::Error| StorageError::local(&error))?;
        Ok(Self { file, size_bytes, left: size_bytes, sha256: Sha256::new() })
    }

    /// The next piece; none at the end of as many bytes as there were at the beginning.
    pub(super) async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let wanted = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        if wanted == 0 {
            return Ok(None);
        }
        let mut piece = BytesMut::zeroed(wanted);
        self.file.read_exact(&mut piece).await?;
        self.sha256.update(&piece);
        self.left -= wanted as u64;
        Ok(Some(piece.freeze()))
    }

    /// The next `bytes`, or fewer at the end.
    pub(super) async fn pieces(&mut self, bytes: usize) -> Result<Vec<Bytes>, StorageError> {
        let (mut pieces, mut have) = (Vec::with_capacity(bytes.div_ceil(PIECE).min(1024)), 0);
        while have < bytes {
            let Some(piece) = self.piece().await.map_err(|error| StorageError::local(&error))? else { break };
            have += piece.len();
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// Everything there is, for its hash; the file is read once more to be sent.
    pub(super) async fn hashed(mut self) -> Result<(u64, String), StorageError> {
        while self.piece().await.map_err(|error| StorageError::local(&error))?.is_some() {}
        Ok((self.size_bytes, self.sha256()))
    }

    /// What has been read hashes to this.
    pub(super) fn sha256(self) -> String {
        hex::encode(self.sha256.finalize())
    }
}
