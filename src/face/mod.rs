//! Faces: wire protocols in front of the queue. A request comes in here.

pub mod manners;
pub mod serve;
pub mod transcode;
