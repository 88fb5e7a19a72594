//! A private Postgres: its own data directory, a Unix socket, no TCP port, gone with the process that made it.
//!
//! Nothing of a Postgres that already runs on the machine is touched.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use scopeguard::guard;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

/// Why there is no private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// None is installed.
    #[error(
        "no PostgreSQL server found; `make setup` installs one, or set EUTERPE_PG_BIN to its bin directory"
    )]
    NotInstalled,
    /// Root may not run Postgres, and there is nobody to run it as.
    #[error("running as root, and neither user postgres nor nobody exists to run PostgreSQL as")]
    NobodyToRunAs,
    /// It did not come up; what it said follows.
    #[error("PostgreSQL did not start: {0}")]
    DidNotStart(String),
    /// A file or process could not be had.
    #[error("{doing}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Whether an acknowledged commit must survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As in production.
    Durable,
    /// Fast, for tests that lose everything with the process anyway.
    Fast,
}

/// A running private Postgres. Dropping it stops the server; the data directory stays.
pub struct Cluster {
    dir: PathBuf,
    stop: mpsc::Sender<()>,
    keeper: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the server of `dir`, made by `initdb` if there is none. `dir` must be short: a socket path has at
    /// most 107 bytes.
    pub fn start(dir: &Path, durability: Durability, settings: &[&str]) -> Result<Self, ClusterError> {
        Self::start_unless(&Arc::default(), dir, durability, settings)
    }

