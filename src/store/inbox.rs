//! `sql/inbox/`, typed: request → job → worker.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::count;
use super::wake::{ALL, EVENTS};
use super::{Result, Store, StoreError};
use crate::domain::{
    Claim, JobFailure, JobId, JobStatus, NewJob, Outcome, ReleaseReason, RequesterId, Sealed, WorkerId,
};

/// An accepted job, now or at the first call with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Which job.
    pub job_id: JobId,
    /// The key had been used for the same request: this is the first answer again.
    pub replayed: bool,
    /// The stored answer, byte for byte.
    pub response: Vec<u8>,
    /// The job's time.
    pub created_at: Timestamp,
}

/// What became of one job of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueuedItem {
    /// It is in the inbox.
    Accepted(Enqueued),
    /// Its key was used for another request.
    Conflict(String),
    /// It is not acceptable; the message says why.
    Invalid(String),
}

/// A job in a worker's hands.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The fence for every write about it.
    pub claim: Claim,
    /// Whose job it is.
    pub requester_id: String,
    /// Until when it is ours without a heartbeat. The database's time: compare it with nothing else.
    pub lease_expires_at: Timestamp,
    /// Executions started before this claim.
    pub attempt_count: i32,
    /// Budget of executions.
    pub max_attempts: i32,
    /// Version of the stored storage credentials; 0: none.
    pub credential_version: i32,
    /// The requester's own name for it.
    pub external_id: Option<String>,
    /// What is asked.
    pub request: Value,
}

/// The answer for one job of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Which job.
    pub job_id: JobId,
    /// What happened.
    pub outcome: Outcome,
}

/// The answer to one heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// Which job.
    pub job_id: JobId,
    /// `Ok`, or stop.
    pub outcome: Outcome,
    /// The new end of the lease, when `Ok`.
    pub lease_expires_at: Option<Timestamp>,
}

/// The answer to one step forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    /// Which job.
    pub job_id: JobId,
    /// What happened.
    pub outcome: Outcome,
    /// Executions started so far, when `Ok`.
    pub attempt_count: Option<i32>,
}

/// The answer to one failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Which job.
    pub job_id: JobId,
    /// What happened.
    pub outcome: Outcome,
    /// `queued`, `failed` or `dead_letter`, when `Ok`.
    pub to_status: Option<JobStatus>,
    /// When it may run again, when `queued`.
    pub run_at: Option<Timestamp>,
}

impl Store {
    /// Puts one job in the inbox, or says again which one it was.
    #[tracing::instrument(skip_all, fields(requester.id = requester.as_str(), queue))]
    pub async fn enqueue_job(&self, requester: &RequesterId, queue: &str, job: &NewJob) -> Result<Enqueued> {
        const SQL: &str = "\
            select job_id, outcome, response, created_at
              from euterpe.enqueue_job_v1(
                     p_requester_id => $1, p_request => $2, p_job_id => $3, p_queue => $4, p_priority => $5,
                     p_max_attempts => $6, p_run_at => $7, p_external_id => $8, p_metadata => $9,
                     p_traceparent => $10, p_event_filter => $11, p_callback_origin => $12, p_sealed => $13,
                     p_idempotency_key => $14, p_request_hash => $15, p_hash_version => $16,
                     p_response => $17, p_key_ttl_seconds => $18)";

        let sealed = (!job.sealed.is_empty()).then_some(Json(&job.sealed));
        let rows = self
            .rows(
                SQL,
                &[
                    &requester.as_str(),
                    &job.request,
                    &job.job_id.map(|id| id.0),
                    &queue,
                    &job.priority.unwrap_or(100),
                    &job.max_attempts,
                    &job.run_at,
                    &job.external_id,
                    &job.metadata,
                    &job.traceparent,
                    &job.event_filter,
                    &job.callback_origin,
                    &sealed,
                    &job.idempotency_key,
                    &job.request_hash,
                    &job.hash_version,
                    &job.response,
                    &job.key_ttl_seconds,
                ],
            )
            .await?;
        self.tell(&[queue, EVENTS]);
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        let enqueued = enqueued(row)?;
        count::moved(JobStatus::Queued, usize::from(!enqueued.replayed));
        Ok(enqueued)
    }

