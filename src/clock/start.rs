//! A start long after the last record: either nothing was stored for a long time, or the clock is ahead.
//!
//! - The process cannot tell which. New records carry the wall clock's time; another time would be wrong whenever the
//!   broker was only stopped.
//! - Until the clock has lasted for as long as a jump of a running broker must, what was stored before the start
//!   expires as if no time had passed since the last record. So a clock that is corrected within that time has deleted
//!   nothing.
//! - A clock that is set back was wrong, and is right now: then what was stored before the start expires by the
//!   corrected clock, until the broker starts again.

use super::TrustedClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How far time is held back for what was stored up to a time. The default holds nothing back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockHold {
    /// The last record's time at the start.
    pub before: i64,
    /// How far the wall clock was ahead of it.
    pub jump: i64,
}

impl ClockHold {
    /// The time that decides, at `now`, whether something that was stored at `stored` has expired.
    #[must_use]
    pub const fn time_for(self, stored: i64, now: i64) -> i64 {
        if stored <= self.before { now.saturating_sub(self.jump) } else { now }
    }

    /// Whether nothing is held back.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.jump == 0
    }
}

/// The doubt of one start.
#[derive(Debug, Default)]
pub(super) struct StartDoubt {
    /// Whether `known` holds a value, so that the lock is not taken while it does not.
    is_open: AtomicBool,
    known: Mutex<Option<OpenDoubt>>,
}

#[derive(Debug, Clone, Copy)]
struct OpenDoubt {
    hold: ClockHold,
    /// The wall clock's time minus the monotonic time, at the start.
    wall_ahead: i64,
    /// Whether the clock was set back since.
    is_wrong: bool,
}

impl StartDoubt {
    pub(super) fn begin(&self, clock: &TrustedClock, last: i64, now: i64) -> ClockHold {
        let (wall, passed) = clock.read_clock();
        let jump = now.saturating_sub(last);
        let has_lasted = passed >= clock.jump_max;
        if last <= 0 || jump <= clock.jump_max || has_lasted || clock.is_confirmed() {
            return ClockHold::default();
        }
        let hold = ClockHold { before: last, jump };
        tracing::warn!(
            clock_millis = now,
            last_record_millis = last,
            seconds = jump / 1000,
            held_seconds = clock.jump_max / 1000,
            "the clock is far ahead of the log's last record: until the clock has lasted, nothing that was stored before \
             expires or is removed for its age. If the broker was not stopped for so long, correct the clock now"
        );
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(OpenDoubt { hold, wall_ahead: wall.saturating_sub(passed), is_wrong: false });
        self.is_open.store(true, Ordering::Relaxed);
        hold
    }

    pub(super) fn hold(&self, clock: &TrustedClock, now: impl FnOnce() -> i64) -> ClockHold {
        if !self.is_open.load(Ordering::Relaxed) {
            return ClockHold::default();
        }
        let (wall, passed) = clock.read_clock();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(doubt) = known.as_mut() else { return ClockHold::default() };
        let back = doubt.wall_ahead.saturating_sub(wall.saturating_sub(passed));
        if back > clock.jump_max && !doubt.is_wrong {
            doubt.is_wrong = true;
            // From here on the log's time and the clock advance at the same rate.
            doubt.hold.jump = now().saturating_sub(wall.max(doubt.hold.before)).min(doubt.hold.jump);
            tracing::warn!(
                seconds = back / 1000,
                "the clock was set back after the start: it was ahead. What was stored before the start expires by the \
                 corrected clock; what was stored since then carries the wrong time"
            );
        }
        let is_over = !doubt.is_wrong && (passed >= clock.jump_max || clock.is_confirmed());
        let hold = doubt.hold;
        if !is_over {
            return hold;
        }
        *known = None;
        self.is_open.store(false, Ordering::Relaxed);
        tracing::info!("the clock has lasted since the start and is trusted: what was held back expires by it");
        ClockHold::default()
    }
}
