//! How far a job is, over all runs of ffmpeg that it takes.

use std::sync::Mutex;

use super::plan::Run;
use super::process::Beat;

/// How far.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodeProgress {
    /// Of everything; 100 when all outputs are made and checked.
    pub percent: f64,
    /// Which output, where one is singled out.
    pub output: Option<String>,
    /// Times real time.
    pub speed: Option<f64>,
    /// How long it may still take.
    pub eta_seconds: Option<f64>,
}

/// All runs of a job, in seconds of media.
#[derive(Debug)]
pub(super) struct Whole {
    total: f64,
    done: Mutex<f64>,
}

/// Also a run that makes one picture is something.
const LEAST: f64 = 0.5;

impl Whole {
    pub(super) fn of<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let total = runs.map(|run| run.seconds.max(LEAST)).sum();
        Self { total, done: Mutex::new(0.0) }
    }

    /// During a run of `seconds`.
    pub(super) fn at(&self, beat: Beat, seconds: f64, output: Option<String>) -> EncodeProgress {
        let at = self.before() + beat.seconds.min(seconds.max(LEAST));
        let percent = (at / self.total.max(LEAST) * 100.0).clamp(0.0, 99.9);
        let speed = beat.speed.filter(|speed| *speed > 0.0);
        let eta_seconds = speed.map(|speed| ((self.total - at) / speed).max(0.0));
        EncodeProgress { percent, output, speed, eta_seconds }
    }

    pub(super) fn done(&self, seconds: f64) {
        *self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += seconds.max(LEAST);
    }

    fn before(&self) -> f64 {
        *self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_one_way() {
        let run = |seconds| Run { arguments: Vec::new(), seconds, output: None };
        let whole = Whole::of([run(10.0), run(30.0)].iter());
        let beat = |seconds| Beat { seconds, frames: 0, speed: Some(2.0), is_end: false };
        assert!((whole.at(beat(5.0), 10.0, None).percent - 12.5).abs() < 1e-9);
        whole.done(10.0);
        let at = whole.at(beat(10.0), 30.0, None);
        assert!((at.percent - 50.0).abs() < 1e-9);
        assert_eq!(at.eta_seconds, Some(10.0));
        assert!(whole.at(beat(99.0), 30.0, None).percent < 100.0);
    }
}
