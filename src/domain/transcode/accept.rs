//! `POST /transcode`: judged as a whole, then taken apart into what everybody may see and what is sealed.

use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use super::fault::{Faults, Rejection};
use super::judge::Judge;
use super::place::Asker;
use super::request_hash::request_hash;
use super::{
    CallbackSecret, Hidden, JobSpec, Place, Policy, StorageSecret, TranscodeRequest, read, strict_json,
};
use crate::domain::{RequesterId, origin};

/// A request that may be enqueued once its secrets are sealed.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// What a worker reads, a [`JobSpec`]: presets expanded, no secret in it.
    pub document: Value,
    /// To be sealed with purpose `storage`: a [`StorageSecret`].
    pub storage_secret: Option<Hidden>,
    /// To be sealed with purpose `callback`: a [`CallbackSecret`].
    pub callback_secret: Option<Hidden>,
    /// A refresh_url is among what is sealed.
    pub can_refresh: bool,
    /// Scheme, host and port of the webhook.
    pub callback_origin: Option<String>,
    /// Which events go to the webhook; `None`: no webhook.
    pub event_filter: Option<Vec<String>>,
    /// Which line it waits in.
    pub queue: String,
    /// As asked; `None`: 100.
    pub priority: Option<i32>,
    /// As asked; `None`: what the queue says.
    pub max_attempts: Option<i32>,
    /// Not before.
    pub run_at: Option<Timestamp>,
    /// The requester's own name for it.
    pub external_id: Option<String>,
    /// Handed back in every event.
    pub metadata: Option<Value>,
    /// What makes two requests the same (contract §9), by [`REQUEST_HASH_VERSION`](super::REQUEST_HASH_VERSION).
    pub request_hash: [u8; 32],
}

/// Reads the body of `POST /transcode`: an acceptable request, or everything that is wrong with it.
pub fn parse_request(
    body: &[u8],
    policy: &Policy,
    requester: &RequesterId,
    now: Timestamp,
) -> Result<Accepted, Rejection> {
    let faults = Faults::default();
    let body = strict_json::parse(body, &faults)?;
    let request = read::request(&body.0, &faults);
    let judge = Judge { asker: Asker { policy, requester }, request: &request, faults: &faults };
    let judged = judge.all(now);
    let (spec, webhook) = faults.verdict(judged)?;
    Ok(split(request, &spec, webhook.as_ref(), request_hash(&body.0)))
}

/// Takes an acceptable request apart.
fn split(
    request: TranscodeRequest,
    spec: &JobSpec,
    webhook: Option<&Url>,
    request_hash: [u8; 32],
) -> Accepted {
    let can_refresh = request.refresh_url.is_some();
    let is_signed = matches!(spec.source.place, Place::Signed { .. });
    let uploads = request.outputs.into_iter().filter_map(|output| Some((output.name, output.upload_url?)));
    let storage = StorageSecret {
        credentials: request.storage.and_then(|storage| storage.credentials),
        source_uri: is_signed.then_some(request.source.uri),
        upload_urls: uploads.collect(),
    };
    let callback =
        CallbackSecret { status_webhook_url: request.status_webhook_url, refresh_url: request.refresh_url };
    let everything = || vec!["transcode.*".to_owned()];
    Accepted {
        document: serde_json::to_value(spec).expect("a specification is always JSON"),
        storage_secret: (!storage.is_empty()).then(|| storage.write()),
        callback_secret: (webhook.is_some() || can_refresh).then(|| callback.write()),
        can_refresh,
        callback_origin: webhook.map(origin),
        event_filter: webhook.map(|_| request.events.unwrap_or_else(everything)),
        queue: request.queue.unwrap_or_else(|| Policy::DEFAULT_QUEUE.to_owned()),
        priority: request.priority,
        max_attempts: request.max_attempts,
        run_at: request.run_at,
        external_id: request.external_id,
        metadata: request.metadata.map(|entries| entries.into_iter().collect()),
        request_hash,
    }
}
