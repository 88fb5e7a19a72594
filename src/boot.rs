//! What every program does when it starts.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A stop that comes with SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// When signals cannot be listened to.
pub fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        for is_last in [false, true] {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if is_last {
                tracing::warn!(signal = name, "stopping at once; leases will lapse");
                std::process::exit(130);
            }
            tracing::info!(signal = name, "stopping; work in hand may finish");
            told.cancel();
        }
    });
    Ok(stop)
}
