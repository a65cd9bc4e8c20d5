//! The planner: which job goes next. Pure: time comes in, nothing is read, nothing is sent.
//!
//! ```text
//!   offered ──▶ group (ordered modes) ──▶ lane, by due time ──▶ pool, by priority and turn ──▶ under way
//!                  ▲                                                                             │
//!                  └──────────────── failed: back with a new due time ◀──────────────────────────┘
//! ```
//!
//! - A lane is a subscription, a replay, or the tasks of one pool. Lanes never wait for each other but for their pool.
//! - A job past its age is expired when its time would come, at the latest when it grows too old.
//! - How far a lane is settled is known at any time: everything below the lowest job without a story.

use super::breaker::{Breakers, Turned};
use super::groups::{Group, Member, Promotion};
use super::lane::{Back, Job, LaneKey, LanePlan, Offer, Pick, Queued, Rules, Stored};
use super::pools::PoolPlan;
use bytes::Bytes;
use contract::{DispatchMode, Pool, Sequence};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Jobs of a lane that wait in memory for a place in their pool: so many, or so many times what it delivers at a time.
const AHEAD: usize = 1024;
const AHEAD_OF_POOL: usize = 4;
/// Bytes of events that are kept for lanes to send.
const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Planner {
    lanes: HashMap<LaneKey, LanePlan>,
    pools: BTreeMap<String, PoolPlan>,
    breakers: Breakers,
    /// Lanes whose next job is due later.
    timers: BTreeSet<(i64, LaneKey)>,
    flights: HashMap<(LaneKey, Sequence), Flight>,
    turn: u64,
    cached: usize,
}

struct Flight {
    pool: String,
    job: Job,
    /// The target it probes, if it is a probe.
    probes: Option<Arc<str>>,
}

impl Planner {
    /// A planner that shares the breakers of its process.
    pub(crate) fn sharing(breakers: &Breakers) -> Self {
        Self { breakers: breakers.clone(), ..Self::default() }
    }

    /// The pools there are.
    pub(crate) fn set_pools(&mut self, pools: &[Pool], now: i64) {
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
    pub(crate) fn put_lane(&mut self, key: LaneKey, rules: Rules, through: Sequence) {
        self.drop_lane(key);
        let mut lane = LanePlan::new(rules, through);
        for ((of, sequence), flight) in &self.flights {
            if *of != key {
                continue;
            }
            lane.flying += 1;
            if !flight.job.has_row && *sequence > through {
                lane.fresh.insert(sequence.get());
            }
            if let Some(group) = flight.job.group.filter(|_| flight.job.mode != DispatchMode::Immediate) {
                let group = lane.groups.entry(group).or_insert_with(|| Group::new(flight.job.mode));
                group.add(*sequence, Member::Out);
                group.set_busy(*sequence);
            }
        }
        self.lanes.insert(key, lane);
    }

    /// Nothing more of this lane is sent.
    pub(crate) fn drop_lane(&mut self, key: LaneKey) {
        if let Some(lane) = self.lanes.get(&key) {
            let (queued, pool) = (lane.queued, lane.rules.pool.clone());
            self.unqueue(key, queued, &pool);
        }
        if let Some(lane) = self.lanes.remove(&key) {
            let cached = lane.at_hand.values().map(|stored| stored.text.len());
            self.cached = self.cached.saturating_sub(cached.sum());
        }
    }

    /// The lanes there are.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.lanes.keys().copied()
    }

    /// Whether one more of a lane may be offered.
    pub(crate) fn has_room(&self, key: LaneKey, now: i64) -> bool {
        self.has_room_of(key, 1, now)
    }

    /// Whether so much of a lane was sent that it is worth reading on for it alone.
    pub(crate) fn has_much_room(&self, key: LaneKey, now: i64) -> bool {
        self.has_room_of(key, 2, now)
    }