    /// Puts a batch of jobs of one requester in the inbox; one bad job harms no other.
    #[tracing::instrument(skip_all, fields(requester.id = requester.as_str(), queue, jobs = jobs.len()))]
    pub async fn enqueue_jobs(
        &self,
        requester: &RequesterId,
        queue: &str,
        jobs: &[NewJob],
    ) -> Result<Vec<EnqueuedItem>> {
        const SQL: &str = "\
            select job_id, outcome, response, created_at, message
              from euterpe.enqueue_jobs_v1(p_requester_id => $1, p_jobs => $2, p_queue => $3)
             order by ordinal";

        let rows = self.rows(SQL, &[&requester.as_str(), &Json(jobs), &queue]).await?;
        self.tell(&[queue, EVENTS]);
        let items: Vec<EnqueuedItem> = rows
            .iter()
            .map(|row| match row.try_get("outcome")? {
                "conflict" => Ok(EnqueuedItem::Conflict(row.try_get("message")?)),
                "invalid" => Ok(EnqueuedItem::Invalid(row.try_get("message")?)),
                _ => enqueued(row).map(EnqueuedItem::Accepted),
            })
            .collect::<Result<_>>()?;
        let is_new = |item: &&EnqueuedItem| matches!(item, EnqueuedItem::Accepted(job) if !job.replayed);
        count::moved(JobStatus::Queued, items.iter().filter(is_new).count());
        Ok(items)
    }

    /// Hands up to `limit` ready jobs to `worker`, each behind a new fence.
    ///
    /// An empty answer means there is nothing to do now; it is not an error.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), queue, limit))]
    pub async fn claim_jobs(
        &self,
        queue: &str,
        worker: &WorkerId,
        limit: u16,
        lease: Option<Duration>,
    ) -> Result<Vec<ClaimedJob>> {
        const SQL: &str = "\
            select job_id, requester_id, claim_version, claim_token, lease_expires_at, attempt_count,
                   max_attempts, credential_version, external_id, request
              from euterpe.claim_jobs_v1(
                     p_queue => $1, p_worker_id => $2, p_limit => $3, p_lease_seconds => $4)";

        let rows =
            self.rows(SQL, &[&queue, &worker.as_str(), &i32::from(limit), &lease_seconds(lease)]).await?;
        if !rows.is_empty() {
            self.tell(&[EVENTS]);
        }
        count::moved(JobStatus::Claimed, rows.len());
        rows.iter().map(claimed_job).collect()
    }

    /// Renews the leases of `beats`, taking in what each says of its progress.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), jobs = beats.len()))]
    pub async fn heartbeat_jobs(
        &self,
        worker: &WorkerId,
        beats: &[(Claim, Option<Value>)],
        lease: Option<Duration>,
    ) -> Result<Vec<Renewed>> {
        const SQL: &str = "\
            select job_id, outcome, lease_expires_at
              from euterpe.heartbeat_jobs_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_progress => $5, p_lease_seconds => $6)";

