//! API keys: `eut_<id>_<secret>`. The database keeps the id and a keyed hash; the key is shown once.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use rand::RngExt;
use rand::distr::Alphanumeric;
use rand::rand_core::UnwrapErr;
use rand::rngs::SysRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Secret;
use super::keyring::{BadKeys, KeyFile, KeyTrouble, key_of, pepper_version};

const ID: usize = 12;
/// 43 of 62 letters are 256 bits.
const RANDOM: usize = 43;
const CHECKSUM: usize = 8;

/// A key that a requester shows: `eut_`, an id, `_`, 43 random letters, 8 hex digits of SHA-256 over all before.
///
/// The checksum finds typing errors without a database and lets a scanner tell a leaked key from a likeness. Letters
/// and digits only, so that a double click takes all of it.
#[derive(Clone)]
pub struct ApiKey {
    id: String,
    text: Secret,
}

/// Not a key of ours: mistyped, cut off, or something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an API key of Euterpe: eut_<id>_<secret>")]
pub struct BadApiKey;

impl ApiKey {
    /// A new key.
    #[must_use]
    pub fn generate() -> Self {
        let mut random = UnwrapErr(SysRng).sample_iter(Alphanumeric).map(char::from);
        let id: String = random.by_ref().take(ID).collect::<String>().to_ascii_lowercase();
        let mut text = Zeroizing::new(String::with_capacity(128));
        text.push_str("eut_");
        text.push_str(&id);
        text.push('_');
        text.extend(random.take(RANDOM));
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Self { id, text: Secret::from(text.as_str()) }
    }

    /// The key that a header carries.
    pub fn parse(text: &str) -> Result<Self, BadApiKey> {
        let (id, secret) =
            text.strip_prefix("eut_").and_then(|rest| rest.split_once('_')).ok_or(BadApiKey)?;
        let is_id = id.len() == ID && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_secret =
            secret.len() == RANDOM + CHECKSUM && secret.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_id || !is_secret {
            return Err(BadApiKey);
        }
        let (before, claimed) = text.split_at(text.len() - CHECKSUM);
        if checksum(before) != claimed {
            return Err(BadApiKey);
        }
        Ok(Self { id: id.to_owned(), text: Secret::from(text) })
    }

    /// The part that may be shown, and that the database looks up.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole key, to be shown once.
    #[must_use]
    pub fn expose(&self) -> &Secret {
        &self.text
    }

    fn secret(&self) -> &[u8] {
        &self.text.expose()["eut_".len() + ID + 1..]
    }
}

fn checksum(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..CHECKSUM / 2])
}

/// What the database keeps of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHash {
    /// HMAC-SHA256 of the secret part.
    pub hash: [u8; 32],
    /// Under which pepper.
    pub pepper_version: i16,
}

/// A key was hashed with a pepper that this process does not have. Not the caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pepper {0} is not here")]
pub struct UnknownPepper(pub i16);

/// The keys of the hash, by version: the highest hashes new keys, all are compared with.
///
/// With the pepper, a stolen table of hashes is of no use. The secret has 256 bits, so a fast hash is right.
pub struct Peppers(BTreeMap<i16, Zeroizing<[u8; 32]>>);

impl Peppers {
    /// `EUTERPE_KEY_PEPPER` (base64, or `version:base64,…`), or the peppers of `EUTERPE_KEK_FILE`.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, BadKeys> {
        const NAME: &str = "EUTERPE_KEY_PEPPER";
        let file = env("EUTERPE_KEK_FILE");
        let trouble = if file.is_some() { KeyTrouble::LackedByFile } else { KeyTrouble::NoneNamed };
        let peppers = match (env(NAME), file) {
            (Some(list), _) => {
                peppers_of_list(&list).map_err(|problem| BadKeys::new(KeyTrouble::Unusable, NAME, problem))?
            }
            (None, Some(path)) => KeyFile::read(&path)?.peppers,
            (None, None) => BTreeMap::new(),
        };
        if peppers.is_empty() {
            let remedy =
                "is not set, and no key file has a pepper: `euterpe kek new --pepper-only` makes one";
            return Err(BadKeys::new(trouble, NAME, remedy));
        }
        Ok(Self(peppers))
    }

    /// What to keep of a new key.
    #[must_use]
    pub fn hash(&self, key: &ApiKey) -> KeyHash {
        let (version, pepper) = self.newest();
        KeyHash { hash: mac(pepper, key.secret()), pepper_version: version }
    }

    /// Whether `key` is the one that was `kept`. `None`, when nothing is known of its id, costs the same work, so
    /// that the time of an answer does not tell which ids there are.
    pub fn check(&self, key: &ApiKey, kept: Option<(&[u8], i16)>) -> Result<bool, UnknownPepper> {
        const NOBODYS: [u8; 32] = [0; 32];
        let (hash, version) = kept.unwrap_or((&NOBODYS, self.newest().0));
        let pepper = self.0.get(&version).ok_or(UnknownPepper(version))?;
        let is_equal = mac(pepper, key.secret()).as_slice().ct_eq(hash);
        Ok(bool::from(is_equal) && kept.is_some())
    }

    fn newest(&self) -> (i16, &Zeroizing<[u8; 32]>) {
        let (version, pepper) = self.0.last_key_value().expect("there is one: from_env looked");
        (*version, pepper)
    }
}

fn peppers_of_list(list: &str) -> Result<BTreeMap<i16, Zeroizing<[u8; 32]>>, &'static str> {
    let mut peppers = BTreeMap::new();
    for entry in list.split(',') {
        let (version, key) = entry.trim().split_once(':').unwrap_or(("1", entry.trim()));
        if peppers.insert(pepper_version(version)?, key_of(key)?).is_some() {
            return Err("names a version twice");
        }
    }
    Ok(peppers)
}

fn mac(pepper: &[u8; 32], secret: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(pepper).expect("HMAC takes a key of any length");
    mac.update(secret);
    mac.finalize().into_bytes().into()
}
