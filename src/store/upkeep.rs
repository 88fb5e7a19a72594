//! `sql/upkeep/`, typed: the slower things.

use super::{Result, Store, StoreError};

/// One thing upkeep did.
#[derive(Debug, Clone)]
pub struct UpkeepStep {
    /// What.
    pub did: String,
    /// To how many rows.
    pub row_count: i64,
}

impl Store {
    /// Refuses a server that may lose what it has acknowledged, unless that risk `is_accepted`.
    pub async fn check_durability(&self, is_accepted: bool) -> Result<()> {
        const SQL: &str = "\
            select name || ' = ' || setting as risk from pg_settings
             where (name, setting) in (('fsync', 'off'), ('full_page_writes', 'off'), ('synchronous_commit', 'off'),
                                       ('synchronous_commit', 'local'), ('synchronous_commit', 'remote_write'))";
        let rows = self.rows(SQL, &[]).await?;
        let risks =
            rows.iter().map(|row| row.try_get("risk")).collect::<std::result::Result<Vec<String>, _>>()?;
        if risks.is_empty() {
            return Ok(());
        }
        if is_accepted {
            tracing::warn!(risks = risks.join(", "), "this server may lose accepted jobs");
            return Ok(());
        }
        Err(StoreError::NotDurable(risks))
    }

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
