//! Circuit breakers: a target that keeps failing is not called for a while. The wait costs no job an attempt.
//!
//! ```text
//!   closed ── ten failures in a row ──▶ open ── its wait is over ──▶ one probe ── done ──▶ closed
//!                                        ▲                              │
//!                                        └───────── failed: twice the wait
//! ```
//!
//! When a person redrives or retries a job, it is sent at once as the probe: whoever has repaired a target need not
//! wait.
//!
//! All workers of a process share its breakers: the jobs of several logs may have the same target.

use contract::{BreakerState, TargetBreaker, Timestamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Failures in a row that open a breaker.
const FAILURES_TO_OPEN: u32 = 10;
/// How long a breaker is open at first, in milliseconds.
const OPEN_MILLIS: i64 = 30_000;
/// The longest time a breaker is open, in milliseconds.
const OPEN_MILLIS_MAX: i64 = 300_000;
/// Other jobs wait this long for the probe, then check again, in milliseconds.
const PROBE_WAIT_MILLIS: i64 = 1000;
/// Past this many targets, those without an open breaker are forgotten.
const TARGETS_MAX: usize = 10_000;

/// Breakers by target.
#[derive(Clone, Default)]
pub(crate) struct CircuitBreakers(Arc<Mutex<HashMap<Arc<str>, CircuitBreaker>>>);

#[derive(Default)]
struct CircuitBreaker {
    failures: u32,
    /// When it opened, in milliseconds.
    since: i64,
    wait: i64,
    open_until: Option<i64>,
    probing: bool,
    /// When a call last failed, in milliseconds.
    failed_at: i64,
}

/// A change of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    /// It opened: the target is not called for a while.
    Failing,
    /// It closed: the target responds again.
    Recovered,
}

