//! A program of ours, run as a child: its log in a file, gone when we are gone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A child that is stopped with SIGTERM, and killed when that does not help.
pub(super) struct Tenant {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Longer than any drain it was told.
const PATIENCE: Duration = Duration::from_secs(20);

impl Tenant {
    /// Starts `program`, which lies beside this one. Must be called on a thread that stays: the kernel stops the child
    /// when the thread that started it is gone, however it went.
    pub(super) fn start(
        name: &str,
        program: &str,
        arguments: &[&str],
        env: &[(String, String)],
        logs: &Path,
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command(program, env)?
            .args(arguments)
            .stderr(file)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Self { name: name.into(), child, log })
    }

    /// What it says on standard output; to be taken once.
    pub(super) fn output(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// An error when it has ended, with the end of its log.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = said.lines().rev().take(5).collect();
        let last: Vec<_> = lines.into_iter().rev().collect();
        bail!("{} ended ({status}); the end of {}:\n{}", self.name, self.log.display(), last.join("\n"))
    }

    /// What it has logged so far.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to stop.
    pub(super) fn ask_to_stop(&self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM); // it may have ended by itself
        }
    }

    /// Waits until it has stopped.
    pub(super) async fn stopped(mut self) {
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// A program that lies beside this one, with nothing of our environment but what it needs.
pub(super) fn command(program: &str, env: &[(String, String)]) -> anyhow::Result<Command> {
    let here = std::env::current_exe().context("cannot tell where this program is")?;
    let path = here.with_file_name(program);
    if !path.is_file() {
        bail!("{} is missing: build all programs first, `cargo build --bins`", path.display());
    }
    // As with the private Postgres: the kernel tells it when we die, even by kill -9.
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut command = if setpriv.is_file() {
        let mut command = Command::new(setpriv);
        command.arg("--pdeathsig=TERM").arg(path);
        command
    } else {
        Command::new(path)
    };
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).envs(env.iter().cloned()).stdin(Stdio::null());
    // In a group of its own: Ctrl-C at the terminal reaches us first.
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}
