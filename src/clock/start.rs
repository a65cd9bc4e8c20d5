//! A start far behind the last record: either nothing was stored for long, or the clock is ahead.
//!
//! - The process cannot tell which. It stores what comes with the wall clock's time; waiting would date it wrongly whenever the
//!   broker was only off.
//! - What was stored before the start ends by the time that had passed then, until the clock has lasted for as long as a jump of
//!   a running broker must. So a clock that is set right within that time has deleted nothing.
//! - A clock that is set back proves that it was wrong, and is right now: then what was stored before ends by it, until the broker
//!   starts again.

use super::TrustedClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// By how much time is held for what was stored up to a time. The default holds nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockHold {
    /// The last record's time at the start.
    pub before: i64,
    /// How far the wall clock was ahead of it.
    pub jump: i64,
}

impl ClockHold {
    /// The time that decides, at `now`, what has become of something stored at `stored`.
    #[must_use]
    pub const fn time_for(self, stored: i64, now: i64) -> i64 {
        if stored <= self.before { now.saturating_sub(self.jump) } else { now }
    }

    /// Whether nothing is held.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.jump == 0
    }
}

/// The doubt of one start.
#[derive(Debug, Default)]
pub(super) struct StartDoubt {
    /// Whether `known` holds one, so that nobody takes the lock while there is none.
    is_open: AtomicBool,
    known: Mutex<Option<OpenDoubt>>,
}

#[derive(Debug, Clone, Copy)]
struct OpenDoubt {
    hold: ClockHold,
    /// The wall clock's time less the monotonic time, at the start.
    wall_ahead: i64,
    /// The clock was set back since.
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
            "the clock is far ahead of the log's last record: nothing that was stored before is removed for its age, forgotten or \
             let expire until the clock has lasted. If the broker was not off for so long, set the clock right now"
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
            // The log's time and the clock advance alike from here on.
            doubt.hold.jump = now().saturating_sub(wall.max(doubt.hold.before)).min(doubt.hold.jump);
            tracing::warn!(
                seconds = back / 1000,
                "the clock was set back after the start: it was ahead. What was stored before the start ends by the clock as it is \
                 now; what was stored since then carries the wrong time"
            );
        }
        let is_over = !doubt.is_wrong && (passed >= clock.jump_max || clock.is_confirmed());
        let hold = doubt.hold;
        if !is_over {
            return hold;
        }
        *known = None;
        self.is_open.store(false, Ordering::Relaxed);
        tracing::info!("the clock has lasted since the start and is relied on: what was held ends by it");
        ClockHold::default()
    }
}
