//! A receiver of webhooks on a port of its own, with the manners a test wants. Raw TCP: a library would not misbehave.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Got {
    /// Method and path.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    /// The value of a header; there must be one, and only one.
    pub fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(header, _)| header == name);
        let (_, value) = found.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        assert!(found.next().is_none(), "{name} twice");
        value
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Job and number within it.
    pub fn place(&self) -> (String, i64) {
        let body = self.json();
        (body["data"]["job_id"].as_str().unwrap().to_owned(), body["sequence"].as_i64().unwrap())
    }
}

/// What a receiver does with a request.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    Answers(u16),
    /// With one more header line.
    AnswersWith(u16, &'static str),
    /// Reads, and says nothing.
    Hangs,
    /// Reads, and hangs up.
    HangsUp,
    /// Promises a hundred bytes, and hangs up after five.
    HangsUpMidBody(u16),
    /// Never comes to the end of its body.
    TalksForEver(u16),
    HugeHead,
    SpeaksNoHttp,
}

pub struct Receiver {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<AtomicUsize>,
    /// Bytes that a receiver which talks for ever got rid of.
    pub talked: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Receiver {
    /// One that says 200.
    pub async fn kind() -> Self {
        Self::start(|_, _| Does::Answers(200)).await
    }

    /// `manners` is asked with the number of the request, from 0.
    pub async fn start(manners: impl Fn(usize, &Got) -> Does + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", None, manners).await
    }

    pub async fn at(
        place: &str,
        tls: Option<TlsAcceptor>,
        manners: impl Fn(usize, &Got) -> Does + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(place).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (got, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let talked = Arc::new(AtomicUsize::new(0));
        let (kept, count, rid, manners) =
            (Arc::clone(&got), Arc::clone(&connections), Arc::clone(&talked), Arc::new(manners));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (kept, rid, manners, tls) =
                    (Arc::clone(&kept), Arc::clone(&rid), Arc::clone(&manners), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => converse(stream, &kept, &rid, &*manners).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return None };
                            converse(stream, &kept, &rid, &*manners).await
                        }
                    }
                });
            }
        });
        Self { address, got, connections, talked, _task: AbortOnDropHandle::new(task) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks/42?token=s3cr3t-path", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits for `count` requests.
    pub async fn until_got(&self, count: usize) -> Vec<Got> {
        for _ in 0..6000 {
            let got = self.got();
            if got.len() >= count {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} of {count} requests came", self.got().len());
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    kept: &Mutex<Vec<Got>>,
    rid: &AtomicUsize,
    manners: &(impl Fn(usize, &Got) -> Does + ?Sized),
) -> Option<()> {
    let got = read(&mut stream).await?;
    let does = {
        let mut kept = kept.lock().unwrap();
        let does = manners(kept.len(), &got);
        kept.push(got);
        does
    };
    let head = |status: u16, more: &str| format!("HTTP/1.1 {status} Fine\r\n{more}\r\n");
    let said = match does {
        Does::Answers(status) => head(status, "content-length: 2\r\n") + "ok",
        Does::AnswersWith(status, more) => head(status, &format!("{more}\r\ncontent-length: 2\r\n")) + "ok",
        Does::Hangs => std::future::pending().await,
        Does::HangsUp => return None,
        Does::HangsUpMidBody(status) => head(status, "content-length: 100\r\n") + "12345",
        Does::HugeHead => head(200, &format!("x: {}\r\n", "y".repeat(100_000))),
        Does::SpeaksNoHttp => "220 mail.example ESMTP\r\n".into(),
        Does::TalksForEver(status) => {
            stream.write_all(head(status, "").as_bytes()).await.ok()?;
            loop {
                stream.write_all(&[b'a'; 1024]).await.ok()?;
                rid.fetch_add(1024, Ordering::SeqCst);
            }
        }
    };
    stream.write_all(said.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// The next request.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Got> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Got { line, headers, body })
}
