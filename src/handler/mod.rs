//! What is done with what a worker has taken: one module per kind of work.

pub mod webhook;
