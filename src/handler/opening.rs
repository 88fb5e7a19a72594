//! Opening what is sealed, and saying now and then which key is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::crypto::{Binding, KeyProvider, OpenError, Secret, open};
use crate::domain::SealedParts;

/// Everything under that key meets the same trouble; one line a minute says as much as thousands.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Missing keys that are remembered; more than any ring has.
const MOST: usize = 1000;

/// Opens with the keys of this process.
pub struct Opener {
    keys: Arc<dyn KeyProvider>,
    told: Mutex<HashMap<String, Instant>>,
}

impl Opener {
    /// With these.
    #[must_use]
    pub fn new(keys: Arc<dyn KeyProvider>) -> Self {
        Self { keys, told: Mutex::default() }
    }

    /// What is sealed in `parts`. An unknown key is nobody's fault: another process has it, or this one will after its
    /// next start.
    pub fn open(&self, binding: &Binding<'_>, parts: SealedParts<'_>) -> Result<Secret, OpenError> {
        open(&*self.keys, binding, parts).inspect_err(|error| {
            let OpenError::UnknownKek(kek_id) = error else { return };
            metrics::counter!("euterpe_unknown_kek_total", "kek_id" => kek_id.clone()).increment(1);
            if self.is_to_be_told(kek_id, Instant::now()) {
                tracing::error!(
                    kek_id,
                    "this key is not in the ring; add it to EUTERPE_KEK_FILE and start again"
                );
            }
        })
    }

    /// For who seals.
    #[must_use]
    pub fn keys(&self) -> &dyn KeyProvider {
        &*self.keys
    }

    fn is_to_be_told(&self, kek_id: &str, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(kek_id).is_some_and(|at| now.duration_since(*at) < TOLD_AGAIN) {
            return false;
        }
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(kek_id.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Keyring, new_key};

    #[test]
    fn each_missing_key_is_told_once_a_minute() {
        let ring = Keyring::from_env(|name| (name == "EUTERPE_KEKS").then(|| format!("a:{}", *new_key())));
        let opener = Opener::new(Arc::new(ring.expect("a ring")));
        let begun = Instant::now();
        for (kek_id, seconds, is_told) in [
            ("old", 0, true),
            ("old", 0, false),
            ("older", 1, true),
            ("old", 59, false),
            ("old", 60, true),
            ("older", 60, false),
            ("old", 119, false),
            ("older", 61, true),
        ] {
            let now = begun + Duration::from_secs(seconds);
            assert_eq!(opener.is_to_be_told(kek_id, now), is_told, "{kek_id} at {seconds}");
        }
    }
}