    /// The same on a thread of its own, for whoever may be interrupted: dropped, this takes back what it has begun.
    pub async fn begin(
        dir: &Path,
        durability: Durability,
        settings: &'static [&'static str],
    ) -> Result<Self, ClusterError> {
        let (dir, given_up) = (dir.to_owned(), Arc::new(AtomicBool::new(false)));
        let (tell, told) = oneshot::channel();
        let asked = Arc::clone(&given_up);
        let thread = std::thread::spawn(move || {
            // Nobody waits any more: the server stops with the answer.
            drop(tell.send(Self::start_unless(&asked, &dir, durability, settings)));
        });
        let _guard = guard(thread, |thread| {
            given_up.store(true, Ordering::Relaxed);
            let _ = thread.join();
        });
        told.await.unwrap_or_else(|_| Err(ClusterError::DidNotStart("its thread died".into())))
    }

    fn start_unless(
        given_up: &Arc<AtomicBool>,
        dir: &Path,
        durability: Durability,
        settings: &[&str],
    ) -> Result<Self, ClusterError> {
        let bin = find_binaries().ok_or(ClusterError::NotInstalled)?;
        let user = run_as()?;
        make_private(dir, user)?;
        let data = dir.join("data");
        if !data.join("PG_VERSION").exists() {
            init(&bin, &data, user, durability, given_up)?;
        }

        // PR_SET_PDEATHSIG follows the thread that started the child, not the process: so a thread of its own
        // starts the server and stays until it has stopped it.
        let (stop, stopped) = mpsc::channel::<()>();
        let (started, outcome) = mpsc::channel();
        let mut command = server(&bin, dir, &data, user, durability, settings);
        let (log, given_up) = (dir.join("log"), Arc::clone(given_up));
        let keeper = std::thread::spawn(move || match command.spawn() {
            Err(source) => {
                let _ = started.send(Err(io_error("cannot run postgres", source)));
            }
            Ok(mut child) => {
                let _ = started.send(wait_until_ready(&mut child, &data, &log, &given_up));
                let _ = stopped.recv(); // an error means that the Cluster is gone: stop all the same
                shut_down(&mut child);
            }
        });

        let cluster = Self { dir: dir.to_owned(), stop, keeper: Some(keeper) };
        outcome.recv().map_err(|_| ClusterError::DidNotStart("its keeper thread died".into()))??;
        Ok(cluster)
    }

    /// A connection string for `database` as the superuser of this cluster.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url_in(&self.dir, database)
    }

    /// The same for a server that somebody else runs in `dir`, if one does.
    #[must_use]
    pub fn running(dir: &Path) -> Option<String> {
        std::os::unix::net::UnixStream::connect(dir.join(".s.PGSQL.5432")).ok()?;
        Some(url_in(dir, "postgres"))
    }

    /// The directory with data, socket and log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program that came with the server's, e.g. `pg_dump`.
    #[must_use]
    pub fn program(name: &str) -> Option<PathBuf> {
        find_binaries().map(|bin| bin.join(name)).filter(|program| program.is_file())
    }

    /// Stops the server in an orderly way and waits for it.
    pub fn stop(self) {
        drop(self);
    }

    /// A directory for a cluster that lives as long as this process, in memory where that is possible. Those of
    /// processes that are gone (kill -9 leaves them behind) are removed.
    #[must_use]
    pub fn scratch(name: &str) -> PathBuf {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|file| {
                let pid = file.strip_prefix("euterpe-")?.split('-').next()?;
                pid.parse::<u32>().ok()
            });
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // Somebody else's is not ours to remove, and cannot be.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        root.join(format!("euterpe-{}-{name}", std::process::id()))
    }

    /// A directory below which a private cluster can live: `wanted` itself, or a short one in `/var/tmp` when
    /// its path is too long or root's server user could not enter it; then `wanted` is a link to it.
    pub fn place(wanted: &Path) -> io::Result<PathBuf> {
        let enterable = |path: &Path| {
            !geteuid().is_root()
                || path
                    .ancestors()
                    .filter_map(|ancestor| fs::metadata(ancestor).ok())
                    .all(|metadata| metadata.mode() & 0o001 != 0)
        };
        let parent = wanted.parent().unwrap_or(wanted);
        fs::create_dir_all(parent)?;
        if wanted.as_os_str().len() <= 80 && enterable(parent) {
            return Ok(wanted.to_owned());
        }
        let name = hex::encode(&Sha256::digest(wanted.as_os_str().as_encoded_bytes())[..4]);
        let elsewhere = PathBuf::from(format!("/var/tmp/euterpe-{}-{name}", geteuid().as_raw()));
        // Whoever looks for it, `make clean` among them, finds it.
        match symlink(&elsewhere, wanted) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(elsewhere),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

fn url_in(dir: &Path, database: &str) -> String {
    format!("host={} port=5432 user=postgres dbname={database}", dir.display())
}

fn io_error(doing: impl Into<String>, source: io::Error) -> ClusterError {
    ClusterError::Io { doing: doing.into(), source }
}

/// `EUTERPE_PG_BIN`, else the newest of the usual places, else whatever `PATH` leads to.
fn find_binaries() -> Option<PathBuf> {
    let complete = |dir: &Path| dir.join("initdb").is_file() && dir.join("postgres").is_file();
    if let Some(dir) = std::env::var_os("EUTERPE_PG_BIN").map(PathBuf::from) {
        return complete(&dir).then_some(dir);
    }
    let newest = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let major: u32 = entry.file_name().to_str()?.parse().ok()?;
            let dir = entry.path().join("bin");
            complete(&dir).then_some((major, dir))
        })
        .max();
    if let Some((_, dir)) = newest {
        return Some(dir);
    }
    std::env::split_paths(&std::env::var_os("PATH")?).find_map(|path| {
        let initdb = fs::canonicalize(path.join("initdb")).ok()?;
        initdb.parent().filter(|dir| complete(dir)).map(Path::to_owned)
    })
}

/// Postgres refuses to run as root.
fn run_as() -> Result<Option<(u32, u32)>, ClusterError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let passwd =
        fs::read_to_string("/etc/passwd").map_err(|source| io_error("cannot read /etc/passwd", source))?;
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| {
            let fields: Vec<_> =
                passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|f| f[0] == name)?;
            Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
        })
        .map(Some)
        .ok_or(ClusterError::NobodyToRunAs)
}

