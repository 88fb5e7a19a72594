//! At most a few deliveries at once to one host, so that one that is slow does not take every hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
    /// That moment. At a host whose deliveries take longer nobody waits.
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
    /// Since when each that is under way is.
    since: Vec<Instant>,
}

/// A delivery under way to a host, or one that waits for it.
pub struct Guest {
    host: String,
    hosts: Arc<Mutex<HashMap<String, Host>>>,
    place: Option<(OwnedSemaphorePermit, Instant)>,
}

/// The host has its hands full: come back after so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy(pub Duration);

impl Host {
    /// As long as its oldest delivery takes already, and a second at least: a line of events for a host that hangs comes
    /// back after 1, 2, 4, 8 s, not each second.
    fn busy(&self) -> Busy {
        Busy(self.oldest().max(Duration::from_secs(1)))
    }

    fn oldest(&self) -> Duration {
        self.since.iter().min().map(Instant::elapsed).unwrap_or_default()
    }
}

impl Hosts {
    /// With nobody under way.
    #[must_use]
    pub fn new(per_host: PerHost) -> Self {
        Self { per_host, hosts: Arc::default() }
    }

    /// A place at the host of `origin`, perhaps after a moment.
    ///
    /// # Panics
    /// Never: a host is here while it has a guest.
    pub async fn enter(&self, origin: &str) -> Result<Guest, Busy> {
        let (mut guest, places) = self.queue(host_of(origin))?;
        let place = timeout(self.per_host.patience, places.acquire_owned()).await;
        let mut hosts = lock(&self.hosts);
        let host = hosts.get_mut(&guest.host).expect("a host with a guest is here");
        let Ok(Ok(permit)) = place else {
            let busy = host.busy();
            drop(hosts);
            return Err(busy);
        };
        let now = Instant::now();
        host.since.push(now);
        guest.place = Some((permit, now));
        drop(hosts);
        Ok(guest)
    }

    fn queue(&self, name: &str) -> Result<(Guest, Arc<Semaphore>), Busy> {
        let mut hosts = lock(&self.hosts);
        let host = hosts.entry(name.to_owned()).or_insert_with(|| Host {
            places: Arc::new(Semaphore::new(self.per_host.deliveries)),
            guests: 0,
            since: Vec::new(),
        });
        let is_full = host.guests >= self.per_host.deliveries;
        let is_slow = host.oldest() > self.per_host.patience;
        if host.guests >= self.per_host.deliveries + self.per_host.waiting || (is_full && is_slow) {
            return Err(host.busy());
        }
        host.guests += 1;
        let guest = Guest { host: name.to_owned(), hosts: Arc::clone(&self.hosts), place: None };
        Ok((guest, Arc::clone(&host.places)))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut hosts = lock(&self.hosts);
        if let Some(host) = hosts.get_mut(&self.host) {
            if let Some((_, since)) = self.place.take()
                && let Some(at) = host.since.iter().position(|one| *one == since)
            {
                host.since.swap_remove(at);
            }
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
        let fourth = hosts.enter("https://a").await.err();
        assert_eq!(fourth, Some(Busy(Duration::from_secs(1))), "there is no room to wait");
        assert!(hosts.enter("https://b").await.is_ok());
        drop(first);
        let third = third.await;
        assert!(third.is_ok());
        drop((second, third));
        assert!(lock(&hosts.hosts).is_empty(), "a host with nobody under way is forgotten");
    }

    #[tokio::test]
    async fn at_a_slow_host_nobody_waits_and_comes_back_later_the_slower_it_is() {
        let a_minute = Duration::from_secs(60);
        let hosts = Hosts::new(PerHost { deliveries: 1, waiting: 1, patience: a_minute });
        let first = hosts.enter("https://a").await;
        let long_ago = Instant::now().checked_sub(2 * a_minute).expect("this machine runs for two minutes");
        lock(&hosts.hosts).get_mut("a").expect("it is under way").since = vec![long_ago];
        let Err(Busy(wait)) = hosts.enter("https://a").await else { panic!("it is busy") };
        assert!(wait >= 2 * a_minute);
        drop(first);
        assert!(hosts.enter("https://a").await.is_ok());
    }

    #[tokio::test]
    async fn whoever_waits_in_vain_is_sent_away() {
        let hosts = Hosts::new(PerHost { deliveries: 1, waiting: 1, patience: Duration::from_millis(20) });
        let first = hosts.enter("https://a").await;
        assert!(first.is_ok() && hosts.enter("https://a").await.is_err());
        drop(first);
        assert!(hosts.enter("https://a").await.is_ok());
    }
}
