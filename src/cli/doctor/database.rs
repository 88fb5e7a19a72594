//! What is asked of Postgres.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Check;
use crate::cli::{Context, Failure};
use crate::config;
use crate::crypto::Keyring;
use crate::store::surface::Role;
use crate::store::{ServerFacts, Store, StoreError};

/// The oldest server that has what we call.
const OLDEST: i32 = 150_000;
/// Ids carry our clock, and the database refuses those that are ten minutes off; webhooks are refused after five.
const SKEW_MS: i64 = 5_000;

pub(super) async fn look(context: &Context<'_>, ring: Option<&Keyring>) -> Vec<Check> {
    const NAME: &str = "postgres";
    let config = match config::database(context.env, "euterpe") {
        Ok(config) => config,
        Err(error) => {
            return vec![Check::bad(
                NAME,
                error.to_string(),
                "export EUTERPE_DATABASE_URL=postgres://…, then again",
            )];
        }
    };
    let store = Store::connect(config, 2);
    let before = Timestamp::now();
    let facts = match store.server_facts().await {
        Ok(facts) => facts,
        Err(error) => {
            let mend = "set EUTERPE_DATABASE_URL right and start the server; nothing else of the database was looked at";
            return vec![Check::bad(NAME, says(error), mend)];
        }
    };
    let mut checks = vec![
        version(&facts),
        clock(&facts, before, Timestamp::now()),
        durability(&store).await,
        roles(&facts),
    ];
    checks.push(login(&facts));
    let surface = surface(&store).await;
    let is_there = surface.is_ok;
    checks.push(surface);
    if is_there {
        checks.extend(health(&store).await);
        checks.push(keks(&store, ring).await);
    }
    checks
}

fn says(error: StoreError) -> String {
    Failure::from(error).to_string()
}

fn version(facts: &ServerFacts) -> Check {
    let version = format!("PostgreSQL {} as {}", facts.version, facts.login);
    if facts.version_number >= OLDEST {
        return Check::good("postgres", version);
    }
    Check::bad("postgres", version, "upgrade it: 15 is the oldest that has what we call")
}

/// The database answered somewhere between `before` and `after`.
fn clock(facts: &ServerFacts, before: Timestamp, after: Timestamp) -> Check {
    let at = facts.now.as_millisecond();
    let (before, after) = (before.as_millisecond(), after.as_millisecond());
    let off_ms = if at < before { before - at } else { (at - after).max(0) };
    let says = format!("at most {} ms from the database's", off_ms + (after - before));
    if off_ms <= SKEW_MS {
        return Check::good("clock", says);
    }
    Check::bad(
        "clock",
        format!("{off_ms} ms from the database's"),
        "run NTP on both: timedatectl set-ntp true",
    )
}

async fn durability(store: &Store) -> Check {
    match store.check_durability(false).await {
        Ok(()) => Check::good("durability", "what is accepted survives a crash"),
        Err(StoreError::NotDurable(risks)) => Check::bad(
            "durability",
            format!("{risks}: a crash may lose accepted jobs"),
            "alter system set fsync = on, full_page_writes = on, synchronous_commit = on; services do not start without",
        ),
        Err(error) => Check::bad("durability", says(error), "see above"),
    }
}

fn roles(facts: &ServerFacts) -> Check {
    let missing: Vec<_> =
        facts.roles.iter().filter(|role| !role.is_there).map(|role| role.name.as_str()).collect();
    if missing.is_empty() {
        return Check::good("roles", "all group roles are there");
    }
    Check::bad("roles", format!("missing: {}", missing.join(", ")), "euterpe-migrate")
}

fn login(facts: &ServerFacts) -> Check {
    let (login, has) =
        (&facts.login, |name: &str| facts.roles.iter().any(|role| role.name == name && role.is_ours));
    if has("euterpe_operator") {
        return Check::good("login", format!("{login} may act as euterpe_operator"));
    }
    let says = format!("{login} may not act as euterpe_operator; what an operator sees was not looked at");
    let is_service = ["euterpe_api", "euterpe_transcode", "euterpe_webhook"].into_iter().any(has);
    if is_service {
        return Check::bad(
            "login",
            says,
            "it is a service's: give EUTERPE_DATABASE_URL an operator's login here",
        );
    }
    Check::bad("login", says, format!("as a superuser: grant euterpe_operator to \"{login}\""))
}

