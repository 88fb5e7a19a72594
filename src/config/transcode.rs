//! The settings of `euterpe-transcode`.

use std::path::PathBuf;
use std::time::Duration;

use super::{BadSetting, pace, setting, yes_or_no};
use crate::handler::transcode::{Patience, Spare};
use crate::media::{Caps, Tools};
use crate::worker::{Lease, Pace};

/// Progress is heard, and a cancelled job is stopped, at least so often.
const BEAT_EVERY: Duration = Duration::from_secs(5);

/// The pace of the transcode worker: `EUTERPE_TRANSCODE_CONCURRENCY` jobs at once.
pub fn transcode_pace(env: impl Fn(&str) -> Option<String>) -> Result<Pace, BadSetting> {
    let concurrency = setting(&env, "EUTERPE_TRANSCODE_CONCURRENCY", 2, 1..=64)?;
    let pace = pace(env)?;
    let lease = Lease { beat_every: pace.lease.beat_every.min(BEAT_EVERY), ..pace.lease };
    Ok(Pace { concurrency, batch: concurrency, lease, ..pace })
}

/// Which line it takes from: `EUTERPE_QUEUE`.
pub fn queue(env: impl Fn(&str) -> Option<String>) -> String {
    env("EUTERPE_QUEUE").filter(|name| !name.is_empty()).unwrap_or_else(|| "transcode".into())
}

/// Where it works: `EUTERPE_WORK_DIR`, else a directory of the system's for such things.
pub fn work_dir(env: impl Fn(&str) -> Option<String>) -> PathBuf {
    let chosen = env("EUTERPE_WORK_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    chosen.unwrap_or_else(|| std::env::temp_dir().join("euterpe"))
}

/// What must stay free: `EUTERPE_MIN_FREE_DISK_BYTES`, `EUTERPE_MIN_FREE_MEMORY_BYTES`.
pub fn spare(env: impl Fn(&str) -> Option<String>) -> Result<Spare, BadSetting> {
    Ok(Spare {
        disk: setting(&env, "EUTERPE_MIN_FREE_DISK_BYTES", 1_000_000_000, 0..=u64::MAX / 4)?,
        memory: setting(&env, "EUTERPE_MIN_FREE_MEMORY_BYTES", 268_435_456, 0..=u64::MAX / 4)?,
    })
}

/// The most that one job may take (contract §11).
pub fn caps(env: impl Fn(&str) -> Option<String>) -> Result<Caps, BadSetting> {
    let usual = Caps::default();
    let seconds = |name: &'static str, usual: Duration, most: u64| {
        setting(&env, name, usual.as_secs(), 1..=most).map(Duration::from_secs)
    };
    Ok(Caps {
        wall: seconds("EUTERPE_MAX_ENCODE_SECONDS", usual.wall, 7 * 86_400)?,
        cpu: seconds("EUTERPE_MAX_CPU_SECONDS", usual.cpu, 64 * 7 * 86_400)?,
        stall: seconds("EUTERPE_MAX_STALL_SECONDS", usual.stall, 3600)?,
        output_bytes: setting(&env, "EUTERPE_MAX_OUTPUT_BYTES", usual.output_bytes, 1..=u64::MAX / 4)?,
        duration: seconds("EUTERPE_MAX_DURATION_SECONDS", usual.duration, 30 * 86_400)?,
        pixels: setting(&env, "EUTERPE_MAX_PIXELS", usual.pixels, 1..=16_384 * 16_384)?,
        frames: setting(&env, "EUTERPE_MAX_FRAMES", usual.frames, 1..=1_000_000_000)?,
        streams: setting(&env, "EUTERPE_MAX_STREAMS", usual.streams, 1..=256)?,
        memory_bytes: setting(&env, "EUTERPE_MAX_MEMORY_BYTES", usual.memory_bytes, 1 << 26..=1 << 42)?,
    })
}

/// Which ffmpeg: `EUTERPE_FFMPEG`, `EUTERPE_FFPROBE`, and how many threads it may have.
pub fn tools(env: impl Fn(&str) -> Option<String>, concurrency: usize) -> Result<Tools, BadSetting> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let path =
        |name: &str, usual: &str| env(name).filter(|path| !path.is_empty()).unwrap_or_else(|| usual.into());
    let (ffmpeg, ffprobe) = (path("EUTERPE_FFMPEG", "ffmpeg"), path("EUTERPE_FFPROBE", "ffprobe"));
    Ok(Tools {
        // This very program, also when a newer one has taken its name meanwhile.
        launcher: PathBuf::from("/proc/self/exe"),
        ffmpeg: found(&env, &ffmpeg),
        ffprobe: found(&env, &ffprobe),
        threads: setting(&env, "EUTERPE_FFMPEG_THREADS", cores.div_ceil(concurrency), 1..=256)?,
    })
}

/// A bare name is looked for where a shell would: in its cage, ffmpeg has no PATH of ours.
fn found(env: impl Fn(&str) -> Option<String>, program: &str) -> PathBuf {
    let bare = PathBuf::from(program);
    if program.contains('/') {
        return std::path::absolute(&bare).unwrap_or(bare);
    }
    let path = env("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file()).unwrap_or(bare)
}

/// `EUTERPE_ALLOW_NO_CAGE`: whoever says true lets ffmpeg read what the worker can read.
pub fn allows_no_cage(env: impl Fn(&str) -> Option<String>) -> Result<bool, BadSetting> {
    yes_or_no(env, "EUTERPE_ALLOW_NO_CAGE")
}

/// `EUTERPE_REFRESH_WAIT_SECONDS`: how long a requester may take to put new credentials.
pub fn patience(env: impl Fn(&str) -> Option<String>) -> Result<Patience, BadSetting> {
    let usual = Patience::default();
    let wait = setting(&env, "EUTERPE_REFRESH_WAIT_SECONDS", usual.wait.as_secs(), 1..=300)?;
    let rest = setting(&env, "EUTERPE_REFRESH_REST_SECONDS", usual.rest.as_secs(), 1..=3600)?;
    Ok(Patience { wait: Duration::from_secs(wait), rest: Duration::from_secs(rest) })
}
