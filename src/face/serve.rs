//! Serving connections with an end to everything: heads, connections, their age and their number.
//!
//! `axum::serve` has no timeouts: an idle socket or half a request line stays open for ever. So connections are driven
//! here, one HTTP/1.1 request after the other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::linger::Lingering;

/// Where a connection ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's line.
    pub connections: usize,
    /// From the first moment, or the last answer, to the end of the next request's head.
    pub head: Duration,
    /// A connection's whole life; then it is closed between two requests.
    pub age: Duration,
    /// How long requests under way may take after a stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: Duration::from_secs(10),
            age: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves `router` until `stop`, then lets requests under way finish.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let seats = Arc::new(Semaphore::new(limits.connections));
    let served = TaskTracker::new();
    while let Some((stream, seat)) = next(&listener, &seats, &stop).await {
        served.spawn(converse(stream, router.clone(), limits, stop.clone(), seat));
    }
    served.close();
    if timeout(limits.drain, served.wait()).await.is_err() {
        tracing::warn!(connections = served.len(), "stopping with requests under way");
    }
}

async fn next(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accept = async {
        let seat = Arc::clone(seats).acquire_owned().await.expect("it is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, seat),
                // Out of file descriptors, most likely: others must end first.
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
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

async fn converse(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    _seat: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(16 * 1024)
        .max_headers(64)
        .half_close(false)
        .serve_connection(TokioIo::new(Lingering::new(stream)), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return, // how a client leaves is its own business
        () = stop.cancelled() => {}
        () = sleep(limits.age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.drain, connection).await;
}
