//! The back-off between tries, as a pure function; the callers wait.
//!
//! - Waits double up to a maximum and have jitter, so that programs that lost the same broker do not return at the same moment.
//! - No wait is shorter than the `Retry-After` of the broker, however long that is.

use std::time::Duration;
use uuid::Uuid;

/// How often a request is tried, and the waits between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of tries, including the first.
    pub tries_max: u32,
    /// The approximate first wait; each further wait is about twice as long.
    pub first_wait: Duration,
    /// The longest wait, unless the broker asks for a longer one.
    pub wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries_max: 6, first_wait: Duration::from_millis(100), wait_max: Duration::from_secs(10) }
    }
}

impl RetryPolicy {
    /// The wait after this many tries; `None` if no more tries are allowed. `jitter` is between 0 and 255.
    #[must_use]
    pub fn wait_after(&self, tries: u32, retry_after: Option<Duration>, jitter: u8) -> Option<Duration> {
        (tries < self.tries_max).then(|| self.wait(tries, retry_after, jitter))
    }

    /// The wait after this many tries, without a limit on tries.
    #[must_use]
    pub fn wait(&self, tries: u32, retry_after: Option<Duration>, jitter: u8) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(self.wait_max);
        // Between half of the wait and the whole wait.
        let jittered = doubled / 2 + doubled / 2 * u32::from(jitter) / 255;
        jittered.max(retry_after.unwrap_or_default())
    }
}

/// A random number between 0 and 255.
pub(crate) fn jitter() -> u8 {
    Uuid::new_v4().as_bytes().first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_cap_and_are_never_shorter_than_asked() {
        let retry =
            RetryPolicy { tries_max: 8, first_wait: Duration::from_millis(100), wait_max: Duration::from_secs(2) };
        let millis = |tries, asked: Option<u64>, jitter| {
            retry.wait_after(tries, asked.map(Duration::from_secs), jitter).map(|wait| wait.as_millis())
        };
        for (tries, asked, jitter, wait) in [
            (1, None, 255, Some(100)),
            (1, None, 0, Some(50)),
            (2, None, 255, Some(200)),
            (5, None, 255, Some(1600)),
            (6, None, 255, Some(2000)),
            (7, None, 0, Some(1000)),
            (1, Some(1), 255, Some(1000)),
            (1, Some(60), 0, Some(60_000)),
            (6, Some(1), 255, Some(2000)),
            (8, None, 255, None),
            (9, Some(1), 255, None),
        ] {
            assert_eq!(millis(tries, asked, jitter), wait, "{tries} {asked:?} {jitter}");
        }
        assert_eq!(retry.wait(u32::MAX, None, 255), Duration::from_secs(2));
    }
}
