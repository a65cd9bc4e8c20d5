//! How much work checking one event may be, and where it is done.
//!
//! - Most checks are small and run where the event is prepared: on a thread that serves requests.
//! - A larger check is announced to the runtime first, so that another thread takes over the requests of this one. A few such
//!   checks run at the same time; others wait for a moment, and are refused as retryable if there is no turn by then.
//! - A check that may take more than [`LOOKS_MAX`] or [`PATTERN_STEPS_MAX`] is refused before it begins: nothing can
//!   interrupt a validator.
//!
//! The estimate is an upper bound: the places of an event times the looks at each, and the bytes of text times the states of
//! the automata they are matched with. A linear-time matcher takes that many steps if its tables overflow.

use contract::{Error, Kind, Result};
use std::num::NonZero;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Most looks and steps of a check that runs where it is; a few milliseconds.
const SMALL: usize = 1_000_000;
/// Most looks of one check; some tenths of a second.
const LOOKS_MAX: usize = 20_000_000;
/// Most steps of patterns in one check; some seconds in the worst case, which ordinary texts are far from.
const PATTERN_STEPS_MAX: usize = 1_000_000_000;
/// How long a larger check waits for its turn.
const WAIT: Duration = Duration::from_secs(2);
/// Most checks that wait; each keeps a thread.
const WAITING_MAX: usize = 32;

/// What a check takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CheckWork {
    pub(super) looks: usize,
    pub(super) pattern_steps: usize,
}

impl CheckWork {
    pub(super) const fn is_small(self) -> bool {
        self.looks <= SMALL && self.pattern_steps <= SMALL
    }

    /// The same work, with an estimate that is too coarse to refuse anything.
    pub(super) fn without_refusal(self) -> Self {
        Self { looks: self.looks.min(LOOKS_MAX), pattern_steps: self.pattern_steps.min(PATTERN_STEPS_MAX) }
    }

    fn check(self) -> Result<()> {
        let detail = match (self.looks > LOOKS_MAX, self.pattern_steps > PATTERN_STEPS_MAX) {
            (false, false) => return Ok(()),
            (true, _) => "has too many values for its type's schema, which looks at each of them many times",
            (false, true) => "has too much text for its type's schema, whose patterns have many repetitions (`{1000}`)",
        };
        Err(Error::invalid("/data", detail))
    }
}

/// How many larger checks run at the same time.
#[derive(Default)]
pub(crate) struct CheckLimiter {
    state: Mutex<LimiterState>,
    freed: Condvar,
}

#[derive(Default)]
struct LimiterState {
    running: usize,
    waiting: usize,
}

impl CheckLimiter {
    /// Runs a check that takes `work` at most.
    pub(crate) fn run<T>(&self, work: CheckWork, check: impl FnOnce() -> T) -> Result<T> {
        if work.is_small() {
            return Ok(check());
        }
        work.check()?;
        let run = || {
            let _turn = self.turn()?;
            Ok(check())
        };
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(run),
            _ => run(),
        }
    }

    fn turn(&self) -> Result<CheckTurn<'_>> {
        let running_max = std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.running >= running_max {
            if state.waiting >= WAITING_MAX {
                return Err(busy());
            }
            let deadline = Instant::now() + WAIT;
            state.waiting += 1;
            while state.running >= running_max && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.waiting -= 1;
            if state.running >= running_max {
                return Err(busy());
            }
        }
        state.running += 1;
        Ok(CheckTurn(self))
    }
}

#[cold]
fn busy() -> Error {
    let detail = "Too many large events are being checked against their schemas; try again.";
    Error::new(Kind::Overloaded, detail).with_retry_after(2)
}

/// The right to run a larger check.
struct CheckTurn<'l>(&'l CheckLimiter);

impl Drop for CheckTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(state.running > 0, "a turn ends that was never taken");
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CompiledSchema, SchemaSource};
    use super::*;
    use serde_json::{Value, json};

    fn check(schema: &Value, data: &Value) -> Result<()> {
        let compiled = CompiledSchema::compile(&SchemaSource::json("/dataSchema", schema, None)).unwrap();
        let work = compiled.work(data, data.to_string().len());
        CheckLimiter::default().run(work, || ())
    }

    /// One event kept all threads of a broker busy for minutes, `/healthz` included.
    #[test]
    fn an_event_whose_check_would_take_minutes_is_refused_before_it_begins() {
        let text = "ab".repeat(500_000);
        let pattern = json!({"properties": {"x": {"pattern": "a[ab]{2000}c"}}});
        let repeated =
            json!({"properties": {"x": {"allOf": [{"not": {"pattern": "a[ab]{300}c"}}, {"pattern": "b[ab]{300}c"}]}}});
        let looks = json!({"properties": {"x": {"items": {"allOf": vec![json!({"minimum": 0}); 9900]}}}});
        for (schema, data) in
            [(pattern, json!({"x": text})), (repeated, json!({"x": text})), (looks, json!({"x": vec![1; 5000]}))]
        {
            let error = check(&schema, &data).unwrap_err();
            assert_eq!((error.kind(), error.violations()[0].pointer.as_str()), (Kind::Validation, "/data"));
        }
    }

    #[test]
    fn ordinary_large_events_are_checked() {
        let email = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,63}\.[A-Za-z]{2,}$";
        let schema =
            json!({"properties": {"x": {"items": {"type": "string", "pattern": email}}, "y": {"pattern": email}}});
        check(&schema, &json!({"x": vec!["someone@example.com"; 40_000]})).unwrap();
        check(&schema, &json!({"y": "x".repeat(1_000_000)})).unwrap();
    }

    #[test]
    fn a_turn_is_given_back_and_waited_for() {
        let limiter = CheckLimiter::default();
        let large = CheckWork { looks: SMALL + 1, pattern_steps: 0 };
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| limiter.run(large, std::thread::yield_now).unwrap());
            }
        });
        let state = limiter.state.lock().unwrap();
        assert_eq!((state.running, state.waiting), (0, 0));
    }
}
