//! `euterpe watch`: follows one job over HTTP until it has ended.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use hyper::Method;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::api::{Api, Where};
use super::job::{self, NEEDS_CREDENTIALS};
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
    let is_exhausted = job.error.as_ref().is_some_and(|error| error.code == NEEDS_CREDENTIALS);
    let (next, code) = match status.as_str() {
        "dead_letter" if is_exhausted => (job::HAND_OVER.to_owned(), DEAD_LETTER),
        "dead_letter" => (format!("euterpe dead redrive {job_id}"), DEAD_LETTER),
        _ => (format!("euterpe retry {job_id}"), FAILED),
    };
    Report::new(format!("{job_id} {status}{error}\nnext: euterpe status {job_id}, {next}"), document)
        .with_code(code)
}

/// What makes another line, or another bar.
#[derive(PartialEq)]
struct Told {
    status: String,
    /// A job that goes back to the line again waits until another time.
    again_at: Option<Timestamp>,
    tenth: u8,
}

/// Why a job is back in the line, and when it is tried again.
fn waits_for(job: &StatusDocument, now: Timestamp) -> Option<String> {
    let error = job.error.as_ref().filter(|_| job.status == "queued")?;
    let seconds = job.next_attempt_at.map(|at| at.duration_since(now).as_secs_f64().ceil());
    Some(match seconds {
        Some(seconds) if seconds > 0.0 => format!("{}, again in {seconds:.0} s", error.code),
        _ => format!("{}, again soon", error.code),
    })
}

/// Bars on a terminal, lines elsewhere, nothing beside JSON; always on stderr.
struct Shown {
    bar: Option<ProgressBar>,
    is_silent: bool,
    /// What was told last.
    told: Option<Told>,
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
        let waits_for = waits_for(job, Timestamp::now());
        if stderr().is_terminal() {
            return self.draw(job, percent, waits_for.unwrap_or(detail));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 10")]
        let tenth = (percent / 10.0) as u8;
        if self.is_new(job, tenth) {
            let how_far = match waits_for {
                Some(why) => format!(" ({why})"),
                None => progress.map_or(String::new(), |_| format!(" {percent:.0} % {detail}")),
            };
            // A reader that has heard enough is no reason to stop watching.
            let _ = writeln!(stderr(), "{}", format!("{}{how_far}", job.status).trim_end());
        }
    }

    fn is_new(&mut self, job: &StatusDocument, tenth: u8) -> bool {
        let now = Some(Told { status: job.status.clone(), again_at: job.next_attempt_at, tenth });
        let is_new = self.told != now;
        self.told = now;
        is_new
    }

    /// One bar per phase; that of the last one stays as it was.
    fn draw(&mut self, job: &StatusDocument, percent: f64, detail: String) {
        if self.is_new(job, 0)
            && let Some(last) = self.bar.take()
        {
            last.finish();
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(100).with_prefix(job.status.clone());
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
