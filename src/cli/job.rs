//! `euterpe status`, `cancel`, `retry`: one job.

use serde_json::json;

use super::{Context, Failure, Report};
use crate::domain::JobId;
use crate::store::StoreError;

/// With this code a job has ended for want of credentials: as it is, no new one can be made of it.
pub(super) const NEEDS_CREDENTIALS: &str = "credential_refresh_exhausted";
/// What its requester does about it.
pub(super) const HAND_OVER: &str =
    "its requester hands over new `credentials` with POST /transcode/retry (docs/faces/transcode.md)";

/// Reads an argument that names a job.
pub(super) fn id(text: &str) -> Result<JobId, &'static str> {
    text.parse().map(JobId).map_err(|_| "is not a job id, such as 01a1eef4-4fa4-798f-9750-0e08ece63182")
}

/// The database names its functions, for people in psql; here they are commands.
fn in_commands(says: &str, job_id: JobId) -> String {
    if says.contains(NEEDS_CREDENTIALS) {
        return says.replace("redrive_job_v1 makes a new one of it", HAND_OVER);
    }
    let says = says.replace("redrive_job_v1", &format!("`euterpe dead redrive {job_id}`"));
    says.replace("retry_job_v1", &format!("`euterpe retry {job_id}`"))
}

/// Which job.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The job_id that `POST /transcode` answered.
    #[arg(value_parser = id)]
    job_id: JobId,
}

/// Which job, and why.
#[derive(Debug, clap::Args)]
pub struct Act {
    /// The job_id that `POST /transcode` answered.
    #[arg(value_parser = id)]
    job_id: JobId,
    /// Kept in operator_log and shown in the job's timeline.
    #[arg(long)]
    why: Option<String>,
}

pub(super) async fn status(context: &Context<'_>, which: Which) -> Result<Report, Failure> {
    let (store, job_id) = (context.store().await?, which.job_id);
    let explained = store.explain_job(job_id).await?;
    let says = in_commands(&explained.says, job_id);
    if matches!(explained.situation.as_str(), "unknown" | "pruned") {
        return Err(Failure::NotFound(format!("{job_id}: {says}")));
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
            "{}: {says}{callbacks}\n\n{}",
            explained.situation,
            Report::table(&["at", "step", "reason", "who"], &rows)
        ),
        json!({
            "job_id": job_id, "situation": explained.situation, "says": says,
            "callbacks": explained.callbacks, "timeline": timeline,
        }),
    ))
}

pub(super) async fn cancel(context: &Context<'_>, act: Act) -> Result<Report, Failure> {
    let job_id = act.job_id;
    let was = context.store().await?.cancel_job(job_id, None, act.why.as_deref()).await?;
    Ok(Report::new(format!("{job_id} is cancelled; it was {was}"), json!({"job_id": job_id, "was": was})))
}

pub(super) async fn retry(context: &Context<'_>, act: Act) -> Result<Report, Failure> {
    let job_id = act.job_id;
    let met = context.store().await?.retry_job(job_id, None, None, act.why.as_deref()).await;
    met.map_err(|error| match error {
        StoreError::IllegalState(says) => Failure::Refused(in_commands(&says, job_id)),
        StoreError::CredentialsRequired(says) => Failure::Refused(says).and(HAND_OVER),
        other => other.into(),
    })?;
    Ok(Report::new(
        format!("{job_id} is in the line again; euterpe status {job_id} shows it"),
        json!({"job_id": job_id, "status": "queued"}),
    ))
}
