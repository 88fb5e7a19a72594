//! `sql/line/`, typed: the lines themselves.

use super::{Result, Store};

impl Store {
    /// Sweeps, promotes and reclaims a line if a second has passed; says whether this call did it.
    pub async fn tick(&self, queue: &str) -> Result<bool> {
        const SQL: &str = "select euterpe.tick_v1(p_queue => $1) as did";
        let rows = self.rows(SQL, &[&queue]).await?;
        rows.first().map_or(Ok(false), |row| Ok(row.try_get("did")?))
    }

    /// Makes a line for jobs with the usual settings; says whether it is new.
    pub async fn create_queue(&self, queue: &str) -> Result<bool> {
        const SQL: &str = "select created from euterpe.create_queue_v1(p_queue => $1)";
        let rows = self.rows(SQL, &[&queue]).await?;
        rows.first().map_or(Ok(false), |row| Ok(row.try_get("created")?))
    }

    /// The line hands out nothing from now on.
    pub async fn pause_queue(&self, queue: &str, why: Option<&str>) -> Result<()> {
        const SQL: &str = "select euterpe.pause_queue_v1(p_queue => $1, p_why => $2)";
        self.rows(SQL, &[&queue, &why]).await.map(drop)
    }

    /// The line hands out work again.
    pub async fn resume_queue(&self, queue: &str, why: Option<&str>) -> Result<()> {
        const SQL: &str = "select euterpe.resume_queue_v1(p_queue => $1, p_why => $2)";
        self.rows(SQL, &[&queue, &why]).await.map(drop)
    }
}
