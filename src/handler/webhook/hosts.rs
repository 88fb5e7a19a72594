//! At most a few deliveries at once to one host, so that one that is slow does not take every hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many at once to one host.
#[derive(Debug, Clone, Copy)]
pub struct PerHost {
    /// Under way.
    pub deliveries: usize,
    /// Further ones that may wait a moment for a place. A host that is quick has one soon, and handing an event back
    /// costs more than such a wait.
    pub waiting: usize,
    /// That moment.
    pub patience: Duration,
}

impl PerHost {
    /// For a loop of `concurrency` hands: whatever one host does, one hand is left for the others.
    #[must_use]
    pub fn of(deliveries: usize, concurrency: usize) -> Self {
        let waiting = concurrency.saturating_sub(deliveries + 1).min(2 * deliveries);
        Self { deliveries, waiting, patience: Duration::from_millis(250) }
    }
}

/// Who is under way to where. A host is here only while somebody is.
pub struct Hosts {
    per_host: PerHost,
    hosts: Arc<Mutex<HashMap<String, Host>>>,
}

struct Host {
    places: Arc<Semaphore>,
    /// Under way or waiting.
    guests: usize,
}

/// A delivery under way to a host, or one that waits for it.
pub struct Guest {
    host: String,
    hosts: Arc<Mutex<HashMap<String, Host>>>,
    place: Option<OwnedSemaphorePermit>,
}

impl Hosts {
    /// With nobody under way.
    #[must_use]
    pub fn new(per_host: PerHost) -> Self {
        Self { per_host, hosts: Arc::default() }
    }

    /// A place at the host of `origin`; `None`: it is busy.
    pub async fn enter(&self, origin: &str) -> Option<Guest> {
        let (mut guest, places) = self.queue(host_of(origin))?;
        // Waiting costs a hand; whoever finds a place free does not wait.
        guest.place = timeout(self.per_host.patience, places.acquire_owned()).await.ok()?.ok();
        Some(guest)
    }

    fn queue(&self, name: &str) -> Option<(Guest, Arc<Semaphore>)> {
        let mut hosts = lock(&self.hosts);
        let host = hosts.entry(name.to_owned()).or_insert_with(|| Host {
            places: Arc::new(Semaphore::new(self.per_host.deliveries)),
            guests: 0,
        });
        if host.guests >= self.per_host.deliveries + self.per_host.waiting {
            return None;
        }
        host.guests += 1;
        let guest = Guest { host: name.to_owned(), hosts: Arc::clone(&self.hosts), place: None };
        Some((guest, Arc::clone(&host.places)))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut hosts = lock(&self.hosts);
        if let Some(host) = hosts.get_mut(&self.host) {
            drop(self.place.take());
            host.guests -= 1;
            if host.guests == 0 {
                hosts.remove(&self.host);
            }
        }
    }
}

fn lock(hosts: &Mutex<HashMap<String, Host>>) -> MutexGuard<'_, HashMap<String, Host>> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Host without scheme and port: two ports of one machine are one machine.
fn host_of(origin: &str) -> &str {
    let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_of_a_machine_are_one_host() {
        for (origin, host) in [
            ("https://hooks.example", "hooks.example"),
            ("https://hooks.example:8443", "hooks.example"),
            ("http://127.0.0.1:9", "127.0.0.1"),
            ("https://[2606:4700::1111]:8443", "[2606:4700::1111]"),
            ("https://[2606:4700::1111]", "[2606:4700::1111]"),
        ] {
            assert_eq!(host_of(origin), host);
        }
    }

    #[test]
    fn one_hand_is_left_for_other_hosts() {
        for (deliveries, concurrency, waiting) in [(2, 5, 2), (2, 3, 0), (2, 1, 0), (2, 100, 4), (5, 5, 0)] {
            assert_eq!(
                PerHost::of(deliveries, concurrency).waiting,
                waiting,
                "{deliveries} of {concurrency}"
            );
        }
    }

    #[tokio::test]
    async fn a_third_waits_a_moment_a_fourth_is_sent_away_and_another_host_does_not_notice() {
        let a_minute = Duration::from_secs(60);
        let hosts = Hosts::new(PerHost { deliveries: 2, waiting: 1, patience: a_minute });
        let (first, second) = (hosts.enter("https://a").await, hosts.enter("https://a").await);
        let mut third = Box::pin(hosts.enter("https://a"));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert!(hosts.enter("https://a").await.is_none(), "there is no room to wait");
        assert!(hosts.enter("https://b").await.is_some());
        drop(first);
        let third = third.await;
        assert!(third.is_some());
        drop((second, third));
        assert!(lock(&hosts.hosts).is_empty(), "a host with nobody under way is forgotten");
    }

    #[tokio::test]
    async fn whoever_waits_in_vain_is_sent_away() {
        let hosts = Hosts::new(PerHost { deliveries: 1, waiting: 1, patience: Duration::ZERO });
        let first = hosts.enter("https://a").await;
        assert!(first.is_some() && hosts.enter("https://a").await.is_none());
        drop(first);
        assert!(hosts.enter("https://a").await.is_some());
    }
}
