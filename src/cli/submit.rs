//! `euterpe submit`: asks for a job over HTTP, as a requester does.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hyper::Method;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use url::Url;
use uuid::Uuid;

use super::api::{Answer, Api, Where};
use super::{Context, Failure, Report, watch};
use crate::domain::JobId;
use crate::domain::transcode::{MAX_BODY_BYTES, Preset};

/// How often it is asked when there is no answer: with one Idempotency-Key that makes one job.
const TRIES: u32 = 4;

/// What to ask for.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A file below an allowed root of the service, or s3://bucket/key.
    #[arg(required_unless_present = "request", value_name = "FILE|URL")]
    source: Option<String>,
    /// What to make of it; may be repeated.
    #[arg(long, default_value = "h264_720p", value_parser = presets())]
    preset: Vec<Preset>,
    /// Where outputs go: s3://bucket/prefix/ or file:///directory/.
    #[arg(long, value_name = "URL")]
    output_prefix: Option<String>,
    /// Where outputs go, as a directory; of a file by default the one beside it that is called FILE.out.
    #[arg(long, value_name = "DIR", conflicts_with = "output_prefix")]
    to: Option<PathBuf>,
    /// The region of the bucket.
    #[arg(long, env = "AWS_REGION")]
    region: Option<String>,
    /// Another S3 server than Amazon's, such as https://s3.example.com.
    #[arg(long, env = "AWS_ENDPOINT_URL", value_name = "URL")]
    endpoint: Option<String>,
    /// Where to send a webhook at each step.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// One key, one job, however often it is asked for; default: a new one.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Your own name for it.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// 0 to 1000, higher first; default 100.
    #[arg(long)]
    priority: Option<u16>,
    /// The whole request as JSON, from a file or, as -, from standard input: for what has no option here, such as signed urls.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["source", "preset", "output_prefix", "to", "webhook_url", "external_id", "priority"])]
    request: Option<PathBuf>,
    /// Stay until it has ended; the exit code is that of `euterpe watch`.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    place: Where,
}

pub(super) async fn run(context: &Context<'_>, arguments: Arguments) -> Result<Report, Failure> {
    let api = arguments.place.open(context)?;
    let request = match (&arguments.request, &arguments.source) {
        (Some(path), _) => read_request(path)?,
        (None, Some(source)) => request(context, &arguments, source)?,
        (None, None) => return Err(Failure::Usage("say what to transcode".into())),
    };
    let key = arguments.idempotency_key.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
    let answer = ask(&api, &key, &request).await?;
    let is_replayed = answer.headers.contains_key("idempotency-replayed");
    let mut job = answer.good()?;
    let job_id: JobId = serde_json::from_value(job["job_id"].clone())
        .map_err(|_| Failure::Failed(format!("{} does not answer as euterpe-api does", api.base)))?;
    if arguments.watch {
        if !context.json {
            eprintln!("{job_id} {}", if is_replayed { "was accepted before" } else { "is accepted" });
        }
        return watch::until_the_end(context, &api, job_id).await;
    }
    job["idempotency_key"] = key.into();
    job["is_replayed"] = is_replayed.into();
    let says = if is_replayed { "was accepted before" } else { "is accepted" };
    Ok(Report::new(format!("{job_id} {says}\nnext: euterpe watch {job_id}"), job))
}

/// Asked again after a lost connection or a 503: the key makes that harmless.
async fn ask(api: &Api, key: &str, request: &Value) -> Result<Answer, Failure> {
    let mut tries = 1;
    loop {
        let met = api.ask(Method::POST, "/transcode", &[("idempotency-key", key)], Some(request)).await;
        let wait = match &met {
            Ok(answer) => answer.come_back_in(),
            Err(Failure::Failed(_)) => Some(Duration::from_millis(500)),
            Err(_) => None,
        };
        match wait {
            Some(wait) if tries < TRIES => sleep(wait).await,
            _ => return met,
        }
        tries += 1;
    }
}

fn read_request(path: &Path) -> Result<Value, Failure> {
    let bad = |says: String| Failure::Usage(format!("{}: {says}", path.display()));
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|error| bad(error.to_string()))?)
    };
    let mut text = Vec::new();
    from.take(MAX_BODY_BYTES as u64 + 1).read_to_end(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() > MAX_BODY_BYTES {
        return Err(bad(format!("is longer than {MAX_BODY_BYTES} bytes, the most that a request may have")));
    }
    serde_json::from_slice(&text).map_err(|error| bad(format!("is no JSON: {error}")))
}

