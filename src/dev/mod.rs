//! For people who have neither a database nor a worker yet: a private Postgres, and all of Euterpe around it.

mod cluster;
mod demo;
mod house;
mod stay;
mod tenant;

use tokio::signal::unix::{SignalKind, signal};

pub use cluster::{Cluster, ClusterError, Durability};
pub use demo::demo;
pub use house::{OPERATOR, make_logins};
pub use stay::dev;

/// Ends with Ctrl-C, or when somebody asks us to stop: from this call on, not from the first look at it.
fn interrupted() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = term.recv() => {}
        }
    })
}
