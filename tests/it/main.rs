//! One integration binary: it links once and shares one private Postgres. Each file opens with the contract
//! section it holds us to.
#![allow(clippy::unwrap_used, missing_docs, clippy::too_many_lines)]
#![allow(clippy::format_push_string, clippy::cast_precision_loss, clippy::unchecked_time_subtraction)]

mod support;

mod backoff;
mod bad_input;
mod cancel;
mod cut_off;
mod enqueue;
mod events;
mod exam;
mod failover;
mod fairness;
mod house_style;
mod idempotency;
mod lease;
mod line;
mod migrator;
mod online;
mod operations;
mod ownership;
mod partitions;
mod people;
mod privileges;
mod reclaim;
mod request_hash;
mod requesters;
mod requests;
mod retry;
mod rolling_upgrade;
mod schema;
mod state_machine;
mod steering;
mod stranded;
mod wake;
mod worker;
mod worker_identity;
