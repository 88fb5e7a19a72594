//! What this face promises, as OpenAPI 3.1 from the types, and a page that shows it without the network.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

use super::{ApiError, Face, refusals};
use crate::domain::transcode::{
    AcceptedAnswer, CancelRequest, CredentialVersion, CredentialsUpdate, ErrorBody, ErrorCode, JobList,
    RedeliverBody, Redelivered, RetryRequest, StatusDocument, Timeline, TranscodeRequest,
};

/// Only its own files: no network, no inline script.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                           frame-ancestors 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Euterpe: transcode",
        description = "A durable queue for transcoding. `POST /transcode` with an `Idempotency-Key` gives one `job_id` \
                       whatever the network does; signed webhooks tell of every step.",
        license(name = "MIT", identifier = "MIT")
    ),
    paths(enqueue, list, status, events, credentials, cancel, retry, redeliver, healthz, readyz),
    components(schemas(
        TranscodeRequest, AcceptedAnswer, StatusDocument, JobList, Timeline, CredentialsUpdate, CredentialVersion,
        CancelRequest, RetryRequest, RedeliverBody, Redelivered, ErrorBody
    )),
    modifiers(&Keys)
)]
struct Api;

/// The two ways to show a key.
struct Keys;

impl utoipa::Modify for Keys {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("`Authorization: Bearer eut_…`"))
            .build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.add_security_scheme(
            "api_key",
            SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))),
        );
    }
}

pub(super) fn routes() -> Router<Arc<Face>> {
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move {
            let headers: [(HeaderName, &str); 2] =
                [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
            (headers, text)
        })
    };
    let mut api = serde_json::to_value(Api::openapi()).expect("a description is always JSON");
    refusals::describe(&mut api);
    let api = Bytes::from(api.to_string());
    let description = move || std::future::ready(([(header::CONTENT_TYPE, "application/json")], api.clone()));
    Router::new()
        .route("/openapi.json", get(description))
        .route("/docs", file("text/html; charset=utf-8", include_str!("docs/index.html")))
        .route("/docs/page.js", file("text/javascript; charset=utf-8", include_str!("docs/page.js")))
        .route("/docs/page.css", file("text/css; charset=utf-8", include_str!("docs/page.css")))
}

/// `GET /readyz`: the database answers, and has what we call.
pub(super) async fn ready(State(face): State<Arc<Face>>) -> Response {
    match face.readiness.look().await {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(why) => {
            tracing::warn!(why, "not ready");
            ApiError::of(ErrorCode::Unavailable).retry_after(Duration::from_secs(1)).into_response()
        }
    }
}

/// Each call as a requester sees it, when all goes well; `refusals` adds the rest. The functions carry the description;
/// the handlers are in `jobs` and `steer`.
macro_rules! described {
    ($name:ident, $method:ident, $path:literal, [$($rest:tt)*]) => {
        #[utoipa::path($method, path = $path, $($rest)*)]
        #[expect(dead_code, reason = "it is there for its description")]
        fn $name() {}
    };
}

described!(enqueue, post, "/transcode", [
    summary = "Ask for a transcode",
    security(("bearer" = []), ("api_key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters. The same key and request get the same answer, for 7 days.", pattern = "^[!-~]{1,255}$")),
    request_body(content = TranscodeRequest, content_type = "application/json"),
    responses(
        (status = 202, description = "It is kept, whatever happens to us now. `Idempotency-Replayed: true` marks the answer of an earlier call.", body = AcceptedAnswer),
    )
]);

described!(status, get, "/transcode/status", [
    summary = "What is happening to a job, and why",
    security(("bearer" = []), ("api_key" = [])),
    params(
        ("job_id" = String, Query, description = "As POST /transcode answered it.", format = "uuid"),
        ("wait" = Option<u8>, Query, description = "Seconds, 1 to 60: answer when the job moves, at the latest then.", minimum = 1, maximum = 60),
    ),
    responses(
        (status = 200, description = "Where it stands, also when it failed.", body = StatusDocument),
    )
]);

described!(list, get, "/transcode", [
    summary = "Your jobs, newest first",
    security(("bearer" = []), ("api_key" = [])),
    params(
        ("status" = Option<String>, Query, description = "Only these: queued, claimed, fetching, processing, uploading, succeeded, failed, dead_letter.", pattern = "^(queued|claimed|fetching|processing|uploading|succeeded|failed|dead_letter)$"),
        ("external_id" = Option<String>, Query, description = "Only these."),
        ("cursor" = Option<String>, Query, description = "next_cursor of the page before.", format = "uuid"),
        ("limit" = Option<u8>, Query, description = "1 to 100, default 50.", minimum = 1, maximum = 100),
    ),
    responses(
        (status = 200, description = "One page.", body = JobList),
    )
]);

described!(
    events,
    get,
    "/transcode/events",
    [
        summary = "Everything that happened to a job, and what became of telling you",
        security(("bearer" = []), ("api_key" = [])),
        params(("job_id" = String, Query, description = "Which job.", format = "uuid")),
        responses((status = 200, description = "In order.", body = Timeline),)
    ]
);

described!(
    credentials,
    put,
    "/transcode/credentials",
    [
        summary = "Replace a job's storage credentials",
        description =
            "Compare and set: `expected_credential_version` must be the one in the status document.",
        security(("bearer" = []), ("api_key" = [])),
        request_body(content = CredentialsUpdate, content_type = "application/json"),
        responses((status = 200, description = "They are in place.", body = CredentialVersion),)
    ]
);

described!(
    cancel,
    post,
    "/transcode/cancel",
    [
        summary = "End a job that nobody needs any more",
        security(("bearer" = []), ("api_key" = [])),
        request_body(content = CancelRequest, content_type = "application/json"),
        responses((status = 200, description = "It is failed, code `cancelled`.", body = StatusDocument),)
    ]
);

described!(
    retry,
    post,
    "/transcode/retry",
    [
        summary = "Try a failed job again",
        description = "A job that rests as failed goes back to the line. Of a dead letter a new job is made: 202 and its `job_id`.",
        security(("bearer" = []), ("api_key" = [])),
        request_body(content = RetryRequest, content_type = "application/json"),
        responses(
            (status = 200, description = "It is queued again.", body = StatusDocument),
            (status = 202, description = "A new job was made of a dead letter.", body = AcceptedAnswer),
        )
    ]
);

described!(
    redeliver,
    post,
    "/transcode/events/redeliver",
    [
        summary = "Send webhooks again",
        description =
            "One of `event_id`, `job_id`, or `since` with `until`. The same `event_id` and bytes are sent.",
        security(("bearer" = []), ("api_key" = [])),
        request_body(content = RedeliverBody, content_type = "application/json"),
        responses((status = 202, description = "So many will be sent.", body = Redelivered),)
    ]
);

described!(
    healthz,
    get,
    "/healthz",
    [
        summary = "Is the process alive?",
        responses((status = 200, description = "It is.", body = String, content_type = "text/plain"))
    ]
);

described!(
    readyz,
    get,
    "/readyz",
    [
        summary = "Does the database answer, and has it what we call?",
        responses((status = 200, description = "It does.", body = String, content_type = "text/plain"),)
    ]
);
