//! `sql/outbox/`, typed: event → webhook worker.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::count;
use super::inbox::{lease_seconds, outcome, whole_seconds};
use super::wake::{ALL, EVENTS};
use super::{Result, Store, StoreError};
use crate::domain::{
    Delivery, EventClaim, EventRef, EventReleaseReason, JobId, Outcome, RequesterId, WorkerId,
};

/// An event in a worker's hands.
#[derive(Debug, Clone)]
pub struct ClaimedEvent {
    /// The fence for every write about it.
    pub claim: EventClaim,
    /// The same in every delivery.
    pub event_id: String,
    /// Whose job it is.
    pub requester_id: String,
    /// `transcode.<status>`.
    pub event_type: String,
    /// Until when it is ours without a heartbeat. The database's time: compare it with nothing else.
    pub lease_expires_at: Timestamp,
    /// Deliveries tried before this claim.
    pub attempt_count: i32,
    /// Budget of deliveries.
    pub max_attempts: i32,
    /// Scheme, host and port it goes to.
    pub callback_origin: Option<String>,
    /// The body, byte for byte.
    pub payload: String,
}

/// The answer to one heartbeat or release of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAnswered {
    /// Which event.
    pub event: EventRef,
    /// `Ok`, or `Stale`: stop.
    pub outcome: Outcome,
}

/// The answer to one settled delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which event.
    pub event: EventRef,
    /// `Ok`, or `Stale`: somebody else has it, nothing was written.
    pub outcome: Outcome,
    /// `delivered`, `ready` (it will be tried again) or `dead_letter`, when `Ok`.
    pub to_status: Option<String>,
    /// When it will be tried again.
    pub run_at: Option<Timestamp>,
    /// A later event of the job may be claimed now.
    pub released: bool,
}

/// Which events to deliver again.
#[derive(Debug, Clone)]
pub enum Redeliver {
    /// One, by its `event_id`.
    Event(String),
    /// All of a job.
    Job(JobId),
    /// All of a requester's that happened in a time range; going on after an `event_id`.
    Between(Timestamp, Timestamp, Option<String>),
}

impl Store {
    /// Hands up to `limit` deliverable events to `worker`, each behind a new fence.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), queue, limit))]
    pub async fn claim_events(
        &self,
        queue: &str,
        worker: &WorkerId,
        limit: u16,
        lease: Option<Duration>,
    ) -> Result<Vec<ClaimedEvent>> {
        const SQL: &str = "\
            select job_id, sequence, event_id, requester_id, type, claim_version, claim_token, lease_expires_at,
                   attempt_count, max_attempts, callback_origin, payload
              from euterpe.claim_events_v1(
                     p_queue => $1, p_worker_id => $2, p_limit => $3, p_lease_seconds => $4)";
        let rows =
            self.rows(SQL, &[&queue, &worker.as_str(), &i32::from(limit), &lease_seconds(lease)]).await?;
        rows.iter().map(claimed_event).collect()
    }

    /// Renews the leases of `claims`.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), events = claims.len()))]
    pub async fn heartbeat_events(
        &self,
        worker: &WorkerId,
        claims: &[EventClaim],
        lease: Option<Duration>,
    ) -> Result<Vec<EventAnswered>> {
        const SQL: &str = "\
            select job_id, sequence, outcome
              from euterpe.heartbeat_events_v1(
                     p_worker_id => $1, p_job_ids => $2, p_sequences => $3, p_claim_versions => $4,
                     p_claim_tokens => $5, p_lease_seconds => $6)";
        let fence = Fence::of(claims.iter());
        let rows = self
            .rows(
                SQL,
                &[
                    &worker.as_str(),
                    &fence.job_ids,
                    &fence.sequences,
                    &fence.versions,
                    &fence.tokens,
                    &lease_seconds(lease),
                ],
            )
            .await?;
        rows.iter().map(answered).collect()
    }

    /// Each delivery was tried: writes the attempt, and what follows from it.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), events = deliveries.len()))]
    pub async fn settle_events(
        &self,
        worker: &WorkerId,
        deliveries: &[(EventClaim, Delivery)],
    ) -> Result<Vec<Settled>> {
        const SQL: &str = "\
            select job_id, sequence, outcome, to_status, run_at, released
              from euterpe.settle_events_v1(
                     p_worker_id => $1, p_job_ids => $2, p_sequences => $3, p_claim_versions => $4,
                     p_claim_tokens => $5, p_error_classes => $6, p_http_statuses => $7, p_durations_ms => $8,
                     p_answers => $9, p_retry_after_seconds => $10)";
        let fence = Fence::of(deliveries.iter().map(|(claim, _)| claim));
        let met = || deliveries.iter().map(|(_, delivery)| delivery);
        let classes: Vec<_> = met().map(|delivery| &delivery.error_class).collect();
        let statuses: Vec<_> = met().map(|delivery| delivery.http_status.map(i32::from)).collect();
        let durations: Vec<_> = met().map(|delivery| delivery.duration_ms).collect();
        let answers: Vec<_> = met().map(|delivery| delivery.answer.as_deref().map(beginning)).collect();
        let retry_after: Vec<_> = met().map(|delivery| delivery.retry_after_seconds).collect();
        let rows = self
            .rows(
                SQL,
                &[
                    &worker.as_str(),
                    &fence.job_ids,
                    &fence.sequences,
                    &fence.versions,
                    &fence.tokens,
                    &classes,
                    &statuses,
                    &durations,
                    &answers,
                    &retry_after,
                ],
            )
            .await?;
        let settled: Vec<Settled> = rows
            .iter()
            .map(|row| {
                let EventAnswered { event, outcome } = answered(row)?;
                Ok(Settled {
                    event,
                    outcome,
                    to_status: row.try_get("to_status")?,
                    run_at: row.try_get("run_at")?,
                    released: row.try_get("released")?,
                })
            })
            .collect::<Result<_>>()?;
        for answer in &settled {
            count::tried(answer.outcome, answer.to_status.as_deref());
        }
        // This worker claims at once; but it may have no hand free.
        if settled.iter().any(|settled| settled.released) {
            self.tell(&[EVENTS]);
        }
        Ok(settled)
    }

