//! `sql/upkeep/`, typed: the slower things.

use super::{Result, Store};

/// One thing upkeep did.
#[derive(Debug, Clone)]
pub struct UpkeepStep {
    /// What.
    pub did: String,
    /// To how many rows.
    pub row_count: i64,
}

impl Store {
    /// Makes partitions, deletes expired keys, marks absent workers, samples the queues. Empty when somebody
    /// else is at it.
    pub async fn upkeep(&self) -> Result<Vec<UpkeepStep>> {
        const SQL: &str = "select did, row_count from euterpe.upkeep_v1()";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| Ok(UpkeepStep { did: row.try_get("did")?, row_count: row.try_get("row_count")? }))
            .collect()
    }
}
