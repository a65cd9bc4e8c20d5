//! The planner: which job goes next. Pure: time comes in, nothing is read, nothing is sent.
//!
//! ```text
//!   offered ──▶ group (ordered modes) ──▶ lane, by due time ──▶ pool, by priority and turn ──▶ under way
//!                  ▲                                                                             │
//!                  └──────────────── failed: back with a new due time ◀──────────────────────────┘
//! ```
//!
//! - A lane is a subscription, a replay, or the tasks of one pool. Lanes never wait for each other but for their pool, and
//!   those of one subscription for their groups.
//! - A job expires when it reaches its maximum age, wherever it waits.
//! - How far a lane is settled is known at any time: everything below the lowest job without a story.
//! - A job that may fail needs room for its row: where there is none, only jobs that have one go.

use super::in_flight_bytes::InFlightBytes;
use super::lane::{AfterAttempt, CachedEvent, LaneKey, LanePlan, LaneQueueing, LaneRules, NewJob, PlannedJob};
use super::message_groups::MessageGroup;
use super::pool_queue::DeliveryClass;
use super::pools::PoolPlan;
use crate::delivery::{BreakerChange, CircuitBreakers};
use bytes::Bytes;
use contract::{Pool, Sequence};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// Bytes of events that are kept for lanes to send.
const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) struct Planner {
    pub(super) lanes: HashMap<LaneKey, LanePlan>,
    /// By subscription, and by the group's fingerprint.
    pub(super) groups: HashMap<Uuid, HashMap<u64, MessageGroup>>,
    pub(super) pools: BTreeMap<String, PoolPlan>,
    pub(super) breakers: CircuitBreakers,
    /// Lanes whose next job is due later.
    pub(super) timers: BTreeSet<(i64, LaneKey)>,
    /// When the first job of each lane expires. That takes no place in a pool, so it waits for none.
    pub(super) expiries: BTreeSet<(i64, LaneKey)>,
    pub(super) in_flight: HashMap<(LaneKey, Sequence), InFlightJob>,
    /// Deliveries that count as quick, by when they began.
    pub(super) quick_flights: BTreeSet<(i64, LaneKey, Sequence)>,
    pub(super) cached: usize,
    pub(super) in_flight_bytes: InFlightBytes,
    /// Jobs of all lanes that were offered, have no row and are not over.
    pub(super) fresh_jobs: u64,
    /// How many more jobs may become rows.
    pub(super) rows_left: usize,
    /// Lanes that have as many rows as they may.
    pub(super) full: HashSet<Uuid>,
    /// Those under way that may.
    pub(super) rowless_in_flight: usize,
    /// Lanes with jobs that wait for that.
    pub(super) parked: VecDeque<LaneKey>,
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            groups: HashMap::new(),
            pools: BTreeMap::new(),
            breakers: CircuitBreakers::default(),
            timers: BTreeSet::new(),
            expiries: BTreeSet::new(),
            in_flight: HashMap::new(),
            quick_flights: BTreeSet::new(),
            cached: 0,
            in_flight_bytes: InFlightBytes::default(),
            fresh_jobs: 0,
            rows_left: usize::MAX,
            full: HashSet::new(),
            rowless_in_flight: 0,
            parked: VecDeque::new(),
        }
    }
}

pub(super) struct InFlightJob {
    /// The place it takes in a pool; none: it is not sent.
    pub(super) place: Option<PoolPlace>,
    pub(super) scope: Uuid,
    pub(super) job: PlannedJob,
    pub(super) began: i64,
    /// The target it probes, if it is a probe.
    pub(super) probes: Option<Arc<str>>,
}

/// A place in a pool.
pub(super) struct PoolPlace {
    pub(super) pool: String,
    pub(super) class: DeliveryClass,
    pub(super) origin: Arc<str>,
}

impl Planner {
    /// A planner that shares the breakers of its process.
    pub(crate) fn with_breakers(breakers: &CircuitBreakers) -> Self {
        Self { breakers: breakers.clone(), ..Self::default() }
    }

    /// The pools there are. One that is gone is forgotten when nothing runs in it and no lane uses it.
    pub(crate) fn set_pools(&mut self, pools: &[Pool], now: i64) {
        self.pools.retain(|code, plan| plan.is_used() || pools.iter().any(|pool| pool.code == *code));
        for pool in pools {
            match self.pools.get_mut(&pool.code) {
                Some(plan) => plan.change(pool),
                None => drop(self.pools.insert(pool.code.clone(), PoolPlan::new(pool, now))),
            }
        }
    }

    /// Whether there is such a pool.
    pub(crate) fn has_pool(&self, code: &str) -> bool {
        self.pools.contains_key(code)
    }

