//! Who asks for work.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// A requester's name: 1 to 64 of `a-z 0-9 _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequesterId(String);

/// A name that is no requester's.
#[derive(Debug, thiserror::Error)]
#[error("requester id {0:?} must be 1 to 64 of a-z 0-9 _ -")]
pub struct BadRequesterId(String);

impl RequesterId {
    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last byte of every job id of this requester: each id says where it lives.
    #[must_use]
    pub fn bucket(&self) -> u8 {
        Sha256::digest(self.0.as_bytes())[0]
    }
}

impl FromStr for RequesterId {
    type Err = BadRequesterId;

    fn from_str(text: &str) -> Result<Self, BadRequesterId> {
        let is_slug = (1..=64).contains(&text.len())
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        if is_slug { Ok(Self(text.to_owned())) } else { Err(BadRequesterId(text.to_owned())) }
    }
}

impl fmt::Display for RequesterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
