//! The face `transcode`: HTTP in front of the inbox (contract §6; design §6). One handler, one call of the store.

mod auth;
mod body;
mod error;
mod jobs;
mod limits;
mod openapi;
mod query;
mod refusals;
mod steer;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::crypto::{KeyProvider, Peppers};
use crate::domain::transcode::{ErrorCode, Policy};
use crate::face::manners;
use crate::face::serve::Limits;
use crate::store::surface::Role;
use crate::store::{Store, Wakeups};
use crate::telemetry::Readiness;

pub use error::ApiError;

use auth::{Caller, Doorman, Scope};
use limits::{Meters, Rate};
use wait::Waiters;

/// Everything a handler may use.
pub struct Face {
    store: Store,
    keys: Arc<dyn KeyProvider>,
    policy: Policy,
    doorman: Doorman,
    meters: Meters,
    waiters: Waiters,
    readiness: Readiness,
    body_in: Duration,
    stop: CancellationToken,
}

impl Face {
    /// A face over `store`, that seals with `keys` and accepts what `policy` says.
    #[must_use]
    pub fn new(
        store: Store,
        wakeups: &Wakeups,
        keys: Arc<dyn KeyProvider>,
        peppers: Peppers,
        policy: Policy,
    ) -> Self {
        // A transition tells the line of events, whether or not anybody wants its event.
        let waiters = Waiters::start(store.clone(), wakeups.hear(&["webhook"]));
        let (doorman, meters) = (Doorman::new(peppers), Meters::default());
        let (body_in, stop) = (Limits::default().body, CancellationToken::new());
        let readiness = Readiness::of(store.clone(), Role::Api);
        Self { store, keys, policy, doorman, meters, waiters, readiness, body_in, stop }
    }

    /// The same face; a body comes in so much time, and a stop answers everybody who waits for a job to move.
    #[must_use]
    pub fn within(self, body_in: Duration, stop: CancellationToken) -> Self {
        Self { body_in, stop, ..self }
    }

    /// Who asks, counted.
    async fn admit(&self, headers: &axum::http::HeaderMap, scope: Scope) -> Result<(Caller, Rate), ApiError> {
        let caller = self.doorman.admit(&self.store, headers, scope).await?;
        let rate = self.meters.count(&caller.requester, &caller.key);
        Ok((caller, rate))
    }

    /// Who asks, unless too often.
    async fn admit_within_rate(
        &self,
        headers: &axum::http::HeaderMap,
        scope: Scope,
    ) -> Result<(Caller, Rate), ApiError> {
        let (caller, rate) = self.admit(headers, scope).await?;
        rate.refusal().map_or(Ok((caller, rate)), Err)
    }
}

/// The routes, with manners around them.
pub fn router(face: Arc<Face>) -> Router {
    Router::new()
        .route("/transcode", post(jobs::enqueue).get(jobs::list))
        .route("/transcode/status", get(jobs::status))
        .route("/transcode/events", get(jobs::events))
        .route("/transcode/credentials", put(steer::credentials))
        .route("/transcode/cancel", post(steer::cancel))
        .route("/transcode/retry", post(steer::retry))
        .route("/transcode/events/redeliver", post(steer::redeliver))
        .merge(openapi::routes())
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(openapi::ready))
        .fallback(|| async { ApiError::of(ErrorCode::NotFound) })
        .method_not_allowed_fallback(|| async { ApiError::of(ErrorCode::MethodNotAllowed) })
        .layer(CatchPanicLayer::custom(|_| -> Response {
            tracing::error!("a handler panicked");
            ApiError::of(ErrorCode::Internal).into_response()
        }))
        .layer(from_fn(manners::keep))
        .with_state(face)
}
