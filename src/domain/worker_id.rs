//! Contract §2: who a worker is.

use std::fmt;

use uuid::Uuid;

/// A worker's identity: `POD_NAME`, else `HOSTNAME`, followed by `#` and eight digits of a boot UUID.
///
/// A restarted pod keeps its name; it must not inherit its past, so the name alone is not enough.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WorkerId(String);

impl WorkerId {
    /// The identity of this process start. Ask once and keep the answer.
    #[must_use]
    pub fn of_this_boot(env: impl Fn(&str) -> Option<String>) -> Self {
        let boot = Uuid::new_v4();
        let name = ["POD_NAME", "HOSTNAME"]
            .into_iter()
            .filter_map(env)
            .map(|name| name.trim().chars().take(200).collect::<String>())
            .find(|name| !name.is_empty());
        Self(match name {
            Some(name) => format!("{name}#{}", &boot.simple().to_string()[..8]),
            None => boot.to_string(),
        })
    }

    /// As the database knows it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
