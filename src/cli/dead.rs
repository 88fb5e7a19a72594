//! `euterpe dead`: jobs that were given up, and making new ones of them.

use clap::Subcommand;
use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::json;

use super::job::{self, HAND_OVER};
use super::{Context, Failure, Report};
use crate::domain::{JobId, RequesterId};
use crate::store::{Steer, Store, StoreError};

/// How many in one transaction.
const BATCH: i32 = 200;

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Jobs that were given up and not redriven, newest first.
    ///
    /// Example: euterpe dead list --requester acme --code egress_blocked
    List {
        /// Of this requester only.
        #[arg(long)]
        requester: Option<RequesterId>,
        /// With this error only.
        #[arg(long)]
        code: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
    /// Make a new job of each; the old one says which. A job that only rests as failed is given up with it; `euterpe
    /// retry` tries that one again instead.
    ///
    /// Example: euterpe dead redrive 01a1eef4-4fa4-798f-9750-0e08ece63182 --why 'the bucket is there now'
    ///
    /// Many at once, asked twice: without --confirm it only counts.
    ///
    /// Example: euterpe dead redrive --all-matching --code egress_blocked --confirm 12
    Redrive {
        /// Which jobs.
        #[arg(required_unless_present = "all_matching", value_name = "JOB", value_parser = job::id)]
        job_ids: Vec<JobId>,
        /// All that the filters leave, of the last 30 days.
        #[arg(long, conflicts_with = "job_ids")]
        all_matching: bool,
        #[command(flatten)]
        filter: Filter,
        /// So many are meant: do it.
        #[arg(long, requires = "all_matching", value_name = "COUNT",
              value_parser = clap::value_parser!(i32).range(1..=10_000))]
        confirm: Option<i32>,
        /// Kept in operator_log and shown in each job's timeline.
        #[arg(long)]
        why: Option<String>,
    },
}

/// Which dead letters are meant.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// Of this queue only.
    #[arg(long, requires = "all_matching")]
    queue: Option<String>,
    /// Of this requester only.
    #[arg(long, requires = "all_matching")]
    requester: Option<RequesterId>,
    /// With this error only.
    #[arg(long, requires = "all_matching")]
    code: Option<String>,
    /// Accepted at this time or later, such as 2026-11-18T00:00:00Z.
    #[arg(long, requires = "all_matching")]
    since: Option<Timestamp>,
    /// Accepted before this time.
    #[arg(long, requires = "all_matching")]
    until: Option<Timestamp>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        let Self { queue, requester, code, since, until } = self;
        queue.is_none() && requester.is_none() && code.is_none() && since.is_none() && until.is_none()
    }
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    if let Command::Redrive { all_matching: true, filter, .. } = &command
        && filter.is_empty()
    {
        return Err(Failure::Usage(
            "all of them is too many: give --queue, --requester, --code, --since or --until".into(),
        ));
    }
    let store = context.store().await?;
    match command {
        Command::List { requester, code, limit } => {
            list(&store, requester.as_ref(), code.as_deref(), limit).await
        }
        Command::Redrive { all_matching: true, filter, confirm, why, .. } => {
            let steer = Steer {
                queue: filter.queue,
                requester: filter.requester,
                error_code: filter.code,
                since: filter.since,
                until: filter.until,
                why,
            };
            match confirm {
                None => count(&store, &steer).await,
                Some(confirm) => redrive_matching(context, &store, &steer, confirm).await,
            }
        }
        Command::Redrive { job_ids, why, .. } => redrive(&store, &job_ids, why.as_deref()).await,
    }
}

async fn list(
    store: &Store,
    requester: Option<&RequesterId>,
    code: Option<&str>,
    limit: i64,
) -> Result<Report, Failure> {
    let letters = store.dead_letters(requester, code, limit).await?;
    let rows: Vec<_> = letters
        .iter()
        .map(|one| {
            vec![
                one.job_id.to_string(),
                one.who.clone(),
                one.code.clone().unwrap_or_default(),
                one.ago.clone(),
            ]
        })
        .collect();
    let json = letters
        .iter()
        .map(|one| json!({"job_id": one.job_id, "requester_id": one.who, "code": one.code, "ago": one.ago}))
        .collect();
    let text = if letters.is_empty() {
        "no dead letters".to_owned()
    } else {
        Report::table(&["job", "requester", "code", "ago"], &rows)
    };
    Ok(Report::new(text, json))
}

