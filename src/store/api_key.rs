//! `sql/requester/`, typed: with which key somebody may ask.

use jiff::Timestamp;

use super::{Result, Store};
use crate::domain::RequesterId;

/// A key to be stored: its hash, never itself.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// Whose key.
    pub requester_id: RequesterId,
    /// Its public part.
    pub key_id: String,
    /// Keyed hash of its secret part.
    pub key_hash: Vec<u8>,
    /// Which pepper.
    pub pepper_version: i16,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// What is known of a key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// Whose key.
    pub requester_id: String,
    /// Keyed hash of its secret part.
    pub key_hash: Vec<u8>,
    /// Which pepper.
    pub pepper_version: i16,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Neither revoked nor expired.
    pub is_valid: bool,
    /// Its requester may not ask.
    pub is_disabled: bool,
    /// Rate limit of the HTTP tier, per pod.
    pub requests_per_second: i32,
    /// How many requests may come at once.
    pub request_burst: i32,
    /// Unfinished jobs its requester may have at once.
    pub max_open_jobs: i32,
}

/// What an operator is shown of a key.
#[derive(Debug, Clone)]
pub struct ListedApiKey {
    /// Its public part.
    pub key_id: String,
    /// Whose key.
    pub requester_id: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Neither revoked nor expired.
    pub is_valid: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it ends; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl Store {
    /// Stores the hash of a new key.
    pub async fn add_api_key(&self, new: &NewApiKey) -> Result<()> {
        const SQL: &str = "\
            select euterpe.add_api_key_v1(
                     p_requester_id => $1, p_key_id => $2, p_key_hash => $3, p_pepper_version => $4,
                     p_scopes => $5, p_expires_at => $6)";
        self.rows(
            SQL,
            &[
                &new.requester_id.as_str(),
                &new.key_id,
                &new.key_hash,
                &new.pepper_version,
                &new.scopes,
                &new.expires_at,
            ],
        )
        .await
        .map(drop)
    }

    /// Makes a key invalid.
    pub async fn revoke_api_key(&self, key_id: &str, why: Option<&str>) -> Result<()> {
        const SQL: &str = "select euterpe.revoke_api_key_v1(p_key_id => $1, p_why => $2)";
        self.rows(SQL, &[&key_id, &why]).await.map(drop)
    }

    /// What is known of a key; `None` when nothing is.
    pub async fn find_api_key(&self, key_id: &str) -> Result<Option<ApiKey>> {
        const SQL: &str = "\
            select requester_id, key_hash, pepper_version, scopes, is_valid, is_disabled,
                   requests_per_second, request_burst, max_open_jobs
              from euterpe.find_api_key_v1(p_key_id => $1)";
        let rows = self.rows(SQL, &[&key_id]).await?;
        rows.first()
            .map(|row| {
                Ok(ApiKey {
                    requester_id: row.try_get("requester_id")?,
                    key_hash: row.try_get("key_hash")?,
                    pepper_version: row.try_get("pepper_version")?,
                    scopes: row.try_get("scopes")?,
                    is_valid: row.try_get("is_valid")?,
                    is_disabled: row.try_get("is_disabled")?,
                    requests_per_second: row.try_get("requests_per_second")?,
                    request_burst: row.try_get("request_burst")?,
                    max_open_jobs: row.try_get("max_open_jobs")?,
                })
            })
            .transpose()
    }

    /// The keys of everybody, or of one, also those that are not valid any more.
    pub async fn list_api_keys(&self, requester: Option<&RequesterId>) -> Result<Vec<ListedApiKey>> {
        const SQL: &str = "\
            select key_id, requester_id, scopes, is_valid, created_at, last_used_at, expires_at, revoked_at
              from euterpe.list_api_keys_v1(p_requester_id => $1)";
        let rows = self.rows(SQL, &[&requester.map(RequesterId::as_str)]).await?;
        rows.iter()
            .map(|row| {
                Ok(ListedApiKey {
                    key_id: row.try_get("key_id")?,
                    requester_id: row.try_get("requester_id")?,
                    scopes: row.try_get("scopes")?,
                    is_valid: row.try_get("is_valid")?,
                    created_at: row.try_get("created_at")?,
                    last_used_at: row.try_get("last_used_at")?,
                    expires_at: row.try_get("expires_at")?,
                    revoked_at: row.try_get("revoked_at")?,
                })
            })
            .collect()
    }
}
