//! Sessions: when this process last saw each consumer, beyond what the log has.
//!
//! - A poll restarts its consumer's session in RAM, without an entry. An entry is written if the last one is older than a third
//!   of the session; so the log knows when a consumer was last seen to within that third.
//! - If all polls go through this process, and it has seen the last one, a session expires exactly on time. If other brokers serve
//!   the same log, or after a restart, it expires at the log's deadline: never early, up to a third late.
//! - While a poll waits, its session does not expire; it restarts when the wait ends.
//! - There is at most one for each consumer of the log; those of removed consumers are dropped by the background task.

use super::filter_of;
use crate::clock::LogClock;
use crate::filters::{self, CompiledFilter};
use crate::ledger::ConsumerRow;
use contract::{Consumer, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use uuid::Uuid;

/// The sessions of one log's consumers in this process.
pub(crate) struct ConsumerSessions {
    /// Whether no other broker serves this log.
    sole: bool,
    open: Mutex<HashMap<Uuid, Arc<ConsumerSession>>>,
}

/// One consumer's session.
pub(super) struct ConsumerSession {
    /// The consumer's filter.
    pub(super) filter: CompiledFilter,
    /// When this process last saw it, in milliseconds.
    seen_at: AtomicI64,
    /// How many of its polls wait.
    waiting: AtomicUsize,
    ended: watch::Sender<bool>,
}

impl ConsumerSessions {
    /// Without sessions, for a log that only this process serves, or others too.
    pub(crate) fn new(sole: bool) -> Self {
        Self { sole, open: Mutex::default() }
    }

    /// Opens the session of a new consumer.
    pub(super) fn open(&self, id: Uuid, filter: CompiledFilter, seen_at: i64) -> Arc<ConsumerSession> {
        let session = ConsumerSession {
            filter,
            seen_at: AtomicI64::new(seen_at),
            waiting: AtomicUsize::new(0),
            ended: watch::Sender::new(false),
        };
        Arc::clone(self.lock().entry(id).or_insert_with(|| Arc::new(session)))
    }

    /// The session of a consumer that polls at `now`; opened if this process has not seen it before.
    pub(super) fn of(&self, consumer: &Consumer, now: i64) -> Result<Arc<ConsumerSession>> {
        if let Some(session) = self.find(consumer.id) {
            return Ok(session);
        }
        let filter = filters::compile(&filter_of(&consumer.types, &consumer.subject_types, consumer.cel.as_ref()))?;
        Ok(self.open(consumer.id, filter, now))
    }

    /// When a consumer was last seen, as far as this process knows; now, if it waits.
    pub(super) fn seen_at(&self, entry: &ConsumerRow, now: i64) -> i64 {
        match self.find(entry.consumer.id) {
            Some(session) if session.is_waiting() => now.max(entry.seen_at),
            Some(session) => session.seen_at().max(entry.seen_at),
            None => entry.seen_at,
        }
    }

    /// Whether a consumer of the log is live.
    pub(super) fn is_live(&self, entry: &ConsumerRow, now: i64) -> bool {
        match self.find(entry.consumer.id) {
            Some(session) if session.is_waiting() => true,
            Some(session) if self.sole => {
                now < session.seen_at().max(entry.seen_at).saturating_add(entry.session_millis())
            }
            _ => now < entry.deadline(),
        }
    }

    /// Ends the session of a deleted consumer, and the polls that wait in it.
    pub(crate) fn end(&self, id: Uuid) {
        if let Some(session) = self.lock().remove(&id) {
            session.ended.send_replace(true);
        }
    }

    /// Ends the sessions of removed consumers.
    pub(super) fn retain(&self, is_there: impl Fn(Uuid) -> bool) {
        self.lock().retain(|id, session| {
            let stays = is_there(*id);
            if !stays {
                session.ended.send_replace(true);
            }
            stays
        });
    }

    fn find(&self, id: Uuid) -> Option<Arc<ConsumerSession>> {
        self.lock().get(&id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<ConsumerSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsumerSession {
    /// Restarts the session at `now`.
    pub(super) fn touch(&self, now: i64) {
        self.seen_at.fetch_max(now, Ordering::Relaxed);
    }

    /// A poll waits until the returned guard is dropped.
    pub(super) fn wait<'a>(&'a self, clock: &'a LogClock) -> WaitingPoll<'a> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingPoll { session: self, clock }
    }

    /// Returns when its consumer is removed.
    pub(super) async fn ended(&self) {
        // The sender belongs to this session, so it cannot be dropped while this waits.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn seen_at(&self) -> i64 {
        self.seen_at.load(Ordering::Relaxed)
    }
}

/// A waiting poll.
pub(super) struct WaitingPoll<'a> {
    session: &'a ConsumerSession,
    clock: &'a LogClock,
}

impl Drop for WaitingPoll<'_> {
    /// First seen, then no longer waiting, so that the session is never found expired in between.
    fn drop(&mut self) {
        self.session.touch(self.clock.now());
        self.session.waiting.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock, TrustedClock};
    use contract::{Distribution, EventFilter, Timestamp};
    use std::time::Duration;

    /// A consumer with a session of 30 s, recorded as seen at `seen_at`.
    fn entry(seen_at: i64) -> ConsumerRow {
        let time = Timestamp::from_millis(0);
        let consumer = Consumer {
            id: Uuid::from_u128(1),
            consumer_group: "g".to_owned(),
            topic: "gts.hx.core.events.topic.v1~".parse().unwrap(),
            types: Vec::new(),
            subject_types: Vec::new(),
            cel: None,
            session_timeout: "PT30S".parse().unwrap(),
            distribution: Distribution::Broadcast,
            max_in_flight: None,
            created_at: time,
            last_seen_at: time,
            expires_at: time,
        };
        ConsumerRow { consumer: Arc::new(consumer), seen_at }
    }

    #[test]
    fn a_session_ends_on_time_where_every_poll_is_known_and_by_the_deadline_elsewhere() {
        for (sole, came, recorded, last) in [
            (true, Some(9_000), 0, 38_999),
            (true, Some(0), 5_000, 34_999), // somebody else recorded it later
            (true, None, 0, 39_999),        // after a restart
            (false, Some(9_000), 0, 39_999),
            (false, None, 0, 39_999),
        ] {
            let (sessions, entry) = (ConsumerSessions::new(sole), entry(recorded));
            if let Some(came) = came {
                sessions.of(&entry.consumer, came).unwrap();
            }
            let lives = |now| sessions.is_live(&entry, now);
            assert_eq!((lives(last), lives(last + 1)), (true, false), "{sole} {came:?} {recorded}");
        }
    }

    #[test]
    fn a_session_with_several_waiting_polls_lasts_until_the_last_one_ends() {
        let (sessions, entry, clock) = (ConsumerSessions::new(true), entry(0), Arc::new(ManualClock::at(0)));
        let believed = TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300));
        let log = LogClock::new(Arc::new(believed));
        let session = sessions.open(entry.consumer.id, filters::compile(&EventFilter::default()).unwrap(), 0);
        let (one, other) = (session.wait(&log), session.wait(&log));
        clock.advance(1_000_000);
        drop(one);
        clock.advance(1_000_000);
        assert!(sessions.is_live(&entry, clock.now()));
        assert_eq!(sessions.seen_at(&entry, clock.now()), 2_000_000);
        drop(other);
        assert!(sessions.is_live(&entry, 2_029_999) && !sessions.is_live(&entry, 2_030_000));
    }

    #[test]
    fn only_the_sessions_of_consumers_that_are_there_are_kept() {
        let sessions = ConsumerSessions::new(true);
        for id in [1, 2] {
            sessions.open(Uuid::from_u128(id), filters::compile(&EventFilter::default()).unwrap(), 0);
        }
        sessions.retain(|id| id == Uuid::from_u128(2));
        assert_eq!(sessions.lock().keys().collect::<Vec<_>>(), [&Uuid::from_u128(2)]);
    }
}
