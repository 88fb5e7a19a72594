//! `euterpe key`: API keys. Each is shown once; the database keeps a hash.

use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Context, Failure, Report};
use crate::crypto::ApiKey;
use crate::domain::RequesterId;
use crate::store::{NewApiKey, StoreError};

/// What can be done with API keys.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a key and show it, once.
    ///
    /// Example: euterpe key add acme --scope transcode:read --days 90
    Add {
        /// Whose key.
        requester_id: RequesterId,
        /// What it may do; default: everything.
        #[arg(long = "scope", value_parser = ["transcode:write", "transcode:read"])]
        scopes: Vec<String>,
        /// After how many days it ends; default: never.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
    },
    /// Which keys there are, of everybody or of one requester, and what has become of each. Nobody can show a key again.
    ///
    /// Example: euterpe key list acme
    List {
        /// Whose keys; default: everybody's.
        requester_id: Option<RequesterId>,
    },
    /// Make a key invalid, on every pod within a second.
    ///
    /// Example: euterpe key revoke k3v9x0q2m7ta --why 'found in a public repository'
    Revoke {
        /// The part between eut_ and the next _; the whole key will do.
        key_id: String,
        /// Kept in operator_log.
        #[arg(long)]
        why: Option<String>,
    },
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    match command {
        Command::Add { requester_id, scopes, days } => add(context, requester_id, scopes, days).await,
        Command::List { requester_id } => list(context, requester_id.as_ref()).await,
        Command::Revoke { key_id, why } => {
            let key_id = ApiKey::parse(&key_id).map_or(key_id, |key| key.id().to_owned());
            // What is no id may be a mistyped key, and an error message may be kept: it is not repeated.
            if key_id.len() > 32 || !key_id.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(Failure::Usage(
                    "that is no key id: it is the part between eut_ and the next _".into(),
                ));
            }
            context.store().await?.revoke_api_key(&key_id, why.as_deref()).await?;
            Ok(Report::new(format!("{key_id} is revoked"), json!({"key_id": key_id, "revoked": true})))
        }
    }
}

async fn add(
    context: &Context<'_>,
    requester_id: RequesterId,
    mut scopes: Vec<String>,
    days: Option<u32>,
) -> Result<Report, Failure> {
    let (peppers, store) = (context.peppers()?, context.store().await?);
    if scopes.is_empty() {
        scopes = vec!["transcode:write".into(), "transcode:read".into()];
    }
    let expires_at = days.map(|days| Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days)));
    let key = ApiKey::generate();
    let kept = peppers.hash(&key);
    let new = NewApiKey {
        requester_id: requester_id.clone(),
        key_id: key.id().to_owned(),
        key_hash: kept.hash.to_vec(),
        pepper_version: kept.pepper_version,
        scopes: scopes.clone(),
        expires_at,
    };
    store.add_api_key(&new).await.map_err(|error| match error {
        StoreError::NotFound(says) => {
            Failure::NotFound(says).and(&format!("`euterpe requester add {requester_id}` makes it"))
        }
        other => other.into(),
    })?;
    let shown = key.expose().expose_str().unwrap_or_default();
    Ok(Report::new(
        format!("{shown}\n\nThis is shown once. To take it back: euterpe key revoke {}", key.id()),
        json!({
            "requester_id": requester_id.as_str(), "key_id": key.id(), "key": shown, "scopes": scopes,
            "expires_at": expires_at,
        }),
    ))
}

async fn list(context: &Context<'_>, requester: Option<&RequesterId>) -> Result<Report, Failure> {
    let keys = context.store().await?.list_api_keys(requester).await?;
    let time = |at: Option<Timestamp>, none: &str| at.map_or(none.to_owned(), |at| format!("{at:.0}"));
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let state = match (key.revoked_at, key.expires_at) {
                (Some(at), _) => format!("revoked {at:.0}"),
                (None, Some(at)) if key.is_valid => format!("ends {at:.0}"),
                (None, Some(at)) => format!("ended {at:.0}"),
                (None, None) => "valid".to_owned(),
            };
            vec![
                key.key_id.clone(),
                key.requester_id.clone(),
                key.scopes.join(", "),
                time(Some(key.created_at), ""),
                time(key.last_used_at, "never"),
                state,
            ]
        })
        .collect();
    let json = keys.iter().map(|key| {
        json!({
            "key_id": key.key_id, "requester_id": key.requester_id, "scopes": key.scopes, "is_valid": key.is_valid,
            "created_at": key.created_at, "last_used_at": key.last_used_at, "expires_at": key.expires_at,
            "revoked_at": key.revoked_at,
        })
    });
    let text = if keys.is_empty() {
        "no keys".to_owned()
    } else {
        Report::table(&["key", "requester", "may", "created", "last used", "state"], &rows)
    };
    Ok(Report::new(text, json.collect()))
}