    /// A lane, from its beginning: nothing of it was offered yet. What is under way stays so.
    pub(crate) fn put_lane(&mut self, key: LaneKey, rules: LaneRules, through: Sequence, now: i64) {
        let pace = self.lanes.get(&key).map(|known| known.pace).unwrap_or_default();
        self.drop_lane(key, now);
        let mut lane = LanePlan { pace, ..LanePlan::new(rules, through) };
        let mut expiring = Vec::new();
        for ((_, sequence), flight) in self.in_flight.iter().filter(|((of, _), _)| *of == key) {
            if !flight.job.has_row && *sequence > through {
                self.fresh_jobs += u64::from(lane.fresh.insert(sequence.get()));
            }
            match &flight.place {
                Some(place) => {
                    lane.share.begin(place.class);
                    lane.in_flight_bytes += flight.job.event.bytes as usize;
                }
                None => expiring.extend(flight.job.in_group().map(|group| (group, *sequence))),
            }
        }
        if let Some(pool) = self.pools.get_mut(&lane.rules.pool).filter(|_| !lane.rules.paused) {
            pool.ready.add_lane(&lane.origin);
        }
        self.lanes.insert(key, lane);
        // What is being given up holds its group until the log knows of it.
        expiring.into_iter().for_each(|(group, sequence)| self.hold_group(key, group, sequence));
    }

    /// Nothing more of this lane is sent.
    pub(crate) fn drop_lane(&mut self, key: LaneKey, now: i64) {
        let Some(lane) = self.lanes.get(&key) else { return };
        let (queued, pool, scope) = (lane.queued, lane.rules.pool.clone(), lane.rules.scope);
        self.unqueue(key, queued, &pool);
        let Some(lane) = self.lanes.remove(&key) else { return };
        if let Some(expiry) = lane.expiry {
            self.expiries.remove(&(expiry, key));
        }
        if let Some(pool) = self.pools.get_mut(&pool).filter(|_| !lane.rules.paused) {
            pool.ready.remove_lane(&lane.origin);
        }
        if !lane.parked.is_empty() {
            self.parked.retain(|parked| *parked != key);
        }
        debug_assert!(self.fresh_jobs >= lane.fresh.len(), "more jobs wait in a lane than in all");
        self.fresh_jobs = self.fresh_jobs.saturating_sub(lane.fresh.len());
        let cached = lane.cached.values().map(|stored| stored.text.len());
        self.cached = self.cached.saturating_sub(cached.sum());
        self.leave_groups(key, scope, now);
    }

