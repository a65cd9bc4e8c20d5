//! The planner: which job is sent next. Pure: time is a parameter; it reads nothing and sends nothing.
//!
//! ```text
//!   offered ──▶ group (ordered modes) ──▶ lane, by due time ──▶ pool, by priority and turn ──▶ in flight
//!                  ▲                                                                              │
//!                  └──────────────── failed: back with a new due time ◀───────────────────────────┘
//! ```
//!
//! - A lane is a subscription, a replay, or the tasks of one pool. Lanes wait for each other only in their pool, and lanes
//!   of one subscription in their message groups.
//! - A job expires when it reaches its maximum age, wherever it waits.
//! - The settled offset of a lane is known at any time: everything below the lowest job that is not done and has no row.
//! - A job that may fail needs room for its row. At the limit of open jobs, only jobs that have a row are sent.

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

/// Most bytes of events that are cached until they are sent.
const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) struct Planner {
    pub(super) lanes: HashMap<LaneKey, LanePlan>,
    /// By subscription, and by the fingerprint of the group.
    pub(super) groups: HashMap<Uuid, HashMap<u64, MessageGroup>>,
    pub(super) pools: BTreeMap<String, PoolPlan>,
    pub(super) breakers: CircuitBreakers,
    /// Lanes whose next job is due later.
    pub(super) timers: BTreeSet<(i64, LaneKey)>,
    /// When the first job of each lane expires. That needs no place in a pool, so it waits for none.
    pub(super) expiries: BTreeSet<(i64, LaneKey)>,
    pub(super) in_flight: HashMap<(LaneKey, Sequence), InFlightJob>,
    /// Deliveries in flight that count as quick, by their start.
    pub(super) quick_flights: BTreeSet<(i64, LaneKey, Sequence)>,
    pub(super) cached: usize,
    pub(super) in_flight_bytes: InFlightBytes,
    /// Jobs of all lanes that were offered, have no row and are not done.
    pub(super) fresh_jobs: u64,
    /// How many more jobs may get a row.
    pub(super) rows_left: usize,
    /// Lanes that have their share of rows.
    pub(super) full: HashSet<Uuid>,
    /// Jobs in flight that have no row and may get one.
    pub(super) rowless_in_flight: usize,
    /// Lanes with jobs that wait for room for a row.
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
    /// Its place in a pool; `None`: it expires and is not sent.
    pub(super) place: Option<PoolPlace>,
    pub(super) scope: Uuid,
    pub(super) job: PlannedJob,
    pub(super) began: i64,
    /// The target whose circuit breaker it probes.
    pub(super) probes: Option<Arc<str>>,
}

/// A place in a pool.
pub(super) struct PoolPlace {
    pub(super) pool: String,
    pub(super) class: DeliveryClass,
    pub(super) origin: Arc<str>,
}

impl Planner {
    /// A planner that shares the circuit breakers of its process.
    pub(crate) fn with_breakers(breakers: &CircuitBreakers) -> Self {
        Self { breakers: breakers.clone(), ..Self::default() }
    }

    /// Sets the pools. A deleted pool is dropped when nothing is in flight in it and no lane uses it.
    pub(crate) fn set_pools(&mut self, pools: &[Pool], now: i64) {
        self.pools.retain(|code, plan| plan.is_used() || pools.iter().any(|pool| pool.code == *code));
        for pool in pools {
            match self.pools.get_mut(&pool.code) {
                Some(plan) => plan.change(pool),
                None => drop(self.pools.insert(pool.code.clone(), PoolPlan::new(pool, now))),
            }
        }
    }

    /// Whether the pool exists.
    pub(crate) fn has_pool(&self, code: &str) -> bool {
        self.pools.contains_key(code)
    }

