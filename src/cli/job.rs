//! `euterpe status`, `cancel`, `retry`: one job.

use serde_json::json;
use uuid::Uuid;

use super::{Context, Failure, Report};
use crate::domain::JobId;

/// Which job.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The job_id that `POST /transcode` answered.
    job_id: Uuid,
}

/// Which job, and why.
#[derive(Debug, clap::Args)]
pub struct Act {
    /// The job_id that `POST /transcode` answered.
    job_id: Uuid,
    /// Kept in operator_log and shown in the job's timeline.
    #[arg(long)]
    why: Option<String>,
}

pub(super) async fn status(context: &Context<'_>, which: Which) -> Result<Report, Failure> {
    let (store, job_id) = (context.store().await?, JobId(which.job_id));
    let explained = store.explain_job(job_id).await?;
    if matches!(explained.situation.as_str(), "unknown" | "pruned") {
        return Err(Failure::NotFound(format!("{job_id}: {}", explained.says)));
    }
    let steps = store.job_timeline(job_id).await?;
    let rows: Vec<_> = steps
        .iter()
        .map(|step| {
            vec![
                format!("{:.0}", step.at),
                step.step.clone(),
                step.reason.clone().unwrap_or_default(),
                step.worker_id.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let timeline: Vec<_> = steps
        .iter()
        .map(|step| {
            json!({
                "sequence": step.sequence, "at": step.at, "step": step.step, "reason": step.reason,
                "claim_version": step.claim_version, "worker_id": step.worker_id,
            })
        })
        .collect();
    let callbacks = explained.callbacks.as_ref().map_or(String::new(), |says| format!("\nwebhooks: {says}"));
    Ok(Report::new(
        format!(
            "{}: {}{callbacks}\n\n{}",
            explained.situation,
            explained.says,
            Report::table(&["at", "step", "reason", "who"], &rows)
        ),
        json!({
            "job_id": job_id, "situation": explained.situation, "says": explained.says,
            "callbacks": explained.callbacks, "timeline": timeline,
        }),
    ))
}

pub(super) async fn cancel(context: &Context<'_>, act: Act) -> Result<Report, Failure> {
    let job_id = JobId(act.job_id);
    let was = context.store().await?.cancel_job(job_id, None, act.why.as_deref()).await?;
    Ok(Report::new(format!("{job_id} is cancelled; it was {was}"), json!({"job_id": job_id, "was": was})))
}

pub(super) async fn retry(context: &Context<'_>, act: Act) -> Result<Report, Failure> {
    let job_id = JobId(act.job_id);
    context.store().await?.retry_job(job_id, None, None, act.why.as_deref()).await?;
    Ok(Report::new(
        format!("{job_id} is in the line again; euterpe status {job_id} shows it"),
        json!({"job_id": job_id, "status": "queued"}),
    ))
}
