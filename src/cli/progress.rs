//! How far a job is, as one sees it: a bar per phase on a terminal, a line per step elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use crate::domain::transcode::StatusDocument;

/// What makes another line, or another bar.
#[derive(PartialEq)]
struct Told {
    status: String,
    /// A job that goes back to the line again waits until another time.
    again_at: Option<Timestamp>,
    tenth: u8,
}

/// What a job goes through, in order; each has a bar.
const PHASES: [&str; 4] = ["queued", "fetching", "processing", "uploading"];

/// The phases between two looks. `None`: it did not go on from `last`, it went back or failed.
fn passed_over(last: &str, now: &str) -> Option<&'static [&'static str]> {
    let place = |status: &str| PHASES.iter().position(|phase| *phase == status);
    let now = if now == "succeeded" { PHASES.len() } else { place(now)? };
    PHASES.get(place(last)? + 1..now)
}

fn bar(phase: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>11} {wide_bar} {percent:>3} % {elapsed} {msg}");
    let bar = ProgressBar::new(100).with_prefix(phase);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Of what is over, nobody says how long it will still take.
fn finish(bar: &ProgressBar) {
    bar.set_message("");
    bar.finish();
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
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    is_silent: bool,
    /// What was told last.
    told: Option<Told>,
}

impl Progress {
    pub(crate) fn new(is_silent: bool) -> Self {
        Self { bar: None, is_silent, told: None }
    }

    /// As its status document has it.
    pub(crate) fn show(&mut self, job: &StatusDocument) {
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
        if self.is_new(&job.status, job.next_attempt_at, tenth) {
            let how_far = match waits_for {
                Some(why) => format!(" ({why})"),
                None => progress.map_or(String::new(), |_| format!(" {percent:.0} % {detail}")),
            };
            // A reader that has heard enough is no reason to stop watching.
            let _ = writeln!(stderr(), "{}", format!("{}{how_far}", job.status).trim_end());
        }
    }

    fn is_new(&mut self, status: &str, again_at: Option<Timestamp>, tenth: u8) -> bool {
        let now = Some(Told { status: status.to_owned(), again_at, tenth });
        let is_new = self.told != now;
        self.told = now;
        is_new
    }

    /// One bar per phase, also of those that were over between two looks; a finished one stays above the next.
    fn draw(&mut self, job: &StatusDocument, percent: f64, detail: String) {
        // Owned by somebody and not begun: for people it still waits.
        let phase = if job.status == "claimed" { "queued" } else { job.status.as_str() };
        let last = self.told.as_ref().map(|told| told.status.clone());
        if self.is_new(phase, job.next_attempt_at, 0) {
            let passed = last.as_deref().and_then(|last| passed_over(last, phase));
            match (self.bar.take(), passed) {
                (Some(bar), Some(_)) => finish(&bar),
                (Some(bar), None) => bar.abandon(),
                (None, _) => {}
            }
            for phase in passed.unwrap_or_default() {
                bar(phase).finish();
            }
            self.bar = PHASES.iter().find(|one| **one == phase).map(|phase| bar(phase));
        }
        if let Some(bar) = &self.bar {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 100")]
            bar.set_position(percent as u64);
            bar.set_message(detail);
        }
    }

    /// Does something that writes, above the bar.
    pub(crate) fn pause<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// The last bar stays, and what follows goes below it.
    pub(crate) fn done(&mut self) {
        if let Some(bar) = self.bar.take() {
            finish(&bar);
        }
    }
}
