//! Canaries: a program in the cage tries what ffmpeg must not be able to do, and says what came of it. A cage is believed
//! by what it stops, not by what was asked of the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::exit;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, Resource, getrlimit, prlimit};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};

/// What lies beside the source in a canary's directory, and must not be read.
pub(in crate::media) const BAIT: &str = "bait";

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    landlock: Option<i32>,
    seccomp: bool,
    open: Vec<String>,
}

impl Level {
    /// Reads a canary's song.
    pub(in crate::media) fn heard(song: &str) -> Self {
        let said = |name: &str| song.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        // What a canary did not speak of is not known to be shut.
        let is_open = |name: &&str| said(name) != Some("denied");
        Self {
            landlock: said("landlock").and_then(|version| version.parse().ok()),
            seccomp: said("seccomp") == Some("on"),
            open: TRIED.iter().filter(|name| is_open(name)).map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Whether every canary found every way shut.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.open.is_empty()
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let landlock = self.landlock.map(|version| format!("landlock {version}"));
        let seccomp = self.seccomp.then(|| "seccomp".to_owned());
        let parts = landlock.into_iter().chain(seccomp).chain(["rlimits".to_owned()]);
        f.write_str(&parts.collect::<Vec<_>>().join(" + "))?;
        if self.open.is_empty() { Ok(()) } else { write!(f, "; open: {}", self.open.join(", ")) }
    }
}

const TRIED: [&str; 10] = [
    "read_beside",
    "read_system",
    "read_parent",
    "write_beside",
    "open_to_others",
    "limit_parent",
    "link",
    "network",
    "privileges",
    "core_dump",
];

/// Tries everything, prints it and ends.
pub(super) fn sing(landlock: Option<i32>, seccomp: bool, dir: &Path, parent: i32) -> ! {
    let socket_is_shut = [AddressFamily::INET, AddressFamily::UNIX, AddressFamily::NETLINK]
        .into_iter()
        .all(|family| socket(family, SocketType::DGRAM, None).is_err());
    let link = dir.join("out/link");
    let is_powerless = no_new_privs().is_ok_and(|is_set| is_set)
        && capabilities(None).is_ok_and(|sets| sets.permitted == CapabilitySet::empty());
    let shut = [
        is_denied(fs::read(dir.join(BAIT))),
        is_denied(fs::read("/etc/passwd")),
        is_denied(fs::read(format!("/proc/{parent}/environ"))),
        is_denied(fs::write(dir.join("escaped"), "out")),
        is_denied(fs::set_permissions(dir.join(BAIT), fs::Permissions::from_mode(0o666))),
        may_not_limit(parent),
        is_denied(std::os::unix::fs::symlink("/etc/passwd", link)),
        socket_is_shut,
        is_powerless,
        getrlimit(Resource::Core).maximum == Some(0),
    ];
    println!("landlock={}", landlock.map_or("none".to_owned(), |version| version.to_string()));
    println!("seccomp={}", if seccomp { "on" } else { "off" });
    for (name, is_shut) in TRIED.iter().zip(shut) {
        println!("{name}={}", if is_shut { "denied" } else { "open" });
    }
    exit(0);
}

/// Whether the limits of a process are out of reach; those it has are the ones tried.
fn may_not_limit(pid: i32) -> bool {
    let as_it_is = getrlimit(Resource::Nofile);
    Pid::from_raw(pid).is_some_and(|pid| prlimit(Some(pid), Resource::Nofile, as_it_is).is_err())
}

/// Refused, and not merely absent.
fn is_denied<T>(tried: io::Result<T>) -> bool {
    tried.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}
