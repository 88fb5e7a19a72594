//! `euterpe secret`: what a requester's webhooks are signed with, and changing it without a gap.

use clap::Subcommand;
use jiff::SignedDuration;
use serde_json::json;

use super::{Context, Failure, Report};
use crate::crypto::{Binding, Keyring, SigningSecret, open, seal};
use crate::domain::RequesterId;
use crate::store::{Store, StoreError, StoredSigningSecret};

/// What can be done with signing secrets.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the secrets that sign now.
    ///
    /// Example: euterpe secret show acme
    Show {
        /// Whose.
        requester_id: RequesterId,
    },
    /// Add a new secret. Until it is activated, the old one makes x-euterpe-signature, and both are in webhook-signature.
    ///
    /// Example: euterpe secret rotate acme, give it to acme, then euterpe secret activate acme 2
    Rotate(Whose),
    /// Sign with this secret from now on; the old one keeps signing beside it for a while.
    ///
    /// Example: euterpe secret activate acme 2 --overlap-hours 48
    Activate {
        /// Whose.
        requester_id: RequesterId,
        /// Which: `secret show` lists them.
        version: i32,
        /// How long the others keep signing beside it.
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(0..=720))]
        overlap_hours: u16,
        /// Kept in operator_log.
        #[arg(long)]
        why: Option<String>,
    },
    /// Sign nothing with this secret any more: it leaked, or nobody needs its overlap.
    ///
    /// Example: euterpe secret retire acme 1 --why leaked
    Retire {
        /// Whose.
        requester_id: RequesterId,
        /// Which: `secret show` lists them.
        version: i32,
        /// Kept in operator_log.
        #[arg(long)]
        why: Option<String>,
    },
}

/// Whose secret, and why.
#[derive(Debug, clap::Args)]
pub struct Whose {
    /// Whose.
    requester_id: RequesterId,
    /// Kept in operator_log.
    #[arg(long)]
    why: Option<String>,
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    match command {
        Command::Show { requester_id } => show(context, requester_id).await,
        Command::Rotate(Whose { requester_id, why }) => rotate(context, &requester_id, why.as_deref()).await,
        Command::Activate { requester_id, version, overlap_hours, why } => {
            let overlap = SignedDuration::from_hours(overlap_hours.into());
            let store = context.store().await?;
            store.activate_signing_secret(&requester_id, version, overlap, why.as_deref()).await?;
            Ok(Report::new(
                format!(
                    "{requester_id}'s webhooks are signed with version {version}; others for {overlap_hours} h more"
                ),
                json!({"requester_id": requester_id.as_str(), "version": version, "overlap_hours": overlap_hours}),
            ))
        }
        Command::Retire { requester_id, version, why } => {
            context.store().await?.retire_signing_secret(&requester_id, version, why.as_deref()).await?;
            Ok(Report::new(
                format!("version {version} of {requester_id} signs nothing any more"),
                json!({"requester_id": requester_id.as_str(), "version": version, "retired": true}),
            ))
        }
    }
}

async fn show(context: &Context<'_>, requester_id: RequesterId) -> Result<Report, Failure> {
    let (keys, store) = (context.keyring()?, context.store().await?);
    let stored = store.read_signing_secrets(std::slice::from_ref(&requester_id)).await?;
    if stored.is_empty() {
        let says = format!("{requester_id} has no signing secret");
        return Err(Failure::NotFound(says).and(&format!("`euterpe secret rotate {requester_id}` makes one")));
    }
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for one in &stored {
        let opened = opened(&keys, one)?;
        let state = match (one.is_active, one.retired_at) {
            (true, _) => "active".to_owned(),
            (false, Some(until)) => format!("until {until:.0}"),
            (false, None) => format!("waits: euterpe secret activate {requester_id} {}", one.version),
        };
        rows.push(vec![one.version.to_string(), opened.expose().to_string(), state]);
        json.push(json!({
            "version": one.version, "secret": *opened.expose(), "is_active": one.is_active,
            "created_at": one.created_at, "activated_at": one.activated_at, "retired_at": one.retired_at,
        }));
    }
    Ok(Report::new(
        Report::table(&["version", "secret", "state"], &rows),
        json!({"requester_id": requester_id.as_str(), "secrets": json}),
    ))
}

pub(super) fn opened(keys: &Keyring, one: &StoredSigningSecret) -> Result<SigningSecret, Failure> {
    let secret = open(keys, &Binding::signing(&one.requester_id, one.version), one.parts())?;
    SigningSecret::try_from(secret).map_err(|error| Failure::Failed(error.to_string()))
}

async fn rotate(context: &Context<'_>, who: &RequesterId, why: Option<&str>) -> Result<Report, Failure> {
    let (keys, store) = (context.keyring()?, context.store().await?);
    let (version, secret) = add_secret(&store, &keys, who, why).await?;
    Ok(Report::new(
        format!(
            "version {version} of {who}:\n\n  {}\n\nwhen {who} has it: euterpe secret activate {who} {version}",
            *secret.expose()
        ),
        json!({"requester_id": who.as_str(), "secret": {"version": version, "secret": *secret.expose()}}),
    ))
}

/// A new secret, sealed and stored. The version is bound into it, so whoever is overtaken seals again.
pub(super) async fn add_secret(
    store: &Store,
    keys: &Keyring,
    who: &RequesterId,
    why: Option<&str>,
) -> Result<(i32, SigningSecret), Failure> {
    let secret = SigningSecret::generate();
    let mut overtaken = None;
    for _ in 0..3 {
        let version = store.next_signing_version(who).await?;
        let sealed = seal(keys, &Binding::signing(who, version), secret.secret());
        match store.add_signing_secret(who, version, &sealed, why).await {
            Ok(()) => return Ok((version, secret)),
            Err(error @ StoreError::CredentialVersionMoved(_)) => overtaken = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(overtaken.map_or(Failure::Failed("no attempt was made".into()), Failure::from))
}
