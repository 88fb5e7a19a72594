//! `sql/requester/`, typed: who may ask.

use jiff::Timestamp;

use super::{Result, Store};
use crate::domain::RequesterId;

/// A requester to be added.
#[derive(Debug, Clone)]
pub struct NewRequester {
    /// Its name.
    pub requester_id: RequesterId,
    /// For people.
    pub display_name: Option<String>,
    /// Share of a line, 1 to 100.
    pub weight: i32,
    /// Higher priorities are lowered to this.
    pub max_priority: i32,
    /// Unfinished jobs it may have at once.
    pub max_open_jobs: i32,
    /// Rate limit of the HTTP tier, per pod.
    pub requests_per_second: i32,
    /// How many requests may come at once.
    pub request_burst: i32,
}

impl NewRequester {
    /// A requester with the usual share and limits.
    #[must_use]
    pub fn named(requester_id: RequesterId) -> Self {
        Self {
            requester_id,
            display_name: None,
            weight: 1,
            max_priority: 1000,
            max_open_jobs: 100_000,
            requests_per_second: 20,
            request_burst: 60,
        }
    }
}

/// A requester, as people see it.
#[derive(Debug, Clone)]
pub struct Requester {
    /// Its name.
    pub requester_id: String,
    /// For people.
    pub display_name: Option<String>,
    /// Share of a line.
    pub weight: i16,
    /// Higher priorities are lowered to this.
    pub max_priority: i16,
    /// Unfinished jobs it may have at once.
    pub max_open_jobs: i32,
    /// Rate limit of the HTTP tier, per pod.
    pub requests_per_second: i32,
    /// How many requests may come at once.
    pub request_burst: i32,
    /// Since when it may not ask.
    pub disabled_at: Option<Timestamp>,
    /// When it was added.
    pub created_at: Timestamp,
}

impl Store {
    /// Lets somebody ask for work.
    pub async fn add_requester(&self, new: &NewRequester) -> Result<()> {
        const SQL: &str = "\
            select euterpe.add_requester_v1(
                     p_requester_id => $1, p_display_name => $2, p_weight => $3, p_max_priority => $4,
                     p_max_open_jobs => $5, p_requests_per_second => $6, p_request_burst => $7)";
        self.rows(
            SQL,
            &[
                &new.requester_id.as_str(),
                &new.display_name,
                &new.weight,
                &new.max_priority,
                &new.max_open_jobs,
                &new.requests_per_second,
                &new.request_burst,
            ],
        )
        .await
        .map(drop)
    }

    /// Stops taking work from somebody; what was accepted goes on.
    pub async fn disable_requester(&self, requester: &RequesterId, why: Option<&str>) -> Result<()> {
        const SQL: &str = "select euterpe.disable_requester_v1(p_requester_id => $1, p_why => $2)";
        self.rows(SQL, &[&requester.as_str(), &why]).await.map(drop)
    }

    /// Takes work from somebody again.
    pub async fn enable_requester(&self, requester: &RequesterId, why: Option<&str>) -> Result<()> {
        const SQL: &str = "select euterpe.enable_requester_v1(p_requester_id => $1, p_why => $2)";
        self.rows(SQL, &[&requester.as_str(), &why]).await.map(drop)
    }

    /// Everybody who may ask, or might.
    pub async fn list_requesters(&self) -> Result<Vec<Requester>> {
        const SQL: &str = "\
            select requester_id, display_name, weight, max_priority, max_open_jobs, requests_per_second,
                   request_burst, disabled_at, created_at
              from euterpe.list_requesters_v1()";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(Requester {
                    requester_id: row.try_get("requester_id")?,
                    display_name: row.try_get("display_name")?,
                    weight: row.try_get("weight")?,
                    max_priority: row.try_get("max_priority")?,
                    max_open_jobs: row.try_get("max_open_jobs")?,
                    requests_per_second: row.try_get("requests_per_second")?,
                    request_burst: row.try_get("request_burst")?,
                    disabled_at: row.try_get("disabled_at")?,
                    created_at: row.try_get("created_at")?,
                })
            })
            .collect()
    }
}
