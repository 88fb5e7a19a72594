//! `sql/secret/`, typed: signing secrets, and wrapping keys anew. Ciphertext only; it is opened elsewhere.

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::types::Json;

use super::{Result, Store, StoreError};
use crate::domain::{JobId, Purpose, RequesterId, Sealed, SealedParts};

/// A signing secret that signs now.
#[derive(Clone)]
pub struct StoredSigningSecret {
    /// Whose webhooks it signs.
    pub requester_id: RequesterId,
    /// Version bound into the ciphertext.
    pub version: i32,
    /// It makes the contract's own signature; the others only sign beside it.
    pub is_active: bool,
    /// Ciphertext under a key of its own.
    pub encrypted: Vec<u8>,
    /// That key, wrapped.
    pub dek_wrapped: Vec<u8>,
    /// Which key wrapped it.
    pub kek_id: String,
    /// Format of the ciphertext.
    pub encryption_version: i16,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it is, or was, the active one.
    pub activated_at: Option<Timestamp>,
    /// When it stops signing.
    pub retired_at: Option<Timestamp>,
}

impl StoredSigningSecret {
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

/// One step of a walk over all wrapped keys.
#[derive(Clone)]
pub struct Wrapped {
    /// Where it is, and where the walk goes on.
    pub place: String,
    /// The key that is there; `None`: none was found so far, or its job is being dropped with its week.
    pub key: Option<WrappedKey>,
}

/// The wrapped key of a sealed secret, and what it is bound to.
#[derive(Clone)]
pub struct WrappedKey {
    /// What the secret is for.
    pub purpose: Purpose,
    /// The job bound into it; `None`: a signing secret.
    pub bound_to: Option<JobId>,
    /// The requester bound into it.
    pub requester_id: RequesterId,
    /// The version bound into it.
    pub version: i32,
    /// Which key wrapped it.
    pub kek_id: String,
    /// The key, wrapped.
    pub dek_wrapped: Vec<u8>,
}

/// A newly wrapped key, to be put where the old one was.
#[derive(Debug, Clone)]
pub struct NewlyWrapped {
    /// Where.
    pub place: String,
    /// What must still be there.
    pub old_wrapped: Vec<u8>,
    /// What takes its place.
    pub new_wrapped: Vec<u8>,
    /// Which key wrapped it.
    pub new_kek_id: String,
}

/// How many secrets of one purpose a KEK wraps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KekUsage {
    /// Which key.
    pub kek_id: String,
    /// What the secrets are for.
    pub purpose: Purpose,
    /// How many.
    pub secret_count: i64,
}

impl Store {
    /// Which version a requester's next signing secret will have: it is sealed to that.
    pub async fn next_signing_version(&self, requester: &RequesterId) -> Result<i32> {
        const SQL: &str = "select euterpe.next_signing_version_v1(p_requester_id => $1) as version";
        let rows = self.rows(SQL, &[&requester.as_str()]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(row.try_get("version")?)
    }

    /// Stores a signing secret that is sealed to `version`; the first is active at once.
    pub async fn add_signing_secret(
        &self,
        requester: &RequesterId,
        version: i32,
        sealed: &Sealed,
        why: Option<&str>,
    ) -> Result<()> {
        const SQL: &str = "\
            select euterpe.add_signing_secret_v1(
                     p_requester_id => $1, p_version => $2, p_sealed => $3, p_why => $4)";
        self.rows(SQL, &[&requester.as_str(), &version, &Json(sealed), &why]).await.map(drop)
    }