impl CircuitBreakers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, CircuitBreaker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a target's breaker.
    pub(crate) fn state(&self, target: &str, now: i64) -> TargetBreaker {
        let breakers = self.lock();
        let Some(breaker) = breakers.get(target) else { return TargetBreaker::default() };
        let Some(until) = breaker.open_until else {
            return TargetBreaker { failures: breaker.failures, ..TargetBreaker::default() };
        };
        TargetBreaker {
            state: if now < until { BreakerState::Open } else { BreakerState::HalfOpen },
            failures: breaker.failures,
            since: Some(Timestamp::from_millis(breaker.since)),
            next_try_at: (now < until).then(|| Timestamp::from_millis(until)),
        }
    }

    /// Closes a breaker on behalf of a person.
    pub(crate) fn close(&self, target: &str) {
        self.lock().remove(target);
    }

    /// A person retried a job at `retried_at`: if no call has failed since, the next job is the probe and does not wait
    /// for the breaker.
    pub(crate) fn request_probe(&self, target: &str, retried_at: i64, now: i64) {
        let mut breakers = self.lock();
        let Some(breaker) = breakers.get_mut(target).filter(|breaker| breaker.failed_at < retried_at) else { return };
        breaker.open_until = breaker.open_until.map(|until| until.min(now));
    }

    /// Whether a target may be called now, and whether the call is the probe; otherwise when to check again.
    pub(crate) fn admit(&self, target: &Arc<str>, now: i64) -> Result<bool, i64> {
        let mut breakers = self.lock();
        let Some(breaker) = breakers.get_mut(target) else { return Ok(false) };
        match breaker.open_until {
            None => Ok(false),
            Some(until) if now < until => Err(until),
            Some(_) if breaker.probing => Err(now + PROBE_WAIT_MILLIS),
            Some(_) => {
                breaker.probing = true;
                Ok(true)
            }
        }
    }

    /// A probe has ended. If it had no result, the next job is the probe.
    pub(crate) fn end_probe(&self, target: &Arc<str>) {
        if let Some(breaker) = self.lock().get_mut(target) {
            breaker.probing = false;
        }
    }

    /// When a refused job checks again, at the latest; `None` if the target may be called.
    pub(crate) fn retry_at(&self, target: &Arc<str>, now: i64) -> Option<i64> {
        let until = self.lock().get(target)?.open_until?;
        Some(if now < until { until } else { now + PROBE_WAIT_MILLIS })
    }

    /// Reports the result of a call.
    pub(crate) fn record_call(&self, target: &Arc<str>, is_alive: bool, now: i64) -> Option<BreakerChange> {
        let mut breakers = self.lock();
        if is_alive {
            let known = breakers.remove(target)?;
            return known.open_until.map(|_| BreakerChange::Recovered);
        }
        if breakers.len() >= TARGETS_MAX {
            breakers.retain(|_, breaker| breaker.open_until.is_some());
        }
        let breaker = breakers.entry(Arc::clone(target)).or_default();
        breaker.failures = breaker.failures.saturating_add(1);
        breaker.failed_at = now;
        let was_open = breaker.open_until.is_some();
        if breaker.failures < FAILURES_TO_OPEN || (was_open && !breaker.probing) {
            return None;
        }
        breaker.wait = if was_open { (breaker.wait * 2).min(OPEN_MILLIS_MAX) } else { OPEN_MILLIS };
        breaker.open_until = Some(now.saturating_add(breaker.wait));
        breaker.probing = false;
        if !was_open {
            breaker.since = now;
        }
        (!was_open).then_some(BreakerChange::Failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_keeps_failing_is_left_alone_and_probed() {
        let (breakers, target) = (CircuitBreakers::default(), Arc::<str>::from("http://a/"));
        for n in 1..FAILURES_TO_OPEN {
            assert_eq!(breakers.record_call(&target, false, 0), None, "{n}");
            assert_eq!(breakers.admit(&target, 0), Ok(false));
        }
        assert_eq!(breakers.record_call(&target, false, 0), Some(BreakerChange::Failing));
        assert_eq!(breakers.admit(&target, 29_999), Err(30_000));
        assert_eq!([29_999, 30_000].map(|now| breakers.retry_at(&target, now)), [Some(30_000), Some(31_000)]);
        assert_eq!(breakers.admit(&target, 30_000), Ok(true), "the probe");
        assert_eq!(breakers.admit(&target, 30_000), Err(31_000), "no second one");
        assert_eq!(breakers.record_call(&target, false, 30_000), None);
        assert_eq!(breakers.admit(&target, 89_999), Err(90_000), "twice the wait");
        assert_eq!(breakers.admit(&target, 90_000), Ok(true));
        assert_eq!(breakers.record_call(&target, true, 90_000), Some(BreakerChange::Recovered));
        assert_eq!(breakers.retry_at(&target, 90_000), None);
        assert_eq!(breakers.admit(&target, 90_000), Ok(false));
        assert_eq!(breakers.record_call(&target, true, 90_000), None);
    }

    #[test]
    fn an_open_breaker_is_shown_and_a_person_can_close_it() {
        let (breakers, target) = (CircuitBreakers::default(), Arc::<str>::from("http://a/"));
        let shown = |now| {
            let TargetBreaker { state, failures, since, next_try_at } = breakers.state(&target, now);
            (state, failures, since.map(|at| at.millis()), next_try_at.map(|at| at.millis()))
        };
        assert_eq!(shown(0), (BreakerState::Closed, 0, None, None));
        for _ in 1..FAILURES_TO_OPEN {
            assert_eq!(breakers.record_call(&target, false, 5), None);
        }
        assert_eq!(shown(5), (BreakerState::Closed, 9, None, None));
        breakers.record_call(&target, false, 7);
        assert_eq!(shown(8), (BreakerState::Open, 10, Some(7), Some(30_007)));
        assert_eq!(shown(30_007), (BreakerState::HalfOpen, 10, Some(7), None));
        breakers.close(&target);
        assert_eq!(shown(30_007), (BreakerState::Closed, 0, None, None));
        assert_eq!(breakers.admit(&target, 8), Ok(false));
    }
}
