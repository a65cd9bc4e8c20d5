//! Time as a value: the machine's clocks behind a [`Clock`], and the time of one log on top of them.
//!
//! - The wall clock may step in either direction. The monotonic clock never steps, but means nothing by itself.
//! - The log's time ([`LogClock`]) is the wall clock's, and at least the last record's time plus the monotonic time since
//!   that record was applied here. So it never falls and always moves, whatever the wall clock does: a lease of two seconds
//!   ends after two seconds, also when the record that granted it carries a time of next year.
//! - Whatever is compared with a time that is stored in a log is compared with that log's time, never with the wall clock.
//! - A step of the wall clock ahead, beyond a bound, is not believed at once: it must last as long as the bound says. One
//!   that passes is never written. A machine that was suspended, or whose clock was set right, is behind for that long.
//!
//! Nothing here waits. Why it is so: `docs/decisions/0020-the-time-of-a-log.md`.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the clocks say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The wall clock: milliseconds since 1970 began.
    pub wall: i64,
    /// The monotonic clock.
    pub monotonic: Instant,
}

/// Reads the clocks.
pub trait Clock: Send + Sync {
    /// Both clocks, now.
    fn read(&self) -> ClockReading;

    /// The wall clock alone, for what is told to the world outside. Stored times are compared with [`LogClock::now`].
    fn now(&self) -> i64 {
        self.read().wall
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn read(&self) -> ClockReading {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClockReading { wall: millis(since), monotonic: Instant::now() }
    }
}

/// Clocks that stand still until somebody moves them.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    origin: Instant,
    /// Milliseconds since `origin`.
    monotonic: AtomicI64,
}

impl ManualClock {
    /// Clocks showing this time.
    #[must_use]
    pub fn at(millis: i64) -> Self {
        Self { wall: AtomicI64::new(millis), origin: Instant::now(), monotonic: AtomicI64::new(0) }
    }

    /// Lets time pass, on both clocks.
    ///
    /// # Panics
    /// If `millis` is negative: time does not pass backwards. [`Self::step`] moves the wall clock alone.
    pub fn advance(&self, millis: i64) {
        assert!(millis >= 0, "time does not pass backwards; step the wall clock");
        self.wall.fetch_add(millis, Ordering::Relaxed);
        self.monotonic.fetch_add(millis, Ordering::Relaxed);
    }

    /// Sets the wall clock ahead, or back, while no time passes.
    pub fn step(&self, millis: i64) {
        self.wall.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn read(&self) -> ClockReading {
        let passed = Duration::from_millis(self.monotonic.load(Ordering::Relaxed).unsigned_abs());
        ClockReading { wall: self.wall.load(Ordering::Relaxed), monotonic: self.origin + passed }
    }
}

/// The time of one log, in milliseconds since 1970 began.
pub struct LogClock {
    clock: Arc<dyn Clock>,
    /// Monotonic time is counted from here.
    origin: Instant,
    /// The log's time less the monotonic time; only rises.
    ahead: AtomicI64,
    /// How far the wall clock may be ahead of the log's time and be believed at once.
    jump_max: i64,
    /// Whether `doubt` holds one, so that nobody takes the lock while there is none.
    is_in_doubt: AtomicBool,
    doubt: Mutex<Option<Doubt>>,
}

/// A step of the wall clock that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// Monotonic time when it was first seen.
    since: i64,
    /// The wall clock's time less the monotonic time, then.
    wall_ahead: i64,
}

