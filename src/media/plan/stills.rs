//! Thumbnails: when, and the runs that make them. Each seeks to its moment, which costs one group of pictures however long
//! the source is.

use super::choose::Chosen;
use super::{Means, Run, head, muxer, owned};
use crate::domain::transcode::{ClipSpec, Container};

/// JPEG's own scale: 2 is best, 31 worst.
const QUALITY: &str = "3";

/// The moments of `count` stills in a part that begins at `start` and is `length` long. The last picture begins before
/// its end, so no moment is nearer to the end than one picture lasts.
pub(super) fn moments(start: f64, length: f64, count: u32, at: Option<f64>, picture: f64) -> Vec<f64> {
    let last = (length - 1.5 * picture).max(0.0);
    let moment = |offset: f64| start + offset.clamp(0.0, last);
    match (count, at) {
        (_, Some(at)) => vec![moment(at)],
        (0 | 1, None) => vec![moment(length / 10.0)],
        (count, None) => {
            let step = length / f64::from(count);
            (0..count).map(|nth| moment((f64::from(nth) + 0.5) * step)).collect()
        }
    }
}

/// Where the still is made.
pub(in crate::media) fn file(output: usize, nth: usize) -> String {
    format!("out/{output}/still_{nth}.jpg")
}

pub(super) fn runs(
    nth: usize,
    output: &Chosen,
    times: &[f64],
    size: (u32, u32),
    means: Means<'_>,
) -> Vec<Run> {
    let run = |(still, time): (usize, &f64)| {
        let seek = ClipSpec { start_seconds: *time, duration_seconds: None };
        let mut arguments = head("level+warning", means, Some(seek));
        let (width, height) = size;
        arguments.extend(owned([
            "-map",
            &format!("0:{}", means.source.video_index()),
            "-an",
            "-sn",
            "-dn",
            "-map_metadata",
            "-1",
            "-frames:v",
            "1",
            "-vf",
            &format!("scale={width}:{height},setsar=1"),
            "-c:v",
            "mjpeg",
            "-pix_fmt",
            "yuvj420p",
            "-q:v",
            QUALITY,
            "-threads",
            "1",
        ]));
        arguments.extend(owned(muxer(Container::Jpg)));
        arguments.push(file(nth, still));
        Run { arguments, seconds: 0.0, output: Some(output.name.clone()) }
    };
    times.iter().enumerate().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::moments;

    #[test]
    fn stills_are_spread_evenly_and_never_beyond_the_last_picture() {
        assert_eq!(moments(0.0, 100.0, 4, None, 0.04), [12.5, 37.5, 62.5, 87.5]);
        assert_eq!(moments(0.0, 100.0, 1, None, 0.04), [10.0]);
        assert_eq!(moments(5.0, 100.0, 1, Some(3.0), 0.04), [8.0]);
        assert!(moments(0.0, 2.0, 1, Some(2.0), 0.04)[0] < 1.96);
        assert_eq!(moments(0.0, 0.0, 3, None, 0.04), [0.0, 0.0, 0.0]);
    }
}
