//! What signs the webhooks of each requester, opened, and kept for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::opening::Opener;
use super::{Unsent, our_fault};
use crate::crypto::{Binding, SigningSecret};
use crate::domain::RequesterId;
use crate::store::{Store, StoredSigningSecret};
use crate::worker::{Held, Lane};

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

/// Opens signing secrets.
pub(super) struct Signers {
    store: Store,
    opener: Arc<Opener>,
    kept: Mutex<HashMap<RequesterId, (Instant, SigningSecrets)>>,
}

impl Signers {
    /// With none opened.
    pub(super) fn new(store: Store, opener: Arc<Opener>) -> Self {
        Self { store, opener, kept: Mutex::default() }
    }

    /// What signs for `requester`. Nothing is ever sent unsigned.
    pub(super) async fn of<L: Lane>(
        &self,
        requester: &RequesterId,
        held: &Held<L>,
    ) -> Result<SigningSecrets, Unsent> {
        if let Some((since, secrets)) = self.kept().get(requester)
            && since.elapsed() < KEPT
        {
            return Ok(secrets.clone());
        }
        let asked = Instant::now();
        let whose = std::slice::from_ref(requester);
        let stored = held
            .insist(|| self.store.read_signing_secrets(whose))
            .await
            .map_err(|error| our_fault(&error))?;
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
fn opened(opener: &Opener, stored: &[StoredSigningSecret]) -> Result<SigningSecrets, Unsent> {
    let open_one = |stored: &StoredSigningSecret| {
        let binding = Binding::signing(&stored.requester_id, stored.version);
        let secret = opener.open(&binding, stored.parts())?;
        SigningSecret::try_from(secret).map_err(|error| Unsent::Failed("internal", error.to_string()))
    };
    match stored {
        [active, others @ ..] if active.is_active => Ok(SigningSecrets {
            active: open_one(active)?,
            others: others.iter().map(open_one).collect::<Result<_, _>>()?,
        }),
        _ => Err(Unsent::Failed(
            "internal",
            "the requester has no signing secret: euterpe secret rotate".into(),
        )),
    }
}
