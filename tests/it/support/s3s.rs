//! An S3 server in this process (s3s): signatures are checked for real, and it can be told to answer the next requests of
//! an operation with an exact error.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use euterpe::domain::transcode::Credentials;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::host::SingleDomain;
use s3s::service::S3ServiceBuilder;
use s3s::{S3Error, S3ErrorCode, S3Result};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::hands::credentials;

pub const ID: &str = "AKIDS3S";
pub const SECRET: &str = "a-secret-key-for-s3s";
pub const BUCKET: &str = "media";

/// What one request is answered instead.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    pub retry_after: Option<u32>,
}

pub fn refusal(status: u16, code: &'static str) -> Refusal {
    Refusal { status, code, retry_after: None }
}

#[derive(Default)]
struct Book {
    refusals: Mutex<Vec<(&'static str, VecDeque<Refusal>)>>,
    asked: Mutex<Vec<String>>,
    now: AtomicUsize,
    peak: AtomicUsize,
}

/// A running server; gone when dropped.
pub struct S3 {
    pub endpoint: String,
    dir: TempDir,
    book: Arc<Book>,
    _task: AbortOnDropHandle<()>,
}

impl S3 {
    pub async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join(BUCKET)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Book::default());
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(ID, SECRET));
        builder.set_access(Gate(Arc::clone(&book)));
        builder.set_host(SingleDomain::new(&format!("s3.example:{}", address.port())).unwrap());
        let (service, counts) = (builder.build(), Arc::clone(&book));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (service, counts) = (service.clone(), Arc::clone(&counts));
                let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let (service, counts) = (service.clone(), Arc::clone(&counts));
                    async move {
                        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
                        counts.peak.fetch_max(now, Ordering::SeqCst);
                        let answer = service.call(request.map(s3s::Body::from)).await.unwrap();
                        counts.now.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(answer)
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        let endpoint = format!("http://{address}");
        Self { endpoint, dir, book, _task: AbortOnDropHandle::new(task) }
    }

    pub fn credentials() -> Credentials {
        credentials(ID, SECRET, None)
    }

    /// The next requests of `operation` are answered with these, one each.
    pub fn refuse(&self, operation: &'static str, refusals: impl IntoIterator<Item = Refusal>) {
        self.book.refusals.lock().unwrap().push((operation, refusals.into_iter().collect()));
    }

    /// How often `operation` was asked.
    pub fn asked(&self, operation: &str) -> usize {
        self.book.asked.lock().unwrap().iter().filter(|asked| *asked == operation).count()
    }

    /// The most requests that were there at once.
    pub fn peak(&self) -> usize {
        self.book.peak.load(Ordering::SeqCst)
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.dir.path().join(BUCKET).join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        std::fs::read(self.dir.path().join(BUCKET).join(key)).ok()
    }

    /// What unfinished uploads have left.
    pub fn parts(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("upload")).collect()
    }

    /// Polls until `operation` was asked `count` times.
    pub async fn until_asked(&self, operation: &str, count: usize) {
        for _ in 0..6000 {
            if self.asked(operation) >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{operation} was asked {} times of {count}", self.asked(operation));
    }
}

struct Gate(Arc<Book>);

impl S3Access for Gate {
    fn check<'a, 'b, 'c, 'd>(
        &'a self,
        cx: &'b mut S3AccessContext<'c>,
    ) -> Pin<Box<dyn Future<Output = S3Result<()>> + Send + 'd>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        let name = cx.s3_op().name();
        self.0.asked.lock().unwrap().push(name.to_owned());
        let mut refusals = self.0.refusals.lock().unwrap();
        let mut of_this = refusals.iter_mut().filter(|(operation, _)| *operation == name);
        let next = of_this.find_map(|(_, queue)| queue.pop_front());
        let answer = match (next, cx.credentials()) {
            (Some(refusal), _) => Err(error(&refusal)),
            (None, Some(_)) => Ok(()),
            (None, None) => Err(S3Error::new(S3ErrorCode::AccessDenied)),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn error(refusal: &Refusal) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::Custom(refusal.code.into()));
    error.set_message("as told, with the key AKIDS3S");
    error.set_status_code(refusal.status.try_into().unwrap());
    if let Some(seconds) = refusal.retry_after {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, seconds.into());
        error.set_headers(headers);
    }
    error
}
