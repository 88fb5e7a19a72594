//! Asking for work, and looking at it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::json;

use super::auth::{Caller, Scope};
use super::query::{Query, fault, job_id};
use super::{ApiError, Face, body};
use crate::crypto::{Binding, Secret, seal};
use crate::domain::transcode::{
    Accepted, AcceptedAnswer, ErrorCode, Hidden, JobList, JobSummary, REQUEST_HASH_VERSION, parse_request,
};
use crate::domain::{JobId, JobStatus, NewJob, RequesterId, Sealed};
use crate::store::{Found, JobDocument, JobFilter, ListedJob, StoreError};

/// `POST /transcode`: puts a job in the inbox and says which one it is.
///
/// Nothing is fetched or checked beyond the request itself; that is the worker's business.
pub(super) async fn enqueue(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit(&headers, Scope::Write).await?;
    let key = idempotency_key(&headers)?;
    let body = body::json(&headers, body, face.body_in).await?;
    let accepted = parse_request(&body, &face.policy, &caller.requester, Timestamp::now())?;
    let refusal = match rate.refusal() {
        Some(refusal) => Some(refusal),
        None => face.too_many_open(&caller).await?,
    };
    if let Some(refusal) = refusal {
        // A replay is never limited: it costs nothing but this look.
        let replay = face.replay(&caller, key, &accepted.request_hash).await?;
        return replay.map(|answer| rate.shown_on(answer)).ok_or(refusal);
    }
    let job = face.sealed_job(&caller.requester, &accepted, key, traceparent(&headers));
    let enqueued = face.store.enqueue_job(&caller.requester, &accepted.queue, &job).await?;
    Ok(rate.shown_on(accepted_answer(enqueued.response, enqueued.replayed)))
}

/// `GET /transcode/status`: what is happening, and why.
pub(super) async fn status(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Read).await?;
    let query = Query::of(&uri, &["job_id", "wait"])?;
    let (job_id, wait) = (query.job_id()?, query.number("wait", 1, 60)?);
    let begun = Instant::now();
    let mut job = face.document(&caller.requester, job_id).await?;
    if let Some(seconds) = wait.filter(|_| !job.is_final) {
        let most = Duration::from_secs(seconds.into()).saturating_sub(begun.elapsed());
        tokio::select! {
            () = face.waiters.until_moved(job_id, job.last_sequence, most) => {}
            () = face.stop.cancelled() => {} // an answer now, and the next pod goes on waiting
        }
        job = face.document(&caller.requester, job_id).await?;
    }
    Ok(rate.shown_on(Json(job.document).into_response()))
}

/// `GET /transcode`: own jobs, newest first.
pub(super) async fn list(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Read).await?;
    let query = Query::of(&uri, &["status", "external_id", "cursor", "limit"])?;
    let limit = query.number("limit", 1, 100)?.unwrap_or(50);
    if query.get("status").is_some_and(|status| status.parse::<JobStatus>().is_err()) {
        let known: Vec<_> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
        return Err(fault("status", format!("must be one of {}", known.join(", "))).into());
    }
    let filter = JobFilter {
        status: query.get("status").map(str::to_owned),
        external_id: query.get("external_id").map(str::to_owned),
        before: query.get("cursor").map(|text| job_id("cursor", text)).transpose()?,
        limit,
    };
    let page = face.store.list_jobs(&caller.requester, &filter).await?;
    let is_full = page.len() == usize::from(limit) || page.last().is_some_and(|job| job.status.is_none());
    let next_cursor = page.last().filter(|_| is_full).map(|job| job.job_id.to_string());
    let jobs = page.into_iter().filter_map(summary).collect();
    Ok(rate.shown_on(Json(JobList { jobs, next_cursor }).into_response()))
}

/// `GET /transcode/events`: everything that happened, and what became of telling it.
pub(super) async fn events(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Read).await?;
    let job_id = Query::of(&uri, &["job_id"])?.job_id()?;
    let events = here(face.store.read_events(&caller.requester, job_id).await?)?;
    Ok(rate.shown_on(Json(json!({"job_id": job_id, "events": events})).into_response()))
}

impl Face {
    /// The status document of one of the caller's jobs.
    pub(super) async fn document(
        &self,
        requester: &RequesterId,
        job_id: JobId,
    ) -> Result<JobDocument, ApiError> {
        here(self.store.read_job(requester, job_id).await?)
    }

