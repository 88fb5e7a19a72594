//! Somebody who uses the API.

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::Value;

use crate::config;
use crate::domain::transcode::Hidden;
use crate::egress::{Call, Egress, Limits};

/// A requester's backend, in short.
pub(super) struct User {
    way: Egress,
    url: String,
    key: Hidden,
}

impl User {
    /// Calls `url` by the same guard as everybody, with the same settings.
    pub(super) fn of(url: &str, settings: &[(String, String)]) -> anyhow::Result<Self> {
        let env =
            |name: &str| settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.clone());
        // A status document may be long, and wait= may be, too.
        let limits = Limits {
            total: std::time::Duration::from_secs(70),
            kept_bytes: 1 << 20,
            read_bytes: 1 << 20,
            ..Limits::default()
        };
        let way = Egress::new(config::policy(env)?.egress, limits);
        Ok(Self { way, url: url.to_owned(), key: Hidden::new(String::new()) })
    }

    pub(super) fn with_key(&mut self, key: String) {
        self.key = Hidden::new(key);
    }

    /// Where the API is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the API answers.
    pub(super) async fn is_served(&self) -> bool {
        let url = format!("{}/readyz", self.url);
        let call = Call { method: Method::GET, url: &url, headers: &[], body: bytes::Bytes::new() };
        self.way.call(call).await.is_ok_and(|answer| answer.status.is_success())
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let headers = [("x-api-key", self.key.expose()), ("content-type", "application/json")];
        let body = body.map(Value::to_string).unwrap_or_default().into();
        let answer = self.way.call(Call { method, url: &url, headers: &headers, body }).await?;
        let said: Value = serde_json::from_slice(&answer.beginning)
            .with_context(|| format!("{path} answered {} and no JSON", answer.status))?;
        if !answer.status.is_success() {
            bail!("{path} answered {}: {}", answer.status, said["error"]["message"]);
        }
        Ok(said)
    }
}