fn make_private(dir: &Path, user: Option<(u32, u32)>) -> Result<(), ClusterError> {
    let doing = || format!("cannot make {}", dir.display());
    fs::create_dir_all(dir).map_err(|source| io_error(doing(), source))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(|source| io_error(doing(), source))?;
    if let Some((uid, gid)) = user {
        chown(dir, Some(uid), Some(gid)).map_err(|source| io_error(doing(), source))?;
    }
    Ok(())
}

fn command(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn init(
    bin: &Path,
    data: &Path,
    user: Option<(u32, u32)>,
    durability: Durability,
    given_up: &AtomicBool,
) -> Result<(), ClusterError> {
    // Locale C: the same order everywhere, and immune to a newer libc. Trust: the socket lies in a directory
    // that nobody else may enter.
    let mut initdb = command(&bin.join("initdb"), user);
    initdb.arg("-D").arg(data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    if durability == Durability::Fast {
        initdb.args(["--no-sync", "--wal-segsize=1"]);
    }
    // In a group of its own: Ctrl-C at the terminal reaches us first.
    initdb.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let cannot_run = |source| io_error("cannot run initdb", source);
    let mut child = initdb.spawn().map_err(cannot_run)?;
    while child.try_wait().map_err(cannot_run)?.is_none() {
        if given_up.load(Ordering::Relaxed) {
            // Asked like this it removes what it has made; a half-made directory would look like a whole one.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
            return Err(ClusterError::DidNotStart("it was given up".into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It says little: all of it waits in the pipe.
    let output = child.wait_with_output().map_err(cannot_run)?;
    if output.status.success() {
        return Ok(());
    }
    Err(ClusterError::DidNotStart(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn server(
    bin: &Path,
    dir: &Path,
    data: &Path,
    user: Option<(u32, u32)>,
    durability: Durability,
    settings: &[&str],
) -> Command {
    // setpriv (util-linux) asks the kernel to interrupt the server when we die, even by kill -9; Postgres then
    // shuts down fast. It runs after the change of user, which would clear the request.
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut server = if setpriv.is_file() {
        let mut server = command(setpriv, user);
        server.arg("--pdeathsig=INT").arg(bin.join("postgres"));
        server
    } else {
        command(&bin.join("postgres"), user)
    };
    server.arg("-D").arg(data).arg("-k").arg(dir).args(["-p", "5432", "-c", "listen_addresses="]);
    if durability == Durability::Fast {
        server.args(["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]);
    }
    for setting in settings {
        server.args(["-c", setting]);
    }
    // In a group of its own: Ctrl-C at the terminal reaches us first.
    server.process_group(0);
    match fs::File::create(dir.join("log")) {
        Ok(log) => match log.try_clone() {
            Ok(also) => server.stdout(log).stderr(also),
            Err(_) => server.stdout(Stdio::null()).stderr(log),
        },
        Err(_) => server.stdout(Stdio::null()).stderr(Stdio::null()),
    };
    server
}

fn wait_until_ready(
    child: &mut Child,
    data: &Path,
    log: &Path,
    given_up: &AtomicBool,
) -> Result<(), ClusterError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let said = || fs::read_to_string(log).unwrap_or_default();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ClusterError::DidNotStart(format!("{status}: {}", said())));
        }
        // Line 1 is the server's pid, line 8 its state.
        let pidfile = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = pidfile.lines();
        if lines.next() == Some(&child.id().to_string())
            && lines.nth(6).is_some_and(|state| state.trim() == "ready")
        {
            return Ok(());
        }
        if given_up.load(Ordering::Relaxed) {
            shut_down(child);
            return Err(ClusterError::DidNotStart("it was given up".into()));
        }
        if Instant::now() > deadline {
            shut_down(child);
            return Err(ClusterError::DidNotStart(format!("not ready after a minute: {}", said())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fast shutdown, and after ten seconds the immediate one.
fn shut_down(child: &mut Child) {
    let pid = Pid::from_child(child);
    for signal in [Signal::INT, Signal::QUIT] {
        let _ = kill_process(pid, signal);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}
