//! Contract §6: two servers behind one another must not disagree about where a request ends. What can be read in two
//! ways is answered 400, its connection is closed, and nothing behind it is read as a request; everything else is
//! served as before, one request after the other, however the network cuts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use euterpe::face::serve::{Limits, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::TestDb;
use crate::support::api::{Api, request};
use crate::support::raw::Raw;

const HOST: &str = "Host: euterpe\r\n";
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: euterpe\r\n\r\n";

/// Serves by the same function as `euterpe-api`: `/` says what body it got, `/hidden` counts.
struct Server {
    address: std::net::SocketAddr,
    found: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let found = Arc::new(AtomicUsize::new(0));
        let hidden = {
            let found = Arc::clone(&found);
            move || std::future::ready(found.fetch_add(1, Ordering::SeqCst).to_string())
        };
        let echo = |body: Bytes| std::future::ready(body);
        let router = Router::new().route("/", post(echo).get(echo)).route("/hidden", get(hidden));
        let limits = Limits { connections_per_ip: 1024, ..Limits::default() };
        tokio::spawn(serve(listener, router, limits, stop.clone()));
        Self { address, found, _stop: stop.drop_guard() }
    }

    /// `bytes` in two parts, each a packet of its own.
    async fn hears(&self, bytes: &[u8], split: usize) -> Raw {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Raw::over(stream);
        let (first, second) = bytes.split_at(split);
        client.send(first).await;
        tokio::task::yield_now().await;
        client.send(second).await;
        client
    }

    fn found(&self) -> usize {
        self.found.load(Ordering::SeqCst)
    }
}

fn post_with(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\n{HOST}{headers}\r\n{body}")
}

/// Every head here is one that some server takes for a request with `HIDDEN`, or a part of it, as its body.
fn ambiguous() -> Vec<String> {
    let covers = format!("Content-Length: {}\r\n", 5 + HIDDEN.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    vec![
        post_with(&format!("{covers}{chunked}"), "0\r\n\r\n"),
        post_with(&format!("{chunked}{covers}"), "0\r\n\r\n"),
        post_with(&format!("{chunked}X: y\r\ncontent-length: 0\r\n"), "0\r\n\r\n"),
        post_with(&format!("Content-Length: 0\r\n{covers}"), ""),
        post_with(&format!("{covers}Content-Length: 0\r\n"), ""),
        post_with("Content-Length: 0\r\nContent-Length: 0\r\n", ""),
        post_with("Content-Length: 0, 0\r\n", ""),
        post_with("Content-Length: +0\r\n", ""),
        post_with("Content-Length:\r\n", ""),
        post_with(&format!("{chunked}{chunked}"), "0\r\n\r\n"),
        post_with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        post_with("Transfer-Encoding: identity\r\n", ""),
        post_with("Transfer-Encoding: chunked, identity\r\n", ""),
        post_with(&format!("X: y\n{covers}"), ""),
        post_with(&format!("X: y\r{covers}"), ""),
        post_with(&format!("X: y\r\n {covers}"), ""),
        post_with(&format!("X: y\r\n\t{covers}"), ""),
        format!("POST / HTTP/1.1\r\n {HOST}\r\n"),
        format!("GET / HTTP/1.1\n{HOST}\r\n"),
        format!("GET / HTTP/1.1\r\n{HOST}\n"),
        format!("GET / HTTP/1.1\nHost: euterpe\n\n"),
        format!("\nGET / HTTP/1.1\r\n{HOST}\r\n"),
        format!("POST / HTTP/1.0\r\n{HOST}{chunked}\r\n0\r\n\r\n"),
    ]
}

/// The body is under way when it turns out to have no clear end: whoever reads it says 400.
fn ambiguous_chunks() -> Vec<String> {
    let chunked = |body: &str| post_with("Transfer-Encoding: chunked\r\n", body);
    vec![
        chunked("x\r\n"),
        chunked("0x1\r\na\r\n0\r\n\r\n"),
        chunked("1 \r\na\r\n0\r\n\r\n"),
        chunked("1\na\r\n0\r\n\r\n"),
        chunked("1;a\nb\r\na\r\n0\r\n\r\n"),
        chunked("1\r\nab\r\n0\r\n\r\n"),
        chunked("1\r\na\n0\r\n\r\n"),
        chunked("0\n\n"),
        chunked("0\r\n\n"),
        chunked("0\r\nX: y\n\r\n"),
        chunked("0\r\nX: y\r\n z\r\n\r\n"),
        chunked("10000000000000000\r\n"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_read_in_two_ways_is_a_400_and_the_end_wherever_it_is_cut() {
    let server = Server::start().await;
    for bytes in ambiguous().into_iter().chain(ambiguous_chunks()) {
        let sent = format!("{bytes}{HIDDEN}");
        for split in 0..=bytes.len() {
            let mut client = server.hears(sent.as_bytes(), split).await;
            let answer = client.answer().await.unwrap_or_else(|| panic!("{split} of {bytes:?}: closed"));
            assert_eq!(answer.status, 400, "{split} of {bytes:?}");
            assert_eq!(client.until_closed().await, 0, "{split} of {bytes:?}");
        }
    }
    assert_eq!(server.found(), 0, "somebody's body was a request");
}

/// A good request before it is answered, a good one after it is not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_before_is_answered_and_what_comes_behind_is_not() {
    let server = Server::start().await;
    for good in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), post_with("Content-Length: 3\r\n", "\n\r\n")]
    {
        for bytes in ambiguous().into_iter().chain(ambiguous_chunks()) {
            let mut client = server.hears(format!("{good}{bytes}{HIDDEN}").as_bytes(), 0).await;
            assert_eq!(client.answer().await.unwrap().status, 200, "{bytes:?}");
            assert_eq!(client.answer().await.unwrap().status, 400, "{bytes:?}");
            assert_eq!(client.until_closed().await, 0, "{bytes:?}");
        }
    }
    assert_eq!(server.found(), 0);
}

/// All on one connection and sent at once: bodies by length and by chunks, none, one that looks like a request, empty
/// lines between. Cut anywhere, each is answered with the body that was its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_requests_go_on_one_after_the_other() {
    let server = Server::start().await;
    let length = |body: &str| post_with(&format!("Content-Length: {}\r\n", body.len()), body);
    let chunked = |body: &str| post_with("Transfer-Encoding: chunked\r\n", body);
    let requests = [
        (format!("GET / HTTP/1.1\r\n{HOST}\r\n"), ""),
        (length("a\nb\n\n c"), "a\nb\n\n c"),
        (length(""), ""),
        (length(HIDDEN), HIDDEN),
        (chunked("0\r\n\r\n"), ""),
        (chunked("2\r\na\n\r\n00B;x=\"y\"\r\n\r\n\r\n0\r\n\r\nbc\r\n0\r\n\r\n"), "a\n\r\n\r\n0\r\n\r\nbc"),
        (chunked("1\r\na\r\n0\r\nX: y\r\nContent-Length: 40\r\n\r\n"), "a"),
        (format!("\r\n\r\nGET / HTTP/1.1\r\n{HOST}Content-Length:  3\t\r\n\r\nabc"), "abc"),
        (format!("POST / HTTP/1.1\r\n{HOST}TRANSFER-ENCODING: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"), "a"),
    ];
    let sent: String = requests.iter().map(|(bytes, _)| bytes.as_str()).collect();
    for split in 0..=sent.len() {
        let mut client = server.hears(sent.as_bytes(), split).await;
        for (bytes, body) in &requests {
            let answer = client.answer().await.unwrap_or_else(|| panic!("{split}: {bytes:?}: closed"));
            let got = String::from_utf8_lossy(&answer.body);
            assert_eq!((answer.status, &*got), (200, *body), "{split}: {bytes:?}");
        }
    }
    assert_eq!(server.found(), 0);
}

