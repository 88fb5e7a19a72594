//! Contract §7 against a real server: credentials that live eight seconds and open one prefix, signed urls that expire.

use std::time::{Duration, Instant};

use euterpe::domain::transcode::{JobSpec, Place};
use euterpe::storage::{Cause, Destination, Doing, StorageError};
use futures_util::FutureExt;
use reqwest::Method;

use crate::storage::{SMALL, fetch, noise, output, publish, sha256, storage};
use crate::support::hands::{Hands, keys, s3, spec, urls};
use crate::support::requester;
use crate::support::seaweed::{BUCKET, Seaweed};

/// Short-lived credentials, replaced by fresh ones when they are refused.
async fn short_lived(server: &'static Seaweed) -> Hands {
    Hands::renewing(keys(server.assume_role().await), || {
        async { Some(keys(Seaweed::shared().await.assume_role().await)) }.boxed()
    })
}

fn job(server: &Seaweed, source: &str, prefix: &str) -> JobSpec {
    spec(&server.endpoint, s3(BUCKET, source), Some(s3(BUCKET, prefix)))
}

/// Waits until the keys of `hands` are dead.
async fn until_expired(began: Instant, server: &Seaweed, hands: &Hands) {
    let spec = job(server, "ready", Seaweed::WRITABLE);
    let still = Hands::with((*euterpe::storage::Access::keys(hands).secret).clone());
    while fetch(&storage(SMALL, vec![]), &spec, &still).await.is_ok() {
        assert!(began.elapsed() < Seaweed::LIFE * 4, "they never expire");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn forty_megabytes_go_and_come_back() {
    let server = Seaweed::shared().await;
    let (storage, hands) = (storage(SMALL, vec![]), short_lived(server).await);
    let bytes = noise(40 << 20);
    let spec = job(server, "out/job1/round/big.mp4", "out/job1/round/");
    let published = publish(&storage, &spec, &hands, "big.mp4", &bytes).await.unwrap();
    assert_eq!(published.uri, format!("s3://{BUCKET}/out/job1/round/big.mp4"));
    assert_eq!((published.size_bytes, published.sha256), (40 << 20, sha256(&bytes)));
    publish(&storage, &spec, &hands, "small ü.mp4", b"small").await.unwrap();
    assert_eq!(server.get("out/job1/round/small ü.mp4").await.unwrap(), b"small");
    assert!(fetch(&storage, &spec, &Hands::with(keys(Seaweed::admin()))).await.unwrap() == bytes);
    assert_eq!(server.uploads("out/job1/round/").await, [""; 0]);
}

/// They die between two parts: the same upload goes on with new ones.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_really_expire_in_the_middle_of_an_upload_are_replaced() {
    let server = Seaweed::shared().await;
    let storage = storage(euterpe::storage::Transfer { parts_at_once: 1, ..SMALL }, vec![]);
    let (began, hands) = (Instant::now(), short_lived(server).await);
    let spec = job(server, "ready", "out/job1/expiring/");
    let bytes = noise(22 << 20);
    let (_dir, file) = output(&bytes);
    let acme = requester("acme");
    // After the first part the upload waits until its keys are dead.
    let runtime = tokio::runtime::Handle::current();
    let wait_once = std::sync::Once::new();
    let on_bytes = |_| {
        wait_once.call_once(|| {
            tokio::task::block_in_place(|| runtime.block_on(until_expired(began, server, &hands)));
        });
    };
    let job = storage.of(&spec, &acme, &hands);
    let job = job.publish(&file, &Destination::Below("big.mp4"), "video/mp4", &on_bytes);
    job.await.unwrap();
    assert!(server.get("out/job1/expiring/big.mp4").await.unwrap() == bytes);
    assert!(hands.renewals() >= 1);
    assert_eq!(hands.refused.lock().unwrap()[0].1.cause, Cause::Auth);
}

#[tokio::test]
async fn writing_outside_the_granted_prefix_is_refused_with_every_key() {
    let server = Seaweed::shared().await;
    let (storage, hands) = (storage(SMALL, vec![]), short_lived(server).await);
    for size in [10, 12 << 20] {
        let before = hands.renewals();
        let spec = job(server, "ready", "out/job2/");
        let error = publish(&storage, &spec, &hands, "a.mp4", &noise(size)).await.unwrap_err();
        assert_eq!((error.cause, error.http_status), (Cause::Auth, Some(403)), "{error:?}");
        assert_eq!(hands.renewals() - before, 60, "each time");
        assert_eq!(server.get("out/job2/a.mp4").await, None);
    }
}

#[tokio::test]
async fn a_dropped_upload_is_gone_from_the_servers_list() {
    let server = Seaweed::shared().await;
    let (storage, hands) = (storage(SMALL, vec![]), short_lived(server).await);
    let spec = job(server, "ready", "out/job1/dropped/");
    let (bytes, seen) = (noise(30 << 20), tokio::sync::Notify::new());
    let (_dir, file) = output(&bytes);
    let acme = requester("acme");
    let job = storage.of(&spec, &acme, &hands);
    let on_bytes = |_| seen.notify_one();
    tokio::select! {
        () = seen.notified() => {}
        published = job.publish(&file, &Destination::Below("big.mp4"), "video/mp4", &on_bytes) => panic!("{published:?}"),
    }
    assert_eq!(server.uploads("out/job1/dropped/").await.len(), 1, "it was there");
    storage.idle().await;
    assert_eq!(server.uploads("out/job1/dropped/").await, [""; 0]);
    assert_eq!(server.get("out/job1/dropped/big.mp4").await, None);
}

#[tokio::test]
async fn signed_urls_of_a_real_server_work_and_expire() {
    let server = Seaweed::shared().await;
    let storage = storage(SMALL, vec![]);
    server.put("in/signed.mov", &noise(1 << 20)).await;
    let minute = Duration::from_secs(60);
    let source = server.signed(Method::GET, "in/signed.mov", minute).await;
    let upload = server.signed(Method::PUT, "out/signed/movie.mp4", minute).await;
    let spec = spec("", Place::Signed { origin: server.endpoint.clone() }, None);
    let hands = Hands::with(urls(Some(&source), Some(&upload)));
    assert!(fetch(&storage, &spec, &hands).await.unwrap() == noise(1 << 20));
    let (bytes, acme) = (noise(9 << 20), requester("acme"));
    let (_dir, file) = output(&bytes);
    let job = storage.of(&spec, &acme, &hands);
    let published = job.publish(&file, &Destination::Upload("movie"), "video/mp4", &|_| {}).await.unwrap();
    assert_eq!((published.uri.as_str(), published.sha256), (server.endpoint.as_str(), sha256(&bytes)));
    assert!(server.get("out/signed/movie.mp4").await.unwrap() == bytes);

    // One second, and then somebody must bring a new one.
    let short = server.signed(Method::GET, "in/signed.mov", Duration::from_secs(1)).await;
    let expired = || {
        let hands = Hands::with(urls(Some(&short), None));
        let (storage, spec) = (&storage, &spec);
        async move { fetch(storage, spec, &hands).await }
    };
    let began = Instant::now();
    let error: StorageError = loop {
        match expired().await {
            Err(error) => break error,
            Ok(_) => assert!(began.elapsed() < minute, "it never expires"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((error.cause, error.http_status), (Cause::Auth, Some(403)));
    let hands = Hands::renewing(urls(Some(&short), None), move || {
        let fresh = urls(Some(&source), None);
        async move { Some(fresh) }.boxed()
    });
    assert_eq!(fetch(&storage, &spec, &hands).await.unwrap().len(), 1 << 20);
    assert_eq!((hands.renewals(), error.code(Doing::Fetch)), (1, "credential_refresh_exhausted"));
}
