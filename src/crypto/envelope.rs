//! Contract §10: envelope encryption. A key of its own (DEK) per secret, wrapped by a key-encryption key (KEK).
//!
//! ```text
//! AAD         "euterpe/cred" ‖ 1 ‖ len32 job_id ‖ len32 requester_id ‖ version as 8 bytes ‖ len32 purpose
//! key, commit HKDF-SHA-256(DEK, info "euterpe/cred/v1"), 32 bytes each
//! encrypted   1 ‖ commit ‖ nonce (12) ‖ AES-256-GCM(key, nonce, plaintext, AAD) with its tag (16)
//! dek_wrapped 1 ‖ nonce (12) ‖ AES-256-GCM(KEK, nonce, DEK, AAD ‖ len32 kek_id) with its tag (16)
//! ```
//!
//! The AAD stops a ciphertext from being moved to another job, purpose or version. The commitment stops one that opens
//! under two keys: GCM alone does not. `tests/it/golden.txt`, made by another implementation, holds the format still.

use aes_gcm::aead::{Aead, Generate, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Secret;
use crate::domain::{JobId, Purpose, RequesterId, Sealed, SealedParts};

/// The only format so far; the first byte of both blobs.
const VERSION: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
const COMMIT: usize = 32;

/// The key of one secret.
pub type Dek = Zeroizing<[u8; 32]>;

/// Who holds the keys that wrap keys: a [`Keyring`](super::Keyring), later a key service.
pub trait KeyProvider: Send + Sync {
    /// Which key wraps secrets of this purpose from now on. `wrap` knows it.
    fn active_kek(&self, purpose: Purpose) -> &str;

    /// `dek`, wrapped by `kek_id` and bound to `aad`.
    fn wrap(&self, kek_id: &str, dek: &Dek, aad: &[u8]) -> Result<Vec<u8>, OpenError>;

    /// What `wrap` was given.
    fn unwrap(&self, kek_id: &str, wrapped: &[u8], aad: &[u8]) -> Result<Dek, OpenError>;
}

/// Why a secret did not open. No more is said: detail helps whoever tries ciphertexts of their own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// This process does not have the key. Not the job's fault: another process may, or soon this one.
    #[error("key {0:?} is not in the ring")]
    UnknownKek(String),
    /// It is not what was sealed for this job, purpose and version.
    #[error("the sealed secret does not open")]
    Failed,
}

/// What a secret is bound to: it opens for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    purpose: Purpose,
    job_id: Option<JobId>,
    requester: &'a RequesterId,
    version: i32,
}

impl<'a> Binding<'a> {
    /// A job's credentials, at their `credential_version`.
    #[must_use]
    pub fn storage(job_id: JobId, requester: &'a RequesterId, credential_version: i32) -> Self {
        Self { purpose: Purpose::Storage, job_id: Some(job_id), requester, version: credential_version }
    }

    /// A job's callback. It is sealed once, at version 1; a redriven job keeps that of the job it came from, and
    /// then `job_id` is that job (`bound_to`).
    #[must_use]
    pub fn callback(job_id: JobId, requester: &'a RequesterId) -> Self {
        Self { purpose: Purpose::Callback, job_id: Some(job_id), requester, version: 1 }
    }

    /// A requester's signing secret.
    #[must_use]
    pub fn signing(requester: &'a RequesterId, version: i32) -> Self {
        Self { purpose: Purpose::Signing, job_id: None, requester, version }
    }

    /// What it is for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// What is bound, as bytes. Lengths are written out, so that no two bindings share an encoding.
    #[must_use]
    pub fn aad(&self) -> Vec<u8> {
        let mut aad = b"euterpe/cred".to_vec();
        aad.push(VERSION);
        push(&mut aad, self.job_id.as_ref().map_or(&[], |job_id| job_id.0.as_bytes()));
        push(&mut aad, self.requester.as_str().as_bytes());
        aad.extend_from_slice(&i64::from(self.version).to_be_bytes());
        push(&mut aad, self.purpose.as_str().as_bytes());
        aad
    }

    fn aad_with(&self, kek_id: &str) -> Vec<u8> {
        let mut aad = self.aad();
        push(&mut aad, kek_id.as_bytes());
        aad
    }
}

fn push(aad: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("ids are at most 64 bytes");
    aad.extend_from_slice(&length.to_be_bytes());
    aad.extend_from_slice(part);
}

/// Seals `secret` so that it opens only for `binding`, under the active key of its purpose.
///
/// # Panics
/// When the provider does not know its own active key, or the secret is longer than 64 GiB.
#[must_use]
pub fn seal(keys: &dyn KeyProvider, binding: &Binding<'_>, secret: &Secret) -> Sealed {
    let dek = Dek::new(Generate::generate());
    let kek_id = keys.active_kek(binding.purpose);
    let wrapped = keys.wrap(kek_id, &dek, &binding.aad_with(kek_id)).expect("the active key is in the ring");
    Sealed {
        encrypted: bytea(&encrypt(&dek, Generate::generate(), binding, secret)),
        dek_wrapped: bytea(&wrapped),
        kek_id: kek_id.to_owned(),
        encryption_version: VERSION.into(),
        can_refresh: None,
    }
}