/// The real one, with what it counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn euterpe_api_refuses_and_counts_them() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let body = request().to_string();
    let post = |more: &str, body: &str| {
        let key = &api.key;
        format!(
            "POST /transcode HTTP/1.1\r\n{HOST}Authorization: Bearer {key}\r\n\
             Content-Type: application/json\r\n{more}\r\n{body}"
        )
    };
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let length = format!("Content-Length: {}\r\n", body.len());
    let mut client = Raw::to(&api).await;
    for bytes in [post(&length, &body), post("Transfer-Encoding: chunked\r\n", &chunks)] {
        client.send(bytes).await;
        assert_eq!(client.answer().await.unwrap().status, 202);
    }
    for (bytes, reason) in [
        (post(&format!("{length}Transfer-Encoding: chunked\r\n"), &chunks), "length_and_encoding"),
        (post(&format!("{length}{length}"), &body), "length"),
        (post("Transfer-Encoding: gzip, chunked\r\n", &chunks), "encoding"),
        (post(&format!("X: y\n{length}"), &body), "line_end"),
        (post(&format!("X: y\r\n z\r\n{length}"), &body), "folded_header"),
        (post("Transfer-Encoding: chunked\r\n", &chunks.replace("0\r\n\r\n", "\r\n")), "chunk"),
    ] {
        let mut client = Raw::to(&api).await;
        client.send(bytes).await;
        assert_eq!(client.answer().await.unwrap().status, 400, "{reason}");
        assert_eq!(client.until_closed().await, 0, "{reason}");
        let numbers =
            reqwest::get(format!("{}/metrics", api.metrics_url)).await.unwrap().text().await.unwrap();
        assert!(
            numbers.contains(&format!("euterpe_http_refused_total{{reason=\"{reason}\"}} 1")),
            "{numbers}"
        );
    }
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 2);
}
