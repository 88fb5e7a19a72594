//! Which ffmpeg this is and what it can do, and the ways in which it is called.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::cage::{BAIT, CANARY, Level};
use super::process::{Finished, Keeper, Speaks, Work};
use super::{Caps, MediaError, WorkDir};

/// The programs we need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Our own binary: `/proc/self/exe`. It must call [`launch_if_asked`](super::launch_if_asked) first.
    pub launcher: PathBuf,
    /// ffmpeg, by its whole path.
    pub ffmpeg: PathBuf,
    /// ffprobe, by its whole path.
    pub ffprobe: PathBuf,
    /// Of one ffmpeg.
    pub threads: usize,
}

/// Of a question that ffmpeg answers from its own knowledge, or of a probe.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What was found out.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) version: String,
    pub(super) encoders: BTreeSet<String>,
    pub(super) level: Level,
}

/// Looks, in a directory of its own below `place`. Each look goes through the cage.
pub(super) async fn look(
    tools: &Tools,
    keeper: &Keeper,
    need_cage: bool,
    place: &Path,
) -> anyhow::Result<Found> {
    let name = format!("canary-{}", uuid::Uuid::now_v7());
    let dir = WorkDir::create(place, &name).context("cannot make a directory to try the cage in")?;
    let dir = Arc::new(dir);
    std::fs::write(dir.input(), "").and_then(|()| std::fs::write(dir.path().join(BAIT), "bait"))?;
    let caps = Caps::default();
    let ask = async |program: &Path, arguments: &[&str]| {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let finished = answer(keeper, program, arguments, &dir, &caps).await;
        let finished = finished.with_context(|| format!("cannot run {}", program.display()))?;
        if let Some(failure) = finished.failure {
            let (program, why) = (program.display(), failure.message);
            bail!("{program} does not run in the cage: {why}; {}", finished.said.told());
        }
        Ok(String::from_utf8_lossy(&finished.answer).into_owned())
    };
    let level = Level::heard(&ask(Path::new(CANARY), &[]).await?);
    ensure!(
        level.is_whole() || !need_cage,
        "ffmpeg has no whole cage here ({level}); it needs a kernel with Landlock (5.13, better 6.7) and seccomp, and a \
         container that allows both"
    );
    let version = ask(&tools.ffmpeg, &["-version"]).await?;
    ask(&tools.ffprobe, &["-version"]).await?;
    let encoders = ask(&tools.ffmpeg, &["-hide_banner", "-encoders"]).await?;
    Ok(Found { version: first_words(&version), encoders: names(&encoders), level })
}

/// Runs `program` for what it prints.
pub(super) async fn answer(
    keeper: &Keeper,
    program: &Path,
    arguments: Vec<String>,
    dir: &Arc<WorkDir>,
    caps: &Caps,
) -> Result<Finished, MediaError> {
    let caps = Caps { wall: caps.wall.min(ANSWER_WITHIN), ..*caps };
    let work =
        Work { program: program.to_owned(), arguments, speaks: Speaks::Answer, dir: Arc::clone(dir), caps };
    keeper.run(work, &|_| {}).await
}

/// `ffmpeg version 5.1.9-0+deb12u1 Copyright …`
fn first_words(version: &str) -> String {
    version.split_whitespace().nth(2).unwrap_or("unknown").to_owned()
}

/// ` V....D libx264   libx264 H.264 …`, below a legend that ends with ` ------`.
fn names(encoders: &str) -> BTreeSet<String> {
    let (_, list) = encoders.split_once("------").unwrap_or(("", encoders));
    list.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}
