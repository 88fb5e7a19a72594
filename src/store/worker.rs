//! `sql/worker/`, typed: who is there.

use serde_json::Value;

use super::{Result, Store};
use crate::domain::WorkerId;

impl Store {
    /// This process is there.
    pub async fn worker_seen(&self, worker: &WorkerId, kind: &str, detail: Option<&Value>) -> Result<()> {
        const SQL: &str = "\
            select euterpe.worker_seen_v1(
                     p_worker_id => $1, p_kind => $2, p_release => $3, p_detail => $4)";
        let release = env!("CARGO_PKG_VERSION");
        self.rows(SQL, &[&worker.as_str(), &kind, &release, &detail]).await.map(drop)
    }

    /// This process says goodbye.
    pub async fn worker_stopped(&self, worker: &WorkerId) -> Result<()> {
        const SQL: &str = "select euterpe.worker_stopped_v1(p_worker_id => $1)";
        self.rows(SQL, &[&worker.as_str()]).await.map(drop)
    }
}