/// One after the other; one that cannot be redriven does not keep the others from it.
async fn redrive(store: &Store, job_ids: &[JobId], why: Option<&str>) -> Result<Report, Failure> {
    let (mut lines, mut json, mut code) = (Vec::new(), Vec::new(), 0);
    for job_id in job_ids.iter().copied() {
        match store.redrive_job(job_id, None, None, why).await.map_err(told) {
            Ok(new) => {
                lines.push(format!("{job_id} is redriven as {new}"));
                json.push(json!({"job_id": job_id, "redriven_as": new}));
            }
            // The database is away, or worse: the next one would meet the same. What is done must be told all the same.
            Err(failure @ (Failure::Failed(_) | Failure::Usage(_))) if lines.is_empty() => {
                return Err(failure);
            }
            Err(failure @ (Failure::Failed(_) | Failure::Usage(_))) => {
                code = failure.code();
                lines.push(format!("{job_id}, and those after it, perhaps not: {failure}"));
                json.push(json!({"job_id": job_id, "redriven_as": null, "error": failure.to_string()}));
                break;
            }
            Err(failure) => {
                code = failure.code();
                lines.push(format!("{job_id} is not: {failure}"));
                json.push(json!({"job_id": job_id, "redriven_as": null, "error": failure.to_string()}));
            }
        }
    }
    Ok(Report::new(lines.join("\n"), json!(json)).with_code(code))
}

fn told(error: StoreError) -> Failure {
    match error {
        StoreError::CredentialsRequired(says) => Failure::Refused(says).and(HAND_OVER),
        other => other.into(),
    }
}

async fn count(store: &Store, steer: &Steer) -> Result<Report, Failure> {
    let found = store.redrive_matching(steer, None, BATCH).await?;
    let text = match found.matching {
        0 => "nothing matches".to_owned(),
        n => format!("{n} match, and nothing was done; next: the same with --confirm {n}"),
    };
    Ok(Report::new(text, json!({"matching": found.matching, "done": 0, "refused": 0})))
}

/// A batch at a time, until so many are done or a batch does nothing: those that refuse stay in front.
async fn redrive_matching(
    context: &Context<'_>,
    store: &Store,
    steer: &Steer,
    confirm: i32,
) -> Result<Report, Failure> {
    let first = store.redrive_matching(steer, None, BATCH).await?;
    if first.matching < confirm {
        return Err(Failure::Refused(format!(
            "{} match, not {confirm}: look again, then confirm that number",
            first.matching
        )));
    }
    let bar =
        if context.json { ProgressBar::hidden() } else { ProgressBar::new(confirm.unsigned_abs().into()) };
    let (mut done, mut refused) = (0, 0);
    while done < confirm {
        let did = match store.redrive_matching(steer, Some(confirm - done), BATCH).await {
            Ok(did) => did,
            Err(error) if done == 0 => return Err(error.into()),
            Err(error) => return Err(Failure::from(error).and(&format!("{done} were redriven before"))),
        };
        (done, refused) = (done + did.done, did.refused);
        bar.set_position(done.unsigned_abs().into());
        if did.done == 0 || did.matching <= did.done + did.refused {
            break;
        }
    }
    bar.finish_and_clear();
    let text = match refused {
        0 => format!("{done} redriven"),
        n => format!(
            "{done} redriven, {n} refused: their credentials are gone; their requester hands over new ones with \
             POST /transcode/retry"
        ),
    };
    let code = if done < confirm { 4 } else { 0 };
    Ok(Report::new(text, json!({"matching": first.matching, "done": done, "refused": refused}))
        .with_code(code))
}
