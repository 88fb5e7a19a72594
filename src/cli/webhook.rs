//! `euterpe webhook test`: a signed ping, by the same way that webhooks go.

use clap::Subcommand;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::secret::opened;
use super::{Context, Failure, Report};
use crate::config;
use crate::crypto::SigningSecret;
use crate::domain::RequesterId;
use crate::egress::Egress;
use crate::handler::signers::{SigningSecrets, post};
use crate::handler::webhook::delivery_of;

/// What can be done with webhooks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a signed ping to a url and show what it answers. Goes where webhooks may go, and nowhere else.
    ///
    /// Example: euterpe webhook test https://media.example.com/hooks --requester acme
    Test {
        /// Where to.
        url: String,
        #[command(flatten)]
        secrets: Secrets,
    },
}

/// With what it is signed.
#[derive(Debug, clap::Args)]
pub struct Secrets {
    /// whsec_…; several, separated by commas, while one is rotated. Better in the environment: arguments can be seen.
    #[arg(long, env = "EUTERPE_WEBHOOK_SECRET", hide_env_values = true, value_delimiter = ',')]
    secret: Vec<String>,
    /// The secrets of this requester, from the database.
    #[arg(long, conflicts_with = "secret")]
    requester: Option<RequesterId>,
}

impl Secrets {
    /// The active one first.
    pub(super) async fn read(&self, context: &Context<'_>) -> Result<Vec<SigningSecret>, Failure> {
        let found: Vec<_> = if let Some(who) = &self.requester {
            let (keys, store) = (context.keyring()?, context.store().await?);
            let stored = store.read_signing_secrets(std::slice::from_ref(who)).await?;
            if stored.is_empty() {
                let says = format!("there is no requester {who} with a signing secret");
                return Err(Failure::NotFound(says).and("`euterpe requester list` shows who there is"));
            }
            stored.iter().map(|one| opened(&keys, one)).collect::<Result<_, _>>()?
        } else {
            let parsed: Result<_, _> = self.secret.iter().map(|text| SigningSecret::parse(text)).collect();
            parsed.map_err(|error| Failure::Usage(error.to_string()))?
        };
        if found.is_empty() {
            let says = "no signing secret: set EUTERPE_WEBHOOK_SECRET, or name a --requester that has one";
            return Err(Failure::Usage(says.into()));
        }
        Ok(found)
    }
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    let Command::Test { url, secrets } = command;
    let egress = Egress::new(config::policy(context.env)?.egress, config::webhook_limits(context.env)?);
    let mut secrets = secrets.read(context).await?;
    let secrets = SigningSecrets { active: secrets.remove(0), others: secrets };
    let (event_id, now) = (format!("evt_{}_0", Uuid::new_v4().simple()), Timestamp::now());
    let body =
        json!({"type": "euterpe.ping", "timestamp": now, "event_id": event_id, "sequence": 0, "data": {}});
    let answered = post(&egress, &url, &secrets, &event_id, body.to_string().into()).await;

    let met = delivery_of(answered, now);
    let says = String::from_utf8_lossy(met.answer.as_deref().unwrap_or_default()).escape_debug().to_string();
    match (met.error_class, met.http_status) {
        (None, status) => Ok(Report::new(
            format!("delivered: {} {says}", status.unwrap_or_default()).trim_end(),
            json!({"event_id": event_id, "http_status": status, "answer": says}),
        )),
        (Some(class), Some(status)) => {
            Err(Failure::Failed(format!("{class}: it answered {status} {says}").trim_end().to_owned()))
        }
        (Some(class), None) => Err(Failure::Failed(format!("{class}: {says}"))),
    }
}
