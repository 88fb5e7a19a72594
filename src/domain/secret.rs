//! Contract §10: what is sealed, and how it comes back from the database.

/// What a sealed secret is for. Bound into the ciphertext, so that one never stands in for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Credentials and signed urls of a job.
    Storage,
    /// Webhook and refresh url of a job.
    Callback,
    /// A requester's signing secret.
    Signing,
}

impl Purpose {
    /// The word SQL uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Callback => "callback",
            Self::Signing => "signing",
        }
    }

    /// The purpose that SQL calls `word`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Storage, Self::Callback, Self::Signing].into_iter().find(|purpose| purpose.as_str() == word)
    }
}

/// A sealed secret as it was stored: what is needed to open it, apart from what it is bound to.
#[derive(Clone, Copy)]
pub struct SealedParts<'a> {
    /// Ciphertext under a key of its own.
    pub encrypted: &'a [u8],
    /// That key, wrapped.
    pub dek_wrapped: &'a [u8],
    /// Which key wrapped it.
    pub kek_id: &'a str,
    /// Format of the ciphertext.
    pub encryption_version: i16,
}
