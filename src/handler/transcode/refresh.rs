//! Contract §7, design §5.10: asking a requester for new credentials.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::access::JobAccess;
use super::ending::Stop;
use crate::crypto::{Binding, KeyProvider, Secret, seal};
use crate::domain::transcode::{Policy, Rejection, StorageSecret, parse_refresh_answer};
use crate::domain::{JobFailure, Outcome, ReleaseReason, WorkerId};
use crate::egress::{Answer, Egress, Failure};
use crate::handler::opening::Opener;
use crate::handler::signers::{Signers, Unsigned, post};
use crate::storage::{Access, Keys, StorageError};
use crate::store::{Refresh, Store, StoreError};
use crate::worker::JobEnding;

/// From one look for new credentials to the next, while the requester puts them.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Asks for new credentials.
pub struct Refresher {
    pub(super) store: Store,
    pub(super) worker: WorkerId,
    pub(super) opener: Arc<Opener>,
    pub(super) egress: Arc<Egress>,
    signers: Signers,
    policy: Policy,
    patience: Patience,
}

/// How long a refresh may take, and how long a job then rests.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the requester to put new credentials after it has said that it will.
    pub wait: Duration,
    /// Until the job is tried again when none came.
    pub rest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { wait: Duration::from_secs(30), rest: Duration::from_secs(15) }
    }
}

impl Refresher {
    /// Calls by `egress`, whose answers must have room for credentials; takes what `policy` allows.
    #[must_use]
    pub fn new(
        store: Store,
        worker: WorkerId,
        keys: Arc<dyn KeyProvider>,
        egress: Arc<Egress>,
        policy: Policy,
        patience: Patience,
    ) -> Self {
        let opener = Arc::new(Opener::new(keys));
        let signers = Signers::new(store.clone(), Arc::clone(&opener));
        Self { store, worker, opener, egress, signers, policy, patience }
    }

    /// Keys newer than `version`, or the end of this attempt.
    pub(super) async fn ask(
        &self,
        job: &JobAccess<'_>,
        version: i32,
        worked: bool,
        refused: &StorageError,
    ) -> Result<Keys, Stop> {
        // The requester may have been faster than we.
        if let Some(keys) = job.newer_than(version).await? {
            return Ok(keys);
        }
        let asked = [(job.claim(), worked)];
        let begun = job.held.insist(|| self.store.begin_refreshes(&self.worker, &asked)).await?;
        let version = match begun.first() {
            // Put while we asked.
            Some((_, Refresh::Ask(newer))) if *newer > version => {
                return self.await_newer(job, version).await;
            }
            Some((_, Refresh::Ask(version))) => *version,
            Some((_, Refresh::Exhausted)) => return Err(exhausted(refused, job.refresh_url().is_some())),
            Some((_, Refresh::Lost(_))) | None => return Err(Stop::not_ours()),
        };
        metrics::counter!("euterpe_credential_refreshes_total").increment(1);
        let answer = self.call(job, version, refused).await?;
        if answer.status.as_u16() == 200
            && let Some(new) = self.handed_over(job, &answer)?
        {
            self.store_new(job, version, &new).await?;
        }
        self.await_newer(job, version).await
    }

