//! Signed urls, served by somebody who hangs up, lies and changes their mind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use euterpe::domain::transcode::{JobSpec, Place};
use euterpe::storage::{Cause, Destination, Doing, StorageError, Transfer};
use futures_util::FutureExt;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::storage::{SMALL, fetch, noise, output, sha256, storage};
use crate::support::hands::{Eye, Hands, credentials, keys, s3, spec, urls};
use crate::support::receiver::Got;
use crate::support::requester;
use crate::support::shelf::{Says, Shelf, answer};

const SIZE: usize = 100_000;

fn signed() -> JobSpec {
    spec("", Place::Signed { origin: "http://127.0.0.1".into() }, None)
}

/// Where a request wants to begin.
fn from(got: &Got) -> usize {
    let range = got.headers.iter().find(|(name, _)| name == "range");
    range.map_or(0, |(_, value)| value.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap())
}

/// The source from where it was asked for, cut off after `most` bytes.
fn serve(got: &Got, etag: &str, most: usize) -> Vec<u8> {
    let (source, from) = (noise(SIZE), from(got));
    let rest = &source[from..];
    let sent = &rest[..most.min(rest.len())];
    let length = format!("content-length: {}\n{etag}", rest.len());
    if from == 0 {
        return answer(200, &length, sent);
    }
    answer(206, &format!("content-range: bytes {from}-{}/{SIZE}\n{length}", SIZE - 1), sent)
}

async fn read(shelf: &Shelf, transfer: Transfer) -> Result<Vec<u8>, StorageError> {
    let hands = Hands::with(urls(Some(&shelf.url("in.mov")), None));
    fetch(&storage(transfer, vec![]), &signed(), &hands).await
}

#[tokio::test]
async fn a_transfer_that_breaks_is_taken_up_where_it_broke() {
    let shelf = Shelf::start(|_, got| Says::This(serve(got, "etag: \"one\"", 40_000))).await;
    assert!(read(&shelf, SMALL).await.unwrap() == noise(SIZE));
    let ranges = [None, Some("bytes=40000-".to_owned()), Some("bytes=80000-".to_owned())];
    assert_eq!(shelf.ranges(), ranges);
    for got in &shelf.got()[1..] {
        assert_eq!(got.header("if-match"), "\"one\"");
    }
    assert!(shelf.got()[0].headers.iter().all(|(name, _)| name != "if-match"));
    assert_eq!(shelf.got()[0].header("accept-encoding"), "identity");
}

/// The same for an object in S3; each request is signed anew.
#[tokio::test]
async fn an_object_is_taken_up_where_it_broke_too() {
    let shelf = Shelf::start(|_, got| Says::This(serve(got, "etag: \"one\"", 60_000))).await;
    let spec = spec(&format!("http://{}", shelf.address), s3("media", "in/clip.mov"), None);
    let hands = Hands::with(keys(credentials("AKID", "secret", Some("token"))));
    assert!(fetch(&storage(SMALL, vec![]), &spec, &hands).await.unwrap() == noise(SIZE));
    assert_eq!(shelf.ranges(), [None, Some("bytes=60000-".to_owned())]);
    let got = shelf.got();
    assert_eq!(got[1].header("if-match"), "\"one\"");
    for got in got {
        assert!(got.line.starts_with("GET /media/in/clip.mov "), "{}", got.line);
        assert_eq!(got.header("x-amz-security-token"), "token");
        assert!(got.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
    }
}

/// Nothing says that it is still the same: two halves of two things would make a third.
#[tokio::test]
async fn without_a_strong_etag_it_begins_again() {
    for etag in ["", "etag: W/\"one\""] {
        let says = move |n, got: &Got| Says::This(serve(got, etag, if n == 0 { 40_000 } else { SIZE }));
        let shelf = Shelf::start(says).await;
        assert!(read(&shelf, SMALL).await.unwrap() == noise(SIZE));
        assert_eq!(shelf.ranges(), [None, None]);
    }
}

#[tokio::test]
async fn a_source_that_changes_while_it_is_read_is_never_mixed() {
    let other = |n, got: &Got| match n {
        0 => Says::This(serve(got, "etag: \"one\"", 40_000)),
        _ => Says::This(serve(got, "etag: \"two\"", SIZE)),
    };
    let refused = |n, got: &Got| match n {
        0 => Says::This(serve(got, "etag: \"one\"", 40_000)),
        _ => Says::This(answer(412, "content-length: 0", b"")),
    };
    for shelf in [Shelf::start(other).await, Shelf::start(refused).await] {
        let error = read(&shelf, SMALL).await.unwrap_err();
        assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Changed, "source_changed"));
        assert_eq!(shelf.got().len(), 2);
    }
}

