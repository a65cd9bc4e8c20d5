//! A lane in the planner: what holds for it, and its jobs.

use super::pool_queue::{DeliveryClass, LanePace, PoolShare, origin_of};
use bytes::Bytes;
use contract::{DispatchMode, Sequence};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A lane as the planner knows it: the tasks are one lane per pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct LaneKey {
    pub(crate) lane: Uuid,
    pub(crate) part: u64,
}

/// What holds for a lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneRules {
    /// The subscription, whose lanes share their groups.
    pub(crate) scope: Uuid,
    pub(crate) pool: String,
    pub(crate) priority: u32,
    pub(crate) mode: DispatchMode,
    pub(crate) target: Arc<str>,
    pub(crate) delay_millis: i64,
    pub(crate) max_age_millis: i64,
    /// Jobs age from the arrival of their events, or from here if that is later: when the subscription was created, or the
    /// replay was requested.
    pub(crate) ages_from: Option<i64>,
    /// Whether it is a replay, which takes a share of the pool only.
    pub(crate) is_replay: bool,
    /// Whether nothing of it is sent; jobs expire all the same.
    pub(crate) paused: bool,
}

/// A job on its way.
#[derive(Debug, Clone)]
pub(crate) struct PlannedJob {
    pub(crate) sequence: Sequence,
    pub(crate) group: Option<u64>,
    pub(crate) mode: DispatchMode,
    pub(crate) due: i64,
    pub(crate) expires: i64,
    /// Whether the log knows of it.
    pub(crate) has_row: bool,
    /// Attempts that count, and all of them.
    pub(crate) spent: u32,
    pub(crate) tried: u32,
    /// Where it goes, if not where its lane does.
    pub(crate) target: Option<Arc<str>>,
    /// What is known of its event.
    pub(crate) event: EventArrival,
    /// The event, when it is sent, if it was at hand.
    pub(crate) stored: Option<CachedEvent>,
}

impl PlannedJob {
    /// The group whose order it keeps.
    pub(super) fn in_group(&self) -> Option<u64> {
        self.group.filter(|_| self.mode != DispatchMode::Immediate)
    }

    /// When it is to be given up because of its age: then, or when that is tried again after it could not be written.
    pub(super) fn expires_at(&self) -> i64 {
        self.expires.max(self.due)
    }

    /// Whether it keeps its place in the group while it waits, or after it was given up; else later ones pass it. One that
    /// has not failed yet is passed by nobody.
    pub(super) fn keeps_place(&self, is_dead: bool) -> bool {
        self.mode == DispatchMode::BlockOnError || (self.tried == 0 && !is_dead)
    }
}

/// An event to send.
#[derive(Debug, Clone)]
pub(crate) struct CachedEvent {
    pub(crate) id: Uuid,
    pub(crate) text: Bytes,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum PlannerPick {
    /// Deliver this.
    Send(LaneKey, PlannedJob),
    /// This reached its maximum age. It is under way until the log knows of it, but takes no place in its pool.
    Expire(LaneKey, PlannedJob),
}

/// How a job that was under way came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterAttempt {
    /// It is over.
    Over,
    /// It waits.
    Waits {
        /// Until then.
        until: i64,
        /// Whether it was tried, and the log knows of it.
        tried: bool,
        /// Whether that cost an attempt.
        counts: bool,
    },
    /// It is given up.
    Dead,
}

