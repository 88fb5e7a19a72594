//! Contract §7: the keys to storage, as they are now, and how a job gets new ones.
//!
//! No status of its own and no new attempt: a transfer whose keys are refused waits here, in the middle of what it is
//! doing, and goes on when `credential_version` has advanced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::ending::Stop;
use super::refresh::Refresher;
use crate::crypto::Binding;
use crate::domain::transcode::{CallbackSecret, Hidden, JobSpec, StorageSecret};
use crate::domain::{Claim, JobId, JobStatus, Outcome, RequesterId};
use crate::handler::opening::Opener;
use crate::storage::{Access, Cause, Keys, StorageError};
use crate::store::{JobSecret, StoredSecret};
use crate::worker::{Held, Jobs};

/// A job as whoever transfers for it sees it.
pub(super) struct JobAccess<'a> {
    pub(super) refresher: &'a Refresher,
    pub(super) held: &'a Held<Jobs>,
    pub(super) spec: &'a JobSpec,
    pub(super) requester: &'a RequesterId,
    refresh_url: Option<Hidden>,
    keys: RwLock<Keys>,
    phase: Mutex<JobStatus>,
    /// A storage call has worked since the last refresh.
    has_worked: AtomicBool,
    /// Of several requests that are refused at once, one asks; the others wait for its answer.
    asking: tokio::sync::Mutex<()>,
    /// Why there will be no new keys.
    stop: Mutex<Option<Stop>>,
}

impl<'a> JobAccess<'a> {
    /// With the keys that are stored now.
    pub(super) async fn open(
        refresher: &'a Refresher,
        held: &'a Held<Jobs>,
        spec: &'a JobSpec,
        requester: &'a RequesterId,
    ) -> Result<Self, Stop> {
        let stored = Stored::read(refresher, held).await?;
        let refresh_url = match &stored.callback {
            None => None,
            Some(sealed) => {
                let binding = Binding::callback(JobId(sealed.bound_to), requester);
                let opened = refresher.opener.open(&binding, sealed.parts())?;
                let callback = opened.expose_str().and_then(|text| CallbackSecret::read(text).ok());
                callback.ok_or_else(unreadable)?.refresh_url
            }
        };
        let none = || Keys { version: 0, secret: Arc::default() };
        let keys = stored.keys(&refresher.opener, requester)?.unwrap_or_else(none);
        Ok(Self {
            refresher,
            held,
            spec,
            requester,
            refresh_url,
            keys: RwLock::new(keys),
            phase: Mutex::new(JobStatus::Fetching),
            has_worked: AtomicBool::new(false),
            asking: tokio::sync::Mutex::new(()),
            stop: Mutex::new(None),
        })
    }

    /// Whose claim.
    pub(super) fn claim(&self) -> Claim {
        self.held.claim()
    }

    /// What the job is doing, for whoever is asked for keys. That reading worked says nothing of writing: with keys that
    /// may not write, a job would else be fetched and encoded fifty times.
    pub(super) fn now_in(&self, phase: JobStatus) {
        self.has_worked.store(false, Ordering::Relaxed);
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(super) fn phase(&self) -> JobStatus {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where new keys are asked for.
    pub(super) fn refresh_url(&self) -> Option<&Hidden> {
        self.refresh_url.as_ref()
    }

    /// Why a transfer ended with keys that are not good.
    pub(super) fn why(&self) -> Option<Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A job that was retried without credentials, or made to be asked for them, starts at the refresh call.
    pub(super) async fn insist_on_keys(&self) -> Result<(), Stop> {
        if !self.spec.needs_keys() || !self.keys().secret.is_empty() {
            return Ok(());
        }
        let none = StorageError::new(Cause::Auth, "there are no credentials");
        if self.renew(self.keys().version, &none).await {
            return Ok(());
        }
        Err(self.why().unwrap_or_else(Stop::not_ours))
    }

    /// Keys that are stored and newer than `version`, if any.
    pub(super) async fn newer_than(&self, version: i32) -> Result<Option<Keys>, Stop> {
        let stored = Stored::read(self.refresher, self.held).await?;
        // Opened only when newer: an old one that does not open any more is no news.
        if stored.storage.as_ref().is_none_or(|sealed| sealed.credential_version <= version) {
            return Ok(None);
        }
        stored.keys(&self.refresher.opener, self.requester)
    }

    async fn renewed(&self, version: i32, refused: &StorageError) -> bool {
        let _one = self.asking.lock().await;
        if self.keys().version > version {
            return true; // another request has asked meanwhile
        }
        if self.why().is_some() {
            return false; // and was told that there are none
        }
        let worked = self.has_worked.swap(false, Ordering::Relaxed);
        match self.refresher.ask(self, version, worked, refused).await {
            Ok(keys) => {
                tracing::info!(job_id = %self.claim().job_id, credential_version = keys.version, "new credentials");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
                true
            }
            Err(stop) => {
                *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
                false
            }
        }
    }
}

impl Access for JobAccess<'_> {
    fn keys(&self) -> Keys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn renew<'a>(&'a self, version: i32, refused: &'a StorageError) -> BoxFuture<'a, bool> {
        self.renewed(version, refused).boxed()
    }

    fn worked(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
    }

    fn is_ours(&self) -> BoxFuture<'_, bool> {
        async { self.held.prove().await.is_ok() }.boxed()
    }
}

/// What is stored of a job's secrets, sealed.
struct Stored {
    storage: Option<StoredSecret>,
    callback: Option<StoredSecret>,
}

impl Stored {
    async fn read(refresher: &Refresher, held: &Held<Jobs>) -> Result<Self, Stop> {
        let claims = [held.claim()];
        let rows = held.insist(|| refresher.store.read_job_secrets(&refresher.worker, &claims)).await?;
        let mut stored = Self { storage: None, callback: None };
        for JobSecret { outcome, secret, .. } in rows {
            if outcome != Outcome::Ok {
                return Err(Stop::not_ours());
            }
            match secret {
                Some((purpose, secret)) if purpose == "storage" => stored.storage = Some(secret),
                Some((_, secret)) => stored.callback = Some(secret),
                None => {}
            }
        }
        Ok(stored)
    }

    fn keys(&self, opener: &Opener, requester: &RequesterId) -> Result<Option<Keys>, Stop> {
        let Some(sealed) = &self.storage else { return Ok(None) };
        let version = sealed.credential_version;
        let binding = Binding::storage(JobId(sealed.bound_to), requester, version);
        let plain = opener.open(&binding, sealed.parts())?;
        let secret =
            plain.expose_str().and_then(|text| StorageSecret::read(text).ok()).ok_or_else(unreadable)?;
        Ok(Some(Keys { version, secret: Arc::new(secret) }))
    }
}

fn unreadable() -> Stop {
    Stop::failed("decrypt_failed", "its sealed secret is not of the expected form")
}
