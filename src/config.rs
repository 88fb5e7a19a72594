//! Every setting, typed and bounded, read once from the environment (prefix `EUTERPE_`).
//!
//! The environment is a closure, so that a test needs no `set_var`.

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
    const NAME: &str = "EUTERPE_DATABASE_URL";
    let url = env(NAME).ok_or(BadSetting::Missing {
        name: NAME,
        needed: "say which database, e.g. postgres://user@localhost/euterpe",
    })?;
    let mut config: tokio_postgres::Config = url.parse().map_err(|_| BadSetting::Unusable {
        name: NAME,
        value: "…".into(),
        problem: "is neither a postgres:// url nor a key=value connection string".into(),
    })?;
    config.application_name(format!("{program}/{}", env!("CARGO_PKG_VERSION")));
    config.connect_timeout(std::time::Duration::from_secs(5));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_database_url_is_not_repeated() {
        let env = |_: &str| Some("postgres://u:hunter2@[".to_owned());
        let refused = database(env, "test").expect_err("not a url");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
