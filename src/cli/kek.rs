//! `euterpe kek`: keys that wrap keys, and changing them while traffic runs (docs/security.md).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write, stderr};

use clap::Subcommand;
use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::json;

use super::{Context, Failure, Report};
use crate::crypto::{Binding, KeyProvider, Keyring, OpenError, new_key, rewrap};
use crate::domain::Purpose;
use crate::store::{KekUsage, NewlyWrapped, Store, WrappedKey};

/// What can be done with key-encryption keys.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a new key as a line of a key file. Nothing is stored.
    ///
    /// Example: (umask 077; set -C; euterpe kek new --pepper > keys) && export EUTERPE_KEK_FILE="$PWD/keys"
    New {
        /// Its name; default: today's date and four random digits.
        #[arg(long)]
        id: Option<String>,
        /// Print a pepper for API keys, too: a system needs one.
        #[arg(long)]
        pepper: bool,
        /// Print a pepper and no key: for a key file that lacks one.
        #[arg(long, conflicts_with_all = ["id", "pepper"])]
        pepper_only: bool,
    },
    /// Which keys are here, which seal, and how many secrets each wraps.
    ///
    /// Example: euterpe kek list
    List,
    /// Wrap every secret's key with the active KEK. Safe while traffic runs; cut off, it can be started again.
    ///
    /// First give the new key to every pod, then make it active on every pod, then run this. When `kek list` counts
    /// none for the old key, take it away.
    ///
    /// Example: euterpe kek rewrap --why 'every 90 days'
    Rewrap {
        /// How many in one transaction.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
        batch: u16,
        /// Kept in operator_log.
        #[arg(long)]
        why: Option<String>,
    },
}

pub(super) async fn run(context: &Context<'_>, command: Command) -> Result<Report, Failure> {
    match command {
        Command::New { pepper_only: true, .. } => {
            let pepper = new_key();
            Ok(Report::new(pepper_line(&pepper), json!({"pepper": *pepper})))
        }
        Command::New { id, pepper, .. } => new(id, pepper),
        Command::List => list(context).await,
        Command::Rewrap { batch, why } => rewrap_all(context, batch, why.as_deref()).await,
    }
}

fn new(id: Option<String>, pepper: bool) -> Result<Report, Failure> {
    let id = id.unwrap_or_else(|| {
        let random = uuid::Uuid::new_v4().simple().to_string();
        format!("{}-{}", Timestamp::now().strftime("%Y-%m-%d"), &random[..4])
    });
    let key = new_key();
    // Whoever reads it later will have the same complaint about its name.
    Keyring::from_env(|name| (name == "EUTERPE_KEKS").then(|| format!("{id}:{}", *key)))?;
    let line = format!("kek {id} {}", *key);
    if !pepper {
        return Ok(Report::new(line, json!({"kek_id": id, "kek": *key})));
    }
    let pepper = new_key();
    let lines = format!("{line}\n{}", pepper_line(&pepper));
    Ok(Report::new(lines, json!({"kek_id": id, "kek": *key, "pepper": *pepper})))
}

fn pepper_line(pepper: &str) -> String {
    format!("pepper 1 {pepper}")
}

async fn list(context: &Context<'_>) -> Result<Report, Failure> {
    let (keys, store) = (context.keyring()?, context.store().await?);
    // Every key that is here or is named there, so that a missing one stands out.
    let mut counts: BTreeMap<String, BTreeMap<&str, i64>> =
        keys.ids().map(|id| (id.to_owned(), BTreeMap::new())).collect();
    for KekUsage { kek_id, purpose, secret_count } in store.kek_usage().await? {
        counts.entry(kek_id).or_default().insert(purpose.as_str(), secret_count);
    }
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, wraps) in &counts {
        let is_here = keys.ids().any(|here| here == id);
        let seals: Vec<_> = PURPOSES
            .into_iter()
            .filter(|purpose| keys.active_kek(*purpose) == id)
            .map(Purpose::as_str)
            .collect();
        let state = match (is_here, wraps.is_empty()) {
            (false, _) => "MISSING HERE: these do not open",
            // New ones and worn-out ones look alike.
            (true, true) if seals.is_empty() => "unused: may be taken away, unless it is to become active",
            (true, false) if seals.is_empty() => "old: euterpe kek rewrap",
            (true, _) => "in use",
        };
        let count = |purpose: Purpose| wraps.get(purpose.as_str()).copied().unwrap_or_default().to_string();
        rows.push(vec![
            id.clone(),
            seals.join(", "),
            count(Purpose::Storage),
            count(Purpose::Callback),
            count(Purpose::Signing),
            state.to_owned(),
        ]);
        json.push(json!({"kek_id": id, "is_here": is_here, "seals": seals, "wraps": wraps}));
    }
    let names = ["kek", "seals", "storage", "callback", "signing", "state"];
    Ok(Report::new(Report::table(&names, &rows), json!(json)))
}

