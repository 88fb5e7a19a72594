//! A proxy between a client and Postgres that can lose an answer after the server has committed, cut everybody off, and
//! swallow everything without a word.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Listens on a socket of its own and forwards to the server of the tests.
pub struct Proxy {
    dir: PathBuf,
    lose_next_answer: Arc<AtomicBool>,
    is_cut: watch::Sender<bool>,
    is_stalled: watch::Sender<bool>,
}

impl Proxy {
    pub fn before(config: &Config) -> Self {
        let [Host::Unix(server)] = config.get_hosts() else { panic!("needs a server on a Unix socket") };
        let server = server.join(".s.PGSQL.5432");
        let dir = tempfile::Builder::new().prefix("eut-proxy").tempdir().unwrap().keep();
        let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).unwrap();
        let lose_next_answer = Arc::new(AtomicBool::new(false));
        let (is_cut, cut) = watch::channel(false);
        let (is_stalled, stalled) = watch::channel(false);
        let lose = Arc::clone(&lose_next_answer);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, lose, mut cut) = (server.clone(), Arc::clone(&lose), cut.clone());
                let stalled = stalled.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = cut.wait_for(|is_cut| *is_cut) => {}
                        () = forward(client, &server, &lose, stalled) => {}
                    }
                });
            }
        });
        Self { dir, lose_next_answer, is_cut, is_stalled }
    }

    /// The same database, through the proxy.
    pub fn config(&self, config: &Config) -> Config {
        let mut through = Config::new();
        through.host_path(&self.dir).port(5432).user("euterpe_test").dbname(config.get_dbname().unwrap());
        through
    }

    /// From now on: the next answer is swallowed once the server says that it is idle again, that is after
    /// COMMIT, and the connection is dropped.
    pub fn lose_next_answer(&self) {
        self.lose_next_answer.store(true, Ordering::SeqCst);
    }

    pub fn has_lost_it(&self) -> bool {
        !self.lose_next_answer.load(Ordering::SeqCst)
    }

    /// From now on every connection is dropped, old and new.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// From now on nothing comes through, and nothing is closed: a host that has vanished, a process that is paused.
    pub fn stall(&self) {
        self.is_stalled.send_replace(true);
    }

    /// From now on everything comes through again, also what was held back.
    pub fn flow(&self) {
        self.is_stalled.send_replace(false);
    }

    /// From now on new connections go through again.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

async fn forward(client: UnixStream, server: &Path, lose: &AtomicBool, stalled: watch::Receiver<bool>) {
    let server = UnixStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut flows = stalled.clone();
    let requests = async move {
        let mut buffer = [0; 8192];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            let _ = flows.wait_for(|is_stalled| !is_stalled).await;
            if to_server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };

    let answers = async move {
        let mut seen = Vec::new();
        let mut buffer = [0; 8192];
        let mut flows = stalled;
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            let _ = flows.wait_for(|is_stalled| !is_stalled).await;
            if lose.load(Ordering::SeqCst) {
                seen.extend_from_slice(&buffer[..read]);
                if ends_idle(&seen) {
                    lose.store(false, Ordering::SeqCst);
                    break;
                }
            } else if to_client.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
}

/// ReadyForQuery with status idle is `Z 00 00 00 05 I`; it ends every answer.
fn ends_idle(answer: &[u8]) -> bool {
    answer.ends_with(b"Z\0\0\0\x05I")
}
