//! The keys of this process, from a file or the environment. docs/security.md shows the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use aes_gcm::aead::Generate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::envelope::{self, Dek, KeyProvider, OpenError};
use crate::domain::Purpose;

const FILE: &str = "EUTERPE_KEK_FILE";
const KEKS: &str = "EUTERPE_KEKS";
const ACTIVE: &str = "EUTERPE_ACTIVE_KEK";
const ACTIVE_CALLBACK: &str = "EUTERPE_ACTIVE_CALLBACK_KEK";

/// A key file is a few lines; whatever is longer is something else.
const FILE_LIMIT: usize = 64 * 1024;

type Key = Zeroizing<[u8; 32]>;

/// Keys that cannot be used, and what to do. Never repeats what might be a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct BadKeys {
    pub(super) place: String,
    pub(super) problem: String,
    /// What kind of trouble.
    pub trouble: KeyTrouble,
}

/// What is wrong with keys: each has a remedy of its own, and that of one may destroy the keys of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyTrouble {
    /// No setting names any.
    NoneNamed,
    /// Two settings name some.
    NamedTwice,
    /// Others than its owner may use the file.
    OpenToOthers,
    /// There is no such file, or it may not be read.
    Unreadable,
    /// The file has other keys, and none of this kind.
    LackedByFile,
    /// There are several, and `EUTERPE_ACTIVE_KEK` does not say which seals.
    NoneActive(Vec<String>),
    /// The setting names none of these.
    UnknownActive(&'static str, Vec<String>),
    /// What stands there is no key.
    Unusable,
}

impl BadKeys {
    pub(super) fn new(trouble: KeyTrouble, place: &str, problem: impl Into<String>) -> Self {
        Self { place: place.to_owned(), problem: problem.into(), trouble }
    }
}

/// Several KEKs, by id: one seals, all open.
pub struct Keyring {
    keks: BTreeMap<String, Key>,
    active: String,
    active_callback: String,
}

impl Keyring {
    /// The keys of `EUTERPE_KEK_FILE` or `EUTERPE_KEKS` (`id:base64,…`); `EUTERPE_ACTIVE_KEK` seals, and
    /// `EUTERPE_ACTIVE_CALLBACK_KEK`, when set, seals callbacks and signing secrets.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, BadKeys> {
        let (place, keks) = match (env(FILE), env(KEKS)) {
            (Some(_), Some(_)) => {
                let says = format!("and {FILE} are both set: unset one");
                return Err(BadKeys::new(KeyTrouble::NamedTwice, KEKS, says));
            }
            (Some(path), None) => (FILE, KeyFile::read(&path)?.keks),
            (None, Some(list)) => (KEKS, keks_of_list(&list)?),
            (None, None) => {
                let says = format!("is not set, nor is {KEKS}: make a key with `euterpe kek new`");
                return Err(BadKeys::new(KeyTrouble::NoneNamed, FILE, says));
            }
        };
        let Some(first) = keks.keys().next() else {
            let says = "holds no kek: make one with `euterpe kek new`";
            return Err(BadKeys::new(KeyTrouble::LackedByFile, place, says));
        };
        let ids = || keks.keys().cloned().collect::<Vec<_>>();
        let known = |variable: &'static str| match env(variable).map(|id| id.trim().to_owned()) {
            Some(id) if keks.contains_key(&id) => Ok(Some(id)),
            Some(_) => {
                let says = format!("names none of the keys here: {}", ids().join(", "));
                Err(BadKeys::new(KeyTrouble::UnknownActive(variable, ids()), variable, says))
            }
            None => Ok(None),
        };
        let active = match known(ACTIVE)? {
            Some(id) => id,
            None if keks.len() == 1 => first.clone(),
            None => {
                let says = format!("is not set: say which seals of {}", ids().join(", "));
                return Err(BadKeys::new(KeyTrouble::NoneActive(ids()), ACTIVE, says));
            }
        };
        let active_callback = known(ACTIVE_CALLBACK)?.unwrap_or_else(|| active.clone());
        Ok(Self { keks, active, active_callback })
    }

    /// The ids of the keys, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keks.keys().map(String::as_str)
    }
}

