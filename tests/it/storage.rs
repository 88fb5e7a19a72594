//! Design §5.18, contract §5 and §7: what a store answers, and what becomes of it. Against an S3 server in this process
//! that can be told what to say; signatures are checked for real.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use euterpe::domain::transcode::JobSpec;
use euterpe::egress::{Egress, Limits, System};
use euterpe::storage::{ANSWERS, Cause, Destination, Doing, Published, Storage, StorageError, Transfer};
use futures_util::FutureExt;
use rustls::RootCertStore;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::egress::{Names, lax};
use crate::support::hands::{Eye, Hands, credentials, keys, s3, spec};
use crate::support::receiver::Got;
use crate::support::requester;
use crate::support::s3s::{BUCKET, Refusal, S3, refusal};
use crate::support::shelf::{Says, Shelf, answer};

/// Small parts, so that small files have many.
pub const SMALL: Transfer = Transfer {
    part_bytes: 5 * 1024 * 1024,
    parts_at_once: 3,
    single_put_bytes: 6 * 1024 * 1024,
    idle: Duration::from_secs(5),
    tries: 4,
};

pub fn storage(transfer: Transfer, roots: Vec<PathBuf>) -> Storage {
    let egress =
        Egress::with(lax(&["127.0.0.0/8"]), Limits::default(), Arc::new(System), RootCertStore::empty());
    Storage::new(Arc::new(egress), roots, transfer)
}

/// `count` bytes that differ from place to place.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A directory with the file `out.mp4`.
pub fn output(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("out.mp4");
    std::fs::write(&file, bytes).unwrap();
    (dir, file)
}

/// Fetches the source of `spec` whole.
pub async fn fetch(storage: &Storage, spec: &JobSpec, hands: &Hands) -> Result<Vec<u8>, StorageError> {
    let dir = TempDir::new().unwrap();
    let into = dir.path().join("source");
    let acme = requester("acme");
    let fetched = storage.of(spec, &acme, hands).fetch(&into, 1 << 30, &Eye::default()).await;
    if fetched.is_err() {
        assert!(!into.exists(), "what did not arrive whole is gone");
    }
    let bytes = fetched.map(|fetched| (std::fs::read(&into).unwrap(), fetched))?;
    assert_eq!((bytes.0.len() as u64, sha256(&bytes.0)), (bytes.1.size_bytes, bytes.1.sha256));
    Ok(bytes.0)
}

/// Publishes `bytes` below the outputs of `spec`.
pub async fn publish(
    storage: &Storage,
    spec: &JobSpec,
    hands: &Hands,
    path: &str,
    bytes: &[u8],
) -> Result<Published, StorageError> {
    let (_dir, file) = output(bytes);
    let acme = requester("acme");
    let job = storage.of(spec, &acme, hands);
    job.publish(&file, &Destination::Below(path), "video/mp4", &|_| {}).await
}

fn job(server: &S3) -> (JobSpec, Hands) {
    let spec = spec(&server.endpoint, s3(BUCKET, "in/clip.mov"), Some(s3(BUCKET, "out/")));
    (spec, Hands::with(keys(S3::credentials())))
}

/// Keys as they were, once more: a refresh.
fn refreshed() -> Hands {
    Hands::renewing(keys(S3::credentials()), || std::future::ready(Some(keys(S3::credentials()))).boxed())
}

#[tokio::test]
async fn a_source_comes_and_an_output_goes_small_and_in_parts() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    let source = noise(3_000_001);
    server.put("in/clip.mov", &source);
    assert!(fetch(&storage, &spec, &hands).await.unwrap() == source);

    for (path, size, parts) in
        [("1/empty.mp4", 0, 0), ("1/a b+c%d.mp4", 1_000_000, 0), ("1/big.mp4", 22 << 20, 5)]
    {
        let bytes = noise(size);
        let before = server.asked("UploadPart");
        let published = publish(&storage, &spec, &hands, path, &bytes).await.unwrap();
        let wanted = Published {
            uri: format!("s3://{BUCKET}/out/{path}"),
            size_bytes: size as u64,
            sha256: sha256(&bytes),
        };
        assert_eq!(published, wanted);
        assert!(server.get(&format!("out/{path}")).unwrap() == bytes, "{path}");
        assert_eq!(server.asked("UploadPart") - before, parts, "{path}");
    }
    assert!(hands.worked.load(Ordering::SeqCst) >= 10, "each request that worked was told");
    assert_eq!(server.peak(), 3, "as many parts at once as are allowed, and no more");
}