/// The request that the options stand for. What is wrong with it, the service says.
fn request(context: &Context<'_>, arguments: &Arguments, source: &str) -> Result<Value, Failure> {
    let (uri, beside) = place_of(source)?;
    let prefix = match (&arguments.output_prefix, &arguments.to) {
        (Some(prefix), _) => Some(prefix.clone()),
        (None, Some(dir)) => {
            Some(directory(&std::path::absolute(dir).map_err(|error| unusable(dir, &error))?)?)
        }
        (None, None) => beside,
    };
    let Some(prefix) = prefix else {
        return Err(Failure::Usage(
            "say where outputs go: --output-prefix s3://bucket/prefix/, or --to DIR".into(),
        ));
    };
    let mut storage = Map::new();
    if uri.starts_with("s3://") || prefix.starts_with("s3://") {
        storage.insert("credentials".into(), credentials(context)?);
        storage.extend(arguments.region.clone().map(|region| ("region".into(), region.into())));
        storage.extend(arguments.endpoint.clone().map(|endpoint| ("endpoint".into(), endpoint.into())));
    }
    storage.insert("output_prefix".into(), prefix.into());
    let outputs: Vec<_> = arguments
        .preset
        .iter()
        .map(|preset| json!({"name": preset.to_string(), "path": path_of(*preset), "preset": preset}))
        .collect();
    let mut request = json!({"source": {"uri": uri}, "storage": storage, "outputs": outputs});
    if let Some(url) = &arguments.webhook_url {
        request["status_webhook_url"] = url.as_str().into();
    }
    if let Some(id) = &arguments.external_id {
        request["external_id"] = id.as_str().into();
    }
    if let Some(priority) = arguments.priority {
        request["priority"] = priority.into();
    }
    Ok(request)
}

/// The uri of a source, and for a file the directory beside it that outputs go to.
fn place_of(source: &str) -> Result<(String, Option<String>), Failure> {
    match source.split_once("://") {
        Some(("s3" | "file", _)) => Ok((source.to_owned(), None)),
        Some(("http" | "https", _)) => Err(Failure::Usage(
            "a signed url needs an upload_url per output: write the request yourself (docs/faces/transcode.md) and hand it \
             over with --request"
                .into(),
        )),
        Some(_) => Err(Failure::Usage(format!("{source}: must be a file, s3:// or file://"))),
        None => {
            let path = Path::new(source);
            let path = path.canonicalize().map_err(|error| unusable(path, &error))?;
            let uri = Url::from_file_path(&path).map_err(|()| unusable(&path, &"has no url"))?;
            let mut beside = path.into_os_string();
            beside.push(".out");
            Ok((uri.into(), Some(directory(Path::new(&beside))?)))
        }
    }
}

fn directory(path: &Path) -> Result<String, Failure> {
    Url::from_directory_path(path).map(Into::into).map_err(|()| unusable(path, &"has no url"))
}

fn unusable(path: &Path, says: &dyn std::fmt::Display) -> Failure {
    Failure::Usage(format!("{}: {says}", path.display()))
}

/// As every program of Amazon's reads them.
fn credentials(context: &Context<'_>) -> Result<Value, Failure> {
    let needed = |name: &str| {
        (context.env)(name)
            .ok_or_else(|| Failure::Usage(format!("{name} is not set: s3:// needs credentials")))
    };
    let mut keys = json!({
        "access_key_id": needed("AWS_ACCESS_KEY_ID")?, "secret_access_key": needed("AWS_SECRET_ACCESS_KEY")?,
    });
    if let Some(token) = (context.env)("AWS_SESSION_TOKEN") {
        keys["session_token"] = token.into();
    }
    Ok(keys)
}

fn presets() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::NAMES).try_map(|name| serde_json::from_value::<Preset>(name.into()))
}

fn path_of(preset: Preset) -> String {
    let end = match preset {
        Preset::H264_480p | Preset::H264_720p | Preset::H264_1080p | Preset::RemuxMp4 => ".mp4",
        Preset::HlsLadder => "/index.m3u8",
        Preset::Aac128k => ".m4a",
        Preset::Mp3_192k => ".mp3",
        Preset::Opus96k => ".ogg",
        Preset::Flac => ".flac",
        Preset::ThumbnailJpg => ".jpg",
    };
    format!("{preset}{end}")
}
