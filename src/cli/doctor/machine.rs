//! What is asked of the machine that transcodes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use indicatif::HumanBytes;
use tokio::process::Command;
use tokio::time::timeout;

use super::Check;
use crate::cli::Context;
use crate::config;
use crate::handler::transcode::Workshop;
use crate::media::{Ffmpeg, Tools};

/// A job's source and its outputs are on the disk at once, and contract §11 begins to count at 1 GB.
const ROOM_BYTES: u64 = 3_000_000_000;
/// ffmpeg only lists what it has.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the presets need.
const NEEDED: [&str; 6] = ["libx264", "aac", "libmp3lame", "libopus", "flac", "mjpeg"];
/// What a request may ask for besides, and the codec that is then missing.
const WELCOME: [(&str, &[&str]); 3] =
    [("hevc", &["libx265"]), ("vp9", &["libvpx-vp9"]), ("av1", &["libsvtav1", "libaom-av1"])];

pub(super) async fn look(context: &Context<'_>) -> Vec<Check> {
    let mut checks = vec![disk(&config::work_dir(context.env), ROOM_BYTES)];
    let settings = [("EUTERPE_FFMPEG", "ffmpeg"), ("EUTERPE_FFPROBE", "ffprobe")];
    let tools = match config::tools(context.env, 1) {
        Ok(tools) => tools,
        Err(error) => {
            checks.push(Check::bad("ffmpeg", error.to_string(), "set it right, or unset it"));
            return checks;
        }
    };
    for ((setting, name), program) in settings.into_iter().zip([&tools.ffmpeg, &tools.ffprobe]) {
        checks.push(match said(program, "-version").await {
            Ok(text) => Check::good(name, text.lines().next().unwrap_or_default()),
            Err(problem) => Check::bad(name, problem, mend_program(setting, (context.env)(setting))),
        });
    }
    let is_fine = |name: &str| checks.iter().any(|check| check.name == name && check.is_ok == Some(true));
    let (has_ffmpeg, has_ffprobe) = (is_fine("ffmpeg"), is_fine("ffprobe"));
    if has_ffmpeg {
        checks.push(encoders(&tools.ffmpeg).await);
    }
    if has_ffmpeg && has_ffprobe {
        checks.push(cage(tools).await);
    }
    checks
}

/// As the worker that lies beside this program would find it.
async fn cage(tools: Tools) -> Check {
    const NAME: &str = "cage";
    let mend = "a kernel with Landlock (5.13, better 6.7) and seccomp, in a container that allows both";
    let worker = std::env::current_exe().map(|here| here.with_file_name("euterpe-transcode"));
    let Some(launcher) = worker.ok().filter(|worker| worker.is_file()) else {
        return Check::bad(
            NAME,
            "not looked at: no euterpe-transcode beside this program",
            "install it here",
        );
    };
    match timeout(PATIENCE, Ffmpeg::find(Tools { launcher, ..tools }, true, &std::env::temp_dir())).await {
        Ok(Ok(ffmpeg)) => Check::good(NAME, format!("ffmpeg is kept by {}", ffmpeg.cage())),
        Ok(Err(error)) => Check::bad(NAME, format!("{error:#}"), mend),
        Err(_) => Check::bad(NAME, format!("no answer in {} s", PATIENCE.as_secs()), mend),
    }
}

fn mend_program(setting: &str, value: Option<String>) -> String {
    const INSTALL: &str = "apt-get install ffmpeg, where euterpe-transcode runs";
    match value.filter(|value| !value.is_empty()) {
        Some(value) => {
            format!("{setting}={value} does not lead to one: set it right, or unset it and {INSTALL}")
        }
        None => INSTALL.to_owned(),
    }
}

/// As the worker will try it.
fn disk(dir: &Path, needed: u64) -> Check {
    const NAME: &str = "work directory";
    match Workshop::try_out(dir) {
        Ok(free) => {
            let says = format!("{}, {} free", dir.display(), HumanBytes(free));
            if free >= needed {
                return Check::good(NAME, says);
            }
            let needed = HumanBytes(needed);
            Check::bad(
                NAME,
                says,
                format!("make room or point EUTERPE_WORK_DIR elsewhere: {needed} are needed"),
            )
        }
        Err(error) => Check::bad(
            NAME,
            format!("cannot work in {}: {error}", dir.display()),
            "point EUTERPE_WORK_DIR at a directory that this user may make or write to",
        ),
    }
}

async fn encoders(ffmpeg: &Path) -> Check {
    const NAME: &str = "encoders";
    let listed = match said(ffmpeg, "-encoders").await {
        Ok(listed) => listed,
        Err(problem) => return Check::bad(NAME, problem, "install ffmpeg anew"),
    };
    // " V....D libx264              H.264 …": flags, then the name.
    let has: BTreeSet<_> = listed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let missing: Vec<_> = NEEDED.into_iter().filter(|name| !has.contains(name)).collect();
    if !missing.is_empty() {
        let says = format!("presets need {}", missing.join(", "));
        return Check::bad(NAME, says, "an ffmpeg that has them: that of Debian does");
    }
    let lacks: Vec<_> = WELCOME
        .into_iter()
        .filter(|(_, any)| any.iter().all(|name| !has.contains(name)))
        .map(|(codec, _)| codec)
        .collect();
    let without = if lacks.is_empty() { String::new() } else { format!("; without {}", lacks.join(", ")) };
    Check::good(NAME, format!("all that the presets need{without}"))
}

/// What `program` says when it is asked, or why it says nothing.
async fn said(program: &Path, argument: &str) -> Result<String, String> {
    let name = program.display();
    let run = Command::new(program)
        .args(["-hide_banner", argument])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match timeout(PATIENCE, run).await {
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(Ok(output)) => Err(format!("{name} {argument} ended with {}", output.status)),
        Ok(Err(error)) => Err(format!("{name} cannot be started: {error}")),
        Err(_) => Err(format!("{name} {argument} did not end in {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_named_and_a_directory_may_still_have_to_be_made() {
        let dir = std::env::temp_dir().join("not-yet/there");
        assert_eq!(disk(&dir, 1).is_ok, Some(true));
        assert!(!dir.parent().is_some_and(Path::exists), "nothing is left of it");
        let full = disk(&dir, u64::MAX);
        assert!(
            full.is_ok == Some(false)
                && full.says.contains("not-yet/there")
                && full.mend.contains("EUTERPE_WORK_DIR")
        );
    }
}
