//! Sealing, keys and signatures: what stands between a secret and everything else (contract §8, §10).
//!
//! Nothing here knows the queue. docs/security.md tells the same to whoever keeps the keys.

mod api_key;
mod envelope;
mod keyring;
mod secret;
mod signature;

pub use api_key::{ApiKey, BadApiKey, KeyHash, Peppers, UnknownPepper};
pub use envelope::{Binding, Dek, KeyProvider, OpenError, Rewrapped, open, rewrap, seal};
pub use keyring::{BadKeys, KeyTrouble, Keyring, new_key};
pub use secret::Secret;
pub use signature::{BadSigningSecret, Rejected, SKEW_SECONDS, Signed, SigningSecret, sign, verify};
