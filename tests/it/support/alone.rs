//! A server of a test's own: to be configured, stopped, crashed and started again. Gone when dropped.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use euterpe::dev::{Cluster, Durability};
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::Config;

use super::server::SETTINGS;

pub struct Alone {
    pub dir: PathBuf,
    /// Beyond those of every test.
    settings: Vec<String>,
    durability: Durability,
    url: String,
    /// Where it listens on 127.0.0.1, if it does.
    pub port: Option<u16>,
    cluster: Option<Cluster>,
}

impl Alone {
    pub fn start(name: &str, durability: Durability, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::new(name, durability, None, settings)
    }

    /// The same, listening on a free port of 127.0.0.1.
    pub fn listening(name: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = Some(free.local_addr().unwrap().port());
        drop(free);
        Self::new(name, Durability::Fast, port, Vec::new())
    }

    fn new(name: &str, durability: Durability, port: Option<u16>, settings: Vec<String>) -> Self {
        let dir = Cluster::scratch(name);
        let mut alone = Self { dir, settings, durability, url: String::new(), port, cluster: None };
        alone.go_on();
        alone
    }

    /// The superuser's way in.
    pub fn config(&self) -> Config {
        self.url.parse().unwrap()
    }

    /// Starts it, after a stop or a crash.
    pub fn go_on(&mut self) {
        let listen = self.port.map(|port| format!("port={port}"));
        let mut settings = SETTINGS.to_vec();
        settings.extend(self.settings.iter().map(String::as_str));
        if let Some(listen) = &listen {
            settings.extend(["listen_addresses=127.0.0.1", listen]);
        }
        let cluster = Cluster::start(&self.dir, self.durability, &settings).unwrap();
        self.url = cluster.url("postgres");
        if let Some(listen) = &listen {
            self.url = self.url.replace("port=5432", listen);
        }
        self.cluster = Some(cluster);
    }

    /// Stops it in an orderly way: everybody is told.
    pub fn stop(&mut self) {
        self.cluster.take().unwrap().stop();
    }

    /// It falls over where it stands; what it has acknowledged is in its log and nowhere else.
    pub fn crash(&mut self) {
        let pidfile = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap();
        let pid = pidfile.lines().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::QUIT).unwrap();
        self.cluster.take().unwrap().stop(); // waits for its end
    }

    /// Writes a file that only the server may read; says where.
    pub fn give(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let owner = std::fs::metadata(self.dir.join("data")).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        path
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.cluster.take());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