#[tokio::test]
async fn progress_is_told_and_only_grows() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    let (_dir, file) = output(&noise(12 << 20));
    let told = std::sync::Mutex::new(Vec::new());
    let on_bytes = |so_far| told.lock().unwrap().push(so_far);
    let acme = requester("acme");
    let job = storage.of(&spec, &acme, &hands);
    job.publish(&file, &Destination::Below("1/a.mp4"), "video/mp4", &on_bytes).await.unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.is_sorted() && told.len() >= 3 && *told.last().unwrap() == 12 << 20, "{told:?}");
}

/// Every way in which a store says "not with these keys" leads to newer ones, and the same request again.
#[tokio::test]
async fn refused_keys_are_renewed_and_the_request_goes_on() {
    for (status, code) in [
        (400, "ExpiredToken"),
        (400, "InvalidToken"),
        (400, "TokenRefreshRequired"),
        (401, "Whatever"),
        (403, "InvalidAccessKeyId"),
    ] {
        let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
        let (spec, _) = job(&server);
        server.put("in/clip.mov", b"hello");
        server.refuse("GetObject", [refusal(status, code)]);
        let hands = refreshed();
        assert_eq!(fetch(&storage, &spec, &hands).await.unwrap(), b"hello");
        let refused = hands.refused.lock().unwrap().clone();
        assert_eq!(refused.len(), 1, "{status} {code}");
        let (version, error) = &refused[0];
        assert_eq!((*version, error.cause, error.http_status), (1, Cause::Auth, Some(status)));
        assert_eq!(error.provider_code.as_deref(), Some(code));
    }
}

#[tokio::test]
async fn keys_that_nobody_renews_and_keys_that_never_help_are_the_end() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, _) = job(&server);
    let stranger = || keys(credentials("AKIDS3S", "a-wrong-secret", None));
    let hands = Hands::with(stranger());
    let error = fetch(&storage, &spec, &hands).await.unwrap_err();
    assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Auth, "credential_refresh_exhausted"));
    assert_eq!(error.provider_code.as_deref(), Some("SignatureDoesNotMatch"));
    assert_eq!(hands.renewals(), 1);

    let hands = Hands::renewing(stranger(), move || std::future::ready(Some(stranger())).boxed());
    let error = publish(&storage, &spec, &hands, "1/a.mp4", b"x").await.unwrap_err();
    assert_eq!((error.cause, hands.renewals()), (Cause::Auth, 60), "bounded here too");
    assert_eq!(hands.worked.load(Ordering::SeqCst), 0);
    assert_eq!(server.get("out/1/a.mp4"), None);
}

/// In the middle of an upload the parts that are there stay, and the same upload goes on.
#[tokio::test]
async fn keys_that_expire_in_the_middle_of_an_upload_cost_no_part() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, _) = job(&server);
    server.refuse("UploadPart", [refusal(400, "ExpiredToken")]);
    server.refuse("CompleteMultipartUpload", [refusal(403, "ExpiredToken")]);
    let (hands, bytes) = (refreshed(), noise(22 << 20));
    publish(&storage, &spec, &hands, "1/big.mp4", &bytes).await.unwrap();
    assert!(server.get("out/1/big.mp4").unwrap() == bytes);
    let counts =
        ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"].map(|name| server.asked(name));
    assert_eq!((counts, hands.renewals()), ([1, 6, 2], 2));
}