        let fence = Fence::of(beats.iter().map(|(claim, _)| claim));
        let progress: Vec<_> = beats.iter().map(|(_, progress)| progress).collect();
        let rows = self
            .rows(
                SQL,
                &[
                    &worker.as_str(),
                    &fence.job_ids,
                    &fence.versions,
                    &fence.tokens,
                    &progress,
                    &lease_seconds(lease),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Renewed {
                    job_id: JobId(row.try_get("job_id")?),
                    outcome: outcome(row)?,
                    lease_expires_at: row.try_get("lease_expires_at")?,
                })
            })
            .collect()
    }

    /// Each job takes one legal step: fetching, processing or uploading.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), jobs = steps.len()))]
    pub async fn advance_jobs(
        &self,
        worker: &WorkerId,
        steps: &[(Claim, JobStatus)],
    ) -> Result<Vec<Advanced>> {
        const SQL: &str = "\
            select job_id, outcome, attempt_count
              from euterpe.advance_jobs_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_to_statuses => $5)";

        let fence = Fence::of(steps.iter().map(|(claim, _)| claim));
        let to: Vec<_> = steps.iter().map(|(_, to)| to.as_str()).collect();
        let rows =
            self.rows(SQL, &[&worker.as_str(), &fence.job_ids, &fence.versions, &fence.tokens, &to]).await?;
        self.tell(&[EVENTS]);
        let answers: Vec<Advanced> = rows
            .iter()
            .map(|row| {
                Ok(Advanced {
                    job_id: JobId(row.try_get("job_id")?),
                    outcome: outcome(row)?,
                    attempt_count: row.try_get("attempt_count")?,
                })
            })
            .collect::<Result<_>>()?;
        for Advanced { job_id, .. } in answers.iter().filter(|answer| answer.outcome == Outcome::Ok) {
            let step = steps.iter().find(|(claim, _)| claim.job_id == *job_id);
            step.inspect(|(_, to)| count::moved(*to, 1));
        }
        Ok(answers)
    }

    /// Each job has succeeded, with what probing found (`source`) and what it made (`outputs`, an array).
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), jobs = results.len()))]
    pub async fn complete_jobs(
        &self,
        worker: &WorkerId,
        results: &[(Claim, Option<Value>, Value)],
    ) -> Result<Vec<Answered>> {
        const SQL: &str = "\
            select job_id, outcome
              from euterpe.complete_jobs_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_sources => $5, p_outputs => $6)";

        let fence = Fence::of(results.iter().map(|(claim, ..)| claim));
        let sources: Vec<_> = results.iter().map(|(_, source, _)| source).collect();
        let outputs: Vec<_> = results.iter().map(|(.., outputs)| outputs).collect();
        let rows = self
            .rows(
                SQL,
                &[&worker.as_str(), &fence.job_ids, &fence.versions, &fence.tokens, &sources, &outputs],
            )
            .await?;
        self.tell(&[EVENTS]);
        let answers: Vec<Answered> = rows.iter().map(answered).collect::<Result<_>>()?;
        for _ in answers.iter().filter(|answer| answer.outcome == Outcome::Ok) {
            count::ended("none", JobStatus::Succeeded);
        }
        Ok(answers)
    }

    /// Each job has failed; `euterpe.error_codes` and its budget say what follows.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), jobs = failures.len()))]
    pub async fn fail_jobs(
        &self,
        worker: &WorkerId,
        failures: &[(Claim, JobFailure)],
    ) -> Result<Vec<Failed>> {
        const SQL: &str = "\
            select job_id, outcome, to_status, run_at
              from euterpe.fail_jobs_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_codes => $5, p_details => $6, p_retry_after_seconds => $7)";

        let fence = Fence::of(failures.iter().map(|(claim, _)| claim));
        let codes: Vec<_> = failures.iter().map(|(_, failure)| &failure.code).collect();
        let details: Vec<_> = failures.iter().map(|(_, failure)| failure.detail()).collect();
        let retry_after: Vec<_> = failures.iter().map(|(_, failure)| failure.retry_after_seconds).collect();
        let rows = self
            .rows(
                SQL,
                &[
                    &worker.as_str(),
                    &fence.job_ids,
                    &fence.versions,
                    &fence.tokens,
                    &codes,
                    &details,
                    &retry_after,
                ],
            )
            .await?;
        self.tell(&[EVENTS]);
        let answers: Vec<Failed> = rows
            .iter()
            .map(|row| {
                let to_status: Option<&str> = row.try_get("to_status")?;
                Ok(Failed {
                    job_id: JobId(row.try_get("job_id")?),
                    outcome: outcome(row)?,
                    to_status: to_status.map(str::parse).transpose().map_err(
                        |error: crate::domain::BadStatus| StoreError::UnexpectedAnswer(error.to_string()),
                    )?,
                    run_at: row.try_get("run_at")?,
                })
            })
            .collect::<Result<_>>()?;
        for Failed { job_id, to_status, .. } in &answers {
            let told = failures.iter().find(|(claim, _)| claim.job_id == *job_id);
            if let (Some((_, failure)), Some(to)) = (told, to_status) {
                count::ended(&failure.code, *to);
            }
        }
        Ok(answers)
    }

    /// Ends a job that nobody needs any more; says what it was doing. With a requester: only if it is theirs.
    pub async fn cancel_job(
        &self,
        job_id: JobId,
        requester: Option<&RequesterId>,
        why: Option<&str>,
    ) -> Result<String> {
        const SQL: &str = "\
            select euterpe.cancel_job_v1(p_job_id => $1, p_requester_id => $2, p_why => $3) as was";
        let rows = self.rows(SQL, &[&job_id.0, &requester.map(RequesterId::as_str), &why]).await?;
        self.tell(&[EVENTS]);
        count::ended("cancelled", JobStatus::Failed);
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(row.try_get("was")?)
    }

    /// A job that rests as failed goes back to the line; with credentials sealed to version `expected` + 1.
    pub async fn retry_job(
        &self,
        job_id: JobId,
        requester: Option<&RequesterId>,
        credentials: Option<(i32, &Sealed)>,
        why: Option<&str>,
    ) -> Result<()> {
        const SQL: &str = "\
            select euterpe.retry_job_v1(
                     p_job_id => $1, p_requester_id => $2, p_sealed => $3, p_expected_version => $4, p_why => $5)";
        let (expected, sealed) = credentials.map(|(expected, sealed)| (expected, Json(sealed))).unzip();
        let requester = requester.map(RequesterId::as_str);
        self.rows(SQL, &[&job_id.0, &requester, &sealed, &expected, &why]).await?;
        self.tell(&[ALL]);
        count::moved(JobStatus::Queued, 1);
        Ok(())
    }

    /// Makes one new job from one that is given up; credentials are sealed to the new id, version 1.
    pub async fn redrive_job(
        &self,
        job_id: JobId,
        requester: Option<&RequesterId>,
        credentials: Option<(JobId, &Sealed)>,
        why: Option<&str>,
    ) -> Result<JobId> {
        const SQL: &str = "\
            select euterpe.redrive_job_v1(
                     p_job_id => $1, p_requester_id => $2, p_new_job_id => $3, p_sealed => $4, p_why => $5) as job_id";
        let (new_id, sealed) = credentials.map(|(id, sealed)| (id.0, Json(sealed))).unzip();
        let requester = requester.map(RequesterId::as_str);
        let rows = self.rows(SQL, &[&job_id.0, &requester, &new_id, &sealed, &why]).await?;
        self.tell(&[ALL]);
        count::moved(JobStatus::Queued, 1);
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(JobId(row.try_get("job_id")?))
    }

    /// Each job goes back to the line without being blamed, after `delay` if one is given.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), jobs = jobs.len()))]
    pub async fn release_jobs(
        &self,
        worker: &WorkerId,
        jobs: &[(Claim, ReleaseReason, Duration)],
    ) -> Result<Vec<Answered>> {
        const SQL: &str = "\
            select job_id, outcome
              from euterpe.release_jobs_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_reasons => $5, p_delay_seconds => $6)";

        let fence = Fence::of(jobs.iter().map(|(claim, ..)| claim));
        let reasons: Vec<_> = jobs.iter().map(|(_, reason, _)| reason.as_str()).collect();
        let delays: Vec<_> = jobs.iter().map(|(.., delay)| whole_seconds(*delay)).collect();
        let rows = self
            .rows(SQL, &[&worker.as_str(), &fence.job_ids, &fence.versions, &fence.tokens, &reasons, &delays])
            .await?;
        self.tell(&[ALL]);
        let answers: Vec<Answered> = rows.iter().map(answered).collect::<Result<_>>()?;
        let back = answers.iter().filter(|answer| answer.outcome == Outcome::Ok).count();
        count::moved(JobStatus::Queued, back);
        Ok(answers)
    }
}

