//! From what a receiver answered to a class of `euterpe.delivery_classes`.

use jiff::Timestamp;

use crate::domain::Delivery;
use crate::egress::{Answer, Failure, retry_after};

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

#[cfg(test)]
mod tests {
    use super::*;

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
