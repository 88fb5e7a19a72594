//! What a store's answer means: one table, from status and code to a cause. docs/errors.md shows it; a test compares.

use std::ops::RangeInclusive;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use jiff::Timestamp;

use super::{Cause, StorageError};
use crate::egress::retry_after;

/// A row of the table. The first that fits counts.
#[derive(Debug)]
pub struct Row {
    /// Of these statuses.
    pub status: RangeInclusive<u16>,
    /// With one of these codes; none: with any, or none.
    pub codes: &'static [&'static str],
    /// And one of these in the message; none: with any.
    pub says: &'static [&'static str],
    /// It means this.
    pub cause: Cause,
}

const fn row(status: RangeInclusive<u16>, codes: &'static [&'static str], cause: Cause) -> Row {
    Row { status, codes, says: &[], cause }
}

const ANY: RangeInclusive<u16> = 100..=599;

/// Notes D.2, and what stores were seen to answer: an expired token is 400 at AWS and 403 at SeaweedFS, an expired
/// signed url 400 at rclone and Garage, and a multipart upload that failed may end in 200 with an error inside.
pub const ANSWERS: &[Row] = &[
    row(ANY, &["RequestTimeTooSkewed"], Cause::Clock),
    row(ANY, &["ExpiredToken", "InvalidToken", "TokenRefreshRequired"], Cause::Auth),
    row(ANY, &["SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"], Cause::RateLimited),
    row(ANY, &["InternalError", "ServiceUnavailable", "OperationAborted"], Cause::Unavailable),
    row(ANY, &["RequestTimeout"], Cause::Timeout),
    row(ANY, &["NoSuchUpload"], Cause::Conflict),
    row(400..=400, &["AccessDenied"], Cause::Auth),
    Row { status: 400..=400, codes: &["InvalidRequest"], says: &["expired", "too old"], cause: Cause::Auth },
    row(401..=401, &[], Cause::Auth),
    // In an archive: no key opens it.
    row(403..=403, &["InvalidObjectState"], Cause::Refused),
    row(403..=403, &[], Cause::Auth),
    row(404..=404, &[], Cause::NotFound),
    row(408..=408, &[], Cause::Timeout),
    row(409..=409, &["ConditionalRequestConflict"], Cause::Unavailable),
    row(409..=409, &[], Cause::Conflict),
    row(410..=410, &[], Cause::NotFound),
    row(412..=412, &[], Cause::Changed),
    row(416..=416, &[], Cause::Changed),
    row(423..=423, &[], Cause::Locked),
    row(429..=429, &[], Cause::RateLimited),
    row(501..=501, &[], Cause::Refused),
    row(500..=599, &[], Cause::Unavailable),
    row(ANY, &[], Cause::Refused),
];

/// What an answer means.
#[must_use]
pub fn classify(status: u16, code: Option<&str>, message: &str) -> Cause {
    let message = message.to_ascii_lowercase();
    let fits = |row: &&Row| {
        row.status.contains(&status)
            && (row.codes.is_empty() || code.is_some_and(|code| row.codes.contains(&code)))
            && (row.says.is_empty() || row.says.iter().any(|said| message.contains(said)))
    };
    ANSWERS.iter().find(fits).map_or(Cause::Refused, |row| row.cause)
}

/// From a whole answer to an error. Of the body only the code is kept: the rest may repeat keys and signatures.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> StorageError {
    let text = String::from_utf8_lossy(body);
    let code = element(&text, "Code").filter(|code| is_code(code));
    let status = status.as_u16();
    let cause = classify(status, code, element(&text, "Message").unwrap_or_default());
    let named = code.map(|code| format!(" {code}")).unwrap_or_default();
    let advice = match status {
        300..=399 => "; it sends us elsewhere, which we do not follow: check endpoint and region",
        _ => "",
    };
    let wait = retry_after(headers, Timestamp::now()).and_then(|seconds| u64::try_from(seconds).ok());
    StorageError {
        cause,
        message: format!("storage answered {status}{named}{advice}"),
        http_status: Some(status),
        provider_code: code.map(str::to_owned),
        retry_after: wait.map(std::time::Duration::from_secs),
    }
}

/// Whether an answer of 200 is an error all the same.
pub(super) fn is_error(body: &Bytes) -> bool {
    let beginning = String::from_utf8_lossy(&body[..body.len().min(1024)]);
    beginning.contains("<Error>") || beginning.contains("<Error ")
}

/// The text of the first `<name>`: an error is a flat list, and no more of it is asked for.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(value, _)| value.trim())
}

