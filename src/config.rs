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

    /// Whoever is about to drop a function looks in pg_stat_activity for the releases that are still there.
    #[test]
    fn a_connection_announces_its_program_and_release() {
        let env = |_: &str| Some("postgres://u@localhost/d?application_name=other".to_owned());
        let config = database(env, "euterpe-transcode").expect("a url");
        let announced = format!("euterpe-transcode/{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(config.get_application_name(), Some(announced.as_str()));
    }

    #[test]
    fn a_bad_database_url_is_not_repeated() {
        let env = |_: &str| Some("postgres://u:hunter2@[".to_owned());
        let refused = database(env, "test").expect_err("not a url");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
