//! The policy of a handler: lease, attempts, back-off and order, from the handler's definition or the configuration.

use crate::config;
use contract::{ClaimOrder, IsoDuration, NewHandler, limits};

/// The defaults of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimDefaults {
    pub(crate) lease_millis: i64,
    pub(crate) heartbeat_millis: i64,
    pub(crate) max_attempts: u32,
    pub(crate) backoff_millis: i64,
    pub(crate) order: ClaimOrder,
}

impl ClaimDefaults {
    pub(crate) fn of(config: &config::ClaimsConfig) -> Self {
        let millis = |seconds: u64| i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        Self {
            lease_millis: millis(config.lease_secs),
            heartbeat_millis: millis(config.heartbeat_secs),
            max_attempts: config.max_attempts,
            backoff_millis: millis(config.backoff_secs),
            order: config.order,
        }
    }
}

impl ClaimDefaults {
    /// How often to send a heartbeat for a claim with this lease: as configured, but at least three times in a lease, so
    /// that one may be late and one lost.
    pub(super) fn heartbeat(&self, lease_millis: i64) -> i64 {
        self.heartbeat_millis.min(lease_millis / 3).max(1)
    }
}

/// The policy that applies to one handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimPolicy {
    pub(super) lease_millis: i64,
    pub(super) max_attempts: u32,
    pub(super) backoff_millis: i64,
    pub(super) order: ClaimOrder,
}

impl ClaimPolicy {
    /// The handler's own values, else the defaults.
    pub(super) fn of(handler: Option<&NewHandler>, defaults: ClaimDefaults) -> Self {
        let put = |span: fn(&NewHandler) -> Option<&IsoDuration>| handler.and_then(span).map(IsoDuration::millis);
        Self {
            lease_millis: put(|it| it.lease.as_ref()).unwrap_or(defaults.lease_millis),
            max_attempts: handler.and_then(|it| it.max_attempts).unwrap_or(defaults.max_attempts),
            backoff_millis: put(|it| it.backoff.as_ref()).unwrap_or(defaults.backoff_millis),
            order: handler.and_then(|it| it.order).unwrap_or(defaults.order),
        }
    }

    /// When the next attempt may start after this many failed ones; `None` if that was the last one.
    pub(super) fn retry_at(&self, attempt: u32, now: i64) -> Option<i64> {
        if attempt >= self.max_attempts {
            return None;
        }
        let doubled =
            self.backoff_millis.saturating_mul(1_i64.checked_shl(attempt.saturating_sub(1).min(62)).unwrap_or(1));
        let most = (limits::BACKOFF_SECONDS_MAX * 1000).max(self.backoff_millis);
        Some(now.saturating_add(doubled.min(most)))
    }
}

/// A duration as the API shows it.
pub(super) fn span(millis: i64) -> IsoDuration {
    match (millis / 1000, millis % 1000) {
        (seconds, 0) => IsoDuration::seconds(seconds),
        (seconds, rest) => format!("PT{seconds}.{rest:03}S").parse().unwrap_or_else(|_| IsoDuration::seconds(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_the_longest_and_ends_with_the_attempts() {
        let policy = |backoff_millis, max_attempts| ClaimPolicy {
            lease_millis: 1,
            max_attempts,
            backoff_millis,
            order: ClaimOrder::Latest,
        };
        for (backoff, max, attempt, wait) in [
            (1000, 5, 1, Some(1000)),
            (1000, 5, 2, Some(2000)),
            (1000, 5, 4, Some(8000)),
            (1000, 5, 5, None),
            (1000, 5, 9, None),
            (1000, 100, 50, Some(3_600_000)),
            (1000, 100, 99, Some(3_600_000)),
            (0, 5, 3, Some(0)),
            (1, 1, 1, None),
        ] {
            assert_eq!(policy(backoff, max).retry_at(attempt, 0), wait, "{backoff} {max} {attempt}");
        }
        assert_eq!(policy(1000, 5).retry_at(1, i64::MAX), Some(i64::MAX));
    }

    #[test]
    fn a_heartbeat_is_never_more_than_a_third_of_the_claims_own_lease() {
        let defaults = ClaimDefaults::of(&config::ClaimsConfig::default());
        for (lease, heartbeat) in [(900_000, 30_000), (30_000, 10_000), (5000, 1666), (3, 1), (1, 1)] {
            assert_eq!(defaults.heartbeat(lease), heartbeat, "{lease}");
        }
    }

    #[test]
    fn a_span_is_shown_to_the_millisecond() {
        for (millis, text) in [(900_000, "PT900S"), (500, "PT0.500S"), (1001, "PT1.001S"), (0, "PT0S")] {
            assert_eq!((span(millis).as_str(), span(millis).millis()), (text, millis));
        }
    }
}
