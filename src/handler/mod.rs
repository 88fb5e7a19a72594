//! What is done with what a worker has taken: one module per kind of work.

pub mod opening;
pub mod signers;
pub mod transcode;
pub mod webhook;