impl KeyProvider for Keyring {
    fn active_kek(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Storage => &self.active,
            Purpose::Callback | Purpose::Signing => &self.active_callback,
        }
    }

    fn wrap(&self, kek_id: &str, dek: &Dek, aad: &[u8]) -> Result<Vec<u8>, OpenError> {
        let kek = self.keks.get(kek_id).ok_or_else(|| OpenError::UnknownKek(kek_id.to_owned()))?;
        Ok(envelope::wrap(kek, Generate::generate(), dek, aad))
    }

    fn unwrap(&self, kek_id: &str, wrapped: &[u8], aad: &[u8]) -> Result<Dek, OpenError> {
        let kek = self.keks.get(kek_id).ok_or_else(|| OpenError::UnknownKek(kek_id.to_owned()))?;
        envelope::unwrap(kek, wrapped, aad)
    }
}

/// A new key, as it stands in a key file or after `id:`.
#[must_use]
pub fn new_key() -> Zeroizing<String> {
    let bytes: Key = Zeroizing::new(Generate::generate());
    Zeroizing::new(STANDARD.encode(bytes.as_slice()))
}

/// Lines of `kek ID BASE64` and `pepper VERSION BASE64`; `#` begins a comment.
pub(super) struct KeyFile {
    keks: BTreeMap<String, Key>,
    pub(super) peppers: BTreeMap<i16, Key>,
}

impl KeyFile {
    /// Refuses a file that others than its owner may read: then its keys are not secret.
    pub(super) fn read(path: &str) -> Result<Self, BadKeys> {
        let unreadable = |error: std::io::Error| {
            BadKeys::new(KeyTrouble::Unreadable, path, format!("cannot be read: {error}"))
        };
        // The open file is asked, not the path: nobody can swap it in between.
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            let says = format!("others may use it (mode {mode:o}): run chmod 600 on it");
            return Err(BadKeys::new(KeyTrouble::OpenToOthers, path, says));
        }
        // Room for all of it: a string that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(FILE_LIMIT + 1));
        file.take(FILE_LIMIT as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() > FILE_LIMIT {
            let says = format!("is longer than {FILE_LIMIT} bytes: that is no key file");
            return Err(BadKeys::new(KeyTrouble::Unusable, path, says));
        }
        Self::parse(path, &text)
    }

    fn parse(place: &str, text: &str) -> Result<Self, BadKeys> {
        let mut keys = Self { keks: BTreeMap::new(), peppers: BTreeMap::new() };
        for (n, line) in text.lines().enumerate() {
            let bad = |problem: &str| {
                BadKeys::new(KeyTrouble::Unusable, place, format!("line {}: {problem}", n + 1))
            };
            let words: Vec<_> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let is_new = match words.as_slice() {
                [] => continue,
                ["kek", id, key] => {
                    let key = key_of(key).map_err(bad)?;
                    keys.keks.insert(kek_id(id).map_err(bad)?, key).is_none()
                }
                ["pepper", version, key] => {
                    let key = key_of(key).map_err(bad)?;
                    keys.peppers.insert(pepper_version(version).map_err(bad)?, key).is_none()
                }
                _ => return Err(bad("is neither `kek ID BASE64` nor `pepper VERSION BASE64`")),
            };
            if !is_new {
                return Err(bad("its name is used before"));
            }
        }
        Ok(keys)
    }
}

fn keks_of_list(list: &str) -> Result<BTreeMap<String, Key>, BadKeys> {
    let mut keks = BTreeMap::new();
    for (n, entry) in list.split(',').enumerate() {
        let bad =
            |problem: &str| BadKeys::new(KeyTrouble::Unusable, KEKS, format!("entry {}: {problem}", n + 1));
        let (id, key) = entry.trim().split_once(':').ok_or_else(|| bad("is not id:base64"))?;
        let key = key_of(key).map_err(bad)?;
        if keks.insert(kek_id(id).map_err(bad)?, key).is_some() {
            return Err(bad("its name is used before"));
        }
    }
    Ok(keks)
}

pub(super) fn key_of(base64: &str) -> Result<Key, &'static str> {
    const PROBLEM: &str = "the key must be base64 of 32 bytes; `euterpe kek new` makes one";
    let bytes = Zeroizing::new(STANDARD.decode(base64.trim()).map_err(|_| PROBLEM)?);
    let mut key = Key::default();
    if bytes.len() != key.len() {
        return Err(PROBLEM);
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}

fn kek_id(text: &str) -> Result<String, &'static str> {
    let is_fine = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if is_fine { Ok(text.to_owned()) } else { Err("the id must be 1 to 64 of A-Z a-z 0-9 . _ -") }
}

pub(super) fn pepper_version(text: &str) -> Result<i16, &'static str> {
    text.parse().ok().filter(|version| *version >= 1).ok_or("the version must be a number from 1 on")
}
