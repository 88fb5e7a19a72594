//! The real `euterpe-api`, as a process of its own over a test's database.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use euterpe::crypto::{ApiKey, Keyring, Peppers};
use euterpe::store::NewApiKey;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{TestDb, requester, url_of};

pub const KEK: &str = "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
pub const PEPPER: &str = "MTIzNDU2Nzg5MGFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

fn env(name: &str) -> Option<String> {
    match name {
        "EUTERPE_KEKS" => Some(KEK.into()),
        "EUTERPE_KEY_PEPPER" => Some(PEPPER.into()),
        _ => None,
    }
}

/// The keys that the process seals with.
pub fn keyring() -> Keyring {
    Keyring::from_env(env).unwrap()
}

/// A running `euterpe-api`, and a key of acme's that may do everything.
pub struct Api {
    process: Child,
    pub url: String,
    pub metrics_url: String,
    pub key: String,
    pub client: Client,
    log: std::path::PathBuf,
}

impl Api {
    pub async fn start(db: &TestDb) -> Self {
        Self::start_with(db, &[]).await
    }

    /// With more in its environment.
    pub async fn start_with(db: &TestDb, settings: &[(&str, &str)]) -> Self {
        let key = add_key(db, "acme", &["transcode:write", "transcode:read"]).await;
        let database = url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_api");
        Self::over(&database, key, settings).await
    }

    /// Over any database url.
    pub async fn over(database: &str, key: String, settings: &[(&str, &str)]) -> Self {
        let log =
            tempfile::Builder::new().prefix("eut-api").tempfile().unwrap().into_temp_path().keep().unwrap();
        let process =
            command(database, settings).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut api = Self {
            process,
            url: String::new(),
            metrics_url: String::new(),
            key,
            client: Client::builder().pool_max_idle_per_host(64).build().unwrap(),
            log,
        };
        for _ in 0..2000 {
            let said = api.said();
            if let (Some(http), Some(metrics)) =
                (address(&said, "serving"), address(&said, "health and metrics"))
            {
                api.url = format!("http://{http}");
                api.metrics_url = format!("http://{metrics}");
                return api;
            }
            assert!(api.process.try_wait().unwrap().is_none(), "euterpe-api did not start: {said}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("euterpe-api never served: {}", api.said());
    }

    /// Everything it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }

    /// A request with acme's key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).json(body)
    }

    /// One accepted job of acme's.
    pub async fn enqueue(&self) -> Value {
        let answer = self.post("/transcode", &request()).send().await.unwrap();
        assert_eq!(answer.status(), 202);
        answer.json().await.unwrap()
    }

    pub async fn status(&self, job_id: &Value) -> Value {
        let path = format!("/transcode/status?job_id={}", job_id.as_str().unwrap());
        self.get(&path).send().await.unwrap().json().await.unwrap()
    }
}

fn command(database: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_euterpe-api"));
    command
        .env_clear()
        .env("EUTERPE_DATABASE_URL", database)
        .env("EUTERPE_KEKS", KEK)
        .env("EUTERPE_KEY_PEPPER", PEPPER)
        .env("EUTERPE_HTTP_LISTEN", "127.0.0.1:0")
        .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
        .env("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")
        .env("EUTERPE_LOG", "json")
        .env("POD_NAME", "api")
        .env("EUTERPE_HTTP_CONNECTIONS_PER_IP", "1024") // everybody in a test comes from one address
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // Both would be one too many.
    if settings.iter().any(|(name, _)| *name == "EUTERPE_KEK_FILE") {
        command.env_remove("EUTERPE_KEKS").env_remove("EUTERPE_KEY_PEPPER");
    }
    command
}

/// What `euterpe-api` says when it refuses to start; `None` as a setting takes it away.
pub fn refusal(database: &str, settings: &[(&str, Option<&str>)]) -> String {
    let mut command = command(database, &[("EUTERPE_LOG", "text"), ("RUST_LOG", "warn")]);
    for (name, value) in settings {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..6000 {
        if process.try_wait().unwrap().is_some() {
            let output = process.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            return said;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    process.kill().unwrap();
    panic!("neither started nor refused in half a minute: {settings:?}");
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// The address in the line of the log that says so.
pub fn address(log: &str, message: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["message"] == message)
        .find_map(|line| line["listen"].as_str().map(str::to_owned))
}

/// A key of `who`, with these scopes.
pub async fn add_key(db: &TestDb, who: &str, scopes: &[&str]) -> String {
    let key = ApiKey::generate();
    let hash = Peppers::from_env(env).unwrap().hash(&key);
    let new = NewApiKey {
        requester_id: requester(who),
        key_id: key.id().to_owned(),
        key_hash: hash.hash.to_vec(),
        pepper_version: hash.pepper_version,
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        expires_at: None,
    };
    db.store().add_api_key(&new).await.unwrap();
    key.expose().expose_str().unwrap().to_owned()
}

/// A request that is acceptable.
pub fn request() -> Value {
    json!({
        "source": {"uri": "s3://media-in/42/clip.mov"},
        "storage": {
            "region": "eu-west-1", "output_prefix": "s3://media-out/42/",
            "credentials": {"access_key_id": "AKIA", "secret_access_key": "secret", "session_token": "token"}
        },
        "outputs": [{"name": "720p", "path": "720p.mp4", "preset": "h264_720p"}]
    })
}

/// The code of an error.
pub async fn code(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}
