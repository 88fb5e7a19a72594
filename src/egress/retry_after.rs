//! How long the other side asks us to stay away.

use hyper::header::{HeaderMap, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Nobody makes us wait longer.
const LONGEST_WAIT: i64 = 86_400;

/// In seconds, from seconds or an HTTP date; anything else is not heard.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<i32> {
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
}
