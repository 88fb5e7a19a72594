//! Starts programs in the cage and keeps them until they have ended, whatever becomes of the caller.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::end::meaning;
use super::progress::{Beat, Beats};
use super::spawn::spawn;
use super::tail::Tail;
use super::watch::Watch;
use crate::media::cage::{Limits, launch_words};
use crate::media::{Caps, MediaError, WorkDir};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Between asking a program to end and ending it.
const GRACE: Duration = Duration::from_secs(5);
/// The most that a program may answer.
const MAX_ANSWER: u64 = 32 * 1024 * 1024;
/// The most of one line of progress. There may be days of them.
const MAX_LINE: u64 = 4096;
/// With less than this, a write has failed for want of room.
const FULL: u64 = 16 * 1024 * 1024;

/// What stdout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::media) enum Speaks {
    /// An answer, as a whole.
    Answer,
    /// `-progress`, while it runs.
    Progress,
}

/// One program to run.
#[derive(Debug)]
pub(in crate::media) struct Work {
    pub(in crate::media) program: PathBuf,
    pub(in crate::media) arguments: Vec<String>,
    pub(in crate::media) speaks: Speaks,
    pub(in crate::media) dir: Arc<WorkDir>,
    pub(in crate::media) caps: Caps,
}

/// A program that has ended.
#[derive(Debug)]
pub(in crate::media) struct Finished {
    /// What went wrong, if anything.
    pub(in crate::media) failure: Option<MediaError>,
    pub(in crate::media) answer: Vec<u8>,
    pub(in crate::media) said: Tail,
}

/// Who keeps them.
#[derive(Debug, Clone)]
pub(in crate::media) struct Keeper {
    launcher: Launcher,
    running: TaskTracker,
}

/// Our own binary, and whether it may run something without a whole cage.
#[derive(Debug, Clone)]
struct Launcher {
    path: PathBuf,
    needs_cage: bool,
}

impl Keeper {
    pub(in crate::media) fn new(launcher: PathBuf, needs_cage: bool) -> Self {
        let running = TaskTracker::new();
        running.close(); // "empty" means idle, and new ones are still taken
        Self { launcher: Launcher { path: launcher, needs_cage }, running }
    }

    /// Until nothing runs.
    pub(in crate::media) async fn idle(&self) {
        self.running.wait().await;
    }

    /// Runs `work` to its end. Dropped, it stops the program; a task of its own sees to that.
    pub(in crate::media) async fn run(
        &self,
        work: Work,
        on_beat: &(dyn Fn(Beat) + Send + Sync),
    ) -> Result<Finished, MediaError> {
        let stop = CancellationToken::new();
        let _stops_when_dropped = stop.clone().drop_guard();
        let (beats, mut heard) = watch::channel(Beat::default());
        let launcher = self.launcher.clone();
        let mut tending = self.running.spawn(async move { tend(work, launcher, stop, beats).await });
        loop {
            tokio::select! {
                ended = &mut tending => {
                    return ended.unwrap_or_else(|error| Err(internal(&io::Error::other(error))));
                }
                Ok(()) = heard.changed() => {
                    let beat = *heard.borrow_and_update();
                    on_beat(beat);
                }
            }
        }
    }
}

async fn tend(
    work: Work,
    launcher: Launcher,
    stop: CancellationToken,
    beats: watch::Sender<Beat>,
) -> Result<Finished, MediaError> {
    let mut child = spawn(command(&work, &launcher)).await.map_err(|error| internal(&error))?;
    let pid = child.id().unwrap_or_default();
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(internal(&io::Error::other("no pipes")));
    };
    let saying = tokio::spawn(Tail::of(stderr));
    let (lines, mut groups) = mpsc::channel(16);
    let answering = tokio::spawn(listen(stdout, work.speaks, lines));

    let mut watch = Watch::new(work.caps, work.speaks == Speaks::Progress);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(|error| internal(&error)),
            Some(beat) = groups.recv() => {
                watch.hear(beat);
                beats.send_replace(beat);
            }
            _ = looks.tick() => if let Some(breach) = watch.breach(pid, &work.dir.out()) {
                end(&mut child, pid, Duration::ZERO).await; // nothing that it could still write would be used
                break Err(breach);
            },
            () = stop.cancelled() => {
                end(&mut child, pid, GRACE).await;
                break Err(MediaError::new("encode_killed", "it was stopped"));
            }
        }
    };
    // The pipes are at their end with it: in the cage nobody forks.
    let rest = async {
        while let Some(beat) = groups.recv().await {
            watch.hear(beat);
        }
        (saying.await.unwrap_or_default(), answering.await.unwrap_or_default())
    };
    let (said, answer) = timeout(GRACE, rest).await.unwrap_or_default();
    let status = ended?;
    let was_cut = work.speaks == Speaks::Progress && !watch.saw_end();
    let cut = || was_cut.then(|| MediaError::new("encode_failed", "ffmpeg ended before its work was done"));
    let failure = meaning(status, &said, is_full(work.dir.path()), watch.may_be_spent()).or_else(cut);
    Ok(Finished { failure, answer, said })
}

fn is_full(dir: &Path) -> bool {
    statvfs(dir).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FULL)
}

/// `launcher --launch-in-cage … -- program …`, in the job's directory, with nothing of our environment.
fn command(work: &Work, launcher: &Launcher) -> Command {
    let mut words: Vec<OsString> = launch_words(launcher.needs_cage, Limits::of(&work.caps), work.dir.path());
    words.push(work.program.clone().into());
    words.extend(work.arguments.iter().map(OsString::from));
    let mut command = Command::new(&launcher.path);
    command.args(words).current_dir(work.dir.path()).env_clear();
    command.envs([("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent"), ("LANG", "C"), ("TZ", "UTC")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    command
}

/// Reads stdout to its end: as an answer, or as beats.
async fn listen(stdout: impl AsyncRead + Unpin, speaks: Speaks, beats: mpsc::Sender<Beat>) -> Vec<u8> {
    let mut answer = Vec::new();
    if speaks == Speaks::Answer {
        let _ = stdout.take(MAX_ANSWER).read_to_end(&mut answer).await;
        return answer;
    }
    let (mut lines, mut group) = (BufReader::new(stdout).take(MAX_LINE), Beats::default());
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
        if let Some(beat) = group.line(String::from_utf8_lossy(&line).trim_end()) {
            let _ = beats.send(beat).await;
        }
        line.clear();
        lines.set_limit(MAX_LINE);
    }
    answer
}

/// SIGTERM to the group, `grace`, SIGKILL, and always reaped.
async fn end(child: &mut Child, pid: u32, grace: Duration) {
    if !grace.is_zero() {
        signal(pid, Signal::TERM);
        if timeout(grace, child.wait()).await.is_ok() {
            return;
        }
    }
    signal(pid, Signal::KILL);
    let _ = child.start_kill(); // itself, too, in whatever group it is
    if let Err(error) = child.wait().await {
        tracing::warn!(error = %error, "a program in the cage could not be waited for");
    }
}

fn signal(group: u32, signal: Signal) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal); // it may have gone by itself
    }
}

fn internal(error: &io::Error) -> MediaError {
    tracing::error!(error = %error, "ffmpeg could not be run");
    MediaError::new("internal", "ffmpeg could not be run")
}
