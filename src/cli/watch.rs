//! `euterpe watch`: follows one job over HTTP until it has ended.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use hyper::Method;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::api::{Api, Where};
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
    job_id: Uuid,
    #[command(flatten)]
    place: Where,
}

pub(super) async fn run(context: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let api = arguments.place.open(context)?;
    until_the_end(context, &api, JobId(arguments.job_id)).await
}

/// Shows what happens, and answers with how it ended.
pub(super) async fn until_the_end(
    context: &Context<'_>,
    api: &Api,
    job_id: JobId,
) -> Result<Report, Failure> {
    let mut shown = Shown::new(context.json);
    loop {
        let document = look(api, job_id).await?;
        let job: StatusDocument = serde_json::from_value(document.clone())
            .map_err(|_| Failure::Failed(format!("{} does not answer as euterpe-api does", api.base)))?;
        shown.show(&job);
        if job.finished_at.is_some() {
            shown.clear();
            return Ok(ended(&job, document));
        }
    }
}

/// The job as it is when it moves, or in a second. A service that is away for a moment, or busy, is asked again.
async fn look(api: &Api, job_id: JobId) -> Result<Value, Failure> {
    let (path, end) = (format!("/transcode/status?job_id={job_id}&wait=1"), Instant::now() + PATIENCE);
    loop {
        let met = api.ask(Method::GET, &path, &[], None).await;
        let wait = match &met {
            Ok(answer) => answer.come_back_in(),
            Err(Failure::Failed(_)) => Some(Duration::from_millis(500)),
            Err(_) => None,
        };
        match wait {
            Some(wait) if Instant::now() + wait < end => sleep(wait).await,
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
    let (next, code) = if status == "dead_letter" {
        (format!("euterpe dead redrive {job_id}"), DEAD_LETTER)
    } else {
        (format!("euterpe retry {job_id}"), FAILED)
    };
    Report::new(format!("{job_id} {status}{error}\nnext: euterpe status {job_id}, {next}"), document)
        .with_code(code)
}

/// Bars on a terminal, lines elsewhere, nothing beside JSON; always on stderr.
struct Shown {
    bar: Option<ProgressBar>,
    is_silent: bool,
    /// Status and tenth that were told last.
    told: Option<(String, u8)>,
}

impl Shown {
    fn new(is_silent: bool) -> Self {
        Self { bar: None, is_silent, told: None }
    }

    fn show(&mut self, job: &StatusDocument) {
        // What was said of an earlier phase says nothing of this one.
        let progress = job.progress.as_ref().filter(|progress| progress.phase == job.status);
        let percent = progress.map_or(0.0, |progress| progress.percent.clamp(0.0, 100.0));
        let detail = progress.map_or(String::new(), |progress| {
            let speed = progress.speed.map(|speed| format!("{speed:.1}x"));
            let eta = progress.eta_seconds.filter(|eta| eta.is_finite() && (0.0..1e9).contains(eta));
            let eta = eta.map(|eta| format!("{} left", HumanDuration(Duration::from_secs_f64(eta))));
            [progress.output.clone(), speed, eta].into_iter().flatten().collect::<Vec<_>>().join(", ")
        });
        if self.is_silent {
            return;
        }
        if stderr().is_terminal() {
            return self.draw(&job.status, percent, detail);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 10")]
        let tenth = (percent / 10.0) as u8;
        let now = Some((job.status.clone(), tenth));
        if self.told != now {
            self.told = now;
            let how_far = progress.map_or(String::new(), |_| format!(" {percent:.0} % {detail}"));
            // A reader that has heard enough is no reason to stop watching.
            let _ = writeln!(stderr(), "{}", format!("{}{how_far}", job.status).trim_end());
        }
    }

    /// One bar per phase; that of the last one stays as it was.
    fn draw(&mut self, status: &str, percent: f64, detail: String) {
        let is_new = self.told.as_ref().is_none_or(|(told, _)| told != status);
        if is_new {
            self.told = Some((status.to_owned(), 0));
            if let Some(last) = self.bar.take() {
                last.finish();
            }
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(100).with_prefix(status.to_owned());
            let style =
                ProgressStyle::with_template("{prefix:>11} {wide_bar} {percent:>3} % {elapsed} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 100")]
        bar.set_position(percent as u64);
        bar.set_message(detail);
    }

    /// The last bar stays, and the report goes below it.
    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}
