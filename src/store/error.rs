//! What the database may refuse, from SQLSTATE to a type.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

/// Why a call into the queue did not do what it was asked.
///
/// An answer is a row; a refusal is a SQLSTATE. This enum is the only place that knows the codes, so a new
/// refusal is one line here and one in each face's status table.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// `UT002`: the job is not in a state that allows it.
    #[error("{0}")]
    IllegalState(String),

    /// `UT003`: the idempotency key was used before, for a different request. Names its hash's first 8 digits.
    #[error("{0}")]
    IdempotencyConflict(String),

    /// `UT004`: nothing under that name.
    #[error("{0}")]
    NotFound(String),

    /// `UT005`: the requester is unknown or disabled.
    #[error("{0}")]
    RequesterRefused(String),

    /// `UT006`: no queue of that name.
    #[error("{0}")]
    NoSuchQueue(String),

    /// `UT007`: no partition for the job's time; upkeep makes one. Safe to try again.
    #[error("{0}")]
    PartitionMissing(String),

    /// `UT008`: the job needs credentials: none are stored, none were given, none can be asked for.
    #[error("{0}")]
    CredentialsRequired(String),

    /// `UT009`: somebody else stored a secret meanwhile. Read the version again, seal again.
    #[error("{0}")]
    CredentialVersionMoved(String),

    /// `UT011`: the caller's transaction is not read committed.
    #[error("{0}")]
    WrongIsolation(String),

    /// Class 22 or 23: the arguments are not acceptable, and the message says why.
    #[error("{0}")]
    BadArgument(String),

    /// The database could not be reached, or dropped us. Safe to try again.
    #[error("database unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// The server may lose what it has acknowledged.
    #[error(
        "this PostgreSQL may lose accepted jobs in a crash: {}. Set it right, or say \
         EUTERPE_ALLOW_UNSAFE_DURABILITY=true",
        .0.join(", ")
    )]
    NotDurable(Vec<String>),

    /// The database answered with a word this release does not know. It is newer than we are.
    #[error("unexpected answer from the database: {0}")]
    UnexpectedAnswer(String),

    /// What this release calls is not all there: `euterpe-migrate` of this release has not run, or a newer one has
    /// dropped it.
    #[error(
        "this database lacks {}: run euterpe-migrate of this release ({}) first; if a newer release was here, \
         start that one",
        .0.join(", "),
        env!("CARGO_PKG_VERSION")
    )]
    FunctionsMissing(Vec<String>),

    /// The login is not one of those who may.
    #[error(
        "the login {login} may not call {function}: give EUTERPE_DATABASE_URL one that has euterpe_{role}; or, if this one \
         is for nothing else, as a superuser: grant euterpe_{role} to \"{login}\""
    )]
    NotPermitted {
        /// Who we are.
        login: String,
        /// The first that is refused.
        function: String,
        /// Whose it is.
        role: &'static str,
    },

    /// Anything else: our bug, or a schema older than this binary.
    #[error("unexpected database error")]
    Unexpected(#[source] tokio_postgres::Error),
}

/// What a store method gives back.
pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// The server is there, and would not let us in: what it said.
    #[must_use]
    pub fn turned_away(&self) -> Option<String> {
        let Self::Unavailable(cause) = self else { return None };
        let told = cause.downcast_ref::<tokio_postgres::Error>()?.as_db_error()?;
        Some(told.to_string())
    }

    /// This login may not do that.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Unexpected(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE))
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return if is_lost_connection(&error) {
                Self::Unavailable(error.into())
            } else {
                Self::Unexpected(error) // a column we misread is our bug, not an outage
            };
        };
        let told = || db.message().to_owned();

        match db.code().code() {
            "UT002" => Self::IllegalState(told()),
            "UT003" => Self::IdempotencyConflict(told()),
            "UT004" => Self::NotFound(told()),
            "UT005" => Self::RequesterRefused(told()),
            "UT006" => Self::NoSuchQueue(told()),
            "UT007" => Self::PartitionMissing(told()),
            "UT008" => Self::CredentialsRequired(told()),
            "UT009" => Self::CredentialVersionMoved(told()),
            "UT011" => Self::WrongIsolation(told()),
            code if code.starts_with("22") || code.starts_with("23") => Self::BadArgument(told()),
            _ if is_transient(db.code()) => Self::Unavailable(error.into()),
            _ => Self::Unexpected(error),
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> Self {
        // Also when the server is there and does not let us in: a password or certificate that has just been changed
        // is an outage to whoever asks.
        match error {
            PoolError::Backend(error) => Self::Unavailable(error.into()),
            other => Self::Unavailable(other.into()),
        }
    }
}

fn is_lost_connection(error: &tokio_postgres::Error) -> bool {
    use std::error::Error;
    error.is_closed() || error.source().is_some_and(|cause| cause.downcast_ref::<std::io::Error>().is_some())
}

/// The text of a function and the catalog disagree (class 42). Postgres looks up functions statement by statement, so
/// a call under way while euterpe-migrate loads a release may miss a helper whose signature has just changed. Nothing
/// was done, since each call is one statement; called again, it meets the new release whole.
pub(super) fn met_a_reload(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.code().starts_with("42") && *code != SqlState::INSUFFICIENT_PRIVILEGE)
}

/// Nothing was done, and the same call may go through in a moment.
fn is_transient(code: &SqlState) -> bool {
    [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::DISK_FULL,
        SqlState::OUT_OF_MEMORY,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
        || code.code().starts_with("08")
}
