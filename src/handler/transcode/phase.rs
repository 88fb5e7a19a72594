//! What a job is doing, and how far it is.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::access::JobAccess;
use super::ending::Stop;
use crate::domain::{JobStatus, Outcome};
use crate::media::EncodeProgress;
use crate::storage::{Cause, Doing, StorageError};

/// One phase of one job.
pub(super) struct Phase<'a> {
    job: &'a JobAccess<'a>,
    status: JobStatus,
    /// What was told last, in tenths of a percent: not every byte is news.
    told: Mutex<u64>,
}

impl<'a> Phase<'a> {
    /// The job takes its next step, behind its fence.
    pub(super) async fn enter(job: &'a JobAccess<'a>, status: JobStatus) -> Result<Self, Stop> {
        let steps = [(job.claim(), status)];
        let (store, worker) = (&job.refresher.store, &job.refresher.worker);
        let calls = AtomicU32::new(0);
        let advance = || {
            calls.fetch_add(1, Ordering::Relaxed);
            store.advance_jobs(worker, &steps)
        };
        let answers = job.held.insist(advance).await?;
        match answers.first().map(|answer| answer.outcome) {
            Some(Outcome::Ok) => {}
            // The fence let it pass, and there is no such step any more: the answer to an earlier call was lost.
            Some(Outcome::Illegal) if calls.load(Ordering::Relaxed) > 1 => {}
            _ => return Err(Stop::not_ours()),
        }
        job.now_in(status);
        tracing::info!(job_id = %job.claim().job_id, phase = status.as_str(), "job advances");
        let phase = Self { job, status, told: Mutex::new(u64::MAX) };
        phase.tell(0.0, None, None, None);
        Ok(phase)
    }

    /// So many bytes of so many.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub(super) fn percent(&self, bytes: u64, of: Option<u64>, output: Option<&str>) {
        let Some(of) = of.filter(|of| *of > 0) else { return };
        self.tell((bytes as f64 * 100.0 / of as f64).min(100.0), output, None, None);
    }

    /// How far ffmpeg is.
    pub(super) fn encoding(&self, progress: &EncodeProgress) {
        self.tell(progress.percent, progress.output.as_deref(), progress.speed, progress.eta_seconds);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
    fn tell(&self, percent: f64, output: Option<&str>, speed: Option<f64>, eta_seconds: Option<f64>) {
        let tenths = (percent * 10.0) as u64;
        {
            let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if *told == tenths {
                return;
            }
            *told = tenths;
        }
        self.job.held.report(json!({
            "percent": in_tenths(percent),
            "phase": self.status.as_str(),
            "output": output,
            "speed": speed,
            "eta_seconds": eta_seconds.map(in_tenths),
        }));
    }

    /// What trouble with storage means for the job.
    pub(super) fn stop(&self, error: &StorageError, doing: Doing) -> Stop {
        match error.cause {
            Cause::Auth => self.job.why().unwrap_or_else(|| {
                // The transfer gave up by itself: that many new keys did not help.
                super::refresh::exhausted(error, self.job.refresh_url().is_some())
            }),
            _ => Stop::storage(error, doing),
        }
    }
}

/// Nobody wants to read more digits.
fn in_tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