    /// Adds or replaces a lane that was recorded up to `scanned`; nothing of it was offered yet. Jobs in flight stay in
    /// flight.
    pub(crate) fn put_lane(&mut self, key: LaneKey, rules: LaneRules, scanned: Sequence, now: i64) {
        let pace = self.lanes.get(&key).map(|known| known.pace).unwrap_or_default();
        self.drop_lane(key, now);
        let mut lane = LanePlan { pace, ..LanePlan::new(rules, scanned) };
        let mut expiring = Vec::new();
        for ((_, sequence), flight) in self.in_flight.iter().filter(|((of, _), _)| *of == key) {
            if !flight.job.has_row && *sequence > scanned {
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
        // A job that is being given up holds its group until that is durable.
        expiring.into_iter().for_each(|(group, sequence)| self.hold_group(key, group, sequence));
    }

    /// Removes a lane: nothing more of it is sent.
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

    /// All lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.lanes.keys().copied()
    }

    /// The rules of a lane.
    pub(super) fn rules(&self, key: LaneKey) -> Option<&LaneRules> {
        self.lanes.get(&key).map(|lane| &lane.rules)
    }

    /// The scanned offset of a lane.
    pub(crate) fn scanned(&self, key: LaneKey) -> Option<Sequence> {
        self.lanes.get(&key).map(|lane| lane.scanned)
    }

    /// Moves the scanned offset of a lane forward.
    pub(crate) fn set_scanned(&mut self, key: LaneKey, scanned: Sequence) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.scanned = lane.scanned.max(scanned);
        }
    }

    /// The settled offset of a lane: up to there every job is done or has a row. `scanned`: how far its feeder has read
    /// for it.
    pub(crate) fn settled(&self, key: LaneKey, feeder_scanned: Option<Sequence>) -> Option<Sequence> {
        let lane = self.lanes.get(&key)?;
        let scanned = feeder_scanned.map_or(lane.scanned, |feeder_scanned| feeder_scanned.max(lane.scanned));
        let settled = lane.fresh.min().map_or(scanned, |first| Sequence(first.saturating_sub(1)).min(scanned));
        debug_assert!(settled <= scanned, "a lane is settled further than it was scanned");
        Some(settled)
    }

    /// Whether a job is in flight.
    pub(crate) fn is_in_flight(&self, key: LaneKey, sequence: Sequence) -> bool {
        self.in_flight.contains_key(&(key, sequence))
    }

    /// Offers a job without a row.
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
            // Copied: the text is a slice of its page and would keep the whole page in memory.
            let text = Bytes::copy_from_slice(&stored.text);
            lane.cached.insert(sequence, CachedEvent { text, ..stored });
        }
        match group.filter(|_| lane.rules.is_ordered()) {
            Some(group) => self.wait_fresh(key, group, (sequence, event), now),
            None => lane.put_due(lane.rules.fresh(sequence, None, event)),
        }
        self.queue(key, now);
    }

    /// Offers a job with a row: it waits for another attempt, or was given up and may hold its group.
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

    /// When the next job may be sent that cannot be sent now.
    pub(crate) fn next_time(&self) -> Option<i64> {
        let (timer, expiry) = (self.timers.first(), self.expiries.first());
        let timers = timer.into_iter().chain(expiry).map(|(at, _)| *at);
        self.pools.values().filter_map(PoolPlan::next_token).chain(timers).min()
    }

    /// A job is no longer in flight.
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

    /// The receiver deferred a job, and that is durable.
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

    /// Reports the result of a call to the circuit breaker of its target. When that closes, the jobs that waited for it are due
    /// at once.
    pub(crate) fn record_call(&mut self, target: &Arc<str>, is_alive: bool, now: i64) -> Option<BreakerChange> {
        let change = self.breakers.record_call(target, is_alive, now);
        if change == Some(BreakerChange::Recovered) {
            let released = self.lanes.iter_mut().filter_map(|(key, lane)| lane.release(target, now).then_some(*key));
            for key in released.collect::<Vec<_>>() {
                self.queue(key, now);
            }
        }
        change
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

    /// Queues a lane where its next job belongs: in its pool, or on a timer.
    pub(super) fn queue(&mut self, key: LaneKey, now: i64) {
        self.note_expiry(key);
        let Some(lane) = self.lanes.get(&key) else { return };
        let (queued, pool) = (lane.queued, lane.rules.pool.clone());
        let rank = || self.pools.get(&pool).map_or(0, |pool| pool.ready.rank(lane.rules.priority));
        let wanted = match (lane.first_time(), queued) {
            (None, _) => LaneQueueing::No,
            (Some(due), _) if due > now => LaneQueueing::Timer(due),
            // A lane that waits keeps its rank.
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