    /// Each event goes back untried, after `delay` if one is given. It costs no attempt.
    #[tracing::instrument(skip_all, fields(worker.id = worker.as_str(), events = events.len()))]
    pub async fn release_events(
        &self,
        worker: &WorkerId,
        events: &[(EventClaim, EventReleaseReason, Duration)],
    ) -> Result<Vec<EventAnswered>> {
        const SQL: &str = "\
            select job_id, sequence, outcome
              from euterpe.release_events_v1(
                     p_worker_id => $1, p_job_ids => $2, p_sequences => $3, p_claim_versions => $4,
                     p_claim_tokens => $5, p_reasons => $6, p_delay_seconds => $7)";
        let fence = Fence::of(events.iter().map(|(claim, ..)| claim));
        let reasons: Vec<_> = events.iter().map(|(_, reason, _)| reason.as_str()).collect();
        let delays: Vec<_> = events.iter().map(|(.., delay)| whole_seconds(*delay)).collect();
        let rows = self
            .rows(
                SQL,
                &[
                    &worker.as_str(),
                    &fence.job_ids,
                    &fence.sequences,
                    &fence.versions,
                    &fence.tokens,
                    &reasons,
                    &delays,
                ],
            )
            .await?;
        self.tell(&[ALL]);
        rows.iter().map(answered).collect()
    }

    /// Delivers events again, at most 1,000; says how many, and after which to go on when there may be more.
    pub async fn redeliver_events(
        &self,
        requester: Option<&RequesterId>,
        what: &Redeliver,
        why: Option<&str>,
    ) -> Result<(i64, Option<String>)> {
        const SQL: &str = "\
            select redelivered, last_event_id
              from euterpe.redeliver_events_v1(
                     p_requester_id => $1, p_event_id => $2, p_job_id => $3, p_since => $4, p_until => $5,
                     p_after_event_id => $6, p_why => $7)";
        let (event, job, since, until, after) = match what {
            Redeliver::Event(event) => (Some(event), None, None, None, None),
            Redeliver::Job(job) => (None, Some(job.0), None, None, None),
            Redeliver::Between(since, until, after) => (None, None, Some(since), Some(until), after.as_ref()),
        };
        let requester = requester.map(RequesterId::as_str);
        let rows = self.rows(SQL, &[&requester, &event, &job, &since, &until, &after, &why]).await?;
        self.tell(&[EVENTS]);
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok((row.try_get("redelivered")?, row.try_get("last_event_id")?))
    }
}

/// Claims as the parallel arrays that SQL takes.
pub(super) struct Fence {
    pub(super) job_ids: Vec<Uuid>,
    pub(super) sequences: Vec<i32>,
    pub(super) versions: Vec<i64>,
    pub(super) tokens: Vec<Uuid>,
}

impl Fence {
    pub(super) fn of<'a>(claims: impl Iterator<Item = &'a EventClaim>) -> Self {
        let mut fence =
            Self { job_ids: Vec::new(), sequences: Vec::new(), versions: Vec::new(), tokens: Vec::new() };
        for claim in claims {
            fence.job_ids.push(claim.event.job_id.0);
            fence.sequences.push(claim.event.sequence);
            fence.versions.push(claim.version);
            fence.tokens.push(claim.token);
        }
        fence
    }
}

/// What is kept of an answer; the rest need not cross the wire.
fn beginning(answer: &[u8]) -> &[u8] {
    &answer[..answer.len().min(4096)]
}

pub(super) fn event_ref(row: &Row) -> Result<EventRef> {
    Ok(EventRef { job_id: JobId(row.try_get("job_id")?), sequence: row.try_get("sequence")? })
}

fn answered(row: &Row) -> Result<EventAnswered> {
    Ok(EventAnswered { event: event_ref(row)?, outcome: outcome(row)? })
}

fn claimed_event(row: &Row) -> Result<ClaimedEvent> {
    Ok(ClaimedEvent {
        claim: EventClaim {
            event: event_ref(row)?,
            version: row.try_get("claim_version")?,
            token: row.try_get("claim_token")?,
        },
        event_id: row.try_get("event_id")?,
        requester_id: row.try_get("requester_id")?,
        event_type: row.try_get("type")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
        attempt_count: row.try_get("attempt_count")?,
        max_attempts: row.try_get("max_attempts")?,
        callback_origin: row.try_get("callback_origin")?,
        payload: row.try_get("payload")?,
    })
}
