//! A real S3 server with real short-lived credentials: SeaweedFS (`weed mini`), one per test process. It goes with the
//! process that started it, also when that is killed.

use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use euterpe::dev::Cluster;
use euterpe::domain::transcode::Credentials;
use object_store::ClientOptions;
use object_store::StaticCredentialProvider;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::sync::OnceCell;

use super::hands::credentials;

const ID: &str = "AKTEST";
const SECRET: &str = "SKTESTSKTEST";
/// The one bucket. Short-lived credentials read all of it and write below [`Seaweed::WRITABLE`].
pub const BUCKET: &str = "euterpe-media";

pub struct Seaweed {
    pub endpoint: String,
    http: reqwest::Client,
}

impl Seaweed {
    /// Where short-lived credentials may write.
    pub const WRITABLE: &'static str = "out/job1/";
    /// How long they live.
    pub const LIFE: Duration = Duration::from_secs(8);

    /// The server of this process.
    pub async fn shared() -> &'static Self {
        static SERVER: OnceCell<Seaweed> = OnceCell::const_new();
        SERVER.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let weed = PathBuf::from("target/tools/bin/weed");
        assert!(weed.is_file(), "no SeaweedFS for the tests; `make setup` installs it");
        let dir = Cluster::scratch("weed");
        fs::create_dir_all(dir.join("data")).unwrap();
        let (s3, iam) = (dir.join("s3.json"), dir.join("iam.json"));
        fs::write(&s3, identities().to_string()).unwrap();
        fs::write(&iam, roles().to_string()).unwrap();
        let [master, volume, filer, port, admin] = free_ports();
        let log = fs::File::create(dir.join("log")).unwrap();
        // The kernel ends it with the thread that started it, and that thread stays as long as the process.
        let mut command = Command::new("/usr/bin/setpriv");
        command.arg("--pdeathsig=KILL").arg(fs::canonicalize(weed).unwrap()).arg("mini");
        command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-webdav=false"]);
        command.args(["-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.arg(format!("-dir={}", dir.join("data").display()));
        command.arg(format!("-s3.config={}", s3.display()));
        command.arg(format!("-s3.iam.config={}", iam.display()));
        command.arg(format!("-filer.localSocket={}", dir.join("filer.sock").display()));
        command.arg(format!("-s3.localSocket={}", dir.join("s3.sock").display()));
        for (name, port) in
            [("master", master), ("volume", volume), ("filer", filer), ("s3", port), ("admin", admin)]
        {
            command.arg(format!("-{name}.port={port}")).arg(format!("-{name}.port.grpc={}", port + 10_000));
        }
        command.arg(format!("-bucket={BUCKET}"));
        command.env_clear().env("HOME", &dir).current_dir(&dir).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        std::thread::spawn(move || command.spawn().expect("setpriv and weed run").wait());
        let server = Self { endpoint: format!("http://127.0.0.1:{port}"), http: reqwest::Client::new() };
        for _ in 0..600 {
            if server.try_put("ready", b"yes").await && server.try_assume_role().await.is_some() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("SeaweedFS did not start: {}", fs::read_to_string(dir.join("log")).unwrap());
    }

    /// Keys that may do everything and live for ever.
    pub fn admin() -> Credentials {
        credentials(ID, SECRET, None)
    }

    /// Fresh credentials of 8 seconds.
    pub async fn assume_role(&self) -> Credentials {
        self.try_assume_role().await.expect("the role can be assumed")
    }

    async fn try_assume_role(&self) -> Option<Credentials> {
        let form = "Action=AssumeRole&Version=2011-06-15&RoleSessionName=euterpe&DurationSeconds=900\
                    &RoleArn=arn:aws:iam::000000000000:role/worker";
        let mut request = HttpRequest::new(form.to_owned().into());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{}/", self.endpoint).parse().unwrap();
        request.headers_mut().insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
        let admin = admin_key();
        AwsAuthorizer::new(&admin, "sts", "us-east-1").try_authorize(&mut request, None).unwrap();
        let url = format!("{}/", self.endpoint);
        let call = self.http.post(url).headers(request.headers().clone()).body(form);
        let answer = call.send().await.ok()?.text().await.ok()?;
        let of = |name: &str| {
            let (_, rest) = answer.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        let (id, secret, token) = (of("AccessKeyId")?, of("SecretAccessKey")?, of("SessionToken")?);
        Some(credentials(&id, &secret, Some(&token)))
    }

    /// A signed url, good for `life`.
    pub async fn signed(&self, method: Method, key: &str, life: Duration) -> String {
        self.store().signed_url(method, &Path::parse(key).unwrap(), life).await.unwrap().into()
    }

    pub async fn put(&self, key: &str, bytes: &[u8]) {
        assert!(self.try_put(key, bytes).await, "put {key}");
    }

    async fn try_put(&self, key: &str, bytes: &[u8]) -> bool {
        let url = self.signed(Method::PUT, key, Duration::from_secs(60)).await;
        let answer = self.http.put(url).body(bytes.to_vec()).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let url = self.signed(Method::GET, key, Duration::from_secs(60)).await;
        let answer = self.http.get(url).send().await.unwrap();
        if answer.status() == StatusCode::NOT_FOUND {
            return None;
        }
        Some(answer.error_for_status().unwrap().bytes().await.unwrap().to_vec())
    }

    /// Polls until the store takes a signed url no longer: its clock decides.
    pub async fn until_url_expired(&self, url: &str) {
        for _ in 0..600 {
            if !self.http.get(url).send().await.unwrap().status().is_success() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it never expired");
    }

    /// The same for credentials, which must be able to read `ready`.
    pub async fn until_expired(&self, keys: &Credentials) {
        let key = AwsCredential {
            key_id: keys.access_key_id.expose().into(),
            secret_key: keys.secret_access_key.expose().into(),
            token: keys.session_token.as_ref().map(|token| token.expose().into()),
        };
        let store = self.store_of(key);
        let url =
            store.signed_url(Method::GET, &Path::from("ready"), Duration::from_secs(600)).await.unwrap();
        let answer = self.http.get(url.clone()).send().await.unwrap();
        assert!(answer.status().is_success(), "they are good at first: {}", answer.status());
        self.until_url_expired(url.as_str()).await;
    }

    /// The unfinished uploads of keys that begin with `prefix`.
    pub async fn uploads(&self, prefix: &str) -> Vec<String> {
        let options = SignedUrlOptions::default().with_query([("uploads", ""), ("prefix", prefix)]);
        let life = Duration::from_secs(60);
        let url = self.store().signed_url_opts(Method::GET, &Path::from(""), life, &options).await.unwrap();
        let answer = self.http.get(url).send().await.unwrap().error_for_status().unwrap();
        let text = answer.text().await.unwrap();
        assert!(text.contains("ListMultipartUploadsResult"), "{text}");
        text.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
    }

    fn store(&self) -> AmazonS3 {
        self.store_of(admin_key())
    }

    fn store_of(&self, key: AwsCredential) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_endpoint(&self.endpoint)
            .with_credentials(Arc::new(StaticCredentialProvider::new(key)))
            .with_http_connector(Nobody)
            .build()
            .unwrap()
    }
}

fn admin_key() -> AwsCredential {
    AwsCredential { key_id: ID.into(), secret_key: SECRET.into(), token: None }
}

fn identities() -> serde_json::Value {
    json!({"identities": [{
        "name": "admin",
        "credentials": [{"accessKey": ID, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }]})
}

fn roles() -> serde_json::Value {
    let all = format!("arn:aws:s3:::{BUCKET}/*");
    let writable = format!("arn:aws:s3:::{BUCKET}/{}*", Seaweed::WRITABLE);
    let life = format!("{}s", Seaweed::LIFE.as_secs());
    json!({
        "sts": {"tokenDuration": life, "maxSessionLength": life, "issuer": "tests",
                "signingKey": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="},
        "policy": {"defaultEffect": "Deny"},
        "roles": [{
            "roleName": "worker",
            "roleArn": "arn:aws:iam::000000000000:role/worker",
            "trustPolicy": {"Version": "2012-10-17", "Statement": [
                {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}]},
            "attachedPolicies": ["scoped"],
        }],
        "policies": [{"name": "scoped", "document": {"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [all]},
            {"Effect": "Allow", "Action": ["s3:PutObject", "s3:AbortMultipartUpload"], "Resource": [writable]},
        ]}}],
    })
}

/// Five ports that are free, and whose neighbours 10000 above are: the server wants those for itself.
/// For one more server of this process.
pub fn free_ports() -> [u16; 5] {
    static SERVERS: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Apart for each process, and below what the system hands out.
    let first = 10_000 + (std::process::id() % 400) as u16 * 30 + SERVERS.fetch_add(1, Ordering::SeqCst) * 15;
    let mut free = (0..10_000_u16).map(|n| 10_000 + (first - 10_000 + n) % 12_000);
    std::array::from_fn(|_| free.find(|port| is_free(*port) && is_free(port + 10_000)).expect("a free port"))
}

/// Signing needs no connection.
#[derive(Debug)]
struct Nobody;

impl HttpConnector for Nobody {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Self))
    }
}

impl HttpService for Nobody {
    fn call<'a, 'b>(
        &'a self,
        _: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        unreachable!("only signatures are asked of it")
    }
}