/// Claims as the parallel arrays that SQL takes.
pub(super) struct Fence {
    pub(super) job_ids: Vec<Uuid>,
    pub(super) versions: Vec<i64>,
    pub(super) tokens: Vec<Uuid>,
}

impl Fence {
    pub(super) fn of<'a>(claims: impl Iterator<Item = &'a Claim>) -> Self {
        let mut fence = Self { job_ids: Vec::new(), versions: Vec::new(), tokens: Vec::new() };
        for claim in claims {
            fence.job_ids.push(claim.job_id.0);
            fence.versions.push(claim.version);
            fence.tokens.push(claim.token);
        }
        fence
    }
}

pub(super) fn lease_seconds(lease: Option<Duration>) -> Option<i32> {
    lease.map(whole_seconds)
}

/// tokio-postgres has no interval parameter, so a duration crosses the border as seconds.
pub(super) fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

pub(super) fn outcome(row: &Row) -> Result<Outcome> {
    let word: &str = row.try_get("outcome")?;
    Outcome::parse(word).ok_or_else(|| StoreError::UnexpectedAnswer(word.to_owned()))
}

fn answered(row: &Row) -> Result<Answered> {
    Ok(Answered { job_id: JobId(row.try_get("job_id")?), outcome: outcome(row)? })
}

fn enqueued(row: &Row) -> Result<Enqueued> {
    Ok(Enqueued {
        job_id: JobId(row.try_get("job_id")?),
        replayed: row.try_get::<_, &str>("outcome")? == "replayed",
        response: row.try_get("response")?,
        created_at: row.try_get("created_at")?,
    })
}

fn claimed_job(row: &Row) -> Result<ClaimedJob> {
    Ok(ClaimedJob {
        claim: Claim {
            job_id: JobId(row.try_get("job_id")?),
            version: row.try_get("claim_version")?,
            token: row.try_get("claim_token")?,
        },
        requester_id: row.try_get("requester_id")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
        attempt_count: row.try_get("attempt_count")?,
        max_attempts: row.try_get("max_attempts")?,
        credential_version: row.try_get("credential_version")?,
        external_id: row.try_get("external_id")?,
        request: row.try_get("request")?,
    })
}
