//! `euterpe listen`: a receiver to try with. It verifies as a receiver should, prints, and knows duplicates.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::webhook::Secrets;
use super::{Context, Failure, Report};
use crate::crypto::{Rejected, SigningSecret, verify};
use crate::face::serve::{Limits, serve};

/// No webhook of ours is larger.
const MAX_BODY: usize = 1024 * 1024;
/// How many nonces and ids are remembered; a receiver in earnest keeps them in its database.
const REMEMBERED: usize = 100_000;

/// Where to listen, and for how long.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// An address and a port; port 0 is any that is free.
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// Stop after so many webhooks that were verified.
    #[arg(long)]
    count: Option<usize>,
    #[command(flatten)]
    secrets: Secrets,
}

struct Receiver {
    secrets: Vec<SigningSecret>,
    seen: Mutex<Seen>,
    /// Why nothing more can be printed.
    unheard: OnceLock<io::Error>,
    count: Option<usize>,
    is_json: bool,
    stop: CancellationToken,
}

#[derive(Default)]
struct Seen {
    nonces: HashSet<String>,
    events: HashSet<String>,
    verified: usize,
}

pub(super) async fn run(context: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("{}: {error}", arguments.listen));
    let receiver = Arc::new(Receiver {
        secrets: arguments.secrets.read(context).await?,
        seen: Mutex::default(),
        unheard: OnceLock::new(),
        count: arguments.count,
        is_json: context.json,
        stop: CancellationToken::new(),
    });
    let listener = TcpListener::bind(arguments.listen).await.map_err(failed)?;
    eprintln!("listening on http://{}", listener.local_addr().map_err(failed)?);
    let router = Router::new()
        .fallback(receive)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::clone(&receiver));
    // All webhooks come from one address.
    let usual = Limits::default();
    let limits = Limits { connections_per_ip: usual.connections, ..usual };
    serve(listener, router, limits, receiver.stop.clone()).await;
    if let Some(error) = receiver.unheard.get() {
        return Err(Failure::Failed(format!("nobody reads what is received: {error}")));
    }
    let verified = receiver.seen.lock().unwrap_or_else(PoisonError::into_inner).verified;
    Ok(Report::new(format!("{verified} webhooks verified"), json!({"verified": verified})))
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (timestamp, nonce) = (header("x-euterpe-timestamp"), header("x-euterpe-nonce"));
    let (signature, now) = (header("x-euterpe-signature"), Timestamp::now().as_second());
    let checked: Vec<_> = receiver
        .secrets
        .iter()
        .map(|secret| verify(secret, timestamp, nonce, &body, signature, now))
        .collect();
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let verdict = match checked.iter().find(|check| !matches!(check, Err(Rejected::Signature))) {
        Some(Ok(())) => receiver.remember(nonce, &event),
        Some(Err(Rejected::Timestamp)) => "rejected: its timestamp is too far from now",
        _ => "rejected: its signature does not fit",
    };
    if let Err(error) = receiver.print(verdict, &event) {
        // Nobody has seen it: its sender shall try again, wherever somebody listens then.
        let _ = receiver.unheard.set(error);
        receiver.stop.cancel();
        return (StatusCode::SERVICE_UNAVAILABLE, "nobody listens any more");
    }
    if verdict.starts_with("rejected") {
        (StatusCode::UNAUTHORIZED, verdict)
    } else {
        (StatusCode::OK, verdict)
    }
}

impl Receiver {
    /// What was signed may still have come before.
    fn remember(&self, nonce: &str, event: &Value) -> &'static str {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.nonces.len() >= REMEMBERED {
            *seen = Seen { verified: seen.verified, ..Seen::default() };
        }
        if !seen.nonces.insert(nonce.to_owned()) {
            return "rejected: its nonce was used before";
        }
        seen.verified += 1;
        if self.count.is_some_and(|count| seen.verified >= count) {
            self.stop.cancel();
        }
        let event_id = event["event_id"].as_str().unwrap_or_default();
        if seen.events.insert(event_id.to_owned()) { "verified" } else { "verified, a duplicate" }
    }

    /// Nothing of what was rejected is printed as it is: anybody may have written it.
    fn print(&self, verdict: &str, event: &Value) -> io::Result<()> {
        let (event, is_rejected) = (&event, verdict.starts_with("rejected"));
        let mut out = io::stdout().lock();
        if self.is_json {
            let event = if is_rejected { &Value::Null } else { *event };
            writeln!(out, "{}", json!({"verdict": verdict, "event": event}))
        } else if is_rejected {
            writeln!(out, "{verdict}")
        } else {
            let word = |value: &Value| value.as_str().unwrap_or("-").escape_debug().to_string();
            writeln!(
                out,
                "{verdict}: {} {} job {} sequence {}",
                word(&event["type"]),
                word(&event["event_id"]),
                word(&event["data"]["job_id"]),
                event["sequence"]
            )
        }
    }
}
