//! Who asks: an API key from the header, looked up, compared, and judged.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, header};

use super::error::ApiError;
use crate::crypto::{ApiKey as ShownKey, Peppers};
use crate::domain::RequesterId;
use crate::domain::transcode::ErrorCode;
use crate::store::{ApiKey, Store, StoreError};

/// A revoked key is refused everywhere within a second.
const FRESH: Duration = Duration::from_millis(900);
/// Keys remembered at once; whoever sends made-up ones cannot fill our memory.
const MOST: usize = 10_000;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// To ask for work and to steer it.
    Write,
    /// To look.
    Read,
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Write => "transcode:write",
            Self::Read => "transcode:read",
        }
    }
}

/// Who asks, and with which key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose jobs are meant by everything that follows.
    pub requester: RequesterId,
    /// Its limits and scopes.
    pub key: ApiKey,
}

/// Knows keys, for a moment.
pub struct Doorman {
    peppers: Peppers,
    known: Mutex<HashMap<String, (Instant, Option<ApiKey>)>>,
}

impl Doorman {
    /// With the peppers of this deployment.
    #[must_use]
    pub fn new(peppers: Peppers) -> Self {
        Self { peppers, known: Mutex::default() }
    }

    /// Who asks? Unknown, revoked and mistyped keys are refused in the same words, after the same work.
    pub async fn admit(&self, store: &Store, headers: &HeaderMap, scope: Scope) -> Result<Caller, ApiError> {
        let shown = ShownKey::parse(key_in(headers)?).map_err(|_| nobody("no_such_form"))?;
        let kept = self.look_up(store, shown.id()).await?;
        let hash = kept.as_ref().map(|key| (key.key_hash.as_slice(), key.pepper_version));
        let is_right = self.peppers.check(&shown, hash).map_err(|error| {
            ApiError::from(StoreError::UnexpectedAnswer(error.to_string())) // ours: a pepper is missing here
        })?;
        let key = match kept {
            None => return Err(nobody("unknown")),
            Some(_) if !is_right => return Err(nobody("wrong_secret")),
            Some(key) if !key.is_valid => return Err(nobody("revoked")),
            Some(key) if key.is_disabled => return Err(refuse(ErrorCode::Forbidden, "disabled")),
            Some(key) if !key.scopes.iter().any(|has| has == scope.as_str()) => {
                return Err(refuse(ErrorCode::Forbidden, "scope"));
            }
            Some(key) => key,
        };
        let requester = key.requester_id.parse();
        let requester = requester.map_err(|_| StoreError::UnexpectedAnswer("a requester's name".into()))?;
        Ok(Caller { requester, key })
    }

    async fn look_up(&self, store: &Store, id: &str) -> Result<Option<ApiKey>, StoreError> {
        let remembered = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(id).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, key)| key.clone())
        };
        if let Some(key) = remembered {
            return Ok(key);
        }
        let asked_at = Instant::now();
        let key = store.find_api_key(id).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(id.to_owned(), (asked_at, key.clone()));
        Ok(key)
    }
}

/// A refusal, counted. The number knows why; the caller is not told.
fn refuse(code: ErrorCode, reason: &'static str) -> ApiError {
    metrics::counter!("euterpe_auth_failures_total", "reason" => reason).increment(1);
    ApiError::of(code)
}

fn nobody(reason: &'static str) -> ApiError {
    refuse(ErrorCode::Unauthorized, reason)
}

/// The key, by `Authorization: Bearer` or `X-API-Key`; exactly one of them, once.
fn key_in(headers: &HeaderMap) -> Result<&str, ApiError> {
    let unreadable = || nobody("no_such_form");
    let all = |name: HeaderName| headers.get_all(name).iter().count();
    match (all(header::AUTHORIZATION), all(X_API_KEY)) {
        (0, 0) => Err(nobody("no_key")),
        (0, 1) => headers[X_API_KEY].to_str().map(str::trim).map_err(|_| unreadable()),
        (1, 0) => {
            let text = headers[header::AUTHORIZATION].to_str().map_err(|_| unreadable())?;
            let (scheme, key) = text.split_once(' ').ok_or_else(unreadable)?;
            if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(unreadable()) }
        }
        _ => Err(ApiError::new(ErrorCode::BadRequest, "send one API key: Authorization or X-API-Key, once")),
    }
}
