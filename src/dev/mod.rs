//! For people who have neither a database nor a worker yet: a private Postgres, and all of Euterpe around it.

mod bars;
mod cluster;
mod demo;
mod house;
mod stay;
mod tenant;
mod user;

pub use cluster::{Cluster, ClusterError, Durability};
pub use demo::demo;
pub use stay::dev;

/// Waits for Ctrl-C, or for somebody who asks us to stop.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}
