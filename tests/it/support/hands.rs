//! Whoever does a job, for the storage tests: keys that are renewed when asked, a job that may be lost, and an eye on
//! what arrives.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use euterpe::domain::transcode::{
    Credentials, Hidden, JobSpec, OutputLayout, Place, SourceSpec, StorageSecret, StorageSpec,
};
use euterpe::storage::{Access, Arrival, Keys, StorageError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

type Renewal = Box<dyn Fn() -> BoxFuture<'static, Option<StorageSecret>> + Send + Sync>;

/// Holds the keys of a job.
pub struct Hands {
    keys: Mutex<Keys>,
    renewal: Renewal,
    /// Of each call to renew: which version was refused, and with what.
    pub refused: Mutex<Vec<(i32, StorageError)>>,
    pub worked: AtomicUsize,
    /// So many questions are answered with yes; then the job is somebody else's.
    pub ours_for: AtomicUsize,
}

impl Hands {
    /// With keys that nobody renews.
    pub fn with(secret: StorageSecret) -> Self {
        Self::renewing(secret, || std::future::ready(None).boxed())
    }

    pub fn renewing(
        secret: StorageSecret,
        renewal: impl Fn() -> BoxFuture<'static, Option<StorageSecret>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            keys: Mutex::new(Keys { version: 1, secret: Arc::new(secret) }),
            renewal: Box::new(renewal),
            refused: Mutex::default(),
            worked: AtomicUsize::new(0),
            ours_for: AtomicUsize::new(usize::MAX),
        }
    }

    pub fn renewals(&self) -> usize {
        self.refused.lock().unwrap().len()
    }
}

impl Access for Hands {
    fn keys(&self) -> Keys {
        self.keys.lock().unwrap().clone()
    }

    fn renew<'a>(&'a self, version: i32, refused: &'a StorageError) -> BoxFuture<'a, bool> {
        async move {
            self.refused.lock().unwrap().push((version, refused.clone()));
            let Some(secret) = (self.renewal)().await else { return false };
            let mut keys = self.keys.lock().unwrap();
            *keys = Keys { version: keys.version + 1, secret: Arc::new(secret) };
            true
        }
        .boxed()
    }

    fn worked(&self) {
        self.worked.fetch_add(1, Ordering::SeqCst);
    }

    fn is_ours(&self) -> BoxFuture<'_, bool> {
        let left = self.ours_for.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        std::future::ready(left.is_ok()).boxed()
    }
}

/// Looks on while a source arrives.
#[derive(Default)]
pub struct Eye {
    pub expected: Mutex<Vec<Option<u64>>>,
    pub has: AtomicU64,
    /// Says that there is no room.
    pub is_full: AtomicBool,
}

impl Arrival for Eye {
    fn expects(&self, size_bytes: Option<u64>) -> Result<(), StorageError> {
        self.expected.lock().unwrap().push(size_bytes);
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StorageError::new(euterpe::storage::Cause::NoRoom, "no room"));
        }
        Ok(())
    }

    fn has(&self, bytes: u64) -> Result<(), StorageError> {
        self.has.store(bytes, Ordering::SeqCst);
        Ok(())
    }
}

/// A job whose source is at `source` and whose outputs go below `outputs`.
pub fn spec(endpoint: &str, source: Place, outputs: Option<Place>) -> JobSpec {
    JobSpec {
        version: JobSpec::VERSION,
        source: SourceSpec { place: source, size_bytes: None, sha256: None },
        storage: StorageSpec {
            endpoint: Some(endpoint.to_owned()).filter(|endpoint| !endpoint.is_empty()),
            region: "us-east-1".into(),
            path_style: true,
            output_prefix: outputs,
            output_layout: OutputLayout::PerClaim,
        },
        outputs: Vec::new(),
        timeout_seconds: 60,
    }
}

pub fn s3(bucket: &str, key: &str) -> Place {
    Place::S3 { bucket: bucket.into(), key: key.into() }
}

pub fn keys(credentials: Credentials) -> StorageSecret {
    StorageSecret { credentials: Some(credentials), ..StorageSecret::default() }
}

pub fn credentials(id: &str, secret: &str, token: Option<&str>) -> Credentials {
    Credentials {
        access_key_id: Hidden::new(id.into()),
        secret_access_key: Hidden::new(secret.into()),
        session_token: token.map(|token| Hidden::new(token.into())),
        expires_at: None,
    }
}

/// A signed url for the source, and one for the output `movie`.
pub fn urls(source: Option<&str>, upload: Option<&str>) -> StorageSecret {
    let hide = |url: &str| Hidden::new(url.to_owned());
    StorageSecret {
        credentials: None,
        source_uri: source.map(hide),
        upload_urls: upload
            .map(|url| ("movie".to_owned(), hide(url)))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    }
}
