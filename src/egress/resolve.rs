//! From a name to addresses that we may go to.

use std::io;
use std::net::{IpAddr, SocketAddr};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use url::{Host, Url};

use super::{Egress, Failure};
use crate::domain::EgressFault;

/// What a name means, or why it means nothing.
pub type Resolved = io::Result<Vec<IpAddr>>;

/// Says what a name means. A test has one that changes its mind.
pub trait Resolve: Send + Sync {
    /// All addresses of `name`, now.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Resolved>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy)]
pub struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Resolved> {
        let found = async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        };
        found.boxed()
    }
}

impl Egress {
    /// Where `url` may be reached. One address that is not allowed is enough to refuse the name: whoever owns it may
    /// order its addresses as they like.
    pub(super) async fn places(&self, url: &Url) -> Result<Vec<SocketAddr>, Failure> {
        let addresses = match url.host() {
            // A literal is no name: nobody resolves it, so it is judged here.
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            Some(Host::Domain(name)) => {
                let found = timeout(self.limits.connect, self.resolver.resolve(name)).await;
                found.map_err(|_| Failure::Dns)?.map_err(|_| Failure::Dns)?
            }
            None => return Err(Failure::Dns),
        };
        if addresses.is_empty() {
            return Err(Failure::Dns);
        }
        if !addresses.iter().all(|address| self.policy.allows(*address)) {
            return Err(Failure::BlockedAddress);
        }
        let port = url.port_or_known_default().unwrap_or(443);
        if !self.policy.allows_port(port) {
            return Err(Failure::Blocked(EgressFault::Port));
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address.to_canonical(), port)).collect())
    }
}
