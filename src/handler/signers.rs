//! Contract §8: calls to requesters are signed. What signs for each of them, opened, and kept for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use jiff::Timestamp;
use tokio::time::Instant;

use super::opening::Opener;
use crate::crypto::{Binding, OpenError, Signed, SigningSecret};
use crate::domain::{RequesterId, causes};
use crate::egress::{Answer, Call, Egress, Failure};
use crate::store::{Store, StoredSigningSecret};
use crate::worker::{Held, Lane};

/// Who we are to a receiver.
pub const USER_AGENT: &str = concat!("Euterpe-Webhooks/", env!("CARGO_PKG_VERSION"));
/// A secret that was retired because it leaked signs no longer than this.
const KEPT: Duration = Duration::from_secs(5);
/// How many requesters are kept; beyond that, all are read again.
const MOST: usize = 1000;

/// The secrets of one requester that sign now.
#[derive(Clone)]
pub struct SigningSecrets {
    /// Makes the contract's signature.
    pub active: SigningSecret,
    /// Sign beside it, while one is rotated.
    pub others: Vec<SigningSecret>,
}

/// Why nothing can be signed now.
#[derive(Debug, thiserror::Error)]
pub enum Unsigned {
    /// The secret does not open here.
    #[error(transparent)]
    Sealed(#[from] OpenError),
    /// Anything else, in words that its requester may read.
    #[error("{0}")]
    Other(String),
}

/// Opens signing secrets.
pub struct Signers {
    store: Store,
    opener: Arc<Opener>,
    kept: Mutex<HashMap<RequesterId, (Instant, SigningSecrets)>>,
}

impl Signers {
    /// With none opened.
    #[must_use]
    pub fn new(store: Store, opener: Arc<Opener>) -> Self {
        Self { store, opener, kept: Mutex::default() }
    }

    /// What signs for `requester`. Nothing is ever sent unsigned.
    pub async fn of<L: Lane>(
        &self,
        requester: &RequesterId,
        held: &Held<L>,
    ) -> Result<SigningSecrets, Unsigned> {
        if let Some((since, secrets)) = self.kept().get(requester)
            && since.elapsed() < KEPT
        {
            return Ok(secrets.clone());
        }
        let asked = Instant::now();
        let whose = std::slice::from_ref(requester);
        let stored = held.insist(|| self.store.read_signing_secrets(whose)).await.map_err(|error| {
            tracing::error!(error = causes(&error), "cannot read what signs");
            Unsigned::Other("our fault".into())
        })?;
        let secrets = opened(&self.opener, &stored)?;
        let mut kept = self.kept();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(requester.clone(), (asked, secrets.clone()));
        Ok(secrets)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<RequesterId, (Instant, SigningSecrets)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The active one comes first. Each must open: a receiver may know only the one that does not.
fn opened(opener: &Opener, stored: &[StoredSigningSecret]) -> Result<SigningSecrets, Unsigned> {
    let open_one = |stored: &StoredSigningSecret| {
        let binding = Binding::signing(&stored.requester_id, stored.version);
        let secret = opener.open(&binding, stored.parts())?;
        SigningSecret::try_from(secret).map_err(|error| Unsigned::Other(error.to_string()))
    };
    match stored {
        [active, others @ ..] if active.is_active => Ok(SigningSecrets {
            active: open_one(active)?,
            others: others.iter().map(open_one).collect::<Result<_, _>>()?,
        }),
        _ => Err(Unsigned::Other("the requester has no signing secret: euterpe secret rotate".into())),
    }
}

/// Signs `payload` for this attempt and posts it.
pub async fn post(
    egress: &Egress,
    url: &str,
    secrets: &SigningSecrets,
    event_id: &str,
    payload: Bytes,
) -> Result<Answer, Failure> {
    let now = Timestamp::now().as_second();
    let signed = Signed::new(&secrets.active, &secrets.others, event_id, now, &payload);
    let mut headers = vec![("content-type", "application/json"), ("user-agent", USER_AGENT)];
    headers.extend(signed.headers());
    egress.call(Call { method: Method::POST, url, headers: &headers, body: payload }).await
}
