//! Time as a value: the machine's clocks behind a [`Clock`], and the time of one log on top of them.
//!
//! - The wall clock may step in either direction. The monotonic clock never steps, but has no absolute meaning.
//! - The log's time ([`LogClock`]) is the wall clock's, and at least the last record's time plus the monotonic time
//!   since that record was applied here. So it never falls and always advances, whatever the wall clock does: a lease
//!   of two seconds ends after two seconds, also if the record that granted it carries a time of next year.
//! - A time that is stored in a log is compared only with that log's time, never with the wall clock.
//! - A forward step of the wall clock beyond a bound is not trusted at once ([`TrustedClock`]): it must last as long as
//!   the bound. A step that is reverted before that is never written. After a suspension, or after its clock was
//!   corrected, a machine is behind for that long.
//! - A process that starts trusts its clock, and stores its time. Whatever would expire because the clock is far ahead
//!   of the last record is held until the clock has lasted ([`ClockHold`]), unless the engine's server has a clock and
//!   confirms it. If that server contradicts, its time counts.
//!
//! Nothing here waits. Why it is so: `docs/decisions/0020-the-time-of-a-log.md` and `0033-a-clock-at-the-start.md`.

mod start;

pub use start::ClockHold;

use start::StartDoubt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The times of both clocks at one moment.
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

    /// The wall clock alone, for values that leave the program. Stored times are compared with [`LogClock::now`].
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

/// Clocks that change only when they are moved.
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

    /// Advances both clocks.
    ///
    /// # Panics
    /// If `millis` is negative: time does not pass backwards. [`Self::step`] moves the wall clock alone.
    pub fn advance(&self, millis: i64) {
        assert!(millis >= 0, "time does not pass backwards; step the wall clock");
        self.wall.fetch_add(millis, Ordering::Relaxed);
        self.monotonic.fetch_add(millis, Ordering::Relaxed);
    }

    /// Steps the wall clock forward or back while no time passes.
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

/// The wall clock as far as it is trusted. All logs of a broker share one, and so do the brokers that a process opens
/// one after the other: a jump that is in doubt stays in doubt, whatever is opened meanwhile.
pub struct TrustedClock {
    clock: Arc<dyn Clock>,
    /// Monotonic time is counted from here.
    origin: Instant,
    /// The wall clock's time minus the monotonic time, as far as it is trusted. It only rises, so that a clock that was
    /// set back may return to where it was.
    wall_ahead: AtomicI64,
    /// How far the wall clock may step forward and be trusted at once.
    jump_max: i64,
    /// The time of the engine's server minus the monotonic time, when it was last read; [`NO_SERVER`] if there is none.
    server_ahead: AtomicI64,
    /// Whether `doubt` holds a value, so that the lock is not taken while it does not.
    is_in_doubt: AtomicBool,
    doubt: Mutex<Option<ClockDoubt>>,
}

/// The time of a server was never read.
const NO_SERVER: i64 = i64::MIN;

/// A step of the wall clock that is not trusted yet.
#[derive(Debug, Clone, Copy)]
struct ClockDoubt {
    /// Monotonic time when it was first seen.
    since: i64,
    /// The wall clock's time minus the monotonic time at that moment.
    wall_ahead: i64,
}