impl LogClock {
    /// The time of a log without records.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, jump_max: Duration) -> Self {
        let ClockReading { wall, monotonic } = clock.read();
        Self {
            clock,
            origin: monotonic,
            ahead: AtomicI64::new(wall),
            jump_max: millis(jump_max),
            is_in_doubt: AtomicBool::new(false),
            doubt: Mutex::default(),
        }
    }

    /// The log's time now. Never before a record that was observed, nor before an earlier answer.
    #[must_use]
    pub fn now(&self) -> i64 {
        let (wall, passed) = self.read();
        let least = passed.saturating_add(self.ahead.load(Ordering::Relaxed));
        if wall.saturating_sub(least) > self.jump_max && !self.believes(wall, passed, least) {
            return least;
        }
        if self.is_in_doubt.load(Ordering::Relaxed) {
            self.end_doubt();
        }
        self.ahead.fetch_max(wall.saturating_sub(passed), Ordering::Relaxed);
        wall.max(least)
    }

    /// The wall clock's time.
    #[must_use]
    pub fn wall(&self) -> i64 {
        self.clock.now()
    }

    /// A record of this time was applied just now, whoever wrote it.
    pub fn observe(&self, time: i64) {
        let (wall, passed) = self.read();
        let before = self.ahead.fetch_max(time.saturating_sub(passed), Ordering::Relaxed);
        let beyond = time.saturating_sub(wall.max(passed.saturating_add(before)));
        if beyond > self.jump_max {
            tracing::warn!(
                seconds = beyond / 1000,
                "the log holds a record from the future of this machine's clock: the log's time goes on from that record, \
                 and what is stored now carries such a time too. Compare this machine's clock with that of whoever wrote it"
            );
        }
    }

    /// How far the wall clock is ahead of the log's time, in milliseconds, while it is not believed.
    #[must_use]
    pub fn doubted_jump(&self) -> Option<i64> {
        // A doubt begins and ends when the clocks are read.
        let _ = self.now();
        let doubt = (*self.doubt.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(doubt.wall_ahead.saturating_sub(self.ahead.load(Ordering::Relaxed)))
    }

    /// Whether a step beyond the bound has lasted long enough.
    fn believes(&self, wall: i64, passed: i64, least: i64) -> bool {
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let wall_ahead = wall.saturating_sub(passed);
        let seconds = wall.saturating_sub(least) / 1000;
        match *doubt {
            Some(known) if known.wall_ahead.abs_diff(wall_ahead) <= self.jump_max.unsigned_abs() => {
                let believes = passed.saturating_sub(known.since) >= self.jump_max;
                if believes {
                    tracing::warn!(seconds, "the wall clock stays ahead and is believed now: the log's time jumps");
                }
                believes
            }
            _ => {
                tracing::warn!(
                    seconds,
                    believed_after_seconds = self.jump_max / 1000,
                    "the wall clock has jumped ahead: the log's time goes on by the monotonic clock unless this lasts"
                );
                *doubt = Some(Doubt { since: passed, wall_ahead });
                self.is_in_doubt.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    fn end_doubt(&self) {
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// The wall clock, and how much monotonic time has passed.
    fn read(&self) -> (i64, i64) {
        let ClockReading { wall, monotonic } = self.clock.read();
        (wall, millis(monotonic.saturating_duration_since(self.origin)))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000;
    const MINUTE: i64 = 60 * SECOND;
    const DAY: i64 = 24 * 60 * MINUTE;

    /// Runs lines such as `step 5` and `now -> 5` on a clock that shows 0, with a bound of five minutes; in seconds.
    fn check(lines: &str) {
        let clock = Arc::new(ManualClock::at(0));
        let open = || LogClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300));
        let (mut log, mut last) = (open(), 0);
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once("->").unwrap_or((line, ""));
            let words: Vec<_> = command.split_whitespace().collect();
            let seconds = || words[1].parse::<i64>().unwrap() * SECOND;
            match words[0] {
                "step" => clock.step(seconds()),
                "advance" => clock.advance(seconds()),
                // Somebody else's record.
                "record" => {
                    last = seconds();
                    log.observe(last);
                }
                "write" => {
                    last = log.now();
                    log.observe(last);
                }
                "reopen" => {
                    log = open();
                    log.observe(last);
                }
                "now" => assert_eq!(log.now() / SECOND, expected.trim().parse::<i64>().unwrap(), "{line} in {lines}"),
                "doubt" => {
                    let jump = log.doubted_jump().map_or("none".to_owned(), |jump| (jump / SECOND).to_string());
                    assert_eq!(jump, expected.trim(), "{line} in {lines}");
                }
                other => panic!("unknown {other}"),
            }
        }
    }

    #[test]
    fn time_that_was_ahead_once_never_falls_and_goes_on_moving() {
        check(
            "
            step 200
            write
            step -200
            now -> 200
            advance 2
            now -> 202
            write
            reopen
            now -> 202
            advance 2
            now -> 204
        ",
        );
    }

    #[test]
    fn a_record_of_a_broker_whose_clock_is_ahead_is_where_time_goes_on_from() {
        check(
            "
            advance 10
            record 610
            now -> 610
            advance 2
            now -> 612
            record 605
            now -> 612
        ",
        );
    }

    #[test]
    fn a_jump_that_passes_is_never_believed() {
        check(
            "
            write
            step 86400
            now -> 0
            doubt -> 86400
            advance 299
            now -> 299
            step -86400
            now -> 299
            doubt -> none
            advance 10
            step 86400
            now -> 309
            advance 300
            now -> 87009
        ",
        );
    }

    #[test]
    fn a_jump_that_lasts_is_believed_as_after_a_suspension() {
        check(
            "
            write
            step 28800
            now -> 0
            advance 300
            now -> 29100
            doubt -> none
        ",
        );
    }

    #[test]
    fn each_jump_has_its_own_time_to_last() {
        check(
            "
            step 86400
            now -> 0
            advance 200
            step 864000
            now -> 200
            advance 200
            now -> 400
            advance 100
            now -> 950900
        ",
        );
    }

    #[test]
    fn a_broker_that_starts_believes_its_clock_however_long_nothing_was_written() {
        check(
            "
            write
            step 864000
            reopen
            now -> 864000
        ",
        );
    }

    #[test]
    fn small_steps_are_followed_ahead_and_not_back() {
        check(
            "
            step 250
            now -> 250
            step -100
            now -> 250
            advance 50
            now -> 300
            step 100
            now -> 300
        ",
        );
    }

    #[test]
    fn a_clock_that_said_2099_once_moves_on_from_there() {
        let clock = Arc::new(ManualClock::at(0));
        let log = LogClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300));
        log.observe(47_000 * DAY);
        assert_eq!(log.now(), 47_000 * DAY);
        clock.advance(2 * MINUTE);
        assert_eq!(log.now(), 47_000 * DAY + 2 * MINUTE);
        log.observe(i64::MAX);
        assert_eq!(log.now(), i64::MAX);
    }
}
