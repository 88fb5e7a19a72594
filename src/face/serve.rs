//! Serving connections with an end to everything: heads, connections, their age and their number.
//!
//! `axum::serve` has no timeouts: an idle socket or half a request line stays open for ever. So connections are driven
//! here, one HTTP/1.1 request after the other. What comes in is read by `strict` first, what is said last arrives by
//! `linger`.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::linger::Lingering;
use super::peers::Peers;
use super::strict::Strict;
use super::{manners, transcode::ApiError};
use crate::domain::causes;
use crate::domain::transcode::ErrorCode;

/// How many that are refused for their address are told so at once. Further ones are just closed: being polite to a
/// flood is part of what the flood wants.
const TOLD_AT_ONCE: usize = 32;
/// How long such a one may take to ask.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Where a connection ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's line.
    pub connections: usize,
    /// Of these, from one address; whoever comes beyond that is told so and closed.
    pub connections_per_ip: usize,
    /// From the first moment, or the last answer, to the end of the next request's head.
    pub head: Duration,
    /// For a whole body.
    pub body: Duration,
    /// A connection's whole life; then it is closed between two requests.
    pub age: Duration,
    /// How long the last request of a connection that has grown old may take: longer than any `wait=`.
    pub last_request: Duration,
    /// How long requests under way may take after a stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_ip: 32,
            head: Duration::from_secs(10),
            // 256 KiB take no longer on any line that deserves the name.
            body: Duration::from_secs(10),
            age: Duration::from_secs(600),
            last_request: Duration::from_secs(90),
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves `router` until `stop`, then lets requests under way finish.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let (seats, peers) =
        (Arc::new(Semaphore::new(limits.connections)), Peers::new(limits.connections_per_ip));
    let (served, told) = (TaskTracker::new(), Arc::new(Semaphore::new(TOLD_AT_ONCE)));
    while let Some((stream, address, seat)) = next(&listener, &seats, &stop).await {
        if let Some(peer) = peers.enter(address.ip()) {
            served.spawn(converse(stream, router.clone(), limits, stop.clone(), (seat, peer)));
            continue;
        }
        metrics::counter!("euterpe_http_refused_total", "reason" => "connections_per_ip").increment(1);
        if let Ok(turn) = Arc::clone(&told).try_acquire_owned() {
            let limits = Limits { head: TOLD_WITHIN, ..limits };
            served.spawn(converse(stream, too_many(), limits, stop.clone(), turn));
        }
    }
    drop(listener); // whoever comes now is refused and goes elsewhere, instead of waiting for nobody
    served.close();
    if timeout(limits.drain, served.wait()).await.is_err() {
        tracing::warn!(connections = served.len(), "stopping with requests under way");
    }
}

/// What an address hears that has enough connections.
fn too_many() -> Router {
    let refusal = || async {
        let says = "too many connections from this address; use those you have, or fewer at once";
        let refusal = ApiError::new(ErrorCode::Unavailable, says).retry_after(TOLD_WITHIN);
        ([(header::CONNECTION, "close")], refusal)
    };
    Router::new().fallback(refusal).layer(from_fn(manners::keep))
}

async fn next(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let accept = async {
        let seat = Arc::clone(seats).acquire_owned().await.expect("it is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, address)) => return (stream, address, seat),
                // Out of file descriptors, most likely: others must end first.
                Err(error) => {
                    tracing::warn!(error = causes(&error), "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        accepted = accept => Some(accepted),
    }
}

/// Serves one connection to its end; whatever `_place` it takes is free afterwards.
async fn converse<P>(stream: TcpStream, router: Router, limits: Limits, stop: CancellationToken, _place: P) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        // More than `manners` lets pass: what is too much gets an answer in our shape. Beyond these, and for what is no
        // HTTP at all, hyper answers 431 or 400 without a body, and closes.
        .max_buf_size(64 * 1024)
        .max_header_size(64 * 1024)
        .max_headers(200)
        .half_close(false)
        .serve_connection(
            TokioIo::new(Strict::new(Lingering::new(stream))),
            TowerToHyperService::new(router),
        );
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return, // how a client leaves is its own business
        () = stop.cancelled() => {}
        () = sleep(limits.age) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = timeout(limits.last_request, connection.as_mut()) => return,
                () = stop.cancelled() => {}
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.drain, connection).await;
}
