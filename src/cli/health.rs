//! `euterpe health`: is a service ready? For container health checks, which have neither a shell nor curl.

use hyper::Method;
use serde_json::json;
use url::Url;

use super::api::Api;
use super::{Context, Failure, Report};

const HINT: &str =
    "is a service there? Name the url of one: its EUTERPE_METRICS_LISTEN says where it listens";

/// Whom to ask.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Its /readyz (may it be given work?) or /healthz (does it live?).
    #[arg(default_value = "http://127.0.0.1:9464/readyz")]
    url: Url,
}

pub(super) async fn run(_: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let (url, path) = (&arguments.url, arguments.url.path().to_owned());
    let api = Api { base: url.clone(), key: None, hint: HINT };
    let status = api.ask(Method::GET, &path, &[], None).await?.status;
    if status.is_success() {
        // One that lives may still not be ready.
        let (says, json) = if path.ends_with("/healthz") {
            ("lives", json!({"url": url.as_str(), "lives": true}))
        } else {
            ("is ready", json!({"url": url.as_str(), "is_ready": true}))
        };
        return Ok(Report::new(format!("{url} {says}"), json));
    }
    Err(Failure::Failed(format!("{url} answers {status}: its log says why")))
}
