//! `sql/read/`, typed: what requesters may know of their jobs.

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Result, Store, StoreError};
use crate::domain::{JobId, RequesterId};

/// Something of a requester's, or why it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// It is there.
    Here(T),
    /// No such job; another requester's is as unknown as none.
    Unknown,
    /// Its week was dropped.
    Pruned,
}

/// A job's status document.
#[derive(Debug, Clone, PartialEq)]
pub struct JobDocument {
    /// As `GET /transcode/status` answers it.
    pub document: Value,
    /// Number of its newest event.
    pub last_sequence: i32,
    /// Nothing follows unless a person acts.
    pub is_final: bool,
}

/// One job of a page.
#[derive(Debug, Clone)]
pub struct ListedJob {
    /// Which job; the last one of a page is the cursor of the next.
    pub job_id: JobId,
    /// The requester's own name for it.
    pub external_id: Option<String>,
    /// Where it stands; `None`: not a job of the page, only where to go on.
    pub status: Option<String>,
    /// Executions started.
    pub attempt_count: Option<i32>,
    /// Budget of them.
    pub max_attempts: Option<i32>,
    /// Code of its last error.
    pub error_code: Option<String>,
    /// When it was accepted.
    pub created_at: Option<Timestamp>,
    /// When its status last changed.
    pub updated_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only these.
    pub status: Option<String>,
    /// Only these.
    pub external_id: Option<String>,
    /// Older than this one.
    pub before: Option<JobId>,
    /// 1 to 100.
    pub limit: u8,
}

/// What was answered under an idempotency key.
#[derive(Debug, Clone)]
pub struct StoredAnswer {
    /// SHA-256 of the request it was given to.
    pub request_hash: Vec<u8>,
    /// Which canonical form.
    pub hash_version: i16,
    /// Byte for byte.
    pub response: Vec<u8>,
}

impl Store {
    /// The status document of one of a requester's jobs.
    pub async fn read_job(&self, requester: &RequesterId, job_id: JobId) -> Result<Found<JobDocument>> {
        const SQL: &str = "\
            select outcome, document, last_sequence, is_final
              from euterpe.read_job_v1(p_requester_id => $1, p_job_id => $2)";
        let rows = self.rows(SQL, &[&requester.as_str(), &job_id.0]).await?;
        found(&rows, |row| {
            Ok(JobDocument {
                document: row.try_get("document")?,
                last_sequence: row.try_get("last_sequence")?,
                is_final: row.try_get("is_final")?,
            })
        })
    }

    /// A page of a requester's jobs, newest first.
    pub async fn list_jobs(&self, requester: &RequesterId, filter: &JobFilter) -> Result<Vec<ListedJob>> {
        const SQL: &str = "\
            select job_id, external_id, status, attempt_count, max_attempts, error_code, created_at, updated_at,
                   finished_at
              from euterpe.list_jobs_v1(
                     p_requester_id => $1, p_status => $2, p_external_id => $3, p_before => $4, p_limit => $5)";
        let before = filter.before.map(|id| id.0);
        let limit = i32::from(filter.limit);
        let rows = self
            .rows(SQL, &[&requester.as_str(), &filter.status, &filter.external_id, &before, &limit])
            .await?;
        rows.iter().map(listed_job).collect()
    }

    /// The timeline of one of a requester's jobs: a JSON array, in order.
    pub async fn read_events(&self, requester: &RequesterId, job_id: JobId) -> Result<Found<Value>> {
        const SQL: &str = "\
            select outcome, events from euterpe.read_events_v1(p_requester_id => $1, p_job_id => $2)";
        let rows = self.rows(SQL, &[&requester.as_str(), &job_id.0]).await?;
        found(&rows, |row| Ok(row.try_get("events")?))
    }

    /// The number of the newest event of each job that exists; at most 1,000 at once.
    pub async fn last_sequences(&self, job_ids: &[JobId]) -> Result<Vec<(JobId, i32)>> {
        const SQL: &str = "\
            select job_id, last_sequence from euterpe.last_sequences_v1(p_job_ids => $1)";
        let ids: Vec<Uuid> = job_ids.iter().map(|id| id.0).collect();
        let rows = self.rows(SQL, &[&ids]).await?;
        rows.iter().map(|row| Ok((JobId(row.try_get("job_id")?), row.try_get("last_sequence")?))).collect()
    }

    /// How many unfinished jobs a requester has, counted up to `limit`.
    pub async fn count_open_jobs(&self, requester: &RequesterId, limit: i32) -> Result<i64> {
        const SQL: &str = "\
            select euterpe.count_open_jobs_v1(p_requester_id => $1, p_limit => $2) as open";
        let rows = self.rows(SQL, &[&requester.as_str(), &limit]).await?;
        rows.first().map_or(Ok(0), |row| Ok(row.try_get("open")?))
    }

    /// What was answered under `key`, without using it up.
    pub async fn find_idempotency_key(
        &self,
        requester: &RequesterId,
        key: &str,
    ) -> Result<Option<StoredAnswer>> {
        const SQL: &str = "\
            select request_hash, hash_version, response
              from euterpe.find_idempotency_key_v1(p_requester_id => $1, p_idempotency_key => $2)";
        let rows = self.rows(SQL, &[&requester.as_str(), &key]).await?;
        rows.first()
            .map(|row| {
                Ok(StoredAnswer {
                    request_hash: row.try_get("request_hash")?,
                    hash_version: row.try_get("hash_version")?,
                    response: row.try_get("response")?,
                })
            })
            .transpose()
    }
}

fn found<T>(rows: &[Row], read: impl Fn(&Row) -> Result<T>) -> Result<Found<T>> {
    let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
    match row.try_get("outcome")? {
        "ok" => read(row).map(Found::Here),
        "unknown" => Ok(Found::Unknown),
        "pruned" => Ok(Found::Pruned),
        other => Err(StoreError::UnexpectedAnswer(other.to_owned())),
    }
}

fn listed_job(row: &Row) -> Result<ListedJob> {
    Ok(ListedJob {
        job_id: JobId(row.try_get("job_id")?),
        external_id: row.try_get("external_id")?,
        status: row.try_get("status")?,
        attempt_count: row.try_get("attempt_count")?,
        max_attempts: row.try_get("max_attempts")?,
        error_code: row.try_get("error_code")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        finished_at: row.try_get("finished_at")?,
    })
}
