//! Every setting, typed and bounded, read once from the environment (prefix `EUTERPE_`).
//!
//! The environment is a closure, so that a test needs no `set_var`.

mod transcode;

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::domain::transcode::Policy;
use crate::domain::{EgressPolicy, EgressPorts};
use crate::egress;
use crate::face::serve::Limits;
use crate::worker::{Lease, Pace};

pub use transcode::{allows_no_cage, caps, patience, queue, spare, tools, transcode_pace, work_dir};

const FILE_STORAGE: &str = "EUTERPE_FILE_STORAGE";

/// A setting that cannot be used, with what it may be.
#[derive(Debug, thiserror::Error)]
pub enum BadSetting {
    /// Present, and not acceptable.
    #[error("{name}={value:?}: {problem}")]
    Unusable {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it should say.
        problem: String,
    },
    /// Absent, and needed.
    #[error("{name} is not set: {needed}")]
    Missing {
        /// The variable.
        name: &'static str,
        /// What it should say.
        needed: &'static str,
    },
}

/// How to reach the database: `EUTERPE_DATABASE_URL`.
///
/// Its value may hold a password, so it is never repeated in an error.
pub fn database(
    env: impl Fn(&str) -> Option<String>,
    program: &str,
) -> Result<tokio_postgres::Config, BadSetting> {
    database_in(env, "EUTERPE_DATABASE_URL", program)
}

fn database_in(
    env: impl Fn(&str) -> Option<String>,
    name: &'static str,
    program: &str,
) -> Result<tokio_postgres::Config, BadSetting> {
    let url = env(name).ok_or(BadSetting::Missing {
        name,
        needed: "say which database, e.g. postgres://user@localhost/euterpe",
    })?;
    let mut config: tokio_postgres::Config = url.parse().map_err(|error| BadSetting::Unusable {
        name,
        value: "…".into(),
        problem: problem_of(&error),
    })?;
    config.application_name(format!("{program}/{}", env!("CARGO_PKG_VERSION")));
    config.connect_timeout(Duration::from_secs(5));
    // A peer that vanished without a word is noticed within seconds, not after the two hours of the kernel.
    config.keepalives_idle(Duration::from_secs(10));
    config.keepalives_interval(Duration::from_secs(5));
    config.keepalives_retries(2);
    config.tcp_user_timeout(Duration::from_secs(20));
    Ok(config)
}

/// What is wrong with a connection string. Of what it says, only words of libpq's are repeated: any other may be a piece of
/// a password with a `?` in it.
fn problem_of(error: &tokio_postgres::Error) -> String {
    const KNOWN_TO_LIBPQ: [&str; 12] = [
        "sslrootcert",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslcrl",
        "ssl_min_protocol_version",
        "gssencmode",
        "krbsrvname",
        "passfile",
        "service",
        "client_encoding",
        "fallback_application_name",
    ];
    let says = error.source().map(ToString::to_string).unwrap_or_default();
    let word = says.split('`').nth(1).unwrap_or_default();
    if says.starts_with("invalid value for option") && word == "sslmode" {
        return "has another sslmode than disable, prefer or require: say require, which verifies the certificate and the \
                host's name already"
            .into();
    }
    if says.starts_with("invalid value for option") {
        return format!("has a {word} that cannot be used");
    }
    if says.starts_with("unknown option") {
        let which =
            KNOWN_TO_LIBPQ.into_iter().find(|known| *known == word).unwrap_or("which is not repeated");
        return format!(
            "has a parameter that is not known here ({which}): leave it out. Authorities are those of the system, or of the \
             file that SSL_CERT_FILE names"
        );
    }
    "is neither a postgres:// url nor a key=value connection string".into()
}

/// How to reach the database without a pooler in between, for LISTEN: `EUTERPE_DIRECT_DATABASE_URL`, else the same.
pub fn direct_database(
    env: impl Fn(&str) -> Option<String>,
    program: &str,
) -> Result<tokio_postgres::Config, BadSetting> {
    const NAME: &str = "EUTERPE_DIRECT_DATABASE_URL";
    if env(NAME).is_some() { database_in(env, NAME, program) } else { database(env, program) }
}