#[tokio::test]
async fn what_may_pass_is_asked_again_and_then_told_as_it_was() {
    for (status, code, cause, told) in [
        (423, "Locked", Cause::Locked, "storage_locked"),
        (429, "TooManyRequests", Cause::RateLimited, "storage_rate_limited"),
        (503, "SlowDown", Cause::RateLimited, "storage_rate_limited"),
        (500, "InternalError", Cause::Unavailable, "storage_unavailable"),
        (502, "Whatever", Cause::Unavailable, "storage_unavailable"),
        (503, "ServiceUnavailable", Cause::Unavailable, "storage_unavailable"),
        (504, "Whatever", Cause::Unavailable, "storage_unavailable"),
        (400, "RequestTimeout", Cause::Timeout, "storage_timeout"),
    ] {
        let server = S3::start().await;
        let storage = storage(Transfer { tries: 2, ..SMALL }, vec![]);
        let (spec, hands) = job(&server);
        server.put("in/clip.mov", b"hello");
        server.refuse("GetObject", [refusal(status, code)]);
        assert_eq!(fetch(&storage, &spec, &hands).await.unwrap(), b"hello", "{status} {code}");
        server.refuse("PutObject", [refusal(status, code), refusal(status, code)]);
        let error = publish(&storage, &spec, &hands, "1/a.mp4", b"x").await.unwrap_err();
        assert_eq!((error.cause, error.code(Doing::Publish)), (cause, told), "{status} {code}");
        assert_eq!((error.http_status, error.provider_code.as_deref()), (Some(status), Some(code)));
        assert_eq!((server.asked("GetObject"), server.asked("PutObject")), (2, 2), "{status} {code}");
        assert_eq!(hands.renewals(), 0);
    }
}

#[tokio::test]
async fn what_will_not_pass_is_not_asked_again() {
    for (status, code, cause, told) in [
        (404, "NoSuchKey", Cause::NotFound, "source_not_found"),
        (412, "PreconditionFailed", Cause::Changed, "source_changed"),
        (400, "MalformedXML", Cause::Refused, "storage_refused"),
        (403, "InvalidObjectState", Cause::Refused, "storage_refused"),
        (403, "RequestTimeTooSkewed", Cause::Clock, "storage_clock"),
        (301, "PermanentRedirect", Cause::Refused, "storage_refused"),
    ] {
        let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
        let (spec, hands) = job(&server);
        server.put("in/clip.mov", b"hello");
        server.refuse("GetObject", [refusal(status, code)]);
        let error = fetch(&storage, &spec, &hands).await.unwrap_err();
        assert_eq!((error.cause, error.code(Doing::Fetch)), (cause, told), "{status} {code}");
        assert_eq!((server.asked("GetObject"), hands.renewals()), (1, 0), "{status} {code}");
    }
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    assert_eq!(fetch(&storage, &spec, &hands).await.unwrap_err().cause, Cause::NotFound, "nothing is there");
}

#[tokio::test]
async fn retry_after_is_heeded_when_short_and_handed_on_when_long() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    server.put("in/clip.mov", b"hello");
    let wait = |seconds| Refusal { retry_after: Some(seconds), ..refusal(429, "SlowDown") };
    server.refuse("GetObject", [wait(2)]);
    let began = Instant::now();
    fetch(&storage, &spec, &hands).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());

    server.refuse("GetObject", [wait(21)]);
    let error = fetch(&storage, &spec, &hands).await.unwrap_err();
    assert_eq!((error.cause, error.retry_after), (Cause::RateLimited, Some(Duration::from_secs(21))));
    assert_eq!(server.asked("GetObject"), 3, "it was not asked a fourth time");
}

