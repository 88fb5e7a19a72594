//! Which codes each call may be refused with, and the answers of the description that follow from them: a status is
//! written down once, where its code is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::transcode::ErrorCode::{
    self, BadRequest, BodyTooLarge, CredentialVersionConflict, CredentialsRequired, Forbidden, Gone,
    IdempotencyConflict, Internal, InvalidJson, InvalidRequest, NotFound, RateLimited, RequestTimeout,
    StateConflict, TooManyOpenJobs, Unauthorized, Unavailable, UnsupportedMediaType,
};

/// Of everything: a head that cannot be used, and our own mistakes.
const ANY: &[ErrorCode] = &[BadRequest, Internal];
/// Of whatever needs a key.
const CALLER: &[ErrorCode] = &[Unauthorized, Forbidden, RateLimited, Unavailable];
/// Of whatever has a body.
const BODY: &[ErrorCode] = &[InvalidJson, RequestTimeout, BodyTooLarge, UnsupportedMediaType, InvalidRequest];

/// By the name of the operation.
fn codes(operation: &str) -> Vec<ErrorCode> {
    let parts: &[&[ErrorCode]] = match operation {
        "enqueue" => &[ANY, CALLER, BODY, &[IdempotencyConflict, TooManyOpenJobs]],
        "list" => &[ANY, CALLER, &[InvalidRequest]],
        "status" | "events" => &[ANY, CALLER, &[InvalidRequest, NotFound, Gone]],
        "credentials" => &[ANY, CALLER, BODY, &[NotFound, StateConflict, CredentialVersionConflict]],
        "cancel" => &[ANY, CALLER, BODY, &[NotFound, Gone, StateConflict]],
        "retry" => &[
            ANY,
            CALLER,
            BODY,
            &[NotFound, Gone, StateConflict, CredentialsRequired, CredentialVersionConflict],
        ],
        "redeliver" => &[ANY, CALLER, BODY, &[NotFound, StateConflict]],
        "readyz" => &[ANY, &[Unavailable]],
        _ => &[ANY],
    };
    parts.concat()
}

/// Adds the answers to every operation of `api`.
pub(super) fn describe(api: &mut Value) {
    let paths = api["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(Value::as_object_mut).flat_map(|methods| methods.values_mut());
    for operation in operations {
        let mut by_status = BTreeMap::<u16, Vec<ErrorCode>>::new();
        for code in codes(operation["operationId"].as_str().unwrap_or_default()) {
            by_status.entry(code.http_status()).or_default().push(code);
        }
        for (status, codes) in by_status {
            operation["responses"][status.to_string()] = answer(&codes);
        }
    }
}

/// One status, which several codes may share: each is told, and shown as an example.
fn answer(codes: &[ErrorCode]) -> Value {
    let told: Vec<_> = codes.iter().map(|code| format!("`{code}`: {}", code.meaning())).collect();
    let shown = codes.iter().map(|code| {
        let body = json!({"error": {"code": code, "message": code.meaning()}});
        (code.as_str().to_owned(), json!({"value": body}))
    });
    let mut answer = json!({
        "description": told.join(" "),
        "content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/ErrorBody"},
            "examples": shown.collect::<serde_json::Map<_, _>>(),
        }},
    });
    if codes.iter().any(|code| matches!(code, RateLimited | TooManyOpenJobs | Unavailable)) {
        let seconds = json!({"type": "integer", "minimum": 1});
        answer["headers"] = json!({"Retry-After": {"description": "Seconds.", "schema": seconds}});
    }
    answer
}