/// A lane with its jobs.
pub(super) struct LanePlan {
    pub(super) rules: LaneRules,
    pub(super) due: BTreeMap<(i64, Sequence), PlannedJob>,
    /// Jobs whose time has come, and which wait for room for a row.
    pub(super) parked: BTreeMap<Sequence, PlannedJob>,
    /// Jobs that wait in their groups, by when they expire.
    pub(super) ages: BTreeMap<(i64, Sequence), u64>,
    /// Jobs without a story that are not over.
    pub(super) fresh: RoaringTreemap,
    /// Their events, as many as there is room for, until they are sent.
    pub(super) cached: HashMap<Sequence, CachedEvent>,
    pub(super) scanned: Sequence,
    /// The receiver, whose lanes share a pool with the lanes of others.
    pub(super) origin: Arc<str>,
    pub(super) share: PoolShare,
    /// Bytes of the events under way.
    pub(super) in_flight_bytes: usize,
    pub(super) pace: LanePace,
    pub(super) queued: LaneQueueing,
    /// When the planner looks for jobs of it that expire.
    pub(super) expiry: Option<i64>,
}

/// Where a lane waits for its next turn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LaneQueueing {
    No,
    Ready(DeliveryClass, u64),
    Timer(i64),
}

/// What is known of the event of a job not tried yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventArrival {
    /// When it arrived.
    pub(crate) time: i64,
    /// How long it is.
    pub(crate) bytes: u32,
}

/// A job not tried yet.
pub(crate) struct NewJob {
    pub(crate) sequence: Sequence,
    pub(crate) group: Option<u64>,
    pub(crate) event: EventArrival,
    pub(crate) stored: Option<CachedEvent>,
}

impl LaneRules {
    /// A job not tried yet.
    pub(super) fn fresh(&self, sequence: Sequence, group: Option<u64>, event: EventArrival) -> PlannedJob {
        let mode = if group.is_none() { DispatchMode::Immediate } else { self.mode };
        let expires = self.expires(None, event.time);
        let due = event.time.saturating_add(self.delay_millis).min(expires);
        PlannedJob {
            sequence,
            group,
            mode,
            due,
            expires,
            has_row: false,
            spent: 0,
            tried: 0,
            target: None,
            event,
            stored: None,
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.mode != DispatchMode::Immediate
    }

    /// When a job expires that a person had tried again at `renewed`, and whose event arrived at `time`.
    pub(crate) fn expires(&self, renewed: Option<i64>, time: i64) -> i64 {
        let from = renewed.unwrap_or_else(|| self.ages_from.map_or(time, |from| from.max(time)));
        from.saturating_add(self.max_age_millis)
    }
}

impl LanePlan {
    pub(super) fn put_due(&mut self, job: PlannedJob) {
        let due = if self.rules.paused { job.expires_at() } else { job.due };
        self.due.insert((due, job.sequence), job);
    }

    /// When the first of its jobs is due.
    pub(super) fn first_time(&self) -> Option<i64> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// When the first of its jobs expires, of those that are due first and those that wait in their groups.
    pub(super) fn first_expiry(&self) -> Option<i64> {
        let (due, age) = (self.due.values().next(), self.ages.keys().next());
        due.map(PlannedJob::expires_at).into_iter().chain(age.map(|(expires, _)| *expires)).min()
    }

    /// How long the event of its next delivery is; nothing where that is none.
    pub(super) fn next_bytes(&self, now: i64) -> usize {
        let first = self.due.first_key_value().map(|(_, job)| job).filter(|job| job.expires > now);
        first.map_or(0, |job| job.event.bytes as usize)
    }

    /// What its next delivery counts as.
    pub(super) const fn class(&self, now: i64) -> DeliveryClass {
        match self.rules.is_replay {
            true => DeliveryClass::Replay,
            false => self.pace.class(self.share.in_flight, now),
        }
    }

    /// Whether more may be offered, where so many wait at most. Jobs of ordered lanes that cannot go now do not count, but
    /// to a limit of `waiting` jobs: what goes next may lie behind them.
    pub(super) fn has_room(&self, ahead: usize, waiting: u64, now: i64) -> bool {
        if !self.rules.is_ordered() || self.rules.paused {
            return self.fresh.len() < ahead as u64;
        }
        // One of a group is ready at a time, so half as many are enough to choose from.
        let ready = ahead / 2;
        let is_full = self.due.len() >= ready && self.due.keys().nth(ready - 1).is_some_and(|(due, _)| *due <= now);
        !is_full && self.fresh.len() < waiting.max(ahead as u64)
    }