    fn has_room_of(&self, key: LaneKey, part: usize, now: i64) -> bool {
        let Some(lane) = self.lanes.get(&key) else { return false };
        // Whatever is read for a target that is left alone only waits; one job is enough to ask again in time.
        let again = self.breakers.asks_again(&lane.rules.target, now);
        if again.zip(lane.due.keys().next()).is_some_and(|(again, (due, _))| *due <= again) {
            return false;
        }
        let concurrency = self.pools.get(&lane.rules.pool).map_or(1, |pool| pool.concurrency);
        lane.has_room(AHEAD.max(AHEAD_OF_POOL * concurrency as usize) / part, now)
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
    pub(crate) fn is_flying(&self, key: LaneKey, sequence: Sequence) -> bool {
        self.flights.contains_key(&(key, sequence))
    }

    /// A job not tried yet, whose event arrived at `time`.
    pub(crate) fn offer(&mut self, key: LaneKey, fresh: Offer, now: i64) {
        let Offer { sequence, group, mode, time, stored } = fresh;
        if self.is_flying(key, sequence) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.fresh.insert(sequence.get());
        if let Some(stored) = stored.filter(|stored| self.cached + stored.text.len() <= CACHED_BYTES_MAX) {
            self.cached += stored.text.len();
            // Copied: the text is a part of its page, and would hold on to all of that.
            let text = Bytes::copy_from_slice(&stored.text);
            lane.at_hand.insert(sequence, Stored { text, ..stored });
        }
        match group.filter(|_| mode != DispatchMode::Immediate) {
            Some(group) => {
                lane.groups.entry(group).or_insert_with(|| Group::new(mode)).add(sequence, Member::Fresh(time));
                self.promote(key, group, mode);
            }
            None => lane.put_due(lane.rules.fresh(sequence, None, mode, time)),
        }
        self.queue(key, now);
    }

    /// A job with a story; `None`: it was given up, and may hold its group.
    pub(crate) fn offer_row(&mut self, key: LaneKey, job: Job, is_dead: bool, now: i64) {
        if self.is_flying(key, job.sequence) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let mode = job.mode;
        match job.group.filter(|_| mode == DispatchMode::BlockOnError) {
            Some(group) => {
                let member = if is_dead { Member::Dead } else { Member::Row(Box::new(job.clone())) };
                lane.groups.entry(group).or_insert_with(|| Group::new(mode)).add(job.sequence, member);
                self.promote(key, group, mode);
            }
            None if is_dead => (),
            None => lane.put_due(job),
        }
        self.queue(key, now);
    }

    /// What goes next, if anything does.
    pub(crate) fn next(&mut self, now: i64) -> Option<Pick> {
        while let Some((due, key)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, key));
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.queued = Queued::No;
            }
            self.queue(key, now);
        }
        let pools: Vec<String> =
            self.pools.iter().filter(|(_, pool)| !pool.ready.is_empty()).map(|(code, _)| code.clone()).collect();
        for pool in pools {
            while let Some(key) = self.next_lane(&pool, now) {
                if let Some(pick) = self.take(key, &pool, now) {
                    return Some(pick);
                }
            }
        }
        None
    }

    /// When something may go that cannot now.
    pub(crate) fn next_time(&self) -> Option<i64> {
        let timer = self.timers.first().map(|(due, _)| *due);
        self.pools.values().filter_map(PoolPlan::next_token).chain(timer).min()
    }

    /// A job that was under way is not any more.
    pub(crate) fn ended(&mut self, key: LaneKey, sequence: Sequence, back: Back, now: i64) {
        let Some(flight) = self.flights.remove(&(key, sequence)) else { return };
        if let Some(pool) = self.pools.get_mut(&flight.pool) {
            pool.end();
        }
        if let Some(target) = &flight.probes {
            self.breakers.probed(target);
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.flying = lane.flying.saturating_sub(1);
        }
        self.come_back(key, flight.job, back, now);
    }

    /// A job that was under way waits because its receiver wants it so, and the log knows of it.
    pub(crate) fn deferred(&mut self, key: LaneKey, sequence: Sequence, until: i64, now: i64) {
        if let Some(flight) = self.flights.get_mut(&(key, sequence)) {
            flight.job.has_row = true;
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.fresh.remove(sequence.get());
        }
        self.ended(key, sequence, Back::Waits { until, tried: false, counts: false }, now);
    }

    /// A call to a target came to something.
    pub(crate) fn noted(&mut self, target: &Arc<str>, is_alive: bool, now: i64) -> Option<Turned> {
        self.breakers.noted(target, is_alive, now)
    }

    fn next_lane(&mut self, pool: &str, now: i64) -> Option<LaneKey> {
        let pool = self.pools.get_mut(pool)?;
        if !pool.has_room(now) {
            return None;
        }
        let (_, _, key) = pool.ready.pop_first()?;
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.queued = Queued::No;
        }
        Some(key)
    }

    /// Takes a lane's next job; nothing where it had to be put back.
    fn take(&mut self, key: LaneKey, pool: &str, now: i64) -> Option<Pick> {
        self.turn += 1;
        let lane = self.lanes.get_mut(&key)?;
        lane.last_turn = self.turn;
        let first = lane.due.first_entry().filter(|first| first.key().0 <= now);
        let Some(mut job) = first.map(|first| first.remove()) else {
            self.queue(key, now);
            return None;
        };
        let sequence = job.sequence;
        if now >= job.expires {
            let stored = lane.at_hand.remove(&sequence);
            self.cached = self.cached.saturating_sub(bytes_of(stored.as_ref()));
            self.come_back(key, job, Back::Over, now);
            return Some(Pick::Expire(key, sequence));
        }
        let target = Arc::clone(job.target.as_ref().unwrap_or(&lane.rules.target));
        let group = job.group.filter(|_| job.mode != DispatchMode::Immediate);
        if let Some(group) = group.and_then(|group| lane.groups.get_mut(&group)) {
            match group.begin(job) {
                Some(begun) => job = begun,
                None => {
                    self.queue(key, now);
                    return None;
                }
            }
        }
        let is_probe = match self.breakers.admit(&target, now) {
            Ok(is_probe) => is_probe,
            Err(until) => {
                self.come_back(key, job, Back::Waits { until, tried: false, counts: false }, now);
                return None;
            }
        };
        lane.flying += 1;
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.begin();
        }
        let stored = lane.at_hand.remove(&sequence);
        self.cached = self.cached.saturating_sub(bytes_of(stored.as_ref()));
        self.flights.insert(
            (key, sequence),
            Flight { pool: pool.to_owned(), job: job.clone(), probes: is_probe.then_some(target) },
        );
        self.queue(key, now);
        Some(Pick::Send(key, Job { stored, ..job }))
    }

    fn come_back(&mut self, key: LaneKey, mut job: Job, back: Back, now: i64) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let (mode, sequence) = (job.mode, job.sequence);
        let group_key = job.group.filter(|_| mode != DispatchMode::Immediate);
        let mut group = group_key.and_then(|group| lane.groups.get_mut(&group));
        let held = group.as_mut().map(|group| group.end(sequence)).unwrap_or_default();
        let mut stays = None;
        match back {
            Back::Over => drop(lane.fresh.remove(sequence.get())),
            Back::Dead => {
                lane.fresh.remove(sequence.get());
                if let Some(group) = group.filter(|group| group.keeps_rows()) {
                    group.add(sequence, Member::Dead);
                }
            }
            Back::Waits { until, tried, counts } => {
                job.due = until.min(job.expires);
                if tried {
                    job.has_row = true;
                    lane.fresh.remove(sequence.get());
                }
                job.tried += u32::from(tried);
                job.spent += u32::from(counts);
                // One that was not even tried is passed by nobody.
                match group.filter(|group| group.keeps_rows() || !tried) {
                    Some(group) => group.add(sequence, Member::Row(Box::new(job))),
                    None => stays = Some(job),
                }
            }
        }
        stays.into_iter().chain(held).for_each(|job| lane.put_due(job));
        if let Some(group) = group_key {
            self.promote(key, group, mode);
        }
        self.queue(key, now);
    }

    /// Lets the next one of a group out into its lane.
    fn promote(&mut self, key: LaneKey, group_key: u64, mode: DispatchMode) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        while let Some(group) = lane.groups.get_mut(&group_key) {
            match group.promote() {
                Promotion::Nothing => {
                    if group.is_empty() {
                        lane.groups.remove(&group_key);
                    }
                    return;
                }
                Promotion::Fresh(sequence, time) => {
                    let job = lane.rules.fresh(sequence, Some(group_key), mode, time);
                    lane.put_due(job);
                }
                Promotion::Row(job) => lane.put_due(*job),
                Promotion::Recall(sequence) => {
                    let place = lane.due.iter().find(|(_, job)| job.sequence == sequence).map(|(place, _)| *place);
                    match place.and_then(|place| lane.due.remove(&place)) {
                        Some(job) => group.recalled(job),
                        None => return,
                    }
                }
            }
        }
    }

    fn unqueue(&mut self, key: LaneKey, queued: Queued, pool: &str) {
        match queued {
            Queued::No => (),
            Queued::Ready(priority, turn) => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.ready.remove(&(priority, turn, key));
                }
            }
            Queued::Timer(due) => drop(self.timers.remove(&(due, key))),
        }
    }

    /// Puts a lane where its next job belongs.
    fn queue(&mut self, key: LaneKey, now: i64) {
        let Some(lane) = self.lanes.get(&key) else { return };
        let (queued, pool) = (lane.queued, lane.rules.pool.clone());
        let concurrency = self.pools.get(&pool).map_or(1, |pool| pool.concurrency);
        let has_share = lane.rules.share.is_none_or(|share| lane.flying < (concurrency / share).max(1));
        let wanted = match lane.due.first_key_value() {
            Some(((due, _), _)) if has_share && *due <= now => Queued::Ready(lane.rules.priority, lane.last_turn),
            Some(((due, _), _)) if has_share => Queued::Timer(*due),
            _ => Queued::No,
        };
        if wanted == queued {
            return;
        }
        self.unqueue(key, queued, &pool);
        match wanted {
            Queued::No => (),
            Queued::Ready(priority, turn) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.ready.insert((priority, turn, key));
                }
            }
            Queued::Timer(due) => drop(self.timers.insert((due, key))),
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.queued = wanted;
        }
    }
}

fn bytes_of(stored: Option<&Stored>) -> usize {
    stored.map_or(0, |stored| stored.text.len())
}
