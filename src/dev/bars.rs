//! A bar per phase on a terminal; elsewhere a line per phase.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;

const PHASES: [&str; 3] = ["fetching", "processing", "uploading"];

/// How far a job is, as one sees it.
pub(super) struct Bars {
    all: MultiProgress,
    phases: Vec<ProgressBar>,
    is_terminal: bool,
    last: Mutex<String>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{prefix:>11} [{bar:40}] {pos:>3} % {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let phases =
            PHASES.map(|phase| all.add(ProgressBar::new(100)).with_style(style.clone()).with_prefix(phase));
        Self {
            all,
            phases: phases.into(),
            is_terminal: std::io::stderr().is_terminal(),
            last: Mutex::default(),
        }
    }

    /// As a status document has it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
    pub(super) fn show(&self, document: &Value) {
        let status = document["status"].as_str().unwrap_or_default();
        let percent = document["progress"]["percent"].as_f64().unwrap_or_default() as u64;
        let now = PHASES.iter().position(|phase| *phase == status);
        for (n, bar) in self.phases.iter().enumerate() {
            match now {
                Some(now) if n == now => bar.set_position(percent.min(100)),
                Some(now) if n < now => bar.set_position(100),
                None if status == "succeeded" => bar.set_position(100),
                _ => {}
            }
        }
        if let (Some(now), Some(speed)) = (now, document["progress"]["speed"].as_f64()) {
            self.phases[now].set_message(format!("{speed:.1}x"));
        }
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !self.is_terminal && *last != status {
            println!("the job is {status}");
            status.clone_into(&mut last);
        }
    }

    /// A line above the bars.
    pub(super) fn say(&self, line: &str) {
        self.all.suspend(|| println!("{line}"));
    }

    pub(super) fn done(&self) {
        for bar in &self.phases {
            bar.abandon();
        }
    }
}
