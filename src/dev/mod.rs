//! For people who have neither a database nor a worker yet: a private Postgres, and all of Euterpe around it.

mod cluster;
mod demo;
mod house;
mod stay;
mod tenant;

use std::fmt::Display;
use std::io::{self, Write, stdout};

use tokio::signal::unix::{SignalKind, signal};

pub use cluster::{Cluster, ClusterError, Durability};
pub use demo::demo;
pub use house::{OPERATOR, make_logins};
pub use stay::dev;

/// Ends with Ctrl-C, when the terminal is closed, or when somebody asks us to stop: from this call on, not from the
/// first look at it.
fn interrupted() -> io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = term.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// A line for whoever looks on. Nobody looks any more: an error like any other, and everything is stopped in order;
/// `println!` would panic.
fn tell(line: impl Display) -> io::Result<()> {
    writeln!(stdout(), "{line}")
}