impl TrustedClock {
    /// Trusts the clock as it is now: the broker may have been stopped for months.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, jump_max: Duration) -> Self {
        let ClockReading { wall, monotonic } = clock.read();
        Self {
            clock,
            origin: monotonic,
            wall_ahead: AtomicI64::new(wall),
            jump_max: millis(jump_max),
            server_ahead: AtomicI64::new(NO_SERVER),
            is_in_doubt: AtomicBool::new(false),
            doubt: Mutex::default(),
        }
    }

    /// The clock of the engine's server shows this time now. If it contradicts this machine's clock at the start, the
    /// log's time continues from the server's.
    pub fn note_server_time(&self, time: i64) {
        let (wall, passed) = self.read_clock();
        let (server_ahead, wall_ahead) = (time.saturating_sub(passed), wall.saturating_sub(passed));
        self.server_ahead.store(server_ahead, Ordering::Relaxed);
        let trusted = self.wall_ahead.load(Ordering::Relaxed);
        if self.is_denied(wall_ahead) && self.is_denied(trusted) {
            tracing::warn!(
                wall_millis = wall,
                server_millis = time,
                "this machine's clock is ahead of the database server's: the log's time is the server's. Set this machine's clock"
            );
            self.wall_ahead.store(server_ahead, Ordering::Relaxed);
        }
    }

    /// Whether the server's clock contradicts a wall clock that is so far ahead.
    fn is_denied(&self, wall_ahead: i64) -> bool {
        let server_ahead = self.server_ahead.load(Ordering::Relaxed);
        server_ahead != NO_SERVER && wall_ahead.saturating_sub(server_ahead) > self.jump_max
    }

    /// Whether the server's clock confirms the wall clock.
    fn is_confirmed(&self) -> bool {
        let (wall, passed) = self.read_clock();
        let server_ahead = self.server_ahead.load(Ordering::Relaxed);
        let apart = wall.saturating_sub(passed).saturating_sub(server_ahead);
        server_ahead != NO_SERVER && apart.unsigned_abs() <= self.jump_max.unsigned_abs()
    }

    /// The clock itself, trusted or not: for values that leave the program.
    #[must_use]
    pub fn unfiltered(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The time as far as it is trusted, and how much monotonic time has passed.
    fn read(&self) -> (i64, i64) {
        let (wall, passed) = self.read_clock();
        let wall_ahead = wall.saturating_sub(passed);
        let known = self.wall_ahead.load(Ordering::Relaxed);
        if wall_ahead.saturating_sub(known) > self.jump_max && !self.trusts(wall_ahead, passed, known) {
            return (passed.saturating_add(known), passed);
        }
        if self.is_in_doubt.load(Ordering::Relaxed) {
            self.end_doubt();
        }
        self.wall_ahead.fetch_max(wall_ahead, Ordering::Relaxed);
        (wall, passed)
    }

    /// How far the wall clock is ahead, in milliseconds, while it is not trusted.
    fn doubted_jump(&self) -> Option<i64> {
        // Reading the clocks begins and ends a doubt.
        let _ = self.read();
        let doubt = (*self.doubt.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(doubt.wall_ahead.saturating_sub(self.wall_ahead.load(Ordering::Relaxed)))
    }

    /// Whether a step beyond the bound has lasted long enough.
    fn trusts(&self, wall_ahead: i64, passed: i64, known: i64) -> bool {
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = wall_ahead.saturating_sub(known) / 1000;
        match *doubt {
            Some(known) if known.wall_ahead.abs_diff(wall_ahead) <= self.jump_max.unsigned_abs() => {
                let has_lasted = passed.saturating_sub(known.since) >= self.jump_max;
                let is_trusted = self.is_confirmed() || (has_lasted && !self.is_denied(wall_ahead));
                if is_trusted {
                    tracing::warn!(seconds, "the wall clock has stayed ahead and is trusted now: the log's time jumps");
                }
                is_trusted
            }
            _ => {
                tracing::warn!(
                    seconds,
                    trusted_after_seconds = self.jump_max / 1000,
                    "the wall clock has jumped ahead: the log's time follows the monotonic clock unless the jump lasts"
                );
                *doubt = Some(ClockDoubt { since: passed, wall_ahead });
                self.is_in_doubt.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    fn end_doubt(&self) {
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// The wall clock, trusted or not, and how much monotonic time has passed.
    fn read_clock(&self) -> (i64, i64) {
        let ClockReading { wall, monotonic } = self.clock.read();
        (wall, millis(monotonic.saturating_duration_since(self.origin)))
    }
}

/// The time of one log, in milliseconds since 1970 began.
pub struct LogClock {
    clock: Arc<TrustedClock>,
    /// The log's time minus the monotonic time. It only rises.
    ahead: AtomicI64,
    /// What is held back since the start, while the clock is in doubt.
    start: StartDoubt,
}

impl LogClock {
    /// The time of a log without records.
    #[must_use]
    pub fn new(clock: Arc<TrustedClock>) -> Self {
        let (wall, passed) = clock.read();
        Self { clock, ahead: AtomicI64::new(wall.saturating_sub(passed)), start: StartDoubt::default() }
    }

    /// The log's time now. Never before a record that was observed, nor before an earlier result.
    #[must_use]
    pub fn now(&self) -> i64 {
        let (wall, passed) = self.clock.read();
        let before = self.ahead.fetch_max(wall.saturating_sub(passed), Ordering::Relaxed);
        wall.max(passed.saturating_add(before))
    }

    /// The wall clock's time, trusted or not.
    #[must_use]
    pub fn wall(&self) -> i64 {
        self.clock.unfiltered().now()
    }

    /// A record of this time was applied just now, whichever process wrote it.
    pub fn observe(&self, time: i64) {
        let (wall, passed) = self.clock.read_clock();
        let before = self.ahead.fetch_max(time.saturating_sub(passed), Ordering::Relaxed);
        let beyond = time.saturating_sub(wall.max(passed.saturating_add(before)));
        if beyond > self.clock.jump_max {
            tracing::warn!(
                seconds = beyond / 1000,
                "the log holds a record from the future of this machine's clock: the log's time continues from that \
                 record, and new records carry such a time, too. Compare this machine's clock with that of the writer"
            );
        }
    }

    /// How far the wall clock is ahead of the trusted time, in milliseconds, while it is in doubt.
    #[must_use]
    pub fn doubted_jump(&self) -> Option<i64> {
        self.clock.doubted_jump()
    }

    /// The log is opened, and its last record carries this time: a wall clock far ahead of it does not yet decide what
    /// expires. Returns what is held back.
    pub fn start_after(&self, last: i64) -> ClockHold {
        let now = self.now();
        self.start.begin(&self.clock, last, now)
    }

    /// What is held back because the clock is in doubt since the start.
    #[must_use]
    pub fn hold(&self) -> ClockHold {
        self.start.hold(&self.clock, || self.now())
    }

    /// The clock of the engine's server shows this time now.
    pub fn note_server_time(&self, time: i64) {
        self.clock.note_server_time(time);
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
