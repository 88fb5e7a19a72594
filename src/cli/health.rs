//! `euterpe health`: is a service ready? For container health checks, which have neither a shell nor curl.

use hyper::Method;
use serde_json::json;
use url::Url;

use super::api::Api;
use super::{Context, Failure, Report};

/// Whom to ask.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Its /readyz (may it be given work?) or /healthz (does it live?).
    #[arg(default_value = "http://127.0.0.1:9464/readyz")]
    url: Url,
}

pub(super) async fn run(_: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let (url, path) = (&arguments.url, arguments.url.path().to_owned());
    let status = Api { base: url.clone(), key: None }.ask(Method::GET, &path, &[], None).await?.status;
    if status.is_success() {
        return Ok(Report::new(format!("{url} is ready"), json!({"url": url.as_str(), "is_ready": true})));
    }
    Err(Failure::Failed(format!("{url} answers {status}: its log says why")))
}