    async fn too_many_open(&self, caller: &Caller) -> Result<Option<ApiError>, StoreError> {
        let most = caller.key.max_open_jobs;
        let has_room = self.meters.has_room(&self.store, &caller.requester, most).await?;
        let refusal = || ApiError::of(ErrorCode::TooManyOpenJobs).retry_after(Duration::from_secs(5));
        Ok((!has_room).then(refusal))
    }

    async fn replay(
        &self,
        caller: &Caller,
        key: Option<&str>,
        hash: &[u8; 32],
    ) -> Result<Option<Response>, StoreError> {
        let Some(key) = key else { return Ok(None) };
        let stored = self.store.find_idempotency_key(&caller.requester, key).await?;
        let same = stored
            .filter(|stored| stored.request_hash == hash && stored.hash_version == REQUEST_HASH_VERSION);
        Ok(same.map(|stored| accepted_answer(stored.response, true)))
    }

    /// The job as the database may see it: its id made here, because its secrets are bound to it.
    fn sealed_job(
        &self,
        requester: &RequesterId,
        accepted: &Accepted,
        key: Option<&str>,
        traceparent: Option<String>,
    ) -> NewJob {
        let job_id = JobId::new(requester);
        let seal_one = |binding: Binding<'_>, secret: &Hidden| {
            seal(&*self.keys, &binding, &Secret::from(secret.expose()))
        };
        let storage = accepted
            .storage_secret
            .as_ref()
            .map(|secret| ("storage".to_owned(), seal_one(Binding::storage(job_id, requester, 1), secret)));
        let callback = accepted.callback_secret.as_ref().map(|secret| {
            let sealed = seal_one(Binding::callback(job_id, requester), secret);
            ("callback".to_owned(), Sealed { can_refresh: Some(accepted.can_refresh), ..sealed })
        });
        let answer = AcceptedAnswer {
            job_id,
            status: JobStatus::Queued.as_str().into(),
            external_id: accepted.external_id.clone(),
            created_at: job_id.created_at(),
            status_url: format!("/transcode/status?job_id={job_id}"),
        };
        NewJob {
            request: accepted.document.clone(),
            job_id: Some(job_id),
            priority: accepted.priority,
            max_attempts: accepted.max_attempts,
            run_at: accepted.run_at,
            external_id: accepted.external_id.clone(),
            metadata: accepted.metadata.clone(),
            traceparent,
            event_filter: accepted.event_filter.clone(),
            callback_origin: accepted.callback_origin.clone(),
            sealed: storage.into_iter().chain(callback).collect(),
            idempotency_key: key.map(str::to_owned),
            request_hash: Some(accepted.request_hash.to_vec()),
            hash_version: Some(REQUEST_HASH_VERSION),
            response: Some(serde_json::to_vec(&answer).expect("an answer is always JSON")),
            key_ttl_seconds: None,
        }
    }
}

/// Unknown is 404, and so is another requester's; pruned is 410.
pub(super) fn here<T>(found: Found<T>) -> Result<T, ApiError> {
    match found {
        Found::Here(it) => Ok(it),
        Found::Unknown => Err(ApiError::of(ErrorCode::NotFound)),
        Found::Pruned => Err(ApiError::of(ErrorCode::Gone)),
    }
}

/// The stored bytes, both times.
fn accepted_answer(bytes: Vec<u8>, replayed: bool) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let mut response = (StatusCode::ACCEPTED, kind, bytes).into_response();
    if replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let (first, second) = (keys.next(), keys.next());
    let Some(key) = first else { return Ok(None) };
    let is_visible = key.as_bytes().iter().all(u8::is_ascii_graphic);
    match key.to_str() {
        Ok(key) if second.is_none() && is_visible && (1..=255).contains(&key.len()) => Ok(Some(key)),
        _ => Err(ApiError::new(
            ErrorCode::BadRequest,
            "Idempotency-Key must come once, with 1 to 255 visible ASCII characters",
        )),
    }
}

/// Kept with the job, so that its trace goes on in the worker; one that cannot be a trace is not worth an error.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let is_fit = text.len() <= 255 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_fit.then(|| text.to_owned())
}

/// `None` for the row that only says where to go on.
fn summary(job: ListedJob) -> Option<JobSummary> {
    Some(JobSummary {
        job_id: job.job_id,
        external_id: job.external_id,
        status: job.status?,
        attempt_count: job.attempt_count?,
        max_attempts: job.max_attempts?,
        error_code: job.error_code,
        created_at: job.created_at?,
        finished_at: job.finished_at,
    })
}
