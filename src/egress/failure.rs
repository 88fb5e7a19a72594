//! Why a call has no answer.

use crate::domain::EgressFault;

/// Why a call has no answer. Says neither the url, which may be a secret, nor an address: what a name resolves to
/// inside our network is not for the one who made us ask.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// We do not go there, by the look of the url.
    #[error("the url {0}")]
    Blocked(#[from] EgressFault),
    /// We do not go there: the name means an address that is not public.
    #[error("the host's name resolves to an address that is not allowed")]
    BlockedAddress,
    /// The name means nothing.
    #[error("the host's name does not resolve")]
    Dns,
    /// Nobody is there.
    #[error("no connection: {0}")]
    Connect(String),
    /// It is not who it should be, or speaks no TLS.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// It took too long.
    #[error("no answer in time")]
    Timeout,
    /// It hung up before it had answered.
    #[error("hung up before it had answered")]
    Closed,
    /// What it said is no HTTP, or too large.
    #[error("the answer is no HTTP, or its head is too large")]
    Protocol,
}

impl Failure {
    /// The class of `euterpe.delivery_classes`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Blocked(_) | Self::BlockedAddress => "blocked",
            Self::Dns => "dns",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
        }
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() || error.is_user() { Self::Protocol } else { Self::Closed }
    }
}