const PURPOSES: [Purpose; 3] = [Purpose::Storage, Purpose::Callback, Purpose::Signing];

/// Walks until a walk finds nothing to do: what was held or replaced meanwhile is met by the next one.
async fn rewrap_all(context: &Context<'_>, batch: u16, why: Option<&str>) -> Result<Report, Failure> {
    let (keys, store) = (context.keyring()?, context.store().await?);
    let bar = if context.json { None } else { Some(ProgressBar::new(0)) };
    let mut walk =
        Walk { keys: &keys, store: &store, batch, why, done: 0, total: 0, broken: BTreeSet::new(), bar };
    for _ in 0..5 {
        let old = outdated(&keys, store.kek_usage().await?);
        let left: usize = old.values().sum();
        // One that did not open when it was met may have been replaced since, by its requester.
        if left == 0 {
            walk.broken.clear();
        }
        if left <= walk.broken.len() {
            return walk.report();
        }
        walk.total = walk.done + left;
        for kek_id in old.keys() {
            walk.along(kek_id).await?;
        }
    }
    Err(Failure::Failed(format!(
        "{} rewrapped, and still some are not: a pod seals with an old key; make the new one active everywhere, then run \
         this again",
        walk.done
    )))
}

/// How many secrets each KEK wraps that another one should.
fn outdated(keys: &Keyring, usage: Vec<KekUsage>) -> BTreeMap<String, usize> {
    let mut old = BTreeMap::new();
    for KekUsage { kek_id, purpose, secret_count } in usage {
        if keys.active_kek(purpose) != kek_id {
            *old.entry(kek_id).or_default() += usize::try_from(secret_count).unwrap_or_default();
        }
    }
    old
}

struct Walk<'a> {
    keys: &'a Keyring,
    store: &'a Store,
    batch: u16,
    why: Option<&'a str>,
    done: usize,
    total: usize,
    /// Places of keys that do not open: one that was tampered with must not stop the rest.
    broken: BTreeSet<String>,
    /// `None`: nothing beside JSON.
    bar: Option<ProgressBar>,
}

impl Walk<'_> {
    /// Every secret that `kek_id` wraps and should not, a batch at a time.
    async fn along(&mut self, kek_id: &str) -> Result<(), Failure> {
        let mut after: Option<String> = None;
        loop {
            let listed = self.store.list_wrapped(Some(kek_id), after.as_deref(), self.batch).await?;
            let Some(last) = listed.last() else { return Ok(()) };
            after = Some(last.place.clone());
            let mut new = Vec::with_capacity(listed.len());
            for (place, key) in listed.iter().filter_map(|step| Some((&step.place, step.key.as_ref()?))) {
                if self.keys.active_kek(key.purpose) == key.kek_id {
                    continue;
                }
                match self.newly_wrapped(place, key) {
                    Ok(key) => new.push(key),
                    Err(OpenError::Failed) => drop(self.broken.insert(place.clone())),
                    Err(unknown @ OpenError::UnknownKek(_)) => return Err(unknown.into()),
                }
            }
            if !new.is_empty() {
                self.done += self.store.rewrap(&new, self.why).await?;
                self.show();
            }
        }
    }

    fn newly_wrapped(&self, place: &str, key: &WrappedKey) -> Result<NewlyWrapped, OpenError> {
        let binding = match (key.purpose, key.bound_to) {
            (Purpose::Storage, Some(job_id)) => Binding::storage(job_id, &key.requester_id, key.version),
            (Purpose::Callback, Some(job_id)) => Binding::callback(job_id, &key.requester_id),
            (Purpose::Signing, _) => Binding::signing(&key.requester_id, key.version),
            (Purpose::Storage | Purpose::Callback, None) => return Err(OpenError::Failed),
        };
        let new = rewrap(self.keys, &binding, &key.kek_id, &key.dek_wrapped)?;
        Ok(NewlyWrapped {
            place: place.to_owned(),
            old_wrapped: key.dek_wrapped.clone(),
            new_wrapped: new.dek_wrapped,
            new_kek_id: new.kek_id,
        })
    }

    fn report(&self) -> Result<Report, Failure> {
        let done = self.done;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match self.broken.first() {
            None => Ok(Report::new(
                format!("{done} rewrapped; every secret is wrapped by an active key"),
                json!({"rewrapped": done}),
            )),
            Some(first) => Err(Failure::Failed(format!(
                "{done} rewrapped; {} do not open and were left as they are, the first is {first}: somebody changed them, \
                 or their key is another one of that name",
                self.broken.len()
            ))),
        }
    }

    /// A bar on a terminal; elsewhere a line per batch.
    fn show(&self) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(self.total as u64);
        bar.set_position(self.done as u64);
        if !stderr().is_terminal() {
            // A closed stderr is no reason to stop in the middle.
            let _ = writeln!(stderr(), "{} of {} rewrapped", self.done, self.total);
        }
    }
}
