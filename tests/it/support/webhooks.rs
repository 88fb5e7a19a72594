//! Jobs whose webhook can be opened, what signs it, and who delivers it: the real handler, or the real process.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use euterpe::crypto::{Binding, KeyProvider, Secret, SigningSecret, seal};
use euterpe::domain::transcode::{CallbackSecret, Hidden};
use euterpe::domain::{JobId, NewJob, origin};
use euterpe::egress::{Egress, Limits};
use euterpe::handler::webhook::{PerHost, Webhooks};
use euterpe::store::Wakeup;
use euterpe::worker::{Events, Pace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::api::{KEK, keyring};
use super::lanes::{Working, pace, work_on};
use super::{TestDb, requester, url_of, worker};

/// A job of `who`'s whose webhook is `url`, sealed with the usual key.
pub fn hooked(who: &str, url: &str) -> NewJob {
    hooked_by(&keyring(), who, url)
}

/// The same, sealed with any key.
pub fn hooked_by(keys: &dyn KeyProvider, who: &str, url: &str) -> NewJob {
    let who = requester(who);
    let job_id = JobId::new(&who);
    let callback =
        CallbackSecret { status_webhook_url: Some(Hidden::new(url.to_owned())), refresh_url: None };
    let sealed = seal(keys, &Binding::callback(job_id, &who), &Secret::from(callback.write().expose()));
    NewJob {
        request: json!({}),
        job_id: Some(job_id),
        event_filter: Some(vec!["transcode.*".into()]),
        callback_origin: Some(origin(&url.parse().unwrap())),
        sealed: [("callback".to_owned(), sealed)].into(),
        ..NewJob::default()
    }
}

impl TestDb {
    /// A new signing secret of `who`'s; the first one is active at once.
    pub async fn add_signing_secret(&self, who: &str) -> SigningSecret {
        let (store, who, secret) = (self.store(), requester(who), SigningSecret::generate());
        let version = store.next_signing_version(&who).await.unwrap();
        let sealed = seal(&keyring(), &Binding::signing(&who, version), secret.secret());
        store.add_signing_secret(&who, version, &sealed, None).await.unwrap();
        secret
    }

    /// A job of acme's that has ended at once: three events.
    pub async fn ended(&self, job: NewJob) -> JobId {
        let id = self.enqueue_for("acme", job).await;
        self.store().cancel_job(id, None, None).await.unwrap();
        id
    }

    /// Class and status of each attempt of a job's events, in order.
    pub async fn met(&self, id: JobId) -> Vec<(i32, Option<String>, Option<i16>)> {
        let sql = format!(
            "select sequence, error_class, http_status from euterpe.outbox_attempts
              where job_id = '{id}' order by sequence, attempt"
        );
        self.rows(&sql).await.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

/// Loopback stands for the public internet, and nobody waits long.
pub fn egress() -> Egress {
    let limits = Limits {
        connect: Duration::from_secs(2),
        total: Duration::from_secs(2),
        body: Duration::from_millis(200),
        ..Limits::default()
    };
    Egress::new(crate::egress::lax(&["127.0.0.0/8"]), limits)
}

/// The real handler in the real loop, in this process.
pub fn deliver(db: &TestDb, egress: Egress, per_host: PerHost, pace: Pace) -> Working {
    deliver_by(Arc::new(keyring()), db, egress, per_host, pace)
}

pub fn deliver_by(
    keys: Arc<dyn KeyProvider>,
    db: &TestDb,
    egress: Egress,
    per_host: PerHost,
    pace: Pace,
) -> Working {
    let postman = worker("postman");
    let lane = Events::new(db.store(), postman.clone(), pace.lease, pace.concurrency);
    let handler = Webhooks::new(db.store(), postman, keys, egress, per_host);
    work_on(lane, pace, Wakeup::never(), handler)
}

/// The same with five hands and the usual places.
pub fn deliver_as_usual(db: &TestDb) -> Working {
    deliver(db, egress(), PerHost::of(2, 5), pace(5))
}

/// A running `euterpe-webhook`.
pub struct Postman {
    process: Child,
    log: std::path::PathBuf,
}

impl Postman {
    /// Over the database of a test, with more in its environment.
    pub fn start(db: &TestDb, settings: &[(&str, &str)]) -> Self {
        let log = tempfile::Builder::new().prefix("eut-hook").tempfile().unwrap();
        let log = log.into_temp_path().keep().unwrap();
        let database = url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_webhook");
        let process = Command::new(env!("CARGO_BIN_EXE_euterpe-webhook"))
            .env_clear()
            .env("EUTERPE_DATABASE_URL", database)
            .env("EUTERPE_KEKS", KEK)
            .env("EUTERPE_METRICS_LISTEN", "127.0.0.1:0")
            .env("EUTERPE_ALLOW_UNSAFE_DURABILITY", "true")
            .env("EUTERPE_ALLOW_HTTP", "true")
            .env("EUTERPE_EGRESS_ALLOW", "127.0.0.0/8")
            .env("EUTERPE_EGRESS_PORTS", "any")
            .env("EUTERPE_POLL_MS", "20-40")
            .env("EUTERPE_LOG", "json")
            .env("POD_NAME", "postman")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { process, log }
    }

    /// Everything it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Where its numbers are, once it has said so.
    pub fn metrics(&self) -> String {
        super::api::address(&self.said(), "health and metrics").expect("it is up")
    }

    pub fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.process.wait().unwrap()
    }
}

impl Drop for Postman {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}
