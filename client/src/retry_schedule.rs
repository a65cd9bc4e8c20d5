//! After which failures a request is repeated, and when: one rule for the client and the command line.
//!
//! - A request that was refused because the broker is full (429) had no effect and is repeated. After a 503, or without a
//!   response, the request may have had its effect: it is repeated only if a repetition has no second effect
//!   ([`RequestRetry`]).
//! - No wait is shorter than `Retry-After`. No try begins after the end of the call.

use crate::connection::RequestFailure;
use crate::problem;
use crate::retry::{RetryPolicy, jitter};
use contract::Kind;
use std::time::Duration;
use tokio::time::Instant;

/// The default for the longest time of a call, in addition to the time that the broker is asked to wait.
pub(crate) const TOTAL_DEFAULT: Duration = Duration::from_secs(90);

/// Whether a request may be repeated when it is unknown whether it had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestRetry {
    /// A repetition has no second effect.
    Freely,
    /// A repetition could have a second effect.
    Never,
}

/// The tries of one request.
#[derive(Debug, Clone)]
pub struct RetrySchedule {
    policy: RetryPolicy,
    retry: RequestRetry,
    until: Instant,
    tries: u32,
    /// Whether a broker that no try has reached is tried again.
    waits_for_start: bool,
}

impl RetrySchedule {
    /// The tries of a request that ends at `until`.
    #[must_use]
    pub const fn new(policy: RetryPolicy, retry: RequestRetry, until: Instant) -> Self {
        Self { policy, retry, until, tries: 0, waits_for_start: true }
    }

    /// For a program that a person has started: the default limits, and if the first try reaches no broker, there is no
    /// second one.
    #[must_use]
    pub fn interactive(retry: RequestRetry) -> Self {
        let schedule = Self::new(RetryPolicy::default(), retry, Instant::now() + TOTAL_DEFAULT);
        Self { waits_for_start: false, ..schedule }
    }

    /// The wait before the next try; `None` if the failure is the result.
    pub fn wait_after(&mut self, failure: &RequestFailure) -> Option<Duration> {
        self.tries += 1;
        let is_first = self.tries == 1;
        if is_first && !self.waits_for_start && matches!(failure, RequestFailure::Unreachable(_)) {
            return None;
        }
        let shortest = shortest_wait(failure, self.retry)?;
        let wait = self.policy.wait_after(self.tries, Some(shortest), jitter())?;
        (Instant::now() + wait < self.until).then_some(wait)
    }

    /// The limits on tries and waits.
    pub(crate) const fn policy(&self) -> RetryPolicy {
        self.policy
    }
}

/// The shortest wait before a request may be repeated after a failure; `None` if it may not.
pub(crate) fn shortest_wait(failure: &RequestFailure, retry: RequestRetry) -> Option<Duration> {
    let (kind, asked) = match failure {
        RequestFailure::Unreachable(_) | RequestFailure::Broken(_) => (Kind::Unavailable, Duration::ZERO),
        RequestFailure::Refused(refused) => {
            let error = problem::read(refused.status, &refused.body, None);
            (error.kind(), Duration::from_secs(refused.retry_after.unwrap_or_default()))
        }
        RequestFailure::Unwritable(_) | RequestFailure::Untrusted(..) | RequestFailure::TimedOut => return None,
    };
    let may_repeat = match kind {
        // The request in flight under the key is an earlier try of this call.
        Kind::Overloaded | Kind::IdempotencyKeyInFlight => true,
        Kind::Unavailable => retry == RequestRetry::Freely,
        _ => false,
    };
    may_repeat.then_some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{BrokerConnection, ConnectionOptions, RefusedResponse, TlsFault};
    use bytes::Bytes;

    fn refused(status: u16, retry_after: Option<u64>) -> RequestFailure {
        RequestFailure::Refused(RefusedResponse { status, retry_after, body: Bytes::new() })
    }

    #[tokio::test]
    async fn a_request_is_repeated_if_it_had_no_effect_or_may_have_it_twice() {
        for (status, retry, again) in [
            (429, RequestRetry::Freely, true),
            (429, RequestRetry::Never, true),
            (503, RequestRetry::Freely, true),
            (503, RequestRetry::Never, false),
            (404, RequestRetry::Freely, false),
        ] {
            let waits = RetrySchedule::interactive(retry).wait_after(&refused(status, None)).is_some();
            assert_eq!(waits, again, "{status} {retry:?}");
        }
    }

    #[tokio::test]
    async fn a_broker_that_is_not_trusted_is_not_tried_again() {
        let connection = BrokerConnection::new("https://127.0.0.1:1", ConnectionOptions::default()).unwrap();
        let request = || connection.request(reqwest::Method::GET, &[], &[]);
        let cause = || request().header("x", "\n").build().unwrap_err();
        let retry = RequestRetry::Freely;
        assert!(shortest_wait(&RequestFailure::Unreachable(cause()), retry).is_some());
        assert_eq!(shortest_wait(&RequestFailure::Untrusted(TlsFault::UnknownAuthority, cause()), retry), None);
    }

    #[tokio::test]
    async fn no_try_begins_after_the_end_of_the_call() {
        let schedule = |total| {
            RetrySchedule::new(
                RetryPolicy::default(),
                RequestRetry::Freely,
                Instant::now() + Duration::from_secs(total),
            )
        };
        assert!(schedule(3600).wait_after(&refused(503, Some(60))).is_some_and(|wait| wait.as_secs() == 60));
        assert_eq!(schedule(30).wait_after(&refused(503, Some(60))), None);
    }
}
