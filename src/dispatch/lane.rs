//! A lane in the planner: its rules and its jobs.

use super::pool_queue::{DeliveryClass, LanePace, PoolShare, origin_of};
use bytes::Bytes;
use contract::{DispatchMode, Sequence};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A lane in the planner: tasks have one lane per pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct LaneKey {
    pub(crate) lane: Uuid,
    pub(crate) part: u64,
}

/// The rules of a lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneRules {
    /// The subscription: its lanes share their message groups.
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
    /// Whether it is a replay, which may use only a share of the pool.
    pub(crate) is_replay: bool,
    /// Whether the subscription is paused: nothing is sent, but jobs expire.
    pub(crate) paused: bool,
}

/// A planned job.
#[derive(Debug, Clone)]
pub(crate) struct PlannedJob {
    pub(crate) sequence: Sequence,
    pub(crate) group: Option<u64>,
    pub(crate) mode: DispatchMode,
    pub(crate) due: i64,
    pub(crate) expires: i64,
    /// Whether it has a row in the log.
    pub(crate) has_row: bool,
    /// Attempts that count, and all attempts.
    pub(crate) spent: u32,
    pub(crate) tried: u32,
    /// Its target, if that is not the lane's.
    pub(crate) target: Option<Arc<str>>,
    /// Whether it was due, but the circuit breaker of its target was open.
    pub(crate) awaits_breaker: bool,
    /// What is known of its event.
    pub(crate) event: EventArrival,
    /// The event, if it was cached; set when the job is sent.
    pub(crate) stored: Option<CachedEvent>,
}

impl PlannedJob {
    /// The message group whose order it keeps.
    pub(super) fn in_group(&self) -> Option<u64> {
        self.group.filter(|_| self.mode != DispatchMode::Immediate)
    }

    /// When it is given up for its age, or when that is retried after its event could not be read.
    pub(super) fn expires_at(&self) -> i64 {
        self.expires.max(self.due)
    }

    /// Whether it keeps its place in the group while it waits, or after it was given up; otherwise later jobs overtake
    /// it. A job that has not failed yet is never overtaken.
    pub(super) fn keeps_place(&self, is_dead: bool) -> bool {
        self.mode == DispatchMode::BlockOnError || (self.tried == 0 && !is_dead)
    }
}

/// An event that is cached until it is sent.
#[derive(Debug, Clone)]
pub(crate) struct CachedEvent {
    pub(crate) id: Uuid,
    pub(crate) text: Bytes,
}

/// What to do with a job.
#[derive(Debug)]
pub(crate) enum PlannerPick {
    /// Deliver it.
    Send(LaneKey, PlannedJob),
    /// It reached its maximum age. It is in flight until that is durable, but takes no place in its pool.
    Expire(LaneKey, PlannedJob),
}

/// What happens to a job that was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterAttempt {
    /// It is done.
    Over,
    /// It waits.
    Waits {
        /// Until when.
        until: i64,
        /// Whether it was attempted and has a row.
        tried: bool,
        /// Whether the attempt counts.
        counts: bool,
    },
    /// It was given up.
    Dead,
}

/// A lane with its jobs.
pub(super) struct LanePlan {
    pub(super) rules: LaneRules,
    pub(super) due: BTreeMap<(i64, Sequence), PlannedJob>,
    /// Jobs that are due and wait for room for a row.
    pub(super) parked: BTreeMap<Sequence, PlannedJob>,
    /// Jobs that wait in their message groups, by expiry.
    pub(super) ages: BTreeMap<(i64, Sequence), u64>,
    /// Jobs that have no row and are not done.
    pub(super) fresh: RoaringTreemap,
    /// Their events, as far as the cache has room.
    pub(super) cached: HashMap<Sequence, CachedEvent>,
    pub(super) scanned: Sequence,
    /// The origin of the target.
    pub(super) origin: Arc<str>,
    pub(super) share: PoolShare,
    /// Bytes of the events in flight.
    pub(super) in_flight_bytes: usize,
    pub(super) pace: LanePace,
    pub(super) queued: LaneQueueing,
    /// When the planner looks for expired jobs of the lane.
    pub(super) expiry: Option<i64>,
}

/// Where a lane waits for its next turn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LaneQueueing {
    No,
    Ready(DeliveryClass, u64),
    Timer(i64),
}

/// What the planner needs to know of the event of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventArrival {
    /// When it arrived, in milliseconds.
    pub(crate) time: i64,
    /// The length of its text.
    pub(crate) bytes: u32,
}

/// A job without a row, to be offered.
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
            awaits_breaker: false,
            event,
            stored: None,
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.mode != DispatchMode::Immediate
    }

    /// When a job expires whose event arrived at `time`; `renewed`: when a person last had it retried.
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

    /// Jobs that waited for the circuit breaker of a target are due now; false if there are none.
    pub(super) fn release(&mut self, target: &Arc<str>, now: i64) -> bool {
        let waits =
            |job: &PlannedJob| job.awaits_breaker && job.target.as_ref().unwrap_or(&self.rules.target) == target;
        let places: Vec<_> = self.due.iter().filter(|(_, job)| waits(job)).map(|(place, _)| *place).collect();
        for place in &places {
            if let Some(job) = self.due.remove(place) {
                self.put_due(PlannedJob { due: job.due.min(now), awaits_breaker: false, ..job });
            }
        }
        !places.is_empty()
    }

    /// When the first of its jobs is due.
    pub(super) fn first_time(&self) -> Option<i64> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// When the first of its jobs expires: of those that are due first, and those that wait in their groups.
    pub(super) fn first_expiry(&self) -> Option<i64> {
        let (due, age) = (self.due.values().next(), self.ages.keys().next());
        due.map(PlannedJob::expires_at).into_iter().chain(age.map(|(expires, _)| *expires)).min()
    }

    /// Bytes of the event of its next delivery; 0 if there is none.
    pub(super) fn next_bytes(&self, now: i64) -> usize {
        let first = self.due.first_key_value().map(|(_, job)| job).filter(|job| job.expires > now);
        first.map_or(0, |job| job.event.bytes as usize)
    }

    /// How its next delivery counts.
    pub(super) const fn class(&self, now: i64) -> DeliveryClass {
        match self.rules.is_replay {
            true => DeliveryClass::Replay,
            false => self.pace.class(self.share.in_flight, now),
        }
    }

    /// Whether another job may be offered, if at most `ahead` may wait. In an ordered lane, jobs that cannot be sent
    /// now count only against `waiting`: the next job to send may be behind them.
    pub(super) fn has_room(&self, ahead: usize, waiting: u64, now: i64) -> bool {
        if !self.rules.is_ordered() || self.rules.paused {
            return self.fresh.len() < ahead as u64;
        }
        // One job of a group is ready at a time, so half as many are enough to choose from.
        let ready = ahead / 2;
        let is_full = self.due.len() >= ready && self.due.keys().nth(ready - 1).is_some_and(|(due, _)| *due <= now);
        !is_full && self.fresh.len() < waiting.max(ahead as u64)
    }

    /// A lane with this scanned offset.
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