#[tokio::test]
async fn a_job_that_is_no_longer_ours_publishes_nothing() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    hands.ours_for.store(0, Ordering::SeqCst);
    for (path, size) in [("1/a.mp4", 10), ("1/big.mp4", 12 << 20)] {
        let error = publish(&storage, &spec, &hands, path, &noise(size)).await.unwrap_err();
        assert_eq!(error.cause, Cause::NotOurs);
        assert_eq!(server.get(&format!("out/{path}")), None);
    }
    storage.idle().await;
    assert_eq!((server.asked("PutObject"), server.asked("CompleteMultipartUpload")), (0, 0));
    assert_eq!((server.asked("UploadPart"), server.asked("AbortMultipartUpload")), (3, 1));
    assert_eq!(server.parts(), [""; 0], "the parts are gone");

    // Also when it is lost between two tries.
    hands.ours_for.store(1, Ordering::SeqCst);
    server.refuse("PutObject", [refusal(503, "SlowDown")]);
    let error = publish(&storage, &spec, &hands, "1/a.mp4", b"x").await.unwrap_err();
    assert_eq!((error.cause, server.asked("PutObject")), (Cause::NotOurs, 1));
}

/// Wherever an upload is dropped, the store has nothing of it afterwards.
#[tokio::test]
async fn a_dropped_upload_leaves_nothing_behind() {
    for (operation, count) in [("CreateMultipartUpload", 1), ("UploadPart", 1), ("UploadPart", 4)] {
        let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
        let (spec, hands) = job(&server);
        let bytes = noise(30 << 20);
        tokio::select! {
            biased;
            () = server.until_asked(operation, count) => {}
            published = publish(&storage, &spec, &hands, "1/big.mp4", &bytes) => panic!("{published:?}"),
        }
        storage.idle().await;
        assert_eq!(server.asked("AbortMultipartUpload"), 1, "{operation} {count}");
        assert_eq!(server.parts(), [""; 0], "{operation} {count}");
        assert_eq!(server.get("out/1/big.mp4"), None);
    }
}

#[tokio::test]
async fn a_source_that_is_too_large_or_not_as_said_is_refused_before_it_is_read() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (mut spec, hands) = job(&server);
    server.put("in/clip.mov", &noise(5000));
    let (acme, dir) = (requester("acme"), TempDir::new().unwrap());
    let into = dir.path().join("source");
    let eye = Eye::default();
    let error = storage.of(&spec, &acme, &hands).fetch(&into, 4999, &eye).await.unwrap_err();
    assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::TooLarge, "source_too_large"));
    assert_eq!((eye.expected.lock().unwrap().len(), eye.has.load(Ordering::SeqCst)), (0, 0));

    eye.is_full.store(true, Ordering::SeqCst);
    let error = storage.of(&spec, &acme, &hands).fetch(&into, 5000, &eye).await.unwrap_err();
    assert_eq!((error.cause, eye.has.load(Ordering::SeqCst)), (Cause::NoRoom, 0));
    assert_eq!(*eye.expected.lock().unwrap(), [Some(5000)]);

    spec.source.size_bytes = Some(4999);
    let error = fetch(&storage, &spec, &hands).await.unwrap_err();
    assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Checksum, "source_checksum_mismatch"));
    spec.source.size_bytes = Some(5000);
    spec.source.sha256 = Some(sha256(b"something else"));
    assert_eq!(fetch(&storage, &spec, &hands).await.unwrap_err().cause, Cause::Checksum);
    spec.source.sha256 = Some(sha256(&noise(5000)).to_uppercase());
    assert_eq!(fetch(&storage, &spec, &hands).await.unwrap().len(), 5000);
    std::fs::write(&into, "mine").unwrap();
    let error = storage.of(&spec, &acme, &hands).fetch(&into, 5000, &Eye::default()).await.unwrap_err();
    assert_eq!((error.cause, std::fs::read(&into).unwrap()), (Cause::Local, b"mine".to_vec()));
}

