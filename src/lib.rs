//! Euterpe, a Postgres-native queue service.
//!
//! The queue is the database: claim, lease, fence, dedupe, retry and outbox are the functions of `sql/`. This
//! library carries: it checks what comes in, calls one function per method, and runs the loops around them.
//!
//! The modules are listed in the order a request travels through them, not alphabetically; the blank lines
//! keep `rustfmt` from sorting them.

/// The contract's words as types. No I/O.
pub mod domain;

/// Sealing, keys and signatures: what stands between a secret and everything else.
pub mod crypto;

/// Faces: wire protocols in front of the queue. A request comes in here.
pub mod face;

/// The one door to the database; every method is one SQL function.
pub mod store;

/// Someone takes it: claim, lease, settle, for any kind of work.
pub mod worker;

/// The one way out: calls to urls that somebody gave us.
pub mod egress;

/// Where media is: object storage, signed urls, shared volumes.
pub mod storage;

/// ffmpeg and its cage.
pub mod media;

/// What is done with what was taken: one module per kind of work.
pub mod handler;

/// What people tell a running system: the commands of `euterpe`.
pub mod cli;

/// A private Postgres and a first look at the queue, for people who have neither.
pub mod dev;

/// Whom we believe that they are who they say.
pub mod authorities;

/// What a process says of itself.
pub mod telemetry;

/// What every program does when it starts.
pub mod boot;

/// Every setting, typed and bounded, read once.
pub mod config;
