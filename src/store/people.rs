//! `sql/people/` and `sql/views/`, typed: what people look at.

use jiff::Timestamp;
use uuid::Uuid;

use super::{Result, Store, StoreError};
use crate::domain::JobId;

/// Something that does not agree.
#[derive(Debug, Clone)]
pub struct Orphan {
    /// What kind of trouble.
    pub trouble: String,
    /// Which job.
    pub job_id: Option<Uuid>,
    /// More of it.
    pub detail: Option<String>,
}

/// Why a job is not running, or what it is doing.
#[derive(Debug, Clone)]
pub struct Explained {
    /// One word to filter by; `unknown` or `pruned`: it is not here.
    pub situation: String,
    /// A sentence.
    pub says: String,
    /// How its webhooks stand.
    pub callbacks: Option<String>,
}

/// One line of a job's timeline.
#[derive(Debug, Clone)]
pub struct TimelineStep {
    /// Number of the event; `None`: what a person did.
    pub sequence: Option<i32>,
    /// When.
    pub at: Timestamp,
    /// From which status to which; or what the person did.
    pub step: String,
    /// Why, when there is more to say.
    pub reason: Option<String>,
    /// Which claim.
    pub claim_version: Option<i64>,
    /// Who owned the job; or who the person was.
    pub worker_id: Option<String>,
}

impl Store {
    /// Everything that does not agree between jobs, events, lines, leases and keys. Reads everything.
    pub async fn orphan_check(&self) -> Result<Vec<Orphan>> {
        const SQL: &str = "select trouble, job_id, detail from euterpe.orphan_check_v1()";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(Orphan {
                    trouble: row.try_get("trouble")?,
                    job_id: row.try_get("job_id")?,
                    detail: row.try_get("detail")?,
                })
            })
            .collect()
    }

    /// Why a job is not running, or what it is doing.
    pub async fn explain_job(&self, job_id: JobId) -> Result<Explained> {
        const SQL: &str = "select situation, says, callbacks from euterpe.explain_job_v1(p_job_id => $1)";
        let rows = self.rows(SQL, &[&job_id.0]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(Explained {
            situation: row.try_get("situation")?,
            says: row.try_get("says")?,
            callbacks: row.try_get("callbacks")?,
        })
    }

    /// What happened to a job. View: `job_timeline`.
    pub async fn job_timeline(&self, job_id: JobId) -> Result<Vec<TimelineStep>> {
        const SQL: &str = "\
            select sequence, at, step, reason, claim_version, worker_id
              from euterpe.job_timeline
             where job_id = $1
             order by at, sequence";
        let rows = self.rows(SQL, &[&job_id.0]).await?;
        rows.iter()
            .map(|row| {
                Ok(TimelineStep {
                    sequence: row.try_get("sequence")?,
                    at: row.try_get("at")?,
                    step: row.try_get("step")?,
                    reason: row.try_get("reason")?,
                    claim_version: row.try_get("claim_version")?,
                    worker_id: row.try_get("worker_id")?,
                })
            })
            .collect()
    }
}
