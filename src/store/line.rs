//! `sql/line/`, typed: the lines themselves.

use super::{Result, Store};

/// How full a line was when it was last sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// Its name.
    pub queue: String,
    /// May be claimed.
    pub ready: i64,
    /// Wait for their time.
    pub delayed: i64,
    /// In the hands of workers, or were a moment ago.
    pub leased: i64,
    /// Age of its head.
    pub oldest_ready_age_ms: Option<i64>,
    /// It hands out nothing.
    pub is_paused: bool,
}

impl Store {
    /// Sweeps, promotes and reclaims a line if a second has passed; says whether this call did it.
    pub async fn tick(&self, queue: &str) -> Result<bool> {
        const SQL: &str = "select euterpe.tick_v1(p_queue => $1) as did";
        let rows = self.rows(SQL, &[&queue]).await?;
        rows.first().map_or(Ok(false), |row| Ok(row.try_get("did")?))
    }

    /// How full each line was when it was last sampled.
    pub async fn queue_depths(&self) -> Result<Vec<QueueDepth>> {
        const SQL: &str = "\
            select queue, ready_count, delayed_count, leased_count, oldest_ready_age_ms, is_paused
              from euterpe.queue_depths_v1()";
        let rows = self.rows(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(QueueDepth {
                    queue: row.try_get("queue")?,
                    ready: row.try_get("ready_count")?,
                    delayed: row.try_get("delayed_count")?,
                    leased: row.try_get("leased_count")?,
                    oldest_ready_age_ms: row.try_get("oldest_ready_age_ms")?,
                    is_paused: row.try_get("is_paused")?,
                })
            })
            .collect()
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
