//! Contract §8: a webhook is signed and sent, and what it met is said.
//!
//! An event goes: a place at its host → its url, read behind the fence and opened → a signature with a fresh timestamp
//! and nonce → one guarded call → a [`Delivery`]. What follows from that is decided in SQL.

mod answer;
mod callbacks;
mod hosts;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;

pub use answer::delivery_of;
pub use hosts::{Busy, Hosts, PerHost};

use callbacks::Callbacks;

use super::opening::Opener;
use super::signers::{Signers, Unsigned, post};
use crate::crypto::{Binding, KeyProvider, OpenError};
use crate::domain::transcode::{CallbackSecret, Hidden};
use crate::domain::{Delivery, EventReleaseReason, JobId, Outcome, RequesterId, WorkerId};
use crate::egress::Egress;
use crate::store::{ClaimedEvent, Store, StoreError};
use crate::worker::{EventEnding, Events, Handler, Held, Lane};

/// A key that this process does not have will not be here sooner; another process may take the event meanwhile.
const NO_KEY: Duration = Duration::from_secs(30);

/// Delivers events.
pub struct Webhooks {
    callbacks: Callbacks,
    opener: Arc<Opener>,
    egress: Egress,
    hosts: Hosts,
    signers: Signers,
}

/// Why an event was not tried, or failed before anything was sent.
enum Unsent {
    /// Nobody is to blame, or we are: again later, uncounted.
    Later(EventReleaseReason, Duration),
    /// It counts as an attempt of this class.
    Failed(&'static str, String),
}

impl Webhooks {
    /// Reads with `store` what `worker` has claimed, and sends it by `egress`.
    #[must_use]
    pub fn new(
        store: Store,
        worker: WorkerId,
        keys: Arc<dyn KeyProvider>,
        egress: Egress,
        per_host: PerHost,
    ) -> Self {
        let opener = Arc::new(Opener::new(keys));
        let signers = Signers::new(store.clone(), Arc::clone(&opener));
        let callbacks = Callbacks::new(store, worker);
        Self { callbacks, opener, egress, hosts: Hosts::new(per_host), signers }
    }

    async fn deliver<L: Lane>(&self, event: &ClaimedEvent, held: &Held<L>) -> Result<Delivery, Unsent> {
        let origin = event.callback_origin.as_deref().unwrap_or_default();
        let busy = |Busy(wait)| Unsent::Later(EventReleaseReason::HostBusy, wait);
        let _place = self.hosts.enter(origin).await.map_err(busy)?;
        let requester: RequesterId = event
            .requester_id
            .parse()
            .map_err(|_| Unsent::Failed("internal", "the requester's name is none".into()))?;
        let url = self.url_of(event, &requester, held).await?;
        let secrets = self.signers.of(&requester, held).await.map_err(unsigned)?;

        let payload = Bytes::copy_from_slice(event.payload.as_bytes());
        let begun = Instant::now();
        let answered = post(&self.egress, url.expose(), &secrets, &event.event_id, payload).await;
        let duration_ms = i32::try_from(begun.elapsed().as_millis()).unwrap_or(i32::MAX);
        Ok(Delivery { duration_ms, ..delivery_of(answered, Timestamp::now()) })
    }

    /// Where it goes. Read for each attempt, behind the fence: whoever has lost the event learns no url.
    async fn url_of<L: Lane>(
        &self,
        event: &ClaimedEvent,
        requester: &RequesterId,
        held: &Held<L>,
    ) -> Result<Hidden, Unsent> {
        let read = held.insist(|| self.callbacks.of(event.claim)).await;
        let sealed = match read.map_err(|error| our_fault(&error))? {
            (Outcome::Ok, Some(sealed)) => sealed,
            (Outcome::Ok, None) => return Err(no_url()),
            // It is somebody else's now, and this ending will be refused.
            _ => return Err(Unsent::Later(EventReleaseReason::NotStarted, Duration::ZERO)),
        };
        let binding = Binding::callback(JobId(sealed.bound_to), requester);
        let opened = self.opener.open(&binding, sealed.parts()).map_err(|error| unopened(&error))?;
        let callback = opened.expose_str().and_then(|text| CallbackSecret::read(text).ok());
        callback.and_then(|callback| callback.status_webhook_url).ok_or_else(no_url)
    }
}

impl<L> Handler<L> for Webhooks
where
    L: Lane<Item = ClaimedEvent, Claim = <Events as Lane>::Claim, Ending = EventEnding>,
{
    async fn handle(&self, event: ClaimedEvent, held: &Held<L>) -> EventEnding {
        let met = match self.deliver(&event, held).await {
            Ok(met) => met,
            Err(Unsent::Later(reason, delay)) => {
                let why = reason.as_str();
                metrics::counter!("euterpe_deliveries_put_off_total", "reason" => why).increment(1);
                tracing::debug!(event_id = event.event_id, why, "put off");
                return EventEnding::Released(reason, delay);
            }
            Err(Unsent::Failed(class, why)) => {
                Delivery { answer: Some(why.into_bytes()), ..Delivery::failed(class) }
            }
        };
        tell(&event, met.error_class.as_deref().unwrap_or("delivered"), &met);
        EventEnding::Tried(met)
    }
}

fn no_url() -> Unsent {
    Unsent::Failed("decrypt_failed", "there is no webhook url to be opened".into())
}

/// What the attempt says of it is read by the requester; what it was is for us.
fn our_fault(error: &StoreError) -> Unsent {
    tracing::error!(error = error as &dyn Error, "cannot read what a delivery needs");
    Unsent::Failed("internal", "our fault".into())
}

fn unsigned(why: Unsigned) -> Unsent {
    match why {
        Unsigned::Sealed(error) => unopened(&error),
        Unsigned::Other(why) => Unsent::Failed("internal", why),
    }
}

fn unopened(error: &OpenError) -> Unsent {
    match error {
        OpenError::UnknownKek(_) => Unsent::Later(EventReleaseReason::UnknownKek, NO_KEY),
        OpenError::Failed => Unsent::Failed("decrypt_failed", error.to_string()),
    }
}

/// One line and two numbers per attempt; what followed is counted where the database's answer is read. The origin may be
/// shown, the rest of the url may not.
fn tell(event: &ClaimedEvent, outcome: &str, met: &Delivery) {
    metrics::counter!("euterpe_delivery_attempts_total", "met" => outcome.to_owned()).increment(1);
    if met.http_status.is_some() {
        metrics::histogram!("euterpe_delivery_seconds").record(f64::from(met.duration_ms) / 1000.0);
    }
    tracing::info!(
        event_id = event.event_id,
        requester_id = event.requester_id,
        origin = event.callback_origin,
        attempt = event.attempt_count + 1,
        outcome,
        http_status = met.http_status,
        duration_ms = met.duration_ms,
        "delivery"
    );
}
