//! The gate: a source that was probed, held against what we take.

use super::probe::{Probe, Stream};
use super::{Caps, MediaError};

/// Sample rates that sound can have, in Hz.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;
/// The most pictures a second.
const MAX_FPS: f64 = 240.0;

/// Refuses what is no media that we take, or more of it than allowed.
pub(super) fn admit(probe: &Probe, caps: &Caps) -> Result<(), MediaError> {
    let refuse = |code, message: String| Err(MediaError::new(code, message));
    if probe.streams.len() > caps.streams as usize {
        return refuse("stream_limit", format!("it has more than {} streams", caps.streams));
    }
    if probe.is_encrypted() {
        return refuse("media_drm", "it is encrypted".into());
    }
    if let Some(large) = probe.streams.iter().find(|stream| stream.pixels() > caps.pixels) {
        return refuse(
            "pixel_limit",
            format!("its pictures have {} pixels, allowed are {}", large.pixels(), caps.pixels),
        );
    }
    let (video, audio) = (probe.video(), probe.audio());
    if video.is_none() && audio.is_none() {
        return refuse("media_no_streams", "it has neither pictures nor sound".into());
    }
    if let Some(video) = video
        && (video.codec_name.is_empty() || video.codec_name == "unknown" || video.pixels() == 0)
    {
        return refuse("media_unreadable", "its pictures cannot be read".into());
    }
    if let Some(rate) = audio.and_then(Stream::sample_rate)
        && !SAMPLE_RATES.contains(&rate)
    {
        return refuse("media_unsupported_format", format!("its sound has {rate} samples a second"));
    }
    let fps = video.and_then(Stream::fps);
    if let Some(fps) = fps
        && fps > MAX_FPS
    {
        return refuse("media_unsupported_format", format!("it has {fps:.0} pictures a second"));
    }
    let seconds = probe.duration().unwrap_or(0.0);
    if seconds > caps.duration.as_secs_f64() {
        let most = caps.duration.as_secs();
        return refuse("duration_limit", format!("it is {seconds:.0} s long, allowed are {most} s"));
    }
    #[allow(clippy::cast_precision_loss)] // a limit, not an account
    let most = caps.frames as f64;
    if seconds * fps.unwrap_or(0.0) > most {
        return refuse("frame_limit", format!("it has more than {} pictures", caps.frames));
    }
    Ok(())
}
