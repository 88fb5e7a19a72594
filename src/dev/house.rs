//! All of Euterpe on one machine: a private Postgres, the API, both workers, and somebody who uses them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::tenant::{Tenant, command};
use super::{Cluster, Durability, tell};
use crate::cli::api::Api;
use crate::crypto::ApiKey;
use crate::store::migrate;

/// Who uses it.
pub(super) const REQUESTER: &str = "demo";
/// Each service has a login that may do what it needs and no more.
const LOGINS: [(&str, &str); 4] = [
    ("euterpe-api", "euterpe_api"),
    ("euterpe-transcode", "euterpe_transcode"),
    ("euterpe-webhook", "euterpe_webhook"),
    ("euterpe", "euterpe_operator"),
];
/// May look at everything and steer it; may not break it.
pub const OPERATOR: &str = "dev_euterpe";
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Everything that runs. [`House::close`] stops it in order; dropped, it is killed.
pub(super) struct House {
    tenants: Vec<Tenant>,
    cluster: Cluster,
    dir: PathBuf,
    /// The API, asked by a requester with a key.
    pub(super) api: Api,
    /// Where its webhooks go.
    pub(super) webhook_url: String,
    /// What everything was told.
    pub(super) settings: Vec<(String, String)>,
}

/// Where a house is, and how it can be reached.
pub(super) struct Plot {
    /// For files: keys, logs, media.
    pub(super) dir: PathBuf,
    /// For the private Postgres.
    pub(super) database: PathBuf,
    /// Of the API, and of the receiver.
    pub(super) ports: [u16; 2],
}

impl House {
    /// Starts everything, one after the other, and says so.
    pub(super) async fn open(plot: Plot) -> anyhow::Result<Self> {
        let Plot { dir, database, ports: [api_port, receiver_port] } = plot;
        // Postgres may not be root, and must be able to enter.
        for name in ["logs", "work"] {
            fs::create_dir_all(dir.join(name)).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join("storage").join(REQUESTER))?;
        let cluster = Cluster::begin(&database, Durability::Durable, &["max_connections=60"]).await?;
        tell(format_args!("A private Postgres runs in {}.", database.display()))?;
        let report = migrate::migrate(&cluster.url("postgres").parse()?).await?;
        let (migrations, functions) = (report.migrations.len(), report.functions.len());
        tell(format_args!(
            "euterpe-migrate applied {migrations} migrations and loaded {functions} files of sql/."
        ))?;
        make_logins(&cluster.url("postgres")).await?;

        let api_url = format!("http://127.0.0.1:{api_port}");
        let settings = settings(&dir, api_port);
        make_keys(&dir, &settings).await?;
        let mut house = Self {
            tenants: Vec::new(),
            api: Api { base: api_url.parse()?, key: None, hint: "its log in .euterpe/ says why" },
            webhook_url: format!("http://127.0.0.1:{receiver_port}/webhooks"),
            cluster,
            dir,
            settings,
        };
        let secret = house.make_requester().await?;
        for program in ["euterpe-api", "euterpe-transcode", "euterpe-webhook"] {
            house.start(program, program, &[], &[])?;
        }
        let listen = format!("127.0.0.1:{receiver_port}");
        let with_secret = [("EUTERPE_WEBHOOK_SECRET".to_owned(), secret)];
        house.start("receiver", "euterpe", &["--json", "listen", "--listen", &listen], &with_secret)?;
        house.wait_until_ready().await?;
        tell(format_args!(
            "The API serves {api_url}; a transcode worker, a webhook worker and a receiver are there."
        ))?;
        Ok(house)
    }

    /// Where media may be: `file://` below this.
    pub(super) fn storage(&self) -> PathBuf {
        self.dir.join("storage").join(REQUESTER)
    }

