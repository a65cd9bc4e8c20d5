//! What the result of an attempt means for its job: one pure function.

use crate::delivery::AttemptOutcome;
use crate::subscriptions::RetrySchedule;

/// What happens to a job next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// It was delivered.
    Done,
    /// The receiver deferred it until then; the attempt does not count.
    Later(i64),
    /// It is retried then.
    Again(i64),
    /// It is given up.
    Dead,
    /// It reached its maximum age, and is given up.
    Expired,
    /// The receiver is gone (410): the subscription is paused, and the job waits until it is resumed.
    Gone,
}

/// What happens to a job after an attempt that ended at `now`; `spent` attempts counted before it, and `jitter` is a
/// random number from -1 to 1.
pub(crate) fn next_step(retry: &RetrySchedule, spent: u32, outcome: AttemptOutcome, now: i64, jitter: f64) -> NextStep {
    match outcome {
        AttemptOutcome::Done => NextStep::Done,
        AttemptOutcome::Deferred { after } => {
            NextStep::Later(now.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)))
        }
        AttemptOutcome::Gone => NextStep::Gone,
        AttemptOutcome::Failed { retryable: false } => NextStep::Dead,
        AttemptOutcome::Failed { retryable: true } if spent.saturating_add(1) >= retry.attempts_max => NextStep::Dead,
        AttemptOutcome::Failed { retryable: true } => {
            let index = usize::try_from(spent).unwrap_or(usize::MAX);
            let wait = retry.schedule.get(index).or(retry.schedule.last()).copied().unwrap_or(0);
            NextStep::Again(now.saturating_add(jittered(wait, jitter)))
        }
    }
}

/// Deferrals in a row that are granted as requested; from then on the shortest wait doubles.
const DEFERRALS_AS_ASKED: u32 = 8;
/// The longest such wait, in milliseconds.
const DEFERRAL_WAIT_MAX: i64 = 300_000;

/// When a job is sent again that its receiver deferred to `until`, after so many deferrals in a row. Every deferral is
/// an entry in the log: a receiver that always defers to "now" must not fill it.
pub(crate) fn deferred_until(until: i64, deferrals: u32, now: i64) -> i64 {
    let doublings = (deferrals + 1).saturating_sub(DEFERRALS_AS_ASKED).min(16);
    let least = if doublings == 0 { 0 } else { (1000_i64 << doublings).min(DEFERRAL_WAIT_MAX) };
    until.max(now.saturating_add(least))
}

/// A fifth more or less, so that jobs that failed together are not retried together.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a wait is far below 2^52 milliseconds"
)]
fn jittered(wait: i64, jitter: f64) -> i64 {
    wait.saturating_add((wait as f64 * 0.2 * jitter.clamp(-1.0, 1.0)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_job_is_tried_on_its_schedule_and_then_given_up() {
        let retry = RetrySchedule::of(None, None);
        let failed = AttemptOutcome::Failed { retryable: true };
        let waits: Vec<_> = (0..9).map(|spent| next_step(&retry, spent, failed, 0, 0.0)).collect();
        let again = [5, 30, 120, 600, 3600, 21_600, 43_200].map(|seconds| NextStep::Again(seconds * 1000));
        assert_eq!(waits[..7], again);
        assert_eq!(waits[7..], [NextStep::Dead; 2]);
        let short = RetrySchedule::of(Some(&["PT2S".parse().unwrap()]), Some(4));
        let waits: Vec<_> = (0..4).map(|spent| next_step(&short, spent, failed, 0, 0.0)).collect();
        assert_eq!(waits, [NextStep::Again(2000), NextStep::Again(2000), NextStep::Again(2000), NextStep::Dead]);
    }

    /// The last wait was longer than the default age, so that a job expired before its last try.
    #[test]
    fn the_default_schedule_with_the_longest_waits_fits_inside_the_default_age() {
        let retry = RetrySchedule::of(None, None);
        let failed = AttemptOutcome::Failed { retryable: true };
        let mut now = 0;
        for spent in 0..retry.attempts_max - 1 {
            let NextStep::Again(at) = next_step(&retry, spent, failed, now, 1.0) else {
                panic!("{spent} is the last try")
            };
            now = at;
        }
        let age = i64::from(contract::limits::JOB_AGE_SECONDS_DEFAULT) * 1000;
        assert_eq!(now, 82_986_000);
        assert!(now < age, "{now} of {age}");
    }

    #[test]
    fn the_other_outcomes_cost_nothing_or_everything() {
        let retry = RetrySchedule::of(None, None);
        let after = Duration::from_secs(7);
        for (outcome, expected) in [
            (AttemptOutcome::Done, NextStep::Done),
            (AttemptOutcome::Deferred { after }, NextStep::Later(8000)),
            (AttemptOutcome::Gone, NextStep::Gone),
            (AttemptOutcome::Failed { retryable: false }, NextStep::Dead),
        ] {
            assert_eq!(next_step(&retry, 0, outcome, 1000, 0.5), expected);
        }
    }

    #[test]
    fn a_receiver_that_always_defers_is_asked_less_and_less_often() {
        let waits: Vec<_> = (0..20).map(|deferrals| deferred_until(1000, deferrals, 0) / 1000).collect();
        assert_eq!(waits[..8], [1; 8]);
        assert_eq!(waits[8..], [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
        assert_eq!(deferred_until(3_600_000, 19, 0), 3_600_000, "a longer wait is granted as it is");
    }

    #[test]
    fn a_wait_differs_by_a_fifth_at_most() {
        let retry = RetrySchedule::of(None, None);
        for (jitter, at) in [(-1.0, 4000), (0.0, 5000), (1.0, 6000), (9.0, 6000)] {
            assert_eq!(
                next_step(&retry, 0, AttemptOutcome::Failed { retryable: true }, 0, jitter),
                NextStep::Again(at)
            );
        }
    }
}
