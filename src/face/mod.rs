//! Faces: wire protocols in front of the queue. A request comes in here.

mod linger;
pub mod manners;
pub mod serve;
pub mod transcode;
mod unread;