fn is_code(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_cause() {
        for (status, code, message, cause) in [
            (400, "ExpiredToken", "", Cause::Auth),
            (403, "ExpiredToken", "", Cause::Auth),
            (400, "InvalidToken", "", Cause::Auth),
            (400, "TokenRefreshRequired", "", Cause::Auth),
            (400, "AccessDenied", "", Cause::Auth),
            (400, "InvalidRequest", "Date is too old", Cause::Auth),
            (400, "InvalidRequest", "Request has Expired", Cause::Auth),
            (400, "InvalidRequest", "no such checksum", Cause::Refused),
            (400, "AuthorizationHeaderMalformed", "", Cause::Refused),
            (400, "RequestTimeout", "", Cause::Timeout),
            (401, "", "", Cause::Auth),
            (403, "", "", Cause::Auth),
            (403, "AccessDenied", "", Cause::Auth),
            (403, "InvalidAccessKeyId", "", Cause::Auth),
            (403, "SignatureDoesNotMatch", "", Cause::Auth),
            (403, "RequestTimeTooSkewed", "", Cause::Clock),
            (403, "InvalidObjectState", "", Cause::Refused),
            (404, "NoSuchKey", "", Cause::NotFound),
            (404, "NoSuchBucket", "", Cause::NotFound),
            (404, "NoSuchUpload", "", Cause::Conflict),
            (405, "", "", Cause::Refused),
            (408, "", "", Cause::Timeout),
            (409, "OperationAborted", "", Cause::Unavailable),
            (409, "ConditionalRequestConflict", "", Cause::Unavailable),
            (409, "", "", Cause::Conflict),
            (410, "", "", Cause::NotFound),
            (411, "", "", Cause::Refused),
            (412, "PreconditionFailed", "", Cause::Changed),
            (416, "InvalidRange", "", Cause::Changed),
            (423, "", "", Cause::Locked),
            (429, "", "", Cause::RateLimited),
            (503, "SlowDown", "", Cause::RateLimited),
            (400, "ThrottlingException", "", Cause::RateLimited),
            (400, "Throttling", "", Cause::RateLimited),
            (403, "TooManyRequests", "", Cause::RateLimited),
            (200, "InternalError", "", Cause::Unavailable),
            (200, "ServiceUnavailable", "", Cause::Unavailable),
            (200, "MalformedXML", "", Cause::Refused),
            (301, "PermanentRedirect", "", Cause::Refused),
            (307, "", "", Cause::Refused),
            (500, "", "", Cause::Unavailable),
            (501, "NotImplemented", "", Cause::Refused),
            (502, "", "", Cause::Unavailable),
            (503, "", "", Cause::Unavailable),
            (504, "", "", Cause::Unavailable),
        ] {
            let code = Some(code).filter(|code| !code.is_empty());
            assert_eq!(classify(status, code, message), cause, "{status} {code:?} {message}");
        }
    }

    /// No row is in the shadow of another: each decides for some answer.
    #[test]
    fn every_row_decides_something() {
        for (nth, row) in ANSWERS.iter().enumerate() {
            let codes = if row.codes.is_empty() { &["Whatever"][..] } else { row.codes };
            let said = row.says.first().copied().unwrap_or_default();
            let first = |status: u16, code: &str| {
                ANSWERS.iter().position(|other| {
                    other.status.contains(&status)
                        && (other.codes.is_empty() || other.codes.contains(&code))
                        && (other.says.is_empty() || other.says.contains(&said))
                })
            };
            let decides =
                row.status.clone().any(|status| codes.iter().all(|code| first(status, code) == Some(nth)));
            assert!(decides, "{row:?}");
        }
    }

    #[test]
    fn of_a_body_only_the_code_is_kept() {
        let of = |body: &'static str| {
            refusal(StatusCode::FORBIDDEN, &HeaderMap::new(), &Bytes::from_static(body.as_bytes()))
        };
        let body = "<?xml?><Error><Code>AccessDenied</Code><Message>no</Message><AWSAccessKeyId>AKSECRET</AWSAccessKeyId></Error>";
        let error = of(body);
        assert_eq!(error.provider_code.as_deref(), Some("AccessDenied"));
        assert_eq!(error.to_string(), "storage answered 403 AccessDenied");
        assert!(!format!("{error:?}").contains("AKSECRET"));
        for odd in ["<Code></Code>", "<Code>a b</Code>", "<Code>x", "nothing", "<Code><b>Y</b></Code>"] {
            assert_eq!(of(odd).provider_code, None, "{odd}");
        }
    }
}
