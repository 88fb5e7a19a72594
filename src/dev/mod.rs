//! For people who have neither a database nor a worker yet: a private Postgres, and a first look at the queue.

mod cluster;
mod demo;
mod demo_worker;

pub use cluster::{Cluster, ClusterError, Durability};
pub use demo::demo;
pub use demo_worker::demo_worker;
