//! A secret that can be used but not shown.

use secrecy::{ExposeSecret, SecretBox};
use zeroize::Zeroize;

/// Bytes that can be used but not shown, and are wiped when they go.
///
/// A type that cannot be printed is worth more than a rule not to print it. There is no `Debug`, so no struct that
/// holds one can derive it either, and no `tracing` field can be made of it:
///
/// ```compile_fail
/// let secret = euterpe::crypto::Secret::from("hunter2");
/// println!("{secret:?}");
/// ```
/// ```compile_fail
/// let secret = euterpe::crypto::Secret::from("hunter2");
/// println!("{secret}");
/// ```
/// ```compile_fail
/// let secret = euterpe::crypto::Secret::from("hunter2");
/// serde_json::to_string(&secret);
/// ```
/// That these fail for no other reason:
/// ```
/// let secret = euterpe::crypto::Secret::from("hunter2");
/// println!("{} bytes", secret.expose().len());
/// ```
#[derive(Clone)]
pub struct Secret(SecretBox<[u8]>);

impl Secret {
    /// Takes the bytes over, and wipes where they were.
    #[must_use]
    pub fn new(mut bytes: Vec<u8>) -> Self {
        // Not `into_boxed_slice`: shrinking may move the bytes and leave the old ones behind.
        let exact = Box::from(bytes.as_slice());
        bytes.zeroize();
        Self(SecretBox::new(exact))
    }

    /// The bytes. Every use of this is a place to look at.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose_secret()
    }

    /// The bytes as text, when they are text.
    #[must_use]
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(self.expose()).ok()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes().to_vec())
    }
}
