//! The real `euterpe`, with an environment of its own and nothing else.

use std::process::{Command, Output};

use serde_json::Value;

use super::{TestDb, url_of};
use crate::crypto::key_of;

/// `euterpe` with its environment.
pub struct Cli {
    set: Vec<(&'static str, String)>,
}

/// What it printed and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Cli {
    pub fn new(db: &TestDb) -> Self {
        Self {
            set: vec![
                ("EUTERPE_DATABASE_URL", url_of(&db.config())),
                ("EUTERPE_KEKS", format!("one:{}", key_of(1))),
                ("EUTERPE_KEY_PEPPER", key_of(9)),
            ],
        }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set.retain(|(set, _)| *set != name);
        self.set.push((name, value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.set.retain(|(set, _)| *set != name);
        self
    }

    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_euterpe"));
        command.args(words.split(' ')).env_clear().envs(self.set.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The same, ended after so many seconds.
    pub fn within(&self, seconds: &str, words: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args([seconds, env!("CARGO_BIN_EXE_euterpe")]).args(words.split(' ')).env_clear();
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn say(&self, words: &str) -> Said {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }

    /// The JSON it answers when all is well.
    pub fn json(&self, words: &str) -> Value {
        let said = self.say(&format!("{words} --json"));
        assert_eq!(said.code, 0, "{words}: {}", said.err);
        serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{words}: {}", said.out))
    }
}