    /// Where the logs are.
    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// What a shell needs to be a requester here, and an operator; says where it is.
    pub(super) fn write_env(&self) -> anyhow::Result<PathBuf> {
        let mut env = self.env_of("euterpe");
        env.push(("EUTERPE_API".into(), self.api.url().into()));
        env.push(("EUTERPE_API_KEY".into(), fs::read_to_string(self.dir.join("api-key"))?.trim().into()));
        env.push(("MEDIA".into(), self.storage().display().to_string()));
        env.push(("WEBHOOK_URL".into(), self.webhook_url.clone()));
        let lines: Vec<_> = env.iter().map(|(name, value)| format!("export {name}='{value}'")).collect();
        let path = self.dir.join("env");
        let _ = fs::remove_file(&path);
        write_private(&path, &(lines.join("\n") + "\n"))?;
        Ok(path)
    }

    /// For psql, as somebody who may see everything.
    pub(super) fn database_url(&self) -> String {
        self.cluster.url("postgres")
    }

    /// What the receiver prints, line by line.
    pub(super) fn receiver_output(&mut self) -> Option<tokio::process::ChildStdout> {
        self.tenants.last_mut().and_then(Tenant::output)
    }

    /// An error when one of them has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.tenants.iter_mut().try_for_each(Tenant::check)
    }

    /// Stops everything, workers first, the database last. Whoever asks `again` meanwhile will not wait: then this ends
    /// the process.
    pub(super) async fn close(self, again: impl Future<Output = ()>) {
        let mut again = pin!(again);
        let Self { tenants, cluster, .. } = self;
        tenants.iter().for_each(Tenant::ask_to_stop);
        let all_stopped = async {
            for tenant in tenants {
                tenant.stopped().await;
            }
        };
        tokio::select! {
            () = all_stopped => {}
            // By now those that were left have been dropped, and so killed. Postgres hears of our end from the kernel, and
            // what is left of a demo's is removed by the next.
            () = &mut again => std::process::exit(130),
        }
        tokio::select! {
            _ = tokio::task::spawn_blocking(move || cluster.stop()) => {}
            () = &mut again => std::process::exit(130),
        }
    }

    fn start(
        &mut self,
        name: &str,
        program: &str,
        arguments: &[&str],
        more: &[(String, String)],
    ) -> anyhow::Result<()> {
        let mut env = self.env_of(program);
        // Who it is in psql, where the machine's name would say nothing.
        env.push(("POD_NAME".into(), format!("dev-{}", name.trim_start_matches("euterpe-"))));
        env.extend(more.iter().cloned());
        self.tenants.push(Tenant::start(name, program, arguments, &env, &self.dir.join("logs"))?);
        Ok(())
    }

    /// The settings, with the login of `program`.
    fn env_of(&self, program: &str) -> Vec<(String, String)> {
        let login = format!("dev_{}", program.replace('-', "_"));
        let url = self.cluster.url("postgres").replace("user=postgres", &format!("user={login}"));
        let mut env = self.settings.clone();
        env.push(("EUTERPE_DATABASE_URL".into(), url));
        env
    }

    /// A requester and its key, made with the command line as anybody would; kept for the next start.
    async fn make_requester(&mut self) -> anyhow::Result<String> {
        let env = self.env_of("euterpe");
        let known = ask(&env, &["requester", "list"]).await?;
        if !known.to_string().contains(&format!("\"{REQUESTER}\"")) {
            ask(&env, &["requester", "add", REQUESTER, "--name", "The demo"]).await?;
        }
        let secrets = ask(&env, &["secret", "show", REQUESTER]).await?;
        let secret = find(&secrets, "secret").context("`euterpe secret show` showed none")?;
        let kept = self.dir.join("api-key");
        let key = if let Ok(key) = fs::read_to_string(&kept) {
            key.trim().to_owned()
        } else {
            let made = ask(&env, &["key", "add", REQUESTER]).await?;
            let key = find(&made, "key").context("`euterpe key add` showed none")?;
            write_private(&kept, &key)?;
            key
        };
        self.api.key = Some(ApiKey::parse(&key).with_context(|| format!("bad key in {}", kept.display()))?);
        Ok(secret)
    }

    async fn is_served(&self) -> bool {
        let asked = self.api.ask(Method::GET, "/readyz", &[], None).await;
        asked.is_ok_and(|answer| answer.status.is_success())
    }

    /// Until the API answers, the workers say that they are ready, and the receiver listens.
    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + READY_WITHIN;
        loop {
            self.check()?;
            let is_up = self.tenants.iter().all(|tenant| {
                let said = tenant.said();
                said.contains("started") || said.contains("listening on")
            });
            if is_up && self.is_served().await {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!(
                    "not ready after {} s; the logs are in {}",
                    READY_WITHIN.as_secs(),
                    self.logs().display()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Two ports that are free now; the usual ones if they are.
pub(super) fn free_ports(usual: [u16; 2]) -> anyhow::Result<[u16; 2]> {
    // Both are held until both are chosen: else the second could be the first.
    let held: Vec<_> = usual
        .iter()
        .map(|port| TcpListener::bind(("127.0.0.1", *port)).or_else(|_| TcpListener::bind(("127.0.0.1", 0))))
        .collect::<Result<_, _>>()
        .context("no free port on 127.0.0.1")?;
    Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port()])
}

/// Everything on this machine only, so plain http and loopback are allowed.
fn settings(dir: &Path, api_port: u16) -> Vec<(String, String)> {
    let below = |name: &str| dir.join(name).display().to_string();
    [
        ("EUTERPE_KEK_FILE", below("keys")),
        ("EUTERPE_HTTP_LISTEN", format!("127.0.0.1:{api_port}")),
        ("EUTERPE_METRICS_LISTEN", "127.0.0.1:0".into()),
        ("EUTERPE_FILE_STORAGE", below("storage")),
        ("EUTERPE_WORK_DIR", below("work")),
        ("EUTERPE_ALLOW_HTTP", "true".into()),
        ("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8".into()),
        ("EUTERPE_EGRESS_PORTS", "any".into()),
        // Beats three times per lease: progress is heard often enough to be looked at.
        ("EUTERPE_LEASE_SECONDS", "5".into()),
        ("EUTERPE_DRAIN_SECONDS", "2".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Makes a login for each program, where it is missing; that of the command line is [`OPERATOR`].
pub async fn make_logins(superuser: &str) -> anyhow::Result<()> {
    let config: tokio_postgres::Config = superuser.parse()?;
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    let driven = tokio::spawn(connection);
    for (program, role) in LOGINS {
        let login = format!("dev_{}", program.replace('-', "_"));
        let there = client.query("select from pg_roles where rolname = $1", &[&login]).await?;
        if there.is_empty() {
            client.batch_execute(&format!("create role {login} login in role {role}")).await?;
        }
    }
    drop(client);
    let _ = driven.await;
    Ok(())
}

/// The key file, once.
async fn make_keys(dir: &Path, settings: &[(String, String)]) -> anyhow::Result<()> {
    let path = dir.join("keys");
    if path.exists() {
        return Ok(());
    }
    let made = command("euterpe", settings)?.args(["kek", "new", "--pepper"]).output().await?;
    if !made.status.success() {
        bail!("`euterpe kek new` failed: {}", String::from_utf8_lossy(&made.stderr));
    }
    write_private(&path, &String::from_utf8_lossy(&made.stdout))
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Asks the command line, and takes its JSON.
async fn ask(env: &[(String, String)], arguments: &[&str]) -> anyhow::Result<Value> {
    let answered = command("euterpe", env)?.arg("--json").args(arguments).output().await?;
    if !answered.status.success() {
        let said = String::from_utf8_lossy(&answered.stderr);
        bail!(
            "`euterpe {}` failed: {said}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&answered.stdout)
        );
    }
    Ok(serde_json::from_slice(&answered.stdout)?)
}

/// The first text of that name, however deep.
fn find(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| fields.values().find_map(|field| find(field, name))),
        Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}
