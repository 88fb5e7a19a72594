//! Steering one's own jobs: new credentials, cancel, retry, redeliver.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::auth::{Caller, Scope};
use super::{ApiError, Face, body};
use crate::crypto::{Binding, Secret, seal};
use crate::domain::transcode::{
    AcceptedAnswer, CancelRequest, CredentialVersion, CredentialsUpdate, RedeliverRequest, Redelivered,
    RetryRequest, StorageSecret,
};
use crate::domain::{JobId, JobStatus, Sealed};
use crate::store::Redeliver;

/// `PUT /transcode/credentials`: compare and set.
pub(super) async fn credentials(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Write).await?;
    let body = body::json(&headers, body, face.body_in).await?;
    let update = CredentialsUpdate::parse(&body, &face.policy, &caller.requester)?;
    let (job_id, expected) = (update.job_id, update.expected_credential_version);
    let sealed = face.seal_storage(&caller, job_id, expected.saturating_add(1), &update.into_secret());
    let version = face.store.replace_credentials(job_id, &caller.requester, expected, &sealed).await?;
    Ok(rate.shown_on(Json(CredentialVersion { credential_version: version }).into_response()))
}

/// `POST /transcode/cancel`.
pub(super) async fn cancel(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Write).await?;
    let CancelRequest { job_id } = CancelRequest::parse(&body::json(&headers, body, face.body_in).await?)?;
    face.document(&caller.requester, job_id).await?; // 410 for a pruned one
    face.store.cancel_job(job_id, Some(&caller.requester), None).await?;
    let job = face.document(&caller.requester, job_id).await?;
    Ok(rate.shown_on(Json(job.document).into_response()))
}

/// `POST /transcode/retry`: a failed job goes back to the line; of a dead letter a new job is made.
pub(super) async fn retry(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Write).await?;
    let body = body::json(&headers, body, face.body_in).await?;
    let request = RetryRequest::parse(&body, &face.policy, &caller.requester)?;
    let job_id = request.job_id;
    let job = face.document(&caller.requester, job_id).await?;
    let secret = request.into_secret();
    if job.document["status"] == JobStatus::DeadLetter.as_str() {
        let new = face.redrive(&caller, job_id, secret.as_ref(), &job.document).await?;
        return Ok(rate.shown_on((StatusCode::ACCEPTED, Json(new)).into_response()));
    }
    let version = job.document["credential_version"].as_i64().unwrap_or_default();
    let expected = i32::try_from(version).unwrap_or_default();
    let sealed = secret.map(|secret| face.seal_storage(&caller, job_id, expected + 1, &secret));
    let credentials = sealed.as_ref().map(|sealed| (expected, sealed));
    face.store.retry_job(job_id, Some(&caller.requester), credentials, None).await?;
    let job = face.document(&caller.requester, job_id).await?;
    Ok(rate.shown_on(Json(job.document).into_response()))
}

/// `POST /transcode/events/redeliver`.
pub(super) async fn redeliver(
    State(face): State<Arc<Face>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (caller, rate) = face.admit_within_rate(&headers, Scope::Write).await?;
    let mut what = match RedeliverRequest::parse(&body::json(&headers, body, face.body_in).await?)? {
        RedeliverRequest::Event(event) => Redeliver::Event(event.to_string()),
        RedeliverRequest::Job(job_id) => Redeliver::Job(job_id),
        RedeliverRequest::Range { since, until } => Redeliver::Between(since, until, None),
    };
    let mut count = 0;
    // A thousand per call of the database; a hundred calls are more than anybody wants again in one go.
    for _ in 0..100 {
        let (page, last) = face.store.redeliver_events(Some(&caller.requester), &what, None).await?;
        count += page;
        match (&mut what, last) {
            (Redeliver::Between(_, _, after), Some(last)) => *after = Some(last),
            _ => break,
        }
    }
    Ok(rate.shown_on((StatusCode::ACCEPTED, Json(Redelivered { count })).into_response()))
}

impl Face {
    fn seal_storage(&self, caller: &Caller, job_id: JobId, version: i32, secret: &StorageSecret) -> Sealed {
        let binding = Binding::storage(job_id, &caller.requester, version);
        seal(&*self.keys, &binding, &Secret::from(secret.write().expose()))
    }

    /// One new job from one that is given up; what it needs sealed is bound to the new id.
    async fn redrive(
        &self,
        caller: &Caller,
        old: JobId,
        secret: Option<&StorageSecret>,
        document: &serde_json::Value,
    ) -> Result<AcceptedAnswer, ApiError> {
        let new = JobId::new(&caller.requester);
        let sealed = secret.map(|secret| self.seal_storage(caller, new, 1, secret));
        let credentials = sealed.as_ref().map(|sealed| (new, sealed));
        let job_id = self.store.redrive_job(old, Some(&caller.requester), credentials, None).await?;
        Ok(AcceptedAnswer {
            job_id,
            status: JobStatus::Queued.as_str().into(),
            external_id: document["external_id"].as_str().map(str::to_owned),
            created_at: job_id.created_at(),
            status_url: format!("/transcode/status?job_id={job_id}"),
        })
    }
}
