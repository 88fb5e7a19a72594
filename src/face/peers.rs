//! How many connections each address has, so that one client cannot take every seat.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who is connected from where. An address is here only while it has a connection.
#[derive(Clone)]
pub(super) struct Peers {
    most: usize,
    connected: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of an address, until it is dropped.
pub(super) struct Peer {
    address: IpAddr,
    peers: Peers,
}

impl Peers {
    /// At most so many from one address.
    pub(super) fn new(most: usize) -> Self {
        Self { most, connected: Arc::default() }
    }

    /// One more connection from `address`; `None`: it has enough.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Peer> {
        let address = counted_as(address);
        let mut connected = self.connected();
        let count = connected.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        drop(connected);
        Some(Peer { address, peers: self.clone() })
    }

    fn connected(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut connected = self.peers.connected();
        if let Some(count) = connected.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.address);
            }
        }
    }
}

/// A v6 host has a whole /64 to itself, and would never be met twice.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count_and_is_forgotten_with_its_last_connection() {
        let peers = Peers::new(2);
        let enter = |text: &str| peers.enter(text.parse().expect("an address"));
        let (first, second) = (enter("192.0.2.1"), enter("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some() && enter("192.0.2.1").is_none());
        let other = enter("192.0.2.2");
        assert!(other.is_some());
        drop(first);
        let again = enter("192.0.2.1");
        assert!(again.is_some() && enter("192.0.2.1").is_none());

        let (one, two) = (enter("2001:db8::1"), enter("2001:db8::ffff:1"));
        assert!(one.is_some() && two.is_some() && enter("2001:db8::2").is_none(), "one /64 is one host");
        assert!(enter("2001:db8:0:1::1").is_some());
        drop((second, other, again, one, two));
        assert!(peers.connected().is_empty());
    }
}