async fn surface(store: &Store) -> Check {
    let mut missing = BTreeSet::new();
    for role in [Role::Api, Role::Transcode, Role::Webhook, Role::Operator] {
        match store.missing_functions(role).await {
            Ok(names) => missing.extend(names),
            Err(error) => return Check::bad("functions", says(error), "euterpe-migrate, with its own login"),
        }
    }
    let Some(first) = missing.first() else {
        return Check::good("functions", format!("all that release {} calls", env!("CARGO_PKG_VERSION")));
    };
    Check::bad(
        "functions",
        format!("{} missing, the first is {first}", missing.len()),
        format!("euterpe-migrate of this release, {}", env!("CARGO_PKG_VERSION")),
    )
}

/// Partitions by themselves, since without them nothing is accepted; of the rest, what is wrong.
async fn health(store: &Store) -> Vec<Check> {
    let topics = match store.health().await {
        Ok(topics) => topics,
        Err(error) => {
            return vec![Check::bad("health", says(error), "give this login the role euterpe_operator")];
        }
    };
    let mut checks = Vec::new();
    let fine = topics.iter().filter(|topic| topic.is_ok).count();
    for topic in &topics {
        if topic.is_ok && topic.topic == "partitions ahead" {
            checks.push(Check::good(&topic.topic, &topic.says));
        } else if !topic.is_ok {
            checks.push(Check::bad(&topic.topic, &topic.says, mend(&topic.topic)));
        }
    }
    if fine == topics.len() {
        checks.push(Check::good("health", format!("{fine} topics, none of them an alarm")));
    }
    checks
}

fn mend(topic: &str) -> &'static str {
    match topic.split(' ').next() {
        Some("partitions") => "psql: select euterpe.upkeep_v1(); then start a service, each keeps it up",
        Some("upkeep") => "start euterpe-api or a worker: each does it, every ten seconds",
        Some("workers") => "start euterpe-transcode or euterpe-webhook, whichever it names",
        Some("releases") => "euterpe-migrate of the newest release",
        Some("endpoints") => "psql: table euterpe.outbox_backlog shows whose; their requesters know why",
        _ => "docs/operations.md has the question for it",
    }
}

async fn keks(store: &Store, ring: Option<&Keyring>) -> Check {
    const NAME: &str = "keys in use";
    let Some(ring) = ring else {
        return Check::bad(NAME, "not looked at, since there are no keys here", "see keys");
    };
    let usage = match store.kek_usage().await {
        Ok(usage) => usage,
        Err(error) => return Check::bad(NAME, says(error), "give this login the role euterpe_operator"),
    };
    let used: BTreeSet<_> = usage.iter().map(|one| one.kek_id.as_str()).collect();
    let unknown: Vec<_> = used.iter().filter(|id| ring.ids().all(|here| here != **id)).copied().collect();
    if unknown.is_empty() {
        return Check::good(NAME, format!("{} of them, all here", used.len()));
    }
    Check::bad(
        NAME,
        format!("not here: {}; what they wrap does not open", unknown.join(", ")),
        "add them to EUTERPE_KEK_FILE, from wherever the key file is kept",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn facts(now: Timestamp) -> ServerFacts {
        let (version, login) = ("15.4".to_owned(), "ada".to_owned());
        ServerFacts { version, version_number: 150_004, now, login, roles: Vec::new() }
    }

    #[test]
    fn a_clock_is_wrong_beyond_five_seconds_before_the_question_or_after_the_answer() {
        for (now, is_ok) in [(100, true), (95, true), (94, false), (102, true), (107, true), (108, false)] {
            assert_eq!(clock(&facts(at(now)), at(100), at(102)).is_ok, is_ok, "{now}");
        }
    }

    #[test]
    fn a_server_older_than_15_is_named() {
        assert!(version(&facts(at(0))).is_ok);
        let old = ServerFacts { version_number: 140_011, ..facts(at(0)) };
        assert!(!version(&old).is_ok);
    }
}
