//! `euterpe doctor`: is everything there that a system needs? A line per check, and the command that mends it.
//!
//! It only looks, and leaves nothing behind. What cannot be looked at, because something before it is missing, is said to be so.

mod database;
mod keys;
mod machine;

use serde_json::json;

use super::{Context, Failure, Report};
use crate::crypto::Keyring;

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    name: String,
    /// `None`: it could not be looked at, because of another that is wrong. That one is the trouble.
    is_ok: Option<bool>,
    says: String,
    /// What to do about it; empty when nothing is to be done.
    mend: String,
}

impl Check {
    fn good(name: &str, says: impl Into<String>) -> Self {
        Self { name: name.to_owned(), is_ok: Some(true), says: says.into(), mend: String::new() }
    }

    fn bad(name: &str, says: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name: name.to_owned(), is_ok: Some(false), says: says.into(), mend: mend.into() }
    }

    fn unseen(name: &str, says: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name: name.to_owned(), is_ok: None, says: says.into(), mend: mend.into() }
    }
}

pub(super) async fn run(context: &Context<'_>) -> Result<Report, Failure> {
    let ring = Keyring::from_env(context.env);
    let (mut checks, kept) = database::look(context, ring.as_ref().ok()).await;
    checks.extend(keys::look(context, &ring, kept.as_ref()));
    checks.extend(machine::look(context).await);
    Ok(report(&checks))
}

fn report(checks: &[Check]) -> Report {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    let lines: Vec<_> = checks
        .iter()
        .map(|check| {
            let mark = match check.is_ok {
                Some(true) => "✓",
                Some(false) => "✗",
                None => "?",
            };
            let line = format!("{mark} {:<width$}  {}", check.name, check.says);
            if check.mend.is_empty() { line } else { format!("{line}\n  {:<width$}  → {}", "", check.mend) }
        })
        .collect();
    let wrong = checks.iter().filter(|check| check.is_ok == Some(false)).count();
    let summary = match wrong {
        0 => "all is well".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        n => format!("{n} things are wrong"),
    };
    let json: Vec<_> = checks
        .iter()
        .map(|check| {
            let mend = Some(&check.mend).filter(|mend| !mend.is_empty());
            json!({"check": check.name, "ok": check.is_ok, "says": check.says, "mend": mend})
        })
        .collect();
    Report::new(format!("{}\n\n{summary}", lines.join("\n")), json!({"ok": wrong == 0, "checks": json}))
        .with_code(u8::from(wrong > 0))
}
