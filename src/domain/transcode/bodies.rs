//! The smaller bodies: new credentials, cancel, retry, redeliver (design §6).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use utoipa::ToSchema;

use super::fault::{Faults, Rejection, below};
use super::fields::{Fields, text_complaint};
use super::place::Asker;
use super::read::{self, MAX_SIGNED_URL};
use super::secret::MAX_SECRET_BYTES;
use super::{Credentials, Hidden, Policy, StorageSecret, strict_json};
use crate::domain::{EventRef, JobId, RequesterId};

/// `PUT /transcode/credentials`: new `credentials`, or new signed urls.
#[derive(Debug, Clone, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({
    "job_id": "01939f6e-8f00-7c3a-b2d1-0242ac120042", "expected_credential_version": 1,
    "credentials": {"access_key_id": "ASIA0EXAMPLE", "secret_access_key": "example", "session_token": "example"}
})))]
pub struct CredentialsUpdate {
    /// Which job.
    pub job_id: JobId,
    /// The version that these replace; another one answers 409.
    #[schema(minimum = 0)]
    pub expected_credential_version: i32,
    /// New keys.
    pub credentials: Option<Credentials>,
    /// The source, signed anew: scheme, host and path as before.
    pub source_uri: Option<Hidden>,
    /// The outputs by name, 1 to 20, signed anew: scheme, host and path as before.
    pub upload_urls: Option<BTreeMap<String, Hidden>>,
}

impl CredentialsUpdate {
    /// Reads the body.
    pub fn parse(body: &[u8], policy: &Policy, requester: &RequesterId) -> Result<Self, Rejection> {
        const KNOWN: &[&str] =
            &["job_id", "expected_credential_version", "credentials", "source_uri", "upload_urls"];
        with_fields(body, KNOWN, |fields| {
            fields.need("expected_credential_version", "the version that these replace");
            let secret = secret(fields, Asker { policy, requester });
            if secret.is_empty() {
                fields.need("credentials", "or source_uri and upload_urls, signed anew");
            }
            Some(Self {
                job_id: job_id(fields)?,
                expected_credential_version: fields
                    .integer("expected_credential_version", 0..=i64::from(i32::MAX))?,
                credentials: secret.credentials,
                source_uri: secret.source_uri,
                upload_urls: Some(secret.upload_urls).filter(|urls| !urls.is_empty()),
            })
        })
    }

    /// What is to be sealed.
    #[must_use]
    pub fn into_secret(self) -> StorageSecret {
        let upload_urls = self.upload_urls.unwrap_or_default();
        StorageSecret { credentials: self.credentials, source_uri: self.source_uri, upload_urls }
    }
}

/// `POST /transcode/cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"job_id": "01939f6e-8f00-7c3a-b2d1-0242ac120042"})))]
pub struct CancelRequest {
    /// Which job.
    pub job_id: JobId,
}

impl CancelRequest {
    /// Reads the body.
    pub fn parse(body: &[u8]) -> Result<Self, Rejection> {
        with_fields(body, &["job_id"], |fields| Some(Self { job_id: job_id(fields)? }))
    }
}

/// `POST /transcode/retry`.
#[derive(Debug, Clone, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({
    "job_id": "01939f6e-8f00-7c3a-b2d1-0242ac120042",
    "credentials": {"access_key_id": "ASIA0EXAMPLE", "secret_access_key": "example", "session_token": "example"}
})))]
pub struct RetryRequest {
    /// Which job.
    pub job_id: JobId,
    /// New keys, where the old ones are gone.
    pub credentials: Option<Credentials>,
    /// The source, signed anew.
    pub source_uri: Option<Hidden>,
    /// The outputs by name, 1 to 20, signed anew.
    pub upload_urls: Option<BTreeMap<String, Hidden>>,
}

impl RetryRequest {
    /// Reads the body.
    pub fn parse(body: &[u8], policy: &Policy, requester: &RequesterId) -> Result<Self, Rejection> {
        with_fields(body, &["job_id", "credentials", "source_uri", "upload_urls"], |fields| {
            let secret = secret(fields, Asker { policy, requester });
            Some(Self {
                job_id: job_id(fields)?,
                credentials: secret.credentials,
                source_uri: secret.source_uri,
                upload_urls: Some(secret.upload_urls).filter(|urls| !urls.is_empty()),
            })
        })
    }

    /// What is to be sealed; `None`: nothing new was sent.
    #[must_use]
    pub fn into_secret(self) -> Option<StorageSecret> {
        let upload_urls = self.upload_urls.unwrap_or_default();
        let secret =
            StorageSecret { credentials: self.credentials, source_uri: self.source_uri, upload_urls };
        Some(secret).filter(|secret| !secret.is_empty())
    }
}

/// The answer of a `refresh_url` that hands new credentials over at once, as the worker reads it.
pub fn parse_refresh_answer(
    body: &[u8],
    policy: &Policy,
    requester: &RequesterId,
) -> Result<StorageSecret, Rejection> {
    with_fields(body, &["credentials", "source_uri", "upload_urls"], |fields| {
        let secret = secret(fields, Asker { policy, requester });
        if secret.is_empty() {
            fields.need("credentials", "or source_uri and upload_urls, signed anew");
        }
        Some(secret)
    })
}

