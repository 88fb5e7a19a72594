//! One integration binary: it links once and shares one private Postgres. Each file opens with the contract
//! section it holds us to.
#![allow(clippy::unwrap_used, missing_docs, clippy::too_many_lines)]
#![allow(clippy::format_push_string, clippy::cast_precision_loss, clippy::unchecked_time_subtraction)]

mod support;

mod backoff;
mod bad_input;
mod cancel;
mod circuits;
mod cli;
mod cli_page;
mod commands;
mod containers;
mod crowd;
mod crypto;
mod cut_off;
mod doctor;
mod egress;
mod endings;
mod enqueue;
mod events;
mod exam;
mod failover;
mod fairness;
mod first_job;
mod house_style;
mod http;
mod idempotency;
mod keys;
mod lease;
mod line;
mod manners;
mod marked_secret;
mod mend;
mod migrator;
mod observability;
mod online;
mod openapi;
mod operations;
mod order;
mod outage;
mod outbox;
mod ownership;
mod partitions;
mod people;
mod privileges;
mod receivers;
mod reclaim;
mod request_hash;
mod requesters;
mod requests;
mod retry;
mod rolling_upgrade;
mod schema;
mod secrets;
mod state_machine;
mod steering;
mod stranded;
mod tls;
mod wake;
mod webhook;
mod worker;
mod worker_identity;
