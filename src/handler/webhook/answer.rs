//! From what a receiver answered to a class of `euterpe.delivery_classes`.

use hyper::header::{HeaderMap, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use crate::domain::Delivery;
use crate::egress::{Answer, Failure};

/// No receiver makes us wait longer.
const LONGEST_WAIT: i64 = 86_400;

/// What a call met. The status decides; the body is for whoever reads the log.
#[must_use]
pub fn delivery_of(answered: Result<Answer, Failure>, now: Timestamp) -> Delivery {
    match answered {
        Ok(answer) => Delivery {
            error_class: class_of(answer.status.as_u16()).map(str::to_owned),
            http_status: Some(answer.status.as_u16()),
            retry_after_seconds: retry_after(&answer.headers, now),
            answer: Some(answer.beginning),
            duration_ms: 0,
        },
        Err(failure) => {
            Delivery { answer: Some(failure.to_string().into_bytes()), ..Delivery::failed(failure.class()) }
        }
    }
}

fn class_of(status: u16) -> Option<&'static str> {
    match status {
        200..=299 => None,
        300..=399 => Some("redirect"),
        410 => Some("gone"),
        429 => Some("rate_limited"),
        _ => Some("status"),
    }
}

/// Seconds or an HTTP date; anything else is not heard.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<i32> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let seconds = if is_number {
        text.parse().unwrap_or(LONGEST_WAIT) // more digits than a number has
    } else {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        date.as_second() - now.as_second()
    };
    i32::try_from(seconds.clamp(0, LONGEST_WAIT)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(text: &str) -> Option<i32> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().expect("a header"));
        let now = "2026-11-18T14:00:00Z".parse().expect("a time");
        retry_after(&headers, now)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_capped_at_a_day_and_junk_is_not_heard() {
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("86401", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("Wed, 18 Nov 2026 14:02:00 GMT", Some(120)),
            ("Wed, 18 Nov 2026 13:00:00 GMT", Some(0)),
            ("Fri, 18 Dec 2026 13:00:00 GMT", Some(86_400)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(waits(text), seconds, "{text:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_status_is_delivered_or_has_its_class() {
        for (status, class) in [
            (200, None),
            (204, None),
            (299, None),
            (101, Some("status")),
            (302, Some("redirect")),
            (400, Some("status")),
            (404, Some("status")),
            (410, Some("gone")),
            (429, Some("rate_limited")),
            (500, Some("status")),
            (599, Some("status")),
        ] {
            assert_eq!(class_of(status), class, "{status}");
        }
    }
}