/// Opens what was sealed for `binding`.
pub fn open(
    keys: &dyn KeyProvider,
    binding: &Binding<'_>,
    sealed: SealedParts<'_>,
) -> Result<Secret, OpenError> {
    if sealed.encryption_version != i16::from(VERSION) {
        return Err(OpenError::Failed);
    }
    let dek = keys.unwrap(sealed.kek_id, sealed.dek_wrapped, &binding.aad_with(sealed.kek_id))?;
    decrypt(&dek, binding, sealed.encrypted)
}

/// A secret's key under another KEK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrapped {
    /// The key, wrapped anew.
    pub dek_wrapped: Vec<u8>,
    /// Which key wrapped it.
    pub kek_id: String,
}

/// The same secret under the active KEK of its purpose. The ciphertext is neither needed nor changed.
pub fn rewrap(
    keys: &dyn KeyProvider,
    binding: &Binding<'_>,
    kek_id: &str,
    dek_wrapped: &[u8],
) -> Result<Rewrapped, OpenError> {
    let dek = keys.unwrap(kek_id, dek_wrapped, &binding.aad_with(kek_id))?;
    let kek_id = keys.active_kek(binding.purpose);
    let dek_wrapped = keys.wrap(kek_id, &dek, &binding.aad_with(kek_id))?;
    Ok(Rewrapped { dek_wrapped, kek_id: kek_id.to_owned() })
}

fn encrypt(dek: &Dek, nonce: [u8; NONCE], binding: &Binding<'_>, secret: &Secret) -> Vec<u8> {
    let (key, commit) = derive(dek);
    let payload = Payload { msg: secret.expose(), aad: &binding.aad() };
    let encrypted = Aes256Gcm::new((&*key).into())
        .encrypt(&Nonce::from(nonce), payload)
        .expect("a secret is far below the 64 GiB limit of AES-GCM");
    [&[VERSION], commit.as_slice(), &nonce, &encrypted].concat()
}

fn decrypt(dek: &Dek, binding: &Binding<'_>, blob: &[u8]) -> Result<Secret, OpenError> {
    let (&version, rest) = blob.split_first().ok_or(OpenError::Failed)?;
    let (claimed, rest) = rest.split_first_chunk::<COMMIT>().ok_or(OpenError::Failed)?;
    let (nonce, encrypted) = rest.split_first_chunk::<NONCE>().ok_or(OpenError::Failed)?;
    let (key, commit) = derive(dek);
    if version != VERSION || !bool::from(claimed.ct_eq(&*commit)) {
        return Err(OpenError::Failed);
    }
    let payload = Payload { msg: encrypted, aad: &binding.aad() };
    let opened = Aes256Gcm::new((&*key).into())
        .decrypt(&Nonce::from(*nonce), payload)
        .map_err(|_| OpenError::Failed)?;
    Ok(Secret::new(opened))
}

/// What encrypts, and what says which key did.
fn derive(dek: &Dek) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; COMMIT]>) {
    let mut both = Zeroizing::new([0; 32 + COMMIT]);
    Hkdf::<Sha256>::new(None, dek.as_slice())
        .expand(b"euterpe/cred/v1", both.as_mut_slice())
        .expect("64 bytes are far below the limit of HKDF");
    let (mut key, mut commit) = (Zeroizing::new([0; 32]), Zeroizing::new([0; COMMIT]));
    key.copy_from_slice(&both[..32]);
    commit.copy_from_slice(&both[32..]);
    (key, commit)
}

/// `dek` under `kek`; the part of a [`KeyProvider`] that has its keys in memory.
pub(super) fn wrap(kek: &[u8; 32], nonce: [u8; NONCE], dek: &Dek, aad: &[u8]) -> Vec<u8> {
    let wrapped = Aes256Gcm::new(kek.into())
        .encrypt(&Nonce::from(nonce), Payload { msg: dek.as_slice(), aad })
        .expect("32 bytes are far below the 64 GiB limit of AES-GCM");
    [&[VERSION], nonce.as_slice(), &wrapped].concat()
}

/// What [`wrap`] was given.
pub(super) fn unwrap(kek: &[u8; 32], blob: &[u8], aad: &[u8]) -> Result<Dek, OpenError> {
    let (&version, rest) = blob.split_first().ok_or(OpenError::Failed)?;
    let (nonce, wrapped) = rest.split_first_chunk::<NONCE>().ok_or(OpenError::Failed)?;
    if version != VERSION || wrapped.len() != 32 + TAG {
        return Err(OpenError::Failed);
    }
    let payload = Payload { msg: wrapped, aad };
    let opened =
        Aes256Gcm::new(kek.into()).decrypt(&Nonce::from(*nonce), payload).map_err(|_| OpenError::Failed)?;
    let opened = Zeroizing::new(opened);
    let mut dek = Dek::default();
    dek.copy_from_slice(&opened);
    Ok(dek)
}

/// Bytes as Postgres reads them from text.
fn bytea(bytes: &[u8]) -> String {
    format!("\\x{}", hex::encode(bytes))
}