    /// The lanes there are.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.lanes.keys().copied()
    }

    /// What holds for a lane.
    pub(super) fn rules(&self, key: LaneKey) -> Option<&LaneRules> {
        self.lanes.get(&key).map(|lane| &lane.rules)
    }

    /// How far a lane was looked through.
    pub(crate) fn scanned(&self, key: LaneKey) -> Option<Sequence> {
        self.lanes.get(&key).map(|lane| lane.scanned)
    }

    /// A lane was looked through so far.
    pub(crate) fn set_scanned(&mut self, key: LaneKey, scanned: Sequence) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.scanned = lane.scanned.max(scanned);
        }
    }

    /// How far a lane is settled: everything up to there is over, or has a story.
    pub(crate) fn settled(&self, key: LaneKey, reached: Option<Sequence>) -> Option<Sequence> {
        let lane = self.lanes.get(&key)?;
        let scanned = reached.map_or(lane.scanned, |reached| reached.max(lane.scanned));
        Some(lane.fresh.min().map_or(scanned, |first| Sequence(first.saturating_sub(1)).min(scanned)))
    }

    /// Whether a job is under way.
    pub(crate) fn is_in_flight(&self, key: LaneKey, sequence: Sequence) -> bool {
        self.in_flight.contains_key(&(key, sequence))
    }

    /// A job not tried yet.
    pub(crate) fn offer(&mut self, key: LaneKey, fresh: NewJob, now: i64) {
        let NewJob { sequence, group, event, stored } = fresh;
        if self.is_in_flight(key, sequence) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        self.fresh_jobs += u64::from(lane.fresh.insert(sequence.get()));
        let has_room = |stored: &CachedEvent| !lane.rules.paused && self.cached + stored.text.len() <= CACHED_BYTES_MAX;
        if let Some(stored) = stored.filter(has_room) {
            self.cached += stored.text.len();
            // Copied: the text is a part of its page, and would hold on to all of that.
            let text = Bytes::copy_from_slice(&stored.text);
            lane.cached.insert(sequence, CachedEvent { text, ..stored });
        }
        match group.filter(|_| lane.rules.is_ordered()) {
            Some(group) => self.wait_fresh(key, group, (sequence, event), now),
            None => lane.put_due(lane.rules.fresh(sequence, None, event)),
        }
        self.queue(key, now);
    }

    /// A job with a story, or one that was given up and may hold its group.
    pub(crate) fn offer_row(&mut self, key: LaneKey, job: PlannedJob, is_dead: bool, now: i64) {
        if self.is_in_flight(key, job.sequence) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        match (job.in_group().filter(|_| job.keeps_place(is_dead)), is_dead) {
            (Some(group), true) => self.wait_dead(key, group, job.sequence, now),
            (Some(group), false) => self.wait_row(key, group, job, now),
            (None, true) => (),
            (None, false) => lane.put_due(job),
        }
        self.queue(key, now);
    }

    /// When something may go that cannot now.
    pub(crate) fn next_time(&self) -> Option<i64> {
        let (timer, expiry) = (self.timers.first(), self.expiries.first());
        let timers = timer.into_iter().chain(expiry).map(|(at, _)| *at);
        self.pools.values().filter_map(PoolPlan::next_token).chain(timers).min()
    }

    /// A job that was under way is not any more.
    pub(crate) fn job_ended(&mut self, key: LaneKey, sequence: Sequence, back: AfterAttempt, now: i64) {
        let Some(flight) = self.in_flight.remove(&(key, sequence)) else { return };
        self.rowless_in_flight -= usize::from(!flight.job.has_row);
        if let Some(target) = &flight.probes {
            self.breakers.end_probe(target);
        }
        if let Some(PoolPlace { pool, class, origin }) = &flight.place {
            let bytes = flight.job.event.bytes as usize;
            self.quick_flights.remove(&(flight.began, key, sequence));
            self.in_flight_bytes.end(*class, bytes);
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.end(*class, origin);
            }
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.share.end(*class);
                lane.in_flight_bytes = lane.in_flight_bytes.saturating_sub(bytes);
                lane.pace.end(flight.began, now);
            }
        }
        self.return_job((key, flight.scope), flight.job, back, now);
        self.unpark(now);
    }

    /// A job that was under way waits because its receiver wants it so, and the log knows of it.
    pub(crate) fn deferred(&mut self, key: LaneKey, sequence: Sequence, until: i64, now: i64) {
        if let Some(flight) = self.in_flight.get_mut(&(key, sequence)) {
            self.rowless_in_flight -= usize::from(!flight.job.has_row);
            flight.job.has_row = true;
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            self.fresh_jobs -= u64::from(lane.fresh.remove(sequence.get()));
        }
        self.job_ended(key, sequence, AfterAttempt::Waits { until, tried: false, counts: false }, now);
    }

    /// A call to a target came to something.
    pub(crate) fn record_call(&mut self, target: &Arc<str>, is_alive: bool, now: i64) -> Option<BreakerChange> {
        self.breakers.record_call(target, is_alive, now)
    }

    fn unqueue(&mut self, key: LaneKey, queued: LaneQueueing, pool: &str) {
        match queued {
            LaneQueueing::No => (),
            LaneQueueing::Ready(class, rank) => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.ready.remove(class, rank, key);
                }
            }
            LaneQueueing::Timer(due) => drop(self.timers.remove(&(due, key))),
        }
    }

    /// Puts a lane where its next job belongs.
    pub(super) fn queue(&mut self, key: LaneKey, now: i64) {
        self.note_expiry(key);
        let Some(lane) = self.lanes.get(&key) else { return };
        let (queued, pool) = (lane.queued, lane.rules.pool.clone());
        let rank = || self.pools.get(&pool).map_or(0, |pool| pool.ready.rank(lane.rules.priority));
        let wanted = match (lane.first_time(), queued) {
            (None, _) => LaneQueueing::No,
            (Some(due), _) if due > now => LaneQueueing::Timer(due),
            // Whoever waits keeps the place.
            (Some(_), LaneQueueing::Ready(_, rank)) => LaneQueueing::Ready(lane.class(now), rank),
            (Some(_), _) => LaneQueueing::Ready(lane.class(now), rank()),
        };
        if wanted == queued {
            return;
        }
        self.unqueue(key, queued, &pool);
        match wanted {
            LaneQueueing::No => (),
            LaneQueueing::Ready(class, rank) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.ready.insert(class, rank, key);
                }
            }
            LaneQueueing::Timer(due) => drop(self.timers.insert((due, key))),
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.queued = wanted;
        }
    }
}

pub(super) fn bytes_of(stored: Option<&CachedEvent>) -> usize {
    stored.map_or(0, |stored| stored.text.len())
}
