//! What was done here, as numbers for `/metrics`: counted where the database's answer is read, by the process that asked.
//!
//! A call whose answer was lost is not counted, nor is what a claim reclaims on its way; `job_timeline` has everything.

use crate::domain::{JobStatus, Outcome};

/// So many jobs have come to `to`.
pub(super) fn moved(to: JobStatus, jobs: usize) {
    metrics::counter!("euterpe_job_transitions_total", "to" => to.as_str()).increment(jobs as u64);
}

/// One execution has ended for the reason `code`, and this is what followed.
pub(super) fn ended(code: &str, to: JobStatus) {
    if to == JobStatus::DeadLetter {
        moved(JobStatus::Failed, 1); // the only way there
    }
    moved(to, 1);
    let labels = [("code", code.to_owned()), ("to", to.as_str().to_owned())];
    metrics::counter!("euterpe_job_endings_total", &labels).increment(1);
}

/// One delivery was tried: `delivered`, `ready` to be tried again, `dead_letter`; or it came too late, `stale`.
pub(super) fn tried(outcome: Outcome, to: Option<&str>) {
    let outcome = to.filter(|_| outcome == Outcome::Ok).unwrap_or("stale").to_owned();
    metrics::counter!("euterpe_deliveries_total", "outcome" => outcome).increment(1);
}
