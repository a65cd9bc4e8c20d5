//! What a receiver's response means. One table, pure:
//!
//! ```text
//! 2xx                                        done
//! 2xx with {"ack":false,"delaySeconds":n}    deferred by n seconds
//! 429, 503 with Retry-After                  deferred by that
//! 410                                        gone
//! 3xx                                        failed; never followed
//! anything else                              failed
//! ```
//!
//! - The status decides. A response that is too large to be read to its end cannot be an `ack`, so a 2xx counts as
//!   delivered and the attempt notes that it was cut: sending it again would only repeat the work.
//! - A deferral lasts at least a second and at most a day, so that no receiver makes the broker loop or wait for ever.

use super::failure::{DeliveryFailure, ErrorClass};
use bytes::Bytes;
use contract::Timestamp;
use contract::limits::{DEFER_SECONDS_DEFAULT, DEFER_SECONDS_MAX};
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// Delivered.
    Done,
    /// The receiver deferred it; the attempt does not count.
    Deferred {
        /// The wait.
        after: Duration,
    },
    /// The receiver is gone (410): the subscription is paused.
    Gone,
    /// Not delivered.
    Failed {
        /// Whether a retry may succeed.
        retryable: bool,
    },
}

/// A response, with the part of the body that was read.
#[derive(Debug)]
pub(super) struct ReceiverResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the body was cut.
    pub(super) is_cut: bool,
}

impl ReceiverResponse {
    /// The outcome of a response received at `now`, and the failure to report.
    pub(super) fn judge(&self, now: Timestamp) -> (AttemptOutcome, Option<DeliveryFailure>) {
        if let Some(after) = self.deferral(now) {
            return (AttemptOutcome::Deferred { after }, None);
        }
        if self.status.is_success() {
            return (AttemptOutcome::Done, self.is_cut.then(cut));
        }
        if self.status == StatusCode::GONE {
            return (AttemptOutcome::Gone, Some(self.refused()));
        }
        (AttemptOutcome::Failed { retryable: true }, Some(self.refused()))
    }

    fn deferral(&self, now: Timestamp) -> Option<Duration> {
        let seconds = match self.status {
            status if status.is_success() => refused_for(&self.body),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(&self.headers, now),
            _ => None,
        };
        seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, DEFER_SECONDS_MAX)))
    }

    fn refused(&self) -> DeliveryFailure {
        let code = self.status.as_u16();
        let (class, message) = match code {
            300..400 => {
                (ErrorClass::Http3xx, format!("The receiver responded with {code}; redirects are not followed."))
            }
            410 => (ErrorClass::Http4xx, "The receiver responded with 410: it wants no further deliveries.".to_owned()),
            400..500 => (ErrorClass::Http4xx, format!("The receiver responded with {code}.")),
            500..600 => (ErrorClass::Http5xx, format!("The receiver responded with {code}.")),
            _ => (ErrorClass::HttpOther, format!("The receiver responded with {code}.")),
        };
        DeliveryFailure::new(class, message)
    }
}

fn cut() -> DeliveryFailure {
    DeliveryFailure::new(
        ErrorClass::TooLarge,
        "The response was not read to its end: it is too large. Its status counts.",
    )
}

/// The seconds of `{"ack":false,"delaySeconds":n}`; `None` for any other body.
fn refused_for(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct AckBody {
        ack: bool,
        /// Of any type: only a number is used.
        #[serde(rename = "delaySeconds")]
        delay_seconds: Option<Value>,
    }
    // A list would be accepted as the members in order.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let refusal: AckBody = is_object.then(|| serde_json::from_slice(body).ok()).flatten()?;
    let requested = refusal.delay_seconds.and_then(|delay| delay.as_f64()).filter(|delay| *delay >= 0.0);
    // A float becomes the nearest integer; the largest ones saturate.
    (!refusal.ack).then(|| requested.map_or(DEFER_SECONDS_DEFAULT, |delay| delay.ceil() as u64))
}