/// `POST /transcode/events/redeliver`: exactly one of an event, a job, a range of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedeliverRequest {
    /// One event.
    Event(EventRef),
    /// All events of a job.
    Job(JobId),
    /// All events of a time.
    Range {
        /// From here.
        since: Timestamp,
        /// Until before here.
        until: Timestamp,
    },
}

/// As a client writes it.
#[derive(Debug, Clone, ToSchema)]
#[schema(as = RedeliverRequest, examples(json!({"event_id": "evt_01939f6e8f007c3ab2d10242ac120042_6"})))]
#[serde(deny_unknown_fields)]
pub struct RedeliverBody {
    /// One event.
    #[schema(pattern = "^evt_[0-9a-f]{32}_[0-9]+$")]
    pub event_id: Option<String>,
    /// All events of a job.
    pub job_id: Option<JobId>,
    /// All events from here …
    pub since: Option<Timestamp>,
    /// … until before here.
    pub until: Option<Timestamp>,
}

impl RedeliverRequest {
    /// Reads the body.
    pub fn parse(body: &[u8]) -> Result<Self, Rejection> {
        with_fields(body, &["event_id", "job_id", "since", "until"], |fields| {
            let has = |name: &str| fields.get(name).is_some();
            let range = has("since") || has("until");
            if [has("event_id"), has("job_id"), range].into_iter().filter(|is_there| *is_there).count() != 1 {
                let message = "must have exactly one of event_id, job_id, or since together with until";
                fields.faults.add("", message);
                return None;
            }
            if has("event_id") {
                event_id(fields).map(Self::Event)
            } else if has("job_id") {
                job_id(fields).map(Self::Job)
            } else {
                time_range(fields)
            }
        })
    }
}

fn time_range(fields: &Fields<'_>) -> Option<RedeliverRequest> {
    fields.need("since", "the beginning of the range");
    fields.need("until", "the end of the range");
    let (since, until) = (fields.time("since")?, fields.time("until")?);
    if since >= until {
        fields.fault("until", "must be later than since");
    }
    Some(RedeliverRequest::Range { since, until })
}

/// Opens a body of one object and reads it; `None` only with a fault.
fn with_fields<T>(
    body: &[u8],
    known: &[&str],
    read: impl FnOnce(&Fields<'_>) -> Option<T>,
) -> Result<T, Rejection> {
    let faults = Faults::default();
    let body = strict_json::parse(body, &faults)?;
    let made = Fields::open(&body.0, String::new(), known, &faults).and_then(|fields| read(&fields));
    faults.verdict(made)
}

fn job_id(fields: &Fields<'_>) -> Option<JobId> {
    fields.need("job_id", "the id that POST /transcode answered");
    let id = fields.text("job_id", 64)?.parse().ok().map(JobId);
    if id.is_none() {
        fields.fault("job_id", "must be a UUID, as POST /transcode answered it");
    }
    id
}

fn event_id(fields: &Fields<'_>) -> Option<EventRef> {
    let id = fields.text("event_id", 64)?.parse().ok();
    if id.is_none() {
        fields.fault("event_id", "must be an event_id as webhooks and the timeline show it, evt_…_1");
    }
    id
}

/// Keys or signed urls.
fn secret(fields: &Fields<'_>, asker: Asker<'_>) -> StorageSecret {
    let secret = StorageSecret {
        credentials: read::credentials(fields),
        source_uri: read::hidden(fields, "source_uri", MAX_SIGNED_URL),
        upload_urls: upload_urls(fields, asker),
    };
    if let Some(url) = &secret.source_uri
        && let Err(complaint) = asker.url(url.expose())
    {
        fields.fault("source_uri", complaint);
    }
    let has_urls = secret.source_uri.is_some() || !secret.upload_urls.is_empty();
    if secret.credentials.is_some() && has_urls {
        fields.fault("credentials", "must not stand beside signed urls: a job has one or the other");
    }
    secret
}

fn upload_urls(fields: &Fields<'_>, asker: Asker<'_>) -> BTreeMap<String, Hidden> {
    let Some(value) = fields.get("upload_urls") else { return BTreeMap::new() };
    let at = fields.pointer("upload_urls");
    let Some(entries) = value.as_object().filter(|entries| (1..=20).contains(&entries.len())) else {
        fields.faults.add(&at, "must be an object of 1 to 20 signed urls by output name");
        return BTreeMap::new();
    };
    let total: usize = entries.values().filter_map(Value::as_str).map(str::len).sum();
    if total > MAX_SECRET_BYTES {
        fields.faults.add(&at, format!("must have at most {MAX_SECRET_BYTES} bytes in all"));
    }
    let judged = entries.iter().filter_map(|(name, url)| {
        let judged = match url.as_str() {
            None => Err("must be a string".to_owned()),
            Some(url) => text_complaint(url, MAX_SIGNED_URL)
                .map_or_else(|| asker.url(url), Err)
                .map(|_| Hidden::new(url.to_owned())),
        };
        let url = judged.map_err(|complaint| fields.faults.add(&below(&at, name), complaint)).ok()?;
        Some((name.clone(), url))
    });
    judged.collect()
}