/// What requests are accepted, and where we let ourselves be sent.
pub fn policy(env: impl Fn(&str) -> Option<String>) -> Result<Policy, BadSetting> {
    const ALLOW: &str = "EUTERPE_EGRESS_ALLOW";
    let list = |name: &str| -> Vec<String> {
        let text = env(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let allow =
        list(ALLOW).iter().map(|network| network.parse()).collect::<Result<_, _>>().map_err(|_| {
            BadSetting::Unusable {
                name: ALLOW,
                value: env(ALLOW).unwrap_or_default(),
                problem: "must be networks such as 10.0.0.0/8, separated by commas, default none".into(),
            }
        })?;
    let file_roots: Vec<_> = list(FILE_STORAGE).into_iter().map(PathBuf::from).collect();
    if let Some(root) = file_roots.iter().find(|root| !root.is_absolute()) {
        return Err(bad_root(root, "must be absolute directories, separated by commas, default none"));
    }
    let queues = list("EUTERPE_QUEUES");
    let max_source_bytes = setting(&env, "EUTERPE_MAX_SOURCE_BYTES", 100_000_000_000, 1..=u64::MAX / 2)?;
    Ok(Policy {
        egress: EgressPolicy {
            allow,
            allow_http: yes_or_no(&env, "EUTERPE_ALLOW_HTTP")?,
            ports: egress_ports(&env)?,
        },
        file_roots,
        queues: if queues.is_empty() { Policy::default().queues } else { queues },
        max_source_bytes: Some(max_source_bytes),
    })
}

/// Refuses roots of `file://` that are not there. For who opens files: the HTTP tier only compares names, and need not
/// have the volume.
pub fn insist_on_file_roots(policy: &Policy) -> Result<(), BadSetting> {
    let missing = policy.file_roots.iter().find(|root| !root.is_dir());
    missing.map_or(Ok(()), |root| {
        Err(bad_root(root, "is no directory here: make it, or mount what should be there"))
    })
}

fn bad_root(root: &Path, problem: &str) -> BadSetting {
    BadSetting::Unusable {
        name: FILE_STORAGE,
        value: root.display().to_string(),
        problem: problem.to_owned(),
    }
}

/// `EUTERPE_EGRESS_PORTS`: ports beside the usual ones, or `any`.
fn egress_ports(env: impl Fn(&str) -> Option<String>) -> Result<EgressPorts, BadSetting> {
    const NAME: &str = "EUTERPE_EGRESS_PORTS";
    let value = env(NAME).unwrap_or_default();
    if value.trim() == "any" {
        return Ok(EgressPorts::Any);
    }
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    let ports: Option<Vec<u16>> = words.map(|word| word.parse().ok().filter(|port| *port > 0)).collect();
    ports.map(EgressPorts::UsualAnd).ok_or_else(|| BadSetting::Unusable {
        name: NAME,
        value: value.clone(),
        problem:
            "must be ports in 1..=65535, separated by commas, or any; default none beside 443 and 8443, with \
                  EUTERPE_ALLOW_HTTP=true also 80 and 8080"
                .into(),
    })
}

/// How many connections to Postgres the HTTP tier holds: `EUTERPE_API_CONNECTIONS`.
pub fn api_connections(env: impl Fn(&str) -> Option<String>) -> Result<usize, BadSetting> {
    setting(env, "EUTERPE_API_CONNECTIONS", 16, 1..=200)
}

/// Where connections to the HTTP tier end: `EUTERPE_HTTP_CONNECTIONS`, `EUTERPE_HTTP_CONNECTIONS_PER_IP`,
/// `EUTERPE_HEAD_SECONDS`, `EUTERPE_BODY_SECONDS`.
pub fn http_limits(env: impl Fn(&str) -> Option<String>) -> Result<Limits, BadSetting> {
    let usual = Limits::default();
    let seconds = |name: &'static str, usual: Duration| {
        setting(&env, name, usual.as_secs(), 1..=60).map(Duration::from_secs)
    };
    Ok(Limits {
        connections: setting(&env, "EUTERPE_HTTP_CONNECTIONS", usual.connections, 1..=65_536)?,
        connections_per_ip: setting(
            &env,
            "EUTERPE_HTTP_CONNECTIONS_PER_IP",
            usual.connections_per_ip,
            1..=65_536,
        )?,
        head: seconds("EUTERPE_HEAD_SECONDS", usual.head)?,
        body: seconds("EUTERPE_BODY_SECONDS", usual.body)?,
        ..usual
    })
}

/// How long one call of the database may take before its connection is given up: `EUTERPE_DATABASE_SECONDS`.
///
/// Beyond the `statement_timeout` of our roles (10 s): a server that is there has refused before, so this one is not.
pub fn database_patience(env: impl Fn(&str) -> Option<String>) -> Result<Duration, BadSetting> {
    setting(env, "EUTERPE_DATABASE_SECONDS", 12, 1..=600).map(Duration::from_secs)
}

/// `EUTERPE_ALLOW_UNSAFE_DURABILITY`: whoever says true accepts that a crash of Postgres loses accepted jobs.
pub fn allows_unsafe_durability(env: impl Fn(&str) -> Option<String>) -> Result<bool, BadSetting> {
    yes_or_no(env, "EUTERPE_ALLOW_UNSAFE_DURABILITY")
}

fn yes_or_no(env: impl Fn(&str) -> Option<String>, name: &'static str) -> Result<bool, BadSetting> {
    match env(name).as_deref() {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(BadSetting::Unusable {
            name,
            value: other.to_owned(),
            problem: "must be true or false, default false".into(),
        }),
    }
}

/// The form of logs: `EUTERPE_LOG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// `EUTERPE_LOG`: `text` or `json`.
pub fn log_form(env: impl Fn(&str) -> Option<String>) -> Result<LogForm, BadSetting> {
    const NAME: &str = "EUTERPE_LOG";
    match env(NAME).as_deref() {
        None | Some("text") => Ok(LogForm::Text),
        Some("json") => Ok(LogForm::Json),
        Some(other) => Err(BadSetting::Unusable {
            name: NAME,
            value: other.to_owned(),
            problem: "must be text or json, default text".into(),
        }),
    }
}

/// An address to listen on.
pub fn listen(
    env: impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: &str,
) -> Result<SocketAddr, BadSetting> {
    let value = env(name).unwrap_or_else(|| default.to_owned());
    value.trim().parse().map_err(|_| BadSetting::Unusable {
        name,
        value,
        problem: format!("must be an address and a port, default {default}"),
    })
}

/// The pace of the webhook worker (contract §12).
pub fn outbox_pace(env: impl Fn(&str) -> Option<String>) -> Result<Pace, BadSetting> {
    let usual = Pace::default();
    Ok(Pace {
        concurrency: setting(&env, "EUTERPE_OUTBOX_CONCURRENCY", usual.concurrency, 1..=100)?,
        // 25 is the contract's ceiling for pods of some 400m CPU, pending profiling.
        batch: setting(&env, "EUTERPE_OUTBOX_BATCH", usual.batch, 1..=25)?,
        ..pace(env)?
    })
}

/// `EUTERPE_WEBHOOKS_PER_HOST`: deliveries at once to one host.
pub fn webhooks_per_host(env: impl Fn(&str) -> Option<String>) -> Result<usize, BadSetting> {
    setting(env, "EUTERPE_WEBHOOKS_PER_HOST", 2, 1..=100)
}

/// `EUTERPE_WEBHOOK_TIMEOUT_SECONDS`: how long a receiver may take to answer.
pub fn webhook_limits(env: impl Fn(&str) -> Option<String>) -> Result<egress::Limits, BadSetting> {
    let usual = egress::Limits::default();
    let total = setting(env, "EUTERPE_WEBHOOK_TIMEOUT_SECONDS", usual.total.as_secs(), 1..=60)?;
    Ok(egress::Limits { total: Duration::from_secs(total), ..usual })
}

/// What every lane has.
fn pace(env: impl Fn(&str) -> Option<String>) -> Result<Pace, BadSetting> {
    let lease = setting(&env, "EUTERPE_LEASE_SECONDS", 60, 5..=3600)?;
    let drain = setting(&env, "EUTERPE_DRAIN_SECONDS", 30, 0..=3600)?;
    Ok(Pace {
        poll_ms: poll_ms(&env)?,
        drain: Duration::from_secs(drain),
        lease: Lease::of(Duration::from_secs(lease)),
        ..Pace::default()
    })
}

/// `EUTERPE_POLL_MS`: `500-1500`, or one number.
fn poll_ms(env: impl Fn(&str) -> Option<String>) -> Result<RangeInclusive<u64>, BadSetting> {
    const NAME: &str = "EUTERPE_POLL_MS";
    let usual = Pace::default().poll_ms;
    let Some(value) = env(NAME) else { return Ok(usual) };
    let (low, high) = value.split_once('-').unwrap_or((&value, &value));
    let bounds = low.trim().parse().ok().zip(high.trim().parse().ok());
    bounds
        .filter(|(low, high)| low <= high && *low >= 10 && *high <= 60_000)
        .map(|(low, high)| low..=high)
        .ok_or(BadSetting::Unusable {
            name: NAME,
            value,
            problem: format!(
                "must be a range of milliseconds in 10-60000, default {}-{}",
                usual.start(),
                usual.end()
            ),
        })
}

/// A number with a default and two end stops; the message names all three.
fn setting<T>(
    env: impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: T,
    bounds: RangeInclusive<T>,
) -> Result<T, BadSetting>
where
    T: FromStr + PartialOrd + Display,
{
    let Some(value) = env(name) else { return Ok(default) };
    value.trim().parse().ok().filter(|number| bounds.contains(number)).ok_or_else(|| BadSetting::Unusable {
        name,
        value,
        problem: format!("must be in {}..={}, default {default}", bounds.start(), bounds.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is about to drop a function looks in pg_stat_activity for the releases that are still there.
    #[test]
    fn a_connection_announces_its_program_and_release() {
        let env = |_: &str| Some("postgres://u@localhost/d?application_name=other".to_owned());
        let config = database(env, "euterpe-transcode").expect("a url");
        let announced = format!("euterpe-transcode/{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(config.get_application_name(), Some(announced.as_str()));
    }

    #[test]
    fn an_empty_environment_is_the_contracts_pace() {
        let pace = outbox_pace(|_| None).expect("defaults");
        assert_eq!((pace.concurrency, pace.batch, pace.poll_ms), (5, 10, 500..=1500));
        assert_eq!(pace.lease, Lease::of(Duration::from_secs(60)));
    }

    #[test]
    fn a_setting_beyond_its_end_stops_is_refused_with_all_three_numbers() {
        for (name, value, says) in [
            ("EUTERPE_OUTBOX_BATCH", "26", "must be in 1..=25, default 10"),
            ("EUTERPE_OUTBOX_BATCH", "0", "must be in 1..=25, default 10"),
            ("EUTERPE_OUTBOX_CONCURRENCY", "many", "must be in 1..=100, default 5"),
            ("EUTERPE_LEASE_SECONDS", "4", "must be in 5..=3600, default 60"),
            ("EUTERPE_DRAIN_SECONDS", "-1", "must be in 0..=3600, default 30"),
            ("EUTERPE_POLL_MS", "1500-500", "must be a range of milliseconds in 10-60000, default 500-1500"),
        ] {
            let env = |asked: &str| (asked == name).then(|| value.to_owned());
            let refused = outbox_pace(env).expect_err(value).to_string();
            assert_eq!(refused, format!("{name}={value:?}: {says}"));
        }
        let env = |asked: &str| (asked == "EUTERPE_POLL_MS").then(|| "20-40".to_owned());
        assert_eq!(outbox_pace(env).expect("a range").poll_ms, 20..=40);
    }

    #[test]
    fn ports_to_call_are_a_list_or_any() {
        let read = |value: &str| egress_ports(|_| Some(value.to_owned()));
        for (value, ports) in [
            ("", EgressPorts::default()),
            ("9000", EgressPorts::UsualAnd(vec![9000])),
            (" 9000, 65535,", EgressPorts::UsualAnd(vec![9000, 65_535])),
            (" any ", EgressPorts::Any),
        ] {
            assert_eq!(read(value).expect(value), ports, "{value}");
        }
        assert_eq!(egress_ports(|_| None).expect("unset"), EgressPorts::default());
        for value in ["0", "65536", "-1", "443,any", "all", "9000;9001", "9000-9010"] {
            let refused = read(value).expect_err(value).to_string();
            assert!(refused.contains("must be ports in 1..=65535, separated by commas, or any"), "{refused}");
        }
    }

    /// Whoever comes from libpq is told what is different here.
    #[test]
    fn a_parameter_that_is_not_known_here_is_explained_and_no_password_is_repeated() {
        for (rest, says) in [
            ("/d?sslmode=verify-full", "disable, prefer or require: say require, which verifies"),
            ("/d?sslmode=require&sslrootcert=/x", "(sslrootcert): leave it out"),
            ("/d?hunter2=x", "(which is not repeated): leave it out"),
            ("/d?connect_timeout=hunter2", "has a connect_timeout that cannot be used"),
            (":hunter2/d", "EUTERPE_DATABASE_URL=\"…\": "),
        ] {
            let refused = database(|_| Some(format!("postgres://u:hunter2@h{rest}")), "test")
                .expect_err(rest)
                .to_string();
            assert!(refused.contains(says) && !refused.contains("hunter2"), "{rest}: {refused}");
        }
    }

    #[test]
    fn a_bad_database_url_is_not_repeated() {
        let env = |_: &str| Some("postgres://u:hunter2@[".to_owned());
        let refused = database(env, "test").expect_err("not a url");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