/// A server that knows no ranges sends all of it once more; one that has less begins anew, once.
#[tokio::test]
async fn whoever_cannot_go_on_begins_again() {
    let whole = |n, _: &Got| {
        let most = if n == 0 { 40_000 } else { SIZE };
        let headers = format!("content-length: {SIZE}\netag: \"one\"");
        Says::This(answer(200, &headers, &noise(SIZE)[..most]))
    };
    let shelf = Shelf::start(whole).await;
    assert!(read(&shelf, SMALL).await.unwrap() == noise(SIZE));

    let none = |n, got: &Got| match (n, from(got)) {
        (0, _) => Says::This(serve(got, "etag: \"one\"", 40_000)),
        (_, 0) => Says::This(answer(200, "content-length: 4\netag: \"two\"", b"less")),
        _ => Says::This(answer(416, "content-length: 0", b"")),
    };
    let shelf = Shelf::start(none).await;
    assert_eq!(read(&shelf, SMALL).await.unwrap(), b"less");
    let shelf = Shelf::start(|_, _| Says::This(answer(416, "content-length: 0", b""))).await;
    assert_eq!(read(&shelf, SMALL).await.unwrap_err().cause, Cause::Changed);
    assert_eq!(shelf.got().len(), 2, "once");
}

#[tokio::test]
async fn a_source_that_always_ends_early_is_truncated() {
    // It announces more than it has, whatever it is asked for.
    let lies = |_, got: &Got| {
        let source = &noise(SIZE)[..1000];
        let from = from(got);
        if from == 0 {
            return Says::This(answer(200, "content-length: 2000\netag: \"one\"", source));
        }
        let headers = "content-range: bytes 1000-1999/2000\ncontent-length: 1000\netag: \"one\"";
        Says::This(answer(206, headers, b""))
    };
    let shelf = Shelf::start(lies).await;
    let error = read(&shelf, Transfer { tries: 3, ..SMALL }).await.unwrap_err();
    assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Truncated, "source_truncated"));
    assert_eq!(shelf.ranges()[1..], [Some("bytes=1000-".to_owned()), Some("bytes=1000-".to_owned())]);
}

#[tokio::test]
async fn silence_ends_a_transfer_in_the_head_and_in_the_middle() {
    let impatient = Transfer { idle: Duration::from_millis(300), tries: 2, ..SMALL };
    let shelf = Shelf::start(|_, got| Says::ThenHangs(serve(got, "etag: \"one\"", 0))).await;
    for shelf in [shelf, Shelf::start(|_, _| Says::ThenHangs(vec![])).await] {
        let reading = tokio::time::timeout(Duration::from_secs(30), read(&shelf, impatient));
        let error = reading.await.expect("it is given up").unwrap_err();
        assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Timeout, "storage_timeout"));
        assert_eq!(shelf.got().len(), 2, "tried twice");
    }
    // Half of it, and silence; then the other half.
    let half = |n, got: &Got| match n {
        0 => Says::ThenHangs(serve(got, "etag: \"one\"", 50_000)),
        _ => Says::This(serve(got, "etag: \"one\"", SIZE)),
    };
    let shelf = Shelf::start(half).await;
    assert!(read(&shelf, impatient).await.unwrap() == noise(SIZE));
    assert_eq!(shelf.ranges(), [None, Some("bytes=50000-".to_owned())]);
}

#[tokio::test]
async fn a_source_of_unknown_length_is_bounded_while_it_arrives() {
    let says = |_, _: &Got| Says::This(answer(200, "connection: close", &noise(SIZE)));
    let shelf = Shelf::start(says).await;
    let hands = Hands::with(urls(Some(&shelf.url("in.mov")), None));
    let (dir, eye, acme) = (TempDir::new().unwrap(), Eye::default(), requester("acme"));
    let (storage, spec) = (storage(SMALL, vec![]), signed());
    let job = storage.of(&spec, &acme, &hands);
    let error = job.fetch(&dir.path().join("a"), 99_999, &eye).await.unwrap_err();
    assert_eq!((error.cause, eye.expected.lock().unwrap().clone()), (Cause::TooLarge, vec![None]));
    assert!(eye.has.load(Ordering::SeqCst) <= 99_999);
    let fetched = job.fetch(&dir.path().join("b"), 100_000, &eye).await.unwrap();
    assert_eq!(fetched.sha256, sha256(&noise(SIZE)));
}