    /// A lane that was looked through so far.
    pub(super) fn new(rules: LaneRules, through: Sequence) -> Self {
        Self {
            origin: origin_of(&rules.target),
            rules,
            due: BTreeMap::new(),
            parked: BTreeMap::new(),
            ages: BTreeMap::new(),
            fresh: RoaringTreemap::new(),
            cached: HashMap::new(),
            scanned: through,
            share: PoolShare::default(),
            in_flight_bytes: 0,
            pace: LanePace::default(),
            queued: LaneQueueing::No,
            expiry: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::planner::Planner;
    use contract::Pool;

    const KEY: LaneKey = LaneKey { lane: Uuid::nil(), part: 0 };

    fn rules(ordered: bool) -> LaneRules {
        LaneRules {
            scope: KEY.lane,
            pool: "p".to_owned(),
            priority: 99,
            mode: if ordered { DispatchMode::BlockOnError } else { DispatchMode::Immediate },
            target: "http://a/".into(),
            delay_millis: 0,
            max_age_millis: i64::MAX,
            ages_from: None,
            is_replay: false,
            paused: false,
        }
    }

    #[test]
    fn an_ordered_lane_has_room_until_enough_of_its_jobs_could_go() {
        let mut lane = LanePlan::new(rules(true), Sequence::ZERO);
        let event = EventArrival { time: 0, bytes: 2 };
        let ready =
            |number: u64, due: i64| PlannedJob { due, ..rules(true).fresh(Sequence(number), Some(number), event) };
        (1..=3).for_each(|number| lane.put_due(ready(number, 10)));
        assert!(lane.has_room(8, 1000, 10), "three of four");
        lane.put_due(ready(4, 11));
        assert!(lane.has_room(8, 1000, 10), "the fourth goes later");
        assert!(!lane.has_room(8, 1000, 11));
        lane.fresh.insert_range(1..=100);
        assert!(lane.has_room(8, 1000, 10), "those behind others do not count");
        assert!(lane.has_room(8, 101, 10) && !lane.has_room(8, 100, 10), "but to the share of the lane");
        assert!(lane.has_room(101, 0, 10), "some may always wait");
        lane.rules.mode = DispatchMode::Immediate;
        assert!(!lane.has_room(100, 1000, 10) && lane.has_room(101, 1000, 10), "in no order all of them count");
    }

    fn offer(planner: &mut Planner, number: u64) {
        let stored = Some(CachedEvent { id: Uuid::nil(), text: Bytes::from_static(b"{}") });
        planner.offer(
            KEY,
            NewJob { sequence: Sequence(number), group: None, event: EventArrival { time: 0, bytes: 2 }, stored },
            0,
        );
    }

    #[test]
    fn nothing_more_is_read_for_a_target_that_is_left_alone_while_a_job_of_it_asks_again() {
        let mut planner = Planner::default();
        planner.set_pools(&[Pool { code: "p".to_owned(), concurrency: 2, rate_per_minute: None }], 0);
        planner.put_lane(KEY, rules(false), Sequence::ZERO, 0);
        for _ in 0..10 {
            planner.record_call(&rules(false).target, false, 0);
        }
        assert!(planner.has_room(KEY, 0), "somebody must ask");
        offer(&mut planner, 1);
        assert!(!planner.has_room(KEY, 0));
        assert!(planner.next(0).is_none());
        assert_eq!((planner.next_time(), planner.has_room(KEY, 0)), (Some(30_000), false));
        assert!(!planner.has_room(KEY, 30_000), "it goes first");
        let Some(PlannerPick::Send(_, job)) = planner.next(30_000) else { panic!("the probe does not go") };
        assert!(job.stored.is_some(), "the event is still at hand");
        assert!(planner.has_room(KEY, 30_000));
    }
}
