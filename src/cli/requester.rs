//! `euterpe requester`: who may ask for work.

use clap::Subcommand;
use serde_json::json;

use super::secret::add_secret;
use super::{Context, Failure, Report};
use crate::domain::RequesterId;
use crate::store::{NewRequester, StoreError};

/// What can be done with requesters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let somebody ask for work, with a first signing secret. `key add` then makes a key.
    ///
    /// Example: euterpe requester add acme --name 'Acme Video' --weight 3
    Add {
        /// 1 to 64 of a-z 0-9 _ -.
        requester_id: RequesterId,
        /// For people.
        #[arg(long)]
        name: Option<String>,
        /// Share of a line against other requesters, 1 to 100.
        #[arg(long, default_value_t = 1)]
        weight: i32,
        /// Higher priorities are lowered to this, 0 to 1000.
        #[arg(long, default_value_t = 1000)]
        max_priority: i32,
        /// Unfinished jobs it may have at once.
        #[arg(long, default_value_t = 100_000)]
        max_open_jobs: i32,
        /// Requests per second, per pod of the API.
        #[arg(long, default_value_t = 20)]
        rate: i32,
        /// How many requests may come at once.
        #[arg(long, default_value_t = 60)]
        burst: i32,
    },
    /// Everybody who may ask, or might.
    ///
    /// Example: euterpe requester list --json
    List,
    /// Stop taking work from somebody; what was accepted goes on.
    ///
    /// Example: euterpe requester disable acme --why 'invoice unpaid'
    Disable(Which),
    /// Take work from somebody again.
    ///
    /// Example: euterpe requester enable acme --why paid
    Enable(Which),
}

/// Whom it is about.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The requester.
    requester_id: RequesterId,
    /// Kept in operator_log.
    #[arg(long)]
    why: Option<String>,
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    match command {
        Command::Add { requester_id, name, weight, max_priority, max_open_jobs, rate, burst } => {
            let new = NewRequester {
                display_name: name,
                weight,
                max_priority,
                max_open_jobs,
                requests_per_second: rate,
                request_burst: burst,
                ..NewRequester::named(requester_id)
            };
            add(context, &new).await
        }
        Command::List => list(context).await,
        Command::Disable(Which { requester_id, why }) => {
            context.store().await?.disable_requester(&requester_id, why.as_deref()).await?;
            Ok(Report::new(
                format!("{requester_id} is disabled; what was accepted goes on"),
                json!({"requester_id": requester_id.as_str(), "disabled": true}),
            ))
        }
        Command::Enable(Which { requester_id, why }) => {
            context.store().await?.enable_requester(&requester_id, why.as_deref()).await?;
            Ok(Report::new(
                format!("{requester_id} may ask again"),
                json!({"requester_id": requester_id.as_str(), "disabled": false}),
            ))
        }
    }
}

/// Keys are looked at first: a requester without a signing secret would get webhooks that nobody can verify.
async fn add(context: &Context<'_>, new: &NewRequester) -> Result<Report, Failure> {
    let (keys, store) = (context.keyring()?, context.store().await?);
    let who = &new.requester_id;
    match store.next_signing_version(who).await {
        Err(StoreError::NotFound(_)) => store.add_requester(new).await?,
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let next =
                format!("`euterpe secret show {who}` shows its secret, `euterpe key add {who}` makes a key");
            return Err(Failure::Refused(format!("{who} is there already")).and(&next));
        }
    }
    let (version, secret) = add_secret(&store, &keys, who, None).await.map_err(|failure| {
        failure.and(&format!("{who} was added: go on with `euterpe secret rotate {who}`"))
    })?;
    Ok(Report::new(
        format!(
            "{who} may ask for work. Its webhooks are signed with\n\n  {}\n\nnext: euterpe key add {who}",
            *secret.expose()
        ),
        json!({"requester_id": who.as_str(), "secret": {"version": version, "secret": *secret.expose()}}),
    ))
}

async fn list(context: &Context<'_>) -> Result<Report, Failure> {
    let requesters = context.store().await?.list_requesters().await?;
    let rows: Vec<_> = requesters
        .iter()
        .map(|one| {
            let state =
                one.disabled_at.map_or("open".to_owned(), |since| format!("disabled since {since:.0}"));
            vec![
                one.requester_id.clone(),
                one.display_name.clone().unwrap_or_default(),
                one.weight.to_string(),
                one.max_open_jobs.to_string(),
                format!("{}/s, {} at once", one.requests_per_second, one.request_burst),
                state,
            ]
        })
        .collect();
    let json = requesters.iter().map(|one| {
        json!({
            "requester_id": one.requester_id, "display_name": one.display_name, "weight": one.weight,
            "max_priority": one.max_priority, "max_open_jobs": one.max_open_jobs,
            "requests_per_second": one.requests_per_second, "request_burst": one.request_burst,
            "disabled_at": one.disabled_at, "created_at": one.created_at,
        })
    });
    let names = ["requester", "name", "weight", "max open", "requests", "state"];
    Ok(Report::new(Report::table(&names, &rows), json.collect()))
}
