//! `sql/people/` and `sql/views/`, typed: what people look at.

use jiff::Timestamp;
use uuid::Uuid;

use super::wake::ALL;
use super::{Result, Store, StoreError};
use crate::domain::{JobId, RequesterId};

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

/// A job that was given up and not redriven.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// Which job.
    pub job_id: JobId,
    /// Whose.
    pub who: String,
    /// Its last error.
    pub code: Option<String>,
    /// Since when, for people.
    pub ago: String,
}

/// What a DBA should worry about, or not.
#[derive(Debug, Clone)]
pub struct Health {
    /// What was looked at.
    pub topic: String,
    /// False: look into it.
    pub is_ok: bool,
    /// What was found.
    pub says: String,
}

/// Which jobs an operator means; at least one filter is needed.
#[derive(Debug, Clone, Default)]
pub struct Steer {
    /// Of this queue.
    pub queue: Option<String>,
    /// Of this requester.
    pub requester: Option<RequesterId>,
    /// With this error.
    pub error_code: Option<String>,
    /// Accepted then or later; default: 30 days ago.
    pub since: Option<Timestamp>,
    /// Accepted before.
    pub until: Option<Timestamp>,
    /// Kept in `operator_log`.
    pub why: Option<String>,
}

/// What became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steered {
    /// How many match, counted up to 10,000.
    pub matching: i32,
    /// How many were done.
    pub done: i32,
    /// How many could not be.
    pub refused: i32,
}

impl Store {
    /// Jobs that were given up and not redriven, newest first. View: `dead_letters`.
    pub async fn dead_letters(
        &self,
        requester: Option<&RequesterId>,
        error_code: Option<&str>,
        limit: i64,
    ) -> Result<Vec<DeadLetter>> {
        const SQL: &str = "\
            select job_id, who, code, ago
              from euterpe.dead_letters
             where ($1::text is null or who = $1) and ($2::text is null or code = $2)
             limit $3";
        let rows = self.rows(SQL, &[&requester.map(RequesterId::as_str), &error_code, &limit]).await?;
        rows.iter()
            .map(|row| {
                Ok(DeadLetter {
                    job_id: JobId(row.try_get("job_id")?),
                    who: row.try_get("who")?,
                    code: row.try_get("code")?,
                    ago: row.try_get("ago")?,
                })
            })
            .collect()
    }

    /// Redrives what matches, oldest first and at most `limit`; without `confirm` it only counts.
    pub async fn redrive_matching(&self, which: &Steer, confirm: Option<i32>, limit: i32) -> Result<Steered> {
        const SQL: &str = "\
            select matching, done, refused
              from euterpe.steer_jobs_v1(
                     p_act => 'redrive', p_queue => $1, p_requester_id => $2, p_error_code => $3, p_since => $4,
                     p_until => $5, p_why => $6, p_confirm => $7, p_limit => $8)";
        let requester = which.requester.as_ref().map(RequesterId::as_str);
        let Steer { queue, error_code, since, until, why, .. } = which;
        let rows =
            self.rows(SQL, &[queue, &requester, error_code, since, until, why, &confirm, &limit]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        self.tell(&[ALL]);
        Ok(Steered {
            matching: row.try_get("matching")?,
            done: row.try_get("done")?,
            refused: row.try_get("refused")?,
        })
    }

    /// What a DBA should worry about, alarms first. View: `health`.
    pub async fn health(&self) -> Result<Vec<Health>> {
        const SQL: &str = "select topic, ok, says from euterpe.health";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(Health {
                    topic: row.try_get("topic")?,
                    is_ok: row.try_get("ok")?,
                    says: row.try_get("says")?,
                })
            })
            .collect()
    }

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
