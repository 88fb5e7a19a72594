//! Design §5.18: the one way out. Webhooks, refresh calls, signed urls and custom S3 endpoints are urls that somebody
//! gave us; whoever calls them goes through here, and becomes nobody's tool against the network we stand in.
//!
//! A call goes: `check` (spelling) → [`Resolve`] → every address judged → a connection to exactly that address → TLS for the
//! host's name → one request → an answer that is bounded while it is read. Each call resolves and judges anew, and has a
//! connection of its own: a kept one would outlive its judgement, and one that the other side has closed meanwhile
//! fails a delivery for nothing.
//!
//! A webhook's answer is small and looked at whole ([`Egress::call`]); media is streamed both ways, for as long as bytes
//! move ([`Egress::stream`]). Both take the same road.
//!
//! This is hyper over our own connection, not a client with everything: such a one asks no resolver about `http://127.1`,
//! follows redirects, and reads proxies from the environment unless it is told not to, each time.

mod call;
mod connect;
mod failure;
mod hear_out;
mod resolve;
mod retry_after;
mod stream;

pub use call::{Answer, Call, Egress, Limits};
pub use failure::Failure;
pub use resolve::{Resolve, Resolved, System};
pub use retry_after::retry_after;
pub use stream::{Arriving, Sending, Streamed};