    /// Signs with `version` from now on; the others keep signing beside it for `overlap`.
    pub async fn activate_signing_secret(
        &self,
        requester: &RequesterId,
        version: i32,
        overlap: SignedDuration,
        why: Option<&str>,
    ) -> Result<()> {
        const SQL: &str = "\
            select euterpe.activate_signing_secret_v1(
                     p_requester_id => $1, p_version => $2, p_overlap_seconds => $3, p_why => $4)";
        let overlap_seconds = i32::try_from(overlap.as_secs()).unwrap_or(i32::MAX);
        self.rows(SQL, &[&requester.as_str(), &version, &overlap_seconds, &why]).await.map(drop)
    }

    /// Signs nothing with `version` any more; never the active one.
    pub async fn retire_signing_secret(
        &self,
        requester: &RequesterId,
        version: i32,
        why: Option<&str>,
    ) -> Result<()> {
        const SQL: &str = "\
            select euterpe.retire_signing_secret_v1(p_requester_id => $1, p_version => $2, p_why => $3)";
        self.rows(SQL, &[&requester.as_str(), &version, &why]).await.map(drop)
    }

    /// The signing secrets of requesters that sign now: per requester the active one first.
    pub async fn read_signing_secrets(&self, requesters: &[RequesterId]) -> Result<Vec<StoredSigningSecret>> {
        const SQL: &str = "\
            select requester_id, version, is_active, encrypted, dek_wrapped, kek_id, encryption_version,
                   created_at, activated_at, retired_at
              from euterpe.read_signing_secrets_v1(p_requester_ids => $1)";
        let requesters: Vec<_> = requesters.iter().map(RequesterId::as_str).collect();
        let rows = self.rows(SQL, &[&requesters]).await?;
        rows.iter()
            .map(|row| {
                Ok(StoredSigningSecret {
                    requester_id: requester_id(row.try_get("requester_id")?)?,
                    version: row.try_get("version")?,
                    is_active: row.try_get("is_active")?,
                    encrypted: row.try_get("encrypted")?,
                    dek_wrapped: row.try_get("dek_wrapped")?,
                    kek_id: row.try_get("kek_id")?,
                    encryption_version: row.try_get("encryption_version")?,
                    created_at: row.try_get("created_at")?,
                    activated_at: row.try_get("activated_at")?,
                    retired_at: row.try_get("retired_at")?,
                })
            })
            .collect()
    }

    /// The keys that `kek_id` wraps, at most `limit`, after the last place of the answer before; empty: that was all.
    pub async fn list_wrapped(
        &self,
        kek_id: Option<&str>,
        after: Option<&str>,
        limit: u16,
    ) -> Result<Vec<Wrapped>> {
        const SQL: &str = "\
            select place, purpose, bound_to, requester_id, version, kek_id, dek_wrapped
              from euterpe.list_wrapped_v1(p_kek_id => $1, p_after => $2, p_limit => $3)";
        let rows = self.rows(SQL, &[&kek_id, &after, &i32::from(limit)]).await?;
        rows.iter()
            .map(|row| {
                let purpose: Option<&str> = row.try_get("purpose")?;
                let owner: Option<&str> = row.try_get("requester_id")?;
                let key = purpose
                    .zip(owner)
                    .map(|(purpose, owner)| {
                        Ok::<_, StoreError>(WrappedKey {
                            purpose: purpose_of(purpose)?,
                            bound_to: row.try_get::<_, Option<_>>("bound_to")?.map(JobId),
                            requester_id: requester_id(owner)?,
                            version: row.try_get("version")?,
                            kek_id: row.try_get("kek_id")?,
                            dek_wrapped: row.try_get("dek_wrapped")?,
                        })
                    })
                    .transpose()?;
                Ok(Wrapped { place: row.try_get("place")?, key })
            })
            .collect()
    }

    /// Puts newly wrapped keys in place; says how many of them. The rest was changed or held meanwhile: list again.
    pub async fn rewrap(&self, keys: &[NewlyWrapped], why: Option<&str>) -> Result<usize> {
        const SQL: &str = "\
            select place, outcome
              from euterpe.rewrap_v1(
                     p_places => $1, p_old_wrapped => $2, p_new_wrapped => $3, p_new_kek_ids => $4, p_why => $5)";
        let places: Vec<_> = keys.iter().map(|key| key.place.as_str()).collect();
        let old: Vec<_> = keys.iter().map(|key| key.old_wrapped.as_slice()).collect();
        let new: Vec<_> = keys.iter().map(|key| key.new_wrapped.as_slice()).collect();
        let kek_ids: Vec<_> = keys.iter().map(|key| key.new_kek_id.as_str()).collect();
        let rows = self.rows(SQL, &[&places, &old, &new, &kek_ids, &why]).await?;
        let mut done = 0;
        for row in rows {
            done += usize::from(row.try_get::<_, &str>("outcome")? == "ok");
        }
        Ok(done)
    }

    /// How many secrets each KEK wraps. Reads all of them.
    pub async fn kek_usage(&self) -> Result<Vec<KekUsage>> {
        const SQL: &str = "select kek_id, purpose, secret_count from euterpe.kek_usage_v1()";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(KekUsage {
                    kek_id: row.try_get("kek_id")?,
                    purpose: purpose_of(row.try_get("purpose")?)?,
                    secret_count: row.try_get("secret_count")?,
                })
            })
            .collect()
    }
}

fn requester_id(text: &str) -> Result<RequesterId> {
    text.parse().map_err(|_| StoreError::UnexpectedAnswer(format!("requester {text:?}")))
}

fn purpose_of(word: &str) -> Result<Purpose> {
    Purpose::parse(word).ok_or_else(|| StoreError::UnexpectedAnswer(format!("purpose {word:?}")))
}