/// The bucket in the host's name, and a region: the signature covers both.
#[tokio::test]
async fn buckets_are_found_in_host_names_too() {
    let server = S3::start().await;
    let port = server.endpoint.rsplit_once(':').unwrap().1;
    server.put("in/clip.mov", b"hello");
    let (mut spec, hands) = job(&server);
    spec.storage.region = "eu-central-1".into();
    spec.storage.endpoint = Some(format!("http://s3.example:{port}"));
    for (path_style, host) in [(false, "media.s3.example"), (true, "s3.example")] {
        spec.storage.path_style = path_style;
        let names = Names::default().with(host, &[&["127.0.0.1"]]);
        let egress =
            Egress::with(lax(&["127.0.0.0/8"]), Limits::default(), Arc::new(names), RootCertStore::empty());
        let storage = Storage::new(Arc::new(egress), vec![], SMALL);
        assert_eq!(fetch(&storage, &spec, &hands).await.unwrap(), b"hello", "{host}");
    }
}

/// The upload was made, and the answer was lost: asked again, the store knows no such upload, and the object is there.
#[tokio::test]
async fn an_upload_whose_answer_was_lost_is_found_to_be_there() {
    for (there, cause) in [(12 << 20, None), (4, Some(Cause::Conflict))] {
        let completions = AtomicUsize::new(0);
        let says = move |_, got: &Got| {
            let said = |status, headers: &str, body: &str| {
                answer(status, &format!("{headers}\ncontent-length: {}", body.len()), body.as_bytes())
            };
            let begun =
                "<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>";
            let gone = "<Error><Code>NoSuchUpload</Code></Error>";
            Says::This(match got.line.split(' ').next().unwrap() {
                "POST" if got.line.contains("uploads") => said(200, "x: y", begun),
                "POST" if completions.fetch_add(1, Ordering::SeqCst) == 0 => vec![],
                "PUT" => said(200, "etag: \"part\"", ""),
                "HEAD" => answer(200, &format!("content-length: {there}"), b""),
                _ => said(404, "x: y", gone),
            })
        };
        let shelf = Shelf::start(says).await;
        let storage = storage(SMALL, vec![]);
        let spec = spec(&format!("http://{}", shelf.address), s3(BUCKET, "a"), Some(s3(BUCKET, "out/")));
        let hands = Hands::with(keys(S3::credentials()));
        let published = publish(&storage, &spec, &hands, "a.mp4", &noise(12 << 20)).await;
        assert_eq!(published.err().map(|error| error.cause), cause);
    }
}

/// S3 may begin an answer with 200 and end it with an error.
#[tokio::test]
async fn an_error_that_came_with_200_is_an_error() {
    let body = b"<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code><Message>later</Message></Error>";
    let head = format!("content-length: {}\netag: \"one\"", body.len());
    let shelf = Shelf::start(move |_, _| Says::This(answer(200, &head, body))).await;
    let storage = storage(Transfer { tries: 2, ..SMALL }, vec![]);
    let spec = spec(&format!("http://{}", shelf.address), s3(BUCKET, "a"), Some(s3(BUCKET, "out/")));
    let hands = Hands::with(keys(S3::credentials()));
    let error = publish(&storage, &spec, &hands, "a.mp4", b"x").await.unwrap_err();
    assert_eq!((error.cause, error.http_status), (Cause::RateLimited, Some(200)));
    assert_eq!((shelf.got().len(), hands.worked.load(Ordering::SeqCst)), (2, 0));
}

#[tokio::test]
async fn a_private_endpoint_never_hears_of_us() {
    let server = S3::start().await;
    server.put("in/clip.mov", b"hello");
    let egress = Egress::with(lax(&[]), Limits::default(), Arc::new(System), RootCertStore::empty());
    let strict = Storage::new(Arc::new(egress), vec![], SMALL);
    let (spec, hands) = job(&server);
    let error = fetch(&strict, &spec, &hands).await.unwrap_err();
    assert_eq!((error.cause, error.code(Doing::Fetch)), (Cause::Blocked, "egress_blocked"));
    for size in [1, 12 << 20] {
        let error = publish(&strict, &spec, &hands, "1/a.mp4", &noise(size)).await.unwrap_err();
        assert_eq!(error.cause, Cause::Blocked);
    }
    assert_eq!(server.peak(), 0, "it stayed silent");
    assert!(fetch(&storage(SMALL, vec![]), &spec, &hands).await.is_ok(), "it would have answered");
    assert_eq!(server.peak(), 1);
}

