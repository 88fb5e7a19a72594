//! `euterpe watch`: follows one job over HTTP until it has ended.

use std::io::{Write, stderr};
use std::time::Duration;

use hyper::Method;
use indicatif::HumanBytes;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::api::{Api, Where};
use super::job::{self, NEEDS_CREDENTIALS};
use super::progress::Progress;
use super::{Context, Failure, Report};
use crate::domain::JobId;
use crate::domain::transcode::StatusDocument;

/// How long the service may be away in the middle.
const PATIENCE: Duration = Duration::from_secs(60);
/// The job failed, and rests.
const FAILED: u8 = 5;
/// The job was given up.
const DEAD_LETTER: u8 = 6;

/// Which job, and where.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The job_id that `POST /transcode` answered.
    #[arg(value_parser = job::id)]
    job_id: JobId,
    #[command(flatten)]
    place: Where,
}

pub(super) async fn run(context: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let api = arguments.place.open(context)?;
    until_the_end(context, &api, arguments.job_id).await
}

/// Shows what happens, and answers with how it ended.
pub(super) async fn until_the_end(
    context: &Context<'_>,
    api: &Api,
    job_id: JobId,
) -> Result<Report, Failure> {
    let mut progress = Progress::new(context.json);
    loop {
        let document = look(api, job_id, context.json).await?;
        let job: StatusDocument = serde_json::from_value(document.clone())
            .map_err(|_| Failure::Failed(format!("{} does not answer as euterpe-api does", api.base)))?;
        progress.show(&job);
        if job.finished_at.is_some() {
            progress.done();
            return Ok(ended(&job, document));
        }
    }
}

/// The job as it is when it moves, or in a second. A service that is away for a moment, or busy, is asked again.
async fn look(api: &Api, job_id: JobId, is_silent: bool) -> Result<Value, Failure> {
    let (path, end) = (format!("/transcode/status?job_id={job_id}&wait=1"), Instant::now() + PATIENCE);
    let mut is_told = is_silent;
    loop {
        let met = api.ask(Method::GET, &path, &[], None).await;
        let wait = match &met {
            Ok(answer) => answer.come_back_in(),
            Err(Failure::Failed(_)) => Some(Duration::from_millis(500)),
            Err(_) => None,
        };
        match wait {
            Some(wait) if Instant::now() + wait < end => {
                if !is_told {
                    let _ = writeln!(stderr(), "no answer; asking again for {} s", PATIENCE.as_secs());
                    is_told = true;
                }
                sleep(wait).await;
            }
            _ => return met?.good(),
        }
    }
}

fn ended(job: &StatusDocument, document: Value) -> Report {
    let (job_id, status) = (job.job_id, &job.status);
    if status == "succeeded" {
        let rows: Vec<_> = job
            .outputs
            .iter()
            .map(|output| {
                vec![output.name.clone(), HumanBytes(output.size_bytes).to_string(), output.uri.clone()]
            })
            .collect();
        let outputs = Report::table(&["output", "size", "where"], &rows);
        return Report::new(format!("{job_id} succeeded\n\n{outputs}"), document);
    }
    let error =
        job.error.as_ref().map_or(String::new(), |error| format!(": {}: {}", error.code, error.message));
    // What it was sent with has been deleted, and only its requester has more.
    let needs_credentials =
        job.credential_version > 0 || job.error.as_ref().is_some_and(|error| error.code == NEEDS_CREDENTIALS);
    let (next, code) = match status.as_str() {
        "dead_letter" if needs_credentials => (job::HAND_OVER.to_owned(), DEAD_LETTER),
        "dead_letter" => (format!("euterpe dead redrive {job_id}"), DEAD_LETTER),
        _ => (format!("euterpe retry {job_id}"), FAILED),
    };
    Report::new(format!("{job_id} {status}{error}\nnext: euterpe status {job_id}, {next}"), document)
        .with_code(code)
}
