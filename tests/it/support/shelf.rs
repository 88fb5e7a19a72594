//! A server of signed urls, by hand: it may say what no library would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::receiver::{Got, read};

/// What is said to a request.
pub enum Says {
    /// And then the connection is closed.
    This(Vec<u8>),
    /// And then nothing more.
    ThenHangs(Vec<u8>),
}

pub struct Shelf {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    _task: AbortOnDropHandle<()>,
}

impl Shelf {
    /// `says` is asked with the number of the request, from 0.
    pub async fn start(says: impl Fn(usize, &Got) -> Says + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::<Got>::new()));
        let (kept, says) = (Arc::clone(&got), Arc::new(says));
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (kept, says) = (Arc::clone(&kept), Arc::clone(&says));
                tokio::spawn(async move {
                    let got = read(&mut stream).await?;
                    let said = {
                        let mut kept = kept.lock().unwrap();
                        let said = says(kept.len(), &got);
                        kept.push(got);
                        said
                    };
                    let (Says::This(bytes) | Says::ThenHangs(bytes)) = &said;
                    stream.write_all(bytes).await.ok()?;
                    if let Says::ThenHangs(_) = said {
                        std::future::pending::<()>().await;
                    }
                    stream.shutdown().await.ok()
                });
            }
        });
        Self { address, got, _task: AbortOnDropHandle::new(task) }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}?X-Amz-Signature=s3cr3t-signature", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// The ranges that were asked for, in order.
    pub fn ranges(&self) -> Vec<Option<String>> {
        let range =
            |got: &Got| got.headers.iter().find(|(name, _)| name == "range").map(|(_, value)| value.clone());
        self.got().iter().map(range).collect()
    }
}

/// An answer with these headers, one per line.
pub fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status} Said\r\n").into_bytes();
    for line in headers.lines() {
        bytes.extend_from_slice(format!("{}\r\n", line.trim()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}