    /// The signed call.
    async fn call(&self, job: &JobAccess<'_>, version: i32, refused: &StorageError) -> Result<Answer, Stop> {
        let Some(url) = job.refresh_url() else { return Err(self.none_came("the job has no refresh_url")) };
        let secrets = self.signers.of(job.requester, job.held).await.map_err(|why| match why {
            Unsigned::Sealed(error) => error.into(),
            Unsigned::Other(why) => Stop::failed("internal", why),
        })?;
        let event_id = format!("rfr_{}", Uuid::new_v4().simple());
        let body = json!({
            "type": "credentials.refresh_required",
            "timestamp": format!("{:.6}", Timestamp::now()),
            "event_id": event_id,
            "data": {
                "job_id": job.claim().job_id,
                "credential_version": version,
                "phase": job.phase().as_str(),
                "http_status": refused.http_status,
                "provider_code": refused.provider_code,
            },
        });
        let answered = post(&self.egress, url.expose(), &secrets, &event_id, body.to_string().into()).await;
        match answered {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) => Err(self.none_came(&format!("refresh_url answered {}", answer.status.as_u16()))),
            Err(failure @ (Failure::Blocked(_) | Failure::BlockedAddress)) => {
                Err(Stop::failed("egress_blocked", format!("refresh_url: {failure}")))
            }
            Err(failure) => Err(self.none_came(&format!("refresh_url: {failure}"))),
        }
    }

    /// What the answer carries; `None`: nothing, the requester will put it.
    fn handed_over(&self, job: &JobAccess<'_>, answer: &Answer) -> Result<Option<StorageSecret>, Stop> {
        if answer.beginning.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let old = job.keys().secret;
        let judged = parse_refresh_answer(&answer.beginning, &self.policy, job.requester)
            .and_then(|new| job.spec.check_refresh(&new).map(|()| new));
        match judged {
            Ok(new) if old.is_empty() || new.leads_where(&old) => Ok(Some(new)),
            Ok(_) => Err(self.none_came("refresh_url answered with urls that lead elsewhere")),
            // Another 2xx body, such as {"ok": true}, is nobody's credentials.
            Err(_) if !mentions_credentials(&answer.beginning) => Ok(None),
            Err(Rejection { message, faults, .. }) => {
                // A fault says what would be acceptable and repeats nothing.
                let faults = faults.iter().map(|fault| format!("; {} {}", fault.pointer, fault.message));
                Err(self.none_came(&format!("refresh_url's answer: {message}{}", faults.collect::<String>())))
            }
        }
    }

    async fn store_new(&self, job: &JobAccess<'_>, version: i32, new: &StorageSecret) -> Result<(), Stop> {
        let job_id = job.claim().job_id;
        let binding = Binding::storage(job_id, job.requester, version + 1);
        let text = Secret::from(new.write().expose());
        let sealed = seal(self.opener.keys(), &binding, &text);
        let claim = job.claim();
        let stored =
            job.held.insist(|| self.store.store_refreshed(&self.worker, claim, version, &sealed)).await;
        match stored {
            // Somebody else put some meanwhile: theirs are newer.
            Ok(Outcome::Ok) | Err(StoreError::CredentialVersionMoved(_)) => Ok(()),
            Ok(_) => Err(Stop::not_ours()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on only when the version has advanced.
    async fn await_newer(&self, job: &JobAccess<'_>, version: i32) -> Result<Keys, Stop> {
        let end = Instant::now() + self.patience.wait;
        loop {
            if let Some(keys) = job.newer_than(version).await? {
                return Ok(keys);
            }
            if Instant::now() >= end {
                return Err(self.none_came("the requester put no new credentials in time"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Back to the line: the attempt is given back, and the refresh has its own count.
    fn none_came(&self, why: &str) -> Stop {
        tracing::warn!(why, "no new credentials");
        Stop::released(ReleaseReason::Credentials, self.patience.rest)
    }
}

fn mentions_credentials(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    ["credentials", "source_uri", "upload_urls"].iter().any(|field| text.contains(&format!("\"{field}\"")))
}

pub(super) fn exhausted(refused: &StorageError, could_ask: bool) -> Stop {
    let why = if could_ask {
        "refreshing the credentials did not help"
    } else {
        "the credentials are not good, and there is no refresh_url to ask for others"
    };
    Stop(JobEnding::Failed(JobFailure {
        code: "credential_refresh_exhausted".into(),
        message: format!("{why}: {}", refused.message),
        http_status: refused.http_status,
        provider_code: refused.provider_code.clone(),
        ..JobFailure::default()
    }))
}