#[tokio::test]
async fn a_path_that_climbs_goes_nowhere() {
    let (server, storage) = (S3::start().await, storage(SMALL, vec![]));
    let (spec, hands) = job(&server);
    for path in
        ["../a.mp4", "1/../../a.mp4", "/a.mp4", "1//a.mp4", "1/./a.mp4", "1/", "", "1\\a.mp4", "1/a\n"]
    {
        let error = publish(&storage, &spec, &hands, path, b"x").await.unwrap_err();
        assert_eq!(error.cause, Cause::Refused, "{path:?}");
    }
    assert_eq!(server.asked("PutObject"), 0);
}

#[tokio::test]
async fn no_error_shows_a_key() {
    let (server, storage) = (S3::start().await, storage(Transfer { tries: 1, ..SMALL }, vec![]));
    let (mut spec, _) = job(&server);
    let marked = || keys(credentials("MARKED-ID", "MARKED-SECRET", Some("MARKED-TOKEN")));
    let mut errors = vec![fetch(&storage, &spec, &Hands::with(marked())).await.unwrap_err()];
    errors.push(publish(&storage, &spec, &Hands::with(marked()), "1/a.mp4", b"x").await.unwrap_err());
    let odd = keys(credentials("MARKED-ID\n", "MARKED-SECRET", Some("MARKED-TOKEN\u{e9}")));
    errors.push(fetch(&storage, &spec, &Hands::with(odd)).await.unwrap_err());
    spec.storage.endpoint = Some("http://127.0.0.1:1".into());
    errors.push(fetch(&storage, &spec, &Hands::with(marked())).await.unwrap_err());
    let causes: Vec<_> = errors.iter().map(|error| error.cause).collect();
    assert_eq!(causes, [Cause::Auth, Cause::Auth, Cause::Auth, Cause::Connection]);
    for error in errors {
        let says = format!("{error} {error:?}");
        assert!(!says.contains("MARKED") && !says.contains("127.0.0.1"), "{says}");
    }
}

/// docs/errors.md shows the table of answers as it is.
#[test]
fn the_page_of_errors_shows_what_storage_answers() {
    let list = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let wanted: Vec<String> = ANSWERS
        .iter()
        .map(|row| {
            let (from, to) = (*row.status.start(), *row.status.end());
            let status = match (from, to) {
                (100, 599) => "any".to_owned(),
                (from, to) if from == to => from.to_string(),
                (from, to) => format!("{from}–{to}"),
            };
            let codes = if row.codes.is_empty() { "any".to_owned() } else { list(row.codes) };
            let codes = match row.says {
                [] => codes,
                says => format!("{codes}, saying {}", list(says)),
            };
            let (fetch, publish) = (row.cause.code(Doing::Fetch), row.cause.code(Doing::Publish));
            format!("| {status} | {codes} | {:?} | `{fetch}` | `{publish}` |", row.cause)
        })
        .collect();
    let page = std::fs::read_to_string("docs/errors.md").unwrap();
    let (_, section) = page.split_once("## What storage answers").expect("the section is there");
    let shown: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(shown, wanted, "the table should have these rows:\n{}", wanted.join("\n"));
}

/// A worker's task is spawned: what it awaits must be able to move.
#[test]
fn transfers_can_move_between_threads() {
    fn is_send<T: Send>(_: impl FnOnce() -> T) {}
    is_send(|| async {
        let storage = storage(SMALL, vec![]);
        let (spec, acme) = (spec("", s3("a", "b"), None), requester("acme"));
        let hands = Hands::with(keys(S3::credentials()));
        let (job, eye) = (storage.of(&spec, &acme, &hands), Eye::default());
        let _ = job.fetch("x".as_ref(), 1, &eye).await;
        let _ = job.publish("x".as_ref(), &Destination::Upload("a"), "", &|_| {}).await;
    });
}
