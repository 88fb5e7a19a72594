//! `-progress pipe:1`: lines of `key=value`, a group of them each second.

/// One group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::media) struct Beat {
    /// How far into the outputs.
    pub(in crate::media) seconds: f64,
    /// Pictures so far.
    pub(in crate::media) frames: u64,
    /// Times real time.
    pub(in crate::media) speed: Option<f64>,
    /// It is the last.
    pub(in crate::media) is_end: bool,
}

/// Collects lines until a group is whole.
#[derive(Debug, Default)]
pub(super) struct Beats(Beat);

impl Beats {
    pub(super) fn line(&mut self, line: &str) -> Option<Beat> {
        let (key, value) = line.trim().split_once('=')?;
        match key {
            // `out_time_ms` is in microseconds too, for historical reasons. Before the first packet it says N/A.
            "out_time_us" => {
                let micros = value.parse::<i64>().unwrap_or(0).max(0);
                #[allow(clippy::cast_precision_loss)] // precise for 285 years
                let seconds = micros as f64 / 1e6;
                self.0.seconds = seconds;
            }
            "frame" => self.0.frames = value.trim().parse().unwrap_or(0),
            "speed" => self.0.speed = value.trim().trim_end_matches('x').parse().ok(),
            "progress" => {
                self.0.is_end = value == "end";
                return Some(self.0);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_when_it_is_whole() {
        let mut beats = Beats::default();
        for line in ["frame=  50", "out_time_us=N/A", "out_time_us=1500000", "speed=1.93x"] {
            assert_eq!(beats.line(line), None);
        }
        let beat = Beat { seconds: 1.5, frames: 50, speed: Some(1.93), is_end: false };
        assert_eq!(beats.line("progress=continue"), Some(beat));
        beats.line("speed=N/A");
        assert_eq!(beats.line("progress=end"), Some(Beat { speed: None, is_end: true, ..beat }));
    }
}
