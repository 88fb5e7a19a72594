//! What is asked of Postgres.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Check;
use crate::cli::{Context, Failure};
use crate::config;
use crate::crypto::Keyring;
use crate::domain::causes;
use crate::store::surface::Role;
use crate::store::{ServerFacts, Store, StoreError};

/// The oldest server that has what we call.
const OLDEST: i32 = 150_000;
/// Ids carry our clock, and the database refuses those that are ten minutes off; webhooks are refused after five.
const SKEW_MS: i64 = 5_000;

/// What the database keeps that only old keys open.
pub(super) struct Kept {
    /// Which KEKs wrap something.
    pub(super) keks: Vec<String>,
    pub(super) has_api_keys: bool,
}

/// The checks, and what is kept there if that could be seen.
pub(super) async fn look(context: &Context<'_>, ring: Option<&Keyring>) -> (Vec<Check>, Option<Kept>) {
    const NAME: &str = "postgres";
    let config = match config::database(context.env, "euterpe") {
        Ok(config) => config,
        Err(error) => {
            let mend = "export EUTERPE_DATABASE_URL=postgres://…, then again";
            return (vec![Check::bad(NAME, error.to_string(), mend)], None);
        }
    };
    let store = Store::connect(config, 2);
    let before = Timestamp::now();
    let facts = match store.server_facts().await {
        Ok(facts) => facts,
        Err(error) => {
            let mend = "set EUTERPE_DATABASE_URL right and start the server; nothing else of the database was looked at";
            return (vec![Check::bad(NAME, says(error), mend)], None);
        }
    };
    let login = login(&facts);
    let way = login.mend.clone();
    let mut checks = vec![
        version(&facts),
        clock(&facts, before, Timestamp::now()),
        durability(&store).await,
        roles(&facts),
        login,
    ];
    let surface = surface(&store, &way).await;
    let is_there = surface.is_ok == Some(true);
    checks.push(surface);
    if !is_there {
        return (checks, None);
    }
    checks.extend(health(&store, &way).await);
    match store.kek_usage().await {
        Ok(usage) => {
            let used: BTreeSet<_> = usage.into_iter().map(|one| one.kek_id).collect();
            checks.push(keks(&used, ring));
            // In doubt there are some: then nobody is told to make a new pepper.
            let has_api_keys = store.list_api_keys(None).await.map_or(true, |keys| !keys.is_empty());
            (checks, Some(Kept { keks: used.into_iter().collect(), has_api_keys }))
        }
        Err(error) => {
            checks.push(not_seen(KEKS, error, &way));
            (checks, None)
        }
    }
}

/// A login that may not look is one trouble, and `login` has it.
fn not_seen(name: &str, error: StoreError, way: &str) -> Check {
    if error.is_forbidden() && !way.is_empty() {
        return Check::unseen(name, format!("not looked at: {}", causes(&error)), way);
    }
    Check::bad(name, says(error), "docs/operations.md, or the log of the server")
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
        Err(StoreError::NotDurable(risks)) => {
            let sets = risks.iter().filter_map(|risk| risk.split_once(" = "));
            let sets: Vec<_> = sets.map(|(name, _)| format!("alter system set {name} = on;")).collect();
            Check::bad(
                "durability",
                format!("{}: a crash may lose accepted jobs, and services do not start", risks.join(", ")),
                format!("psql, as a superuser: {} select pg_reload_conf();", sets.join(" ")),
            )
        }
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
    // Whoever takes over a service must not find an operator's rights there.
    let others = ["euterpe_owner", "euterpe_api", "euterpe_transcode", "euterpe_webhook", "euterpe_readonly"];
    if let Some(role) = others.into_iter().find(|role| has(role)) {
        let mend =
            "look with an operator's login: give EUTERPE_DATABASE_URL one here, and leave this one as it is";
        return Check::bad("login", format!("{says}: it is for {role}"), mend);
    }
    Check::bad("login", says, format!("as a superuser: grant euterpe_operator to \"{login}\""))
}

async fn surface(store: &Store, way: &str) -> Check {
    let mut missing = BTreeSet::new();
    for role in [Role::Api, Role::Transcode, Role::Webhook, Role::Operator] {
        match store.missing_functions(role).await {
            Ok(names) => missing.extend(names),
            // A schema that not even an operator may use was not finished.
            Err(error) if error.is_forbidden() && way.is_empty() => {
                return Check::bad("functions", says(error), "euterpe-migrate, with its own login");
            }
            Err(error) => return not_seen("functions", error, way),
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
async fn health(store: &Store, way: &str) -> Vec<Check> {
    let topics = match store.health().await {
        Ok(topics) => topics,
        Err(error) => return vec![not_seen("health", error, way)],
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

const KEKS: &str = "keys in use";

fn keks(used: &BTreeSet<String>, ring: Option<&Keyring>) -> Check {
    let Some(ring) = ring else {
        return match used.len() {
            0 => Check::good(KEKS, "none: nothing is sealed yet"),
            _ => Check::unseen(KEKS, "not looked at, since there are no keys here", "see keys"),
        };
    };
    let is_here = |id: &String| ring.ids().any(|here| here == id);
    let unknown: Vec<_> = used.iter().filter(|id| !is_here(id)).map(String::as_str).collect();
    if unknown.is_empty() {
        return Check::good(KEKS, format!("{} of them, all here", used.len()));
    }
    Check::bad(
        KEKS,
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
            assert_eq!(clock(&facts(at(now)), at(100), at(102)).is_ok, Some(is_ok), "{now}");
        }
    }

    #[test]
    fn a_server_older_than_15_is_named() {
        assert_eq!(version(&facts(at(0))).is_ok, Some(true));
        let old = ServerFacts { version_number: 140_011, ..facts(at(0)) };
        assert_eq!(version(&old).is_ok, Some(false));
    }
}
