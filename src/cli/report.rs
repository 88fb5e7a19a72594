//! What a command answers, for people and for programs.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::config::BadSetting;
use crate::crypto::{BadKeys, OpenError};
use crate::domain::causes;
use crate::store::StoreError;

/// What a command found or did.
pub struct Report {
    /// For people, without a line end.
    pub text: String,
    /// For programs: the same, and no less.
    pub json: Value,
    /// The exit code: an answer may be bad news.
    pub code: u8,
}

impl Report {
    /// One answer, told twice.
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        Self { text: text.into(), json, code: 0 }
    }

    /// The same, as bad news.
    #[must_use]
    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Rows under their names, each column as wide as its widest cell.
    #[must_use]
    pub fn table(names: &[&str], rows: &[Vec<String>]) -> String {
        let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).chain([names[n].len()]).max();
        let line = |cells: &[&str]| {
            let cells: Vec<_> = cells
                .iter()
                .enumerate()
                .map(|(n, cell)| format!("{cell:<width$}", width = width(n).unwrap_or_default()))
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        let rows = rows.iter().map(|row| line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        std::iter::once(line(names)).chain(rows).collect::<Vec<_>>().join("\n")
    }

    /// A reader that has heard enough (`| head -n 1`) is no failure; a full disk is.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let text = if json { &self.json.to_string() } else { &self.text };
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Failed(format!("it is done, and the answer could not be written: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// Why a command did not do what it was asked, and what to do next.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2.
    Usage(String),
    /// Exit code 3.
    NotFound(String),
    /// Exit code 4.
    Refused(String),
}

impl Failure {
    fn parts(&self) -> (u8, &'static str, &str) {
        match self {
            Self::Failed(message) => (1, "failed", message),
            Self::Usage(message) => (2, "usage", message),
            Self::NotFound(message) => (3, "not_found", message),
            Self::Refused(message) => (4, "refused", message),
        }
    }

    pub(super) fn print(&self, as_json: bool) {
        let (_, code, message) = self.parts();
        let line = if as_json {
            json!({"error": {"code": code, "message": message}}).to_string()
        } else {
            format!("euterpe: {message}")
        };
        // With `2>&1 | head` nobody reads this either; the exit code still says it, where eprintln! would panic.
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// The exit code.
    pub(super) fn code(&self) -> u8 {
        self.parts().0
    }

    /// The same, and what to do next.
    #[must_use]
    pub fn and(self, next: &str) -> Self {
        let more = |message: String| format!("{message}; {next}");
        match self {
            Self::Failed(message) => Self::Failed(more(message)),
            Self::Usage(message) => Self::Usage(more(message)),
            Self::NotFound(message) => Self::NotFound(more(message)),
            Self::Refused(message) => Self::Refused(more(message)),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().2)
    }
}

impl Error for Failure {}

impl From<StoreError> for Failure {
    /// The whole table of exit codes of the database's refusals, in one place.
    fn from(error: StoreError) -> Self {
        use StoreError as S;
        let (turned_away, is_forbidden) = (error.turned_away(), error.is_forbidden());
        match error {
            S::NotFound(says) | S::NoSuchQueue(says) => Self::NotFound(says),
            S::IllegalState(says)
            | S::IdempotencyConflict(says)
            | S::RequesterRefused(says)
            | S::CredentialsRequired(says)
            | S::CredentialVersionMoved(says) => Self::Refused(says),
            S::BadArgument(says) => Self::Usage(says),
            S::Unavailable(cause) => Self::Failed(match turned_away {
                Some(says) => format!("the database answers {says}: check EUTERPE_DATABASE_URL"),
                None => format!(
                    "the database is not there ({}): check EUTERPE_DATABASE_URL and that the server runs",
                    causes(&*cause)
                ),
            }),
            S::FunctionsMissing(_)
            | S::NotPermitted { .. }
            | S::NotDurable(_)
            | S::PartitionMissing(_)
            | S::WrongIsolation(_)
            | S::UnexpectedAnswer(_) => Self::Failed(error.to_string()),
            S::Unexpected(cause) if is_forbidden => Self::Failed(format!(
                "{}: EUTERPE_DATABASE_URL needs a login that has euterpe_operator, or whichever role it is for",
                causes(&cause)
            )),
            S::Unexpected(cause) => Self::Failed(causes(&cause)),
        }
    }
}

impl From<BadSetting> for Failure {
    fn from(error: BadSetting) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<BadKeys> for Failure {
    fn from(error: BadKeys) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::UnknownKek(_) => {
                Self::Failed(format!("{error}: add it to EUTERPE_KEK_FILE or EUTERPE_KEKS"))
            }
            OpenError::Failed => {
                Self::Failed(format!("{error}: it was changed, or its key is another one of that name"))
            }
        }
    }
}
