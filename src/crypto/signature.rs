//! Contract §8: the signature of a webhook, and beside it that of Standard Webhooks over the same body and secret.

use aes_gcm::aead::Generate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::Secret;

/// How far a receiver's clock may be from ours: the contract's five minutes.
pub const SKEW_SECONDS: u64 = 300;

/// What signs a requester's webhooks: 32 bytes, written `whsec_` and base64.
#[derive(Clone)]
pub struct SigningSecret(Secret);

/// Not a signing secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is whsec_ and base64 of 24 to 64 bytes")]
pub struct BadSigningSecret;

impl SigningSecret {
    /// A new one.
    #[must_use]
    pub fn generate() -> Self {
        let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(Generate::generate());
        Self(Secret::new(bytes.to_vec()))
    }

    /// As people hand it on.
    pub fn parse(text: &str) -> Result<Self, BadSigningSecret> {
        let base64 = text.trim().strip_prefix("whsec_").ok_or(BadSigningSecret)?;
        Self::try_from(Secret::new(STANDARD.decode(base64).map_err(|_| BadSigningSecret)?))
    }

    /// Written out, for the one who is to verify with it.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("whsec_{}", *Zeroizing::new(STANDARD.encode(self.0.expose()))))
    }

    /// The bytes, to be sealed.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.0
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.expose()).expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl TryFrom<Secret> for SigningSecret {
    type Error = BadSigningSecret;

    /// 24 to 64 bytes are what Standard Webhooks allows; ours are 32.
    fn try_from(bytes: Secret) -> Result<Self, BadSigningSecret> {
        if (24..=64).contains(&bytes.expose().len()) { Ok(Self(bytes)) } else { Err(BadSigningSecret) }
    }
}

/// Signs the bytes that will go on the wire: lowercase hex of HMAC-SHA256 over `timestamp.nonce.body`.
#[must_use]
pub fn sign(secret: &SigningSecret, timestamp: &str, nonce: &str, raw_body: &[u8]) -> String {
    hex::encode(contracts(secret, timestamp, nonce, raw_body).finalize().into_bytes())
}

/// Why a receiver refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not signed with this secret, or not over these bytes.
    #[error("the signature does not fit")]
    Signature,
    /// Signed too long ago, or in the future.
    #[error("the timestamp is more than {SKEW_SECONDS} s from now")]
    Timestamp,
}

/// Checks a signature as a receiver should: in constant time, then the clock. Nonces are remembered by the receiver.
pub fn verify(
    secret: &SigningSecret,
    timestamp: &str,
    nonce: &str,
    raw_body: &[u8],
    signature: &str,
    now: i64,
) -> Result<(), Rejected> {
    let claimed = hex::decode(signature).map_err(|_| Rejected::Signature)?;
    contracts(secret, timestamp, nonce, raw_body).verify_slice(&claimed).map_err(|_| Rejected::Signature)?;
    let signed_at: i64 = timestamp.parse().map_err(|_| Rejected::Timestamp)?;
    if signed_at.abs_diff(now) <= SKEW_SECONDS { Ok(()) } else { Err(Rejected::Timestamp) }
}

fn contracts(secret: &SigningSecret, timestamp: &str, nonce: &str, raw_body: &[u8]) -> Hmac<Sha256> {
    secret.mac(&[timestamp.as_bytes(), b".", nonce.as_bytes(), b".", raw_body])
}

/// The headers of one delivery attempt. Timestamp and nonce are fresh with each; `event_id` never changes.
#[derive(Debug, Clone)]
pub struct Signed {
    event_id: String,
    timestamp: String,
    nonce: String,
    /// One, by the active secret.
    signature: String,
    /// One per secret: both, while one is rotated.
    standard: String,
}

impl Signed {
    /// Signs `raw_body` with `active`; Standard Webhooks has room for the signatures of `others`, too.
    #[must_use]
    pub fn new(
        active: &SigningSecret,
        others: &[SigningSecret],
        event_id: &str,
        now: i64,
        raw_body: &[u8],
    ) -> Self {
        let nonce: [u8; 16] = Generate::generate();
        let (timestamp, nonce) = (now.to_string(), hex::encode(nonce));
        let standard: Vec<_> = std::iter::once(active)
            .chain(others)
            .map(|secret| {
                let mac = secret.mac(&[event_id.as_bytes(), b".", timestamp.as_bytes(), b".", raw_body]);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            })
            .collect();
        Self {
            signature: sign(active, &timestamp, &nonce, raw_body),
            standard: standard.join(" "),
            event_id: event_id.to_owned(),
            timestamp,
            nonce,
        }
    }

    /// Name and value of each.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, &str); 7] {
        [
            ("x-euterpe-signature", &self.signature),
            ("x-euterpe-timestamp", &self.timestamp),
            ("x-euterpe-nonce", &self.nonce),
            ("x-euterpe-event-id", &self.event_id),
            ("webhook-id", &self.event_id),
            ("webhook-timestamp", &self.timestamp),
            ("webhook-signature", &self.standard),
        ]
    }
}
