//! `sql/secret/`, typed: sealed credentials and callbacks. Ciphertext only; it is opened elsewhere.

use tokio_postgres::Row;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::inbox::{Fence, outcome};
use super::outbox::{Fence as EventFence, event_ref};
use super::{Result, Store, StoreError};
use crate::domain::{
    Claim, EventClaim, EventRef, JobId, Outcome, RequesterId, Sealed, SealedParts, WorkerId,
};

/// A sealed secret as it is stored.
#[derive(Clone)]
pub struct StoredSecret {
    /// Ciphertext under a key of its own.
    pub encrypted: Vec<u8>,
    /// That key, wrapped.
    pub dek_wrapped: Vec<u8>,
    /// Which key wrapped it.
    pub kek_id: String,
    /// Format of the ciphertext.
    pub encryption_version: i16,
    /// Version bound into the ciphertext.
    pub credential_version: i32,
    /// Job bound into the ciphertext: its own, or the one it was redriven from.
    pub bound_to: Uuid,
}

impl StoredSecret {
    /// What opens, together with its binding.
    #[must_use]
    pub fn parts(&self) -> SealedParts<'_> {
        SealedParts {
            encrypted: &self.encrypted,
            dek_wrapped: &self.dek_wrapped,
            kek_id: &self.kek_id,
            encryption_version: self.encryption_version,
        }
    }
}

/// What a worker may read of one of its jobs.
pub struct JobSecret {
    /// Which job.
    pub job_id: JobId,
    /// `Ok`, or `Stale`: not its owner.
    pub outcome: Outcome,
    /// `storage` or `callback`, and the secret; `None`: it has none.
    pub secret: Option<(String, StoredSecret)>,
}

/// The answer to "may I ask for new credentials?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Ask; go on when this `credential_version` has advanced.
    Ask(i32),
    /// Three in a row did not help, or fifty in all: fail the job.
    Exhausted,
    /// Not its owner any more.
    Lost(Outcome),
}

impl Store {
    /// The sealed secrets of jobs that `worker` holds; one row per job and purpose.
    pub async fn read_job_secrets(&self, worker: &WorkerId, claims: &[Claim]) -> Result<Vec<JobSecret>> {
        const SQL: &str = "\
            select job_id, outcome, purpose, encrypted, dek_wrapped, kek_id, encryption_version,
                   credential_version, bound_to
              from euterpe.read_job_secrets_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4)";
        let fence = Fence::of(claims.iter());
        let rows =
            self.rows(SQL, &[&worker.as_str(), &fence.job_ids, &fence.versions, &fence.tokens]).await?;
        rows.iter()
            .map(|row| {
                let purpose: Option<String> = row.try_get("purpose")?;
                Ok(JobSecret {
                    job_id: JobId(row.try_get("job_id")?),
                    outcome: outcome(row)?,
                    secret: purpose
                        .map(|purpose| Ok::<_, StoreError>((purpose, stored(row)?)))
                        .transpose()?,
                })
            })
            .collect()
    }

    /// The sealed callback of events that `worker` holds; `None`: not its owner, or there is none.
    pub async fn read_event_secrets(
        &self,
        worker: &WorkerId,
        claims: &[EventClaim],
    ) -> Result<Vec<(EventRef, Outcome, Option<StoredSecret>)>> {
        const SQL: &str = "\
            select job_id, sequence, outcome, encrypted, dek_wrapped, kek_id, encryption_version,
                   credential_version, bound_to
              from euterpe.read_event_secrets_v1(
                     p_worker_id => $1, p_job_ids => $2, p_sequences => $3, p_claim_versions => $4,
                     p_claim_tokens => $5)";
        let fence = EventFence::of(claims.iter());
        let rows = self
            .rows(SQL, &[&worker.as_str(), &fence.job_ids, &fence.sequences, &fence.versions, &fence.tokens])
            .await?;
        rows.iter()
            .map(|row| {
                let there: Option<&str> = row.try_get("kek_id")?;
                let secret = there.map(|_| stored(row)).transpose()?;
                Ok((event_ref(row)?, outcome(row)?, secret))
            })
            .collect()
    }

    /// Puts new storage credentials in place of version `expected`; says the new version, which they are sealed to.
    pub async fn replace_credentials(
        &self,
        job_id: JobId,
        requester: &RequesterId,
        expected: i32,
        sealed: &Sealed,
    ) -> Result<i32> {
        const SQL: &str = "\
            select euterpe.replace_credentials_v1(
                     p_job_id => $1, p_requester_id => $2, p_expected_version => $3, p_sealed => $4) as version";
        let rows = self.rows(SQL, &[&job_id.0, &requester.as_str(), &expected, &Json(sealed)]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(row.try_get("version")?)
    }

    /// Stores what the answer to a refresh call carried, sealed to `expected` + 1, behind the fence of whoever asked.
    pub async fn store_refreshed(
        &self,
        worker: &WorkerId,
        claim: Claim,
        expected: i32,
        sealed: &Sealed,
    ) -> Result<Outcome> {
        const SQL: &str = "\
            select euterpe.store_refreshed_v1(
                     p_worker_id => $1, p_job_id => $2, p_claim_version => $3, p_claim_token => $4,
                     p_expected_version => $5, p_sealed => $6) as outcome";
        let Claim { job_id, version, token } = claim;
        let rows = self
            .rows(SQL, &[&worker.as_str(), &job_id.0, &version, &token, &expected, &Json(sealed)])
            .await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        outcome(row)
    }

    /// Counts a refresh of each job; `true`: a storage call has worked since the last one.
    pub async fn begin_refreshes(
        &self,
        worker: &WorkerId,
        jobs: &[(Claim, bool)],
    ) -> Result<Vec<(JobId, Refresh)>> {
        const SQL: &str = "\
            select job_id, outcome, credential_version
              from euterpe.begin_refreshes_v1(
                     p_worker_id => $1, p_job_ids => $2, p_claim_versions => $3, p_claim_tokens => $4,
                     p_storage_worked => $5)";
        let fence = Fence::of(jobs.iter().map(|(claim, _)| claim));
        let storage_worked: Vec<_> = jobs.iter().map(|(_, worked)| *worked).collect();
        let rows = self
            .rows(SQL, &[&worker.as_str(), &fence.job_ids, &fence.versions, &fence.tokens, &storage_worked])
            .await?;
        rows.iter()
            .map(|row| {
                let refresh = match row.try_get("outcome")? {
                    "ok" => Refresh::Ask(row.try_get("credential_version")?),
                    "exhausted" => Refresh::Exhausted,
                    _ => Refresh::Lost(outcome(row)?),
                };
                Ok((JobId(row.try_get("job_id")?), refresh))
            })
            .collect()
    }
}

fn stored(row: &Row) -> Result<StoredSecret> {
    Ok(StoredSecret {
        encrypted: row.try_get("encrypted")?,
        dek_wrapped: row.try_get("dek_wrapped")?,
        kek_id: row.try_get("kek_id")?,
        encryption_version: row.try_get("encryption_version")?,
        credential_version: row.try_get("credential_version")?,
        bound_to: row.try_get("bound_to")?,
    })
}