/// `Retry-After`, in seconds from now; a date that has passed is 0.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let until = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_millis(u64::try_from(now.millis()).unwrap_or(0));
    let wait = until.saturating_sub(now);
    Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-12-03T12:00:00Z.
    const NOW: i64 = 1_764_763_200_000;

    fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let answer = ReceiverResponse { status, headers: map, body: Bytes::from(body.to_owned()), is_cut: false };
        let (outcome, failure) = answer.judge(Timestamp::from_millis(NOW));
        let class = failure.map_or("-", |failure| failure.class.as_str());
        match outcome {
            AttemptOutcome::Done => format!("done {class}"),
            AttemptOutcome::Deferred { after } => format!("deferred {} {class}", after.as_secs()),
            AttemptOutcome::Gone => format!("gone {class}"),
            AttemptOutcome::Failed { retryable } => format!("failed {retryable} {class}"),
        }
    }

    #[test]
    fn the_status_decides() {
        for (status, expected) in [
            (200, "done -"),
            (201, "done -"),
            (204, "done -"),
            (299, "done -"),
            (300, "failed true http_3xx"),
            (301, "failed true http_3xx"),
            (307, "failed true http_3xx"),
            (400, "failed true http_4xx"),
            (401, "failed true http_4xx"),
            (404, "failed true http_4xx"),
            (408, "failed true http_4xx"),
            (410, "gone http_4xx"),
            (429, "failed true http_4xx"),
            (500, "failed true http_5xx"),
            (503, "failed true http_5xx"),
            (101, "failed true http_other"),
            (600, "failed true http_other"),
        ] {
            assert_eq!(judged(status, &[], ""), expected, "{status}");
        }
    }

    #[test]
    fn a_2xx_can_say_later() {
        for (body, expected) in [
            (r#"{"ack":false,"delaySeconds":60}"#, "deferred 60 -"),
            (r#" {"delaySeconds": 1.2, "ack": false, "more": []}"#, "deferred 2 -"),
            (r#"{"ack":false}"#, "deferred 30 -"),
            (r#"{"ack":false,"delaySeconds":null}"#, "deferred 30 -"),
            (r#"{"ack":false,"delaySeconds":"9"}"#, "deferred 30 -"),
            (r#"{"ack":false,"delaySeconds":-5}"#, "deferred 30 -"),
            (r#"{"ack":false,"delaySeconds":0}"#, "deferred 1 -"),
            (r#"{"ack":false,"delaySeconds":1e300}"#, "deferred 86400 -"),
            (r#"{"ack":true,"delaySeconds":60}"#, "done -"),
            (r#"{"ack":"false"}"#, "done -"),
            (r#"{"ack":null}"#, "done -"),
            (r#"{"delaySeconds":60}"#, "done -"),
            (r#"[false, 60]"#, "done -"),
            (r#"[{"ack":false}]"#, "done -"),
            (r#"{"ack":false"#, "done -"),
            ("false", "done -"),
            ("ok", "done -"),
        ] {
            assert_eq!(judged(200, &[], body), expected, "{body}");
        }
        // Only a 2xx: a failure that says it is still one.
        assert_eq!(judged(500, &[], r#"{"ack":false,"delaySeconds":60}"#), "failed true http_5xx");
    }

    #[test]
    fn retry_after_defers_in_both_its_forms_where_it_has_a_meaning() {
        for (value, expected) in [
            ("120", "deferred 120 -"),
            ("0", "deferred 1 -"),
            ("999999999", "deferred 86400 -"),
            ("99999999999999999999999", "deferred 86400 -"),
            ("Wed, 03 Dec 2025 12:01:30 GMT", "deferred 90 -"),
            ("Wednesday, 03-Dec-25 12:01:30 GMT", "deferred 90 -"),
            ("Wed Dec  3 12:01:30 2025", "deferred 90 -"),
            ("Wed, 03 Dec 2025 11:00:00 GMT", "deferred 1 -"),
        ] {
            assert_eq!(judged(429, &[("retry-after", value)], ""), expected, "{value}");
            assert_eq!(judged(503, &[("retry-after", value)], ""), expected, "{value}");
        }
        for value in ["", "-1", "1.5", "soon", "2025-12-03T12:01:30Z"] {
            assert_eq!(judged(503, &[("retry-after", value)], ""), "failed true http_5xx", "{value}");
        }
        for (status, expected) in [(500, "failed true http_5xx"), (301, "failed true http_3xx"), (410, "gone http_4xx")]
        {
            assert_eq!(judged(status, &[("retry-after", "5")], ""), expected, "{status}");
        }
    }
}