/// Stores disagree about how to say that a url has expired.
#[tokio::test]
async fn an_expired_url_asks_for_a_new_one_and_the_new_one_is_used() {
    let old = |status: u16, body: &'static str| {
        move |_: usize, got: &Got| {
            if got.line.contains("/new.mov") {
                return Says::This(serve(got, "etag: \"one\"", SIZE));
            }
            Says::This(answer(status, &format!("content-length: {}", body.len()), body.as_bytes()))
        }
    };
    for (status, body) in [
        (403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"),
        (403, ""),
        (400, "<Error><Code>AccessDenied</Code></Error>"),
        (400, "<Error><Code>InvalidRequest</Code><Message>Date is too old</Message></Error>"),
        (401, ""),
    ] {
        let shelf = Shelf::start(old(status, body)).await;
        let fresh = shelf.url("new.mov");
        let hands = Hands::renewing(urls(Some(&shelf.url("old.mov")), None), move || {
            std::future::ready(Some(urls(Some(&fresh), None))).boxed()
        });
        let storage = storage(SMALL, vec![]);
        assert!(fetch(&storage, &signed(), &hands).await.unwrap() == noise(SIZE), "{status} {body}");
        assert_eq!(hands.renewals(), 1);
        let error = hands.refused.lock().unwrap()[0].1.clone();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
    // Nor is there one at all.
    let hands = Hands::with(urls(None, None));
    assert_eq!(fetch(&storage(SMALL, vec![]), &signed(), &hands).await.unwrap_err().cause, Cause::Auth);
}

#[tokio::test]
async fn an_upload_says_its_length_and_is_sent_again_whole() {
    let says = |n, _: &Got| match n {
        0 => Says::This(answer(503, "content-length: 0", b"")),
        _ => Says::This(answer(200, "content-length: 0", b"")),
    };
    let shelf = Shelf::start(says).await;
    let bytes = noise(3_000_000);
    let (_dir, file) = output(&bytes);
    let hands = Hands::with(urls(None, Some(&shelf.url("movie.mp4"))));
    let (storage, spec, acme) = (storage(SMALL, vec![]), signed(), requester("acme"));
    let job = storage.of(&spec, &acme, &hands);
    let to = Destination::Upload("movie");
    let published = job.publish(&file, &to, "video/mp4", &|_| {}).await.unwrap();
    assert_eq!(published.uri, format!("http://{}", shelf.address), "the origin and no more");
    assert_eq!((published.size_bytes, published.sha256), (3_000_000, sha256(&bytes)));
    assert_eq!(shelf.got().len(), 2);
    for got in shelf.got() {
        assert_eq!((got.header("content-length"), got.header("content-type")), ("3000000", "video/mp4"));
        assert!(got.body == bytes && got.line.starts_with("PUT /movie.mp4?X-Amz-Signature="));
        assert!(got.headers.iter().all(|(name, _)| name != "transfer-encoding"));
    }
    // And not at all when the job is somebody else's.
    hands.ours_for.store(0, Ordering::SeqCst);
    assert_eq!(job.publish(&file, &to, "video/mp4", &|_| {}).await.unwrap_err().cause, Cause::NotOurs);
    let nobody = Destination::Upload("thumbs");
    hands.ours_for.store(9, Ordering::SeqCst);
    assert_eq!(job.publish(&file, &nobody, "image/jpeg", &|_| {}).await.unwrap_err().cause, Cause::Auth);
    assert_eq!(shelf.got().len(), 2);
}

/// Whoever refuses a large upload may not read it, and hangs up on what is still coming.
#[tokio::test]
async fn a_refusal_is_heard_although_the_upload_was_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/movie.mp4", listener.local_addr().unwrap());
    let _server = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 512]).await;
            let _ = stream.write_all(&answer(403, "content-length: 0", b"")).await;
        }
    }));
    let hands = Hands::with(urls(None, Some(&url)));
    let (storage, spec, acme) = (storage(SMALL, vec![]), signed(), requester("acme"));
    let (_dir, file) = output(&noise(12 << 20));
    for _ in 0..4 {
        let job = storage.of(&spec, &acme, &hands);
        let error =
            job.publish(&file, &Destination::Upload("movie"), "video/mp4", &|_| {}).await.unwrap_err();
        assert_eq!((error.cause, error.http_status), (Cause::Auth, Some(403)), "{error}");
    }
    assert_eq!(hands.renewals(), 4, "heard at once, each time");
}
