//! The two secrets of a job as they are sealed: JSON inside, nothing shown outside (design §5.15).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Credentials, Hidden};

/// What opens the doors of storage: keys, or signed urls. Purpose `storage`; replaced as a whole by a refresh.
#[derive(Debug, Clone, Default)]
pub struct StorageSecret {
    /// Keys to object storage.
    pub credentials: Option<Credentials>,
    /// The signed url of the source.
    pub source_uri: Option<Hidden>,
    /// The signed urls of the outputs, by output name.
    pub upload_urls: BTreeMap<String, Hidden>,
}

/// Whom to tell and whom to ask. Purpose `callback`; sealed once.
#[derive(Debug, Clone, Default)]
pub struct CallbackSecret {
    /// Where events go.
    pub status_webhook_url: Option<Hidden>,
    /// Who has new credentials.
    pub refresh_url: Option<Hidden>,
}

/// A sealed secret that opened and is not what it should be. Says nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the opened secret is not of the expected form")]
pub struct BadSecret;

/// The most that is sealed at once; `_sealed_complaint` draws the same line for the ciphertext.
pub(super) const MAX_SECRET_BYTES: usize = 60_000;

impl StorageSecret {
    /// Nothing in it: nothing to seal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.credentials.is_none() && self.source_uri.is_none() && self.upload_urls.is_empty()
    }

    /// The text to seal.
    #[must_use]
    pub fn write(&self) -> Hidden {
        let credentials = self.credentials.as_ref().map(|keys| WrittenCredentials {
            access_key_id: keys.access_key_id.expose(),
            secret_access_key: keys.secret_access_key.expose(),
            session_token: keys.session_token.as_ref().map(Hidden::expose),
            expires_at: keys.expires_at,
        });
        let urls = self.upload_urls.iter().map(|(name, url)| (name.as_str(), url.expose()));
        hide(&WrittenStorage {
            credentials,
            source_uri: self.source_uri.as_ref().map(Hidden::expose),
            upload_urls: urls.collect(),
        })
    }

    /// What [`StorageSecret::write`] wrote.
    pub fn read(text: &str) -> Result<Self, BadSecret> {
        let read: ReadStorage = serde_json::from_str(text).map_err(|_| BadSecret)?;
        Ok(Self {
            credentials: read.credentials.map(|keys| Credentials {
                access_key_id: Hidden::new(keys.access_key_id),
                secret_access_key: Hidden::new(keys.secret_access_key),
                session_token: keys.session_token.map(Hidden::new),
                expires_at: keys.expires_at,
            }),
            source_uri: read.source_uri.map(Hidden::new),
            upload_urls: read.upload_urls.into_iter().map(|(name, url)| (name, Hidden::new(url))).collect(),
        })
    }
}

impl CallbackSecret {
    /// The text to seal.
    #[must_use]
    pub fn write(&self) -> Hidden {
        hide(&WrittenCallback {
            status_webhook_url: self.status_webhook_url.as_ref().map(Hidden::expose),
            refresh_url: self.refresh_url.as_ref().map(Hidden::expose),
        })
    }

    /// What [`CallbackSecret::write`] wrote.
    pub fn read(text: &str) -> Result<Self, BadSecret> {
        let read: ReadCallback = serde_json::from_str(text).map_err(|_| BadSecret)?;
        Ok(Self {
            status_webhook_url: read.status_webhook_url.map(Hidden::new),
            refresh_url: read.refresh_url.map(Hidden::new),
        })
    }
}

/// Into a buffer that never grows: one that did would leave its old self behind, readable.
fn hide(secret: &impl Serialize) -> Hidden {
    let mut buffer = Vec::with_capacity(2 * MAX_SECRET_BYTES);
    serde_json::to_writer(&mut buffer, secret).expect("strings and times are always JSON");
    Hidden::new(String::from_utf8(buffer).expect("JSON is UTF-8"))
}

#[derive(Serialize)]
struct WrittenStorage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<WrittenCredentials<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_uri: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    upload_urls: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct WrittenCredentials<'a> {
    access_key_id: &'a str,
    secret_access_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct WrittenCallback<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status_webhook_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_url: Option<&'a str>,
}

#[derive(Deserialize)]
struct ReadStorage {
    credentials: Option<ReadCredentials>,
    source_uri: Option<String>,
    #[serde(default)]
    upload_urls: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ReadCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expires_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ReadCallback {
    status_webhook_url: Option<String>,
    refresh_url: Option<String>,
}
