//! Faces: wire protocols in front of the queue. A request comes in here.

mod framing;
mod linger;
pub mod manners;
mod peers;
pub mod serve;
mod strict;
pub mod transcode;
mod unread;
