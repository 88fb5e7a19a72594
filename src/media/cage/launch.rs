//! `euterpe-transcode --launch-in-cage`: this binary, started again for one program. Alone in its process, it gives up
//! what the program must not have, and becomes it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use super::{Limits, canary, files, syscalls};

/// The first word of a launch.
pub(in crate::media) const LAUNCH: &str = "--launch-in-cage";
/// In place of a program: try the bars.
pub(in crate::media) const CANARY: &str = "--canary";
/// Whether a program is run where the kernel cannot lock it in.
const NEEDED: &str = "needed";
const WELCOME: &str = "welcome";
/// What the launcher itself ends with, when there was no launch.
pub(in crate::media) const FAILED: i32 = 125;

/// One launch: `--launch-in-cage <parent> <needed|welcome> <limits…> <dir> -- <program> <arguments…>`.
struct Launch {
    parent: i32,
    needs_cage: bool,
    limits: Limits,
    dir: PathBuf,
    program: String,
    arguments: Vec<String>,
}

/// Becomes the program in the cage when the command line says so, and does not return then. Call it first in `main`,
/// before there is any other thread: a thread would stay outside.
pub fn launch_if_asked() {
    let mut words = env::args_os().skip(1);
    if words.next().is_none_or(|first| first != LAUNCH) {
        return;
    }
    let failure = match read(words) {
        Some(launch) => launch.go().err().unwrap_or_else(|| io::Error::other("it came back")),
        None => io::Error::other("the command line is not one that the worker writes"),
    };
    eprintln!("{LAUNCH}: {failure}");
    exit(FAILED);
}

/// The words that ask for a launch by this process, before those of the program.
pub(in crate::media) fn words(needs_cage: bool, limits: Limits, dir: &Path) -> Vec<OsString> {
    let need = if needs_cage { NEEDED } else { WELCOME };
    let mut words: Vec<OsString> = vec![LAUNCH.into(), std::process::id().to_string().into(), need.into()];
    words.extend(limits.words().map(OsString::from));
    words.extend([dir.into(), "--".into()]);
    words
}

fn read(words: impl Iterator<Item = OsString>) -> Option<Launch> {
    let mut words = words.map(OsString::into_string).map_while(Result::ok);
    let parent = words.next()?.parse().ok()?;
    let needs_cage = words.next()? == NEEDED;
    let limits = Limits::read(&mut words)?;
    let dir = PathBuf::from(words.next()?);
    words.next().filter(|word| word == "--")?;
    Some(Launch { parent, needs_cage, limits, dir, program: words.next()?, arguments: words.collect() })
}

impl Launch {
    fn go(self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever started us may have died before that took hold; somebody else is our parent then.
        if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != self.parent) {
            return Err(io::Error::other("whoever started this has gone"));
        }
        let program = if self.program == CANARY { None } else { Some(Path::new(&self.program)) };
        set_no_new_privs(true)?;
        give_up_capabilities()?;
        self.limits.apply()?;
        let landlock = files::lock(&self.dir, program).map_err(io::Error::other)?;
        let seccomp = syscalls::lock();
        match program {
            Some(_) if self.needs_cage && (landlock.is_none() || !seccomp) => {
                Err(io::Error::other("the cage does not hold any more"))
            }
            Some(program) => Err(Command::new(program).args(&self.arguments).exec()),
            None => canary::sing(landlock, seccomp, &self.dir, self.parent),
        }
    }
}

/// Root without its powers is nobody much; with `no_new_privs`, exec does not give them back.
fn give_up_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
