//! Feeders: each reads one topic and offers the matching events to its lanes. Lanes are read for together; a lane that
//! lags behind is read for alone.
//!
//! - The lanes that may match an event are one look-up by its type; tenant and expression are evaluated only for those.
//! - A lane without room leaves its cohort at the event that it has no room for, and resumes there when it has.
//! - After a start, lanes with similar offsets form a cohort, and each cohort starts at its own offset: so no lane
//!   waits for one that is far behind. A cohort that catches up with the one ahead of it joins it.

use super::lane::{CachedEvent, EventArrival, LaneKey, NewJob};
use super::lane_filter::{EarlierFilter, earlier_match};
use super::planner::Planner;
use crate::events::unreadable;
use crate::filters::FilterStats;
use crate::ledger::{DispatchRows, Ledger, tag};
use crate::subscriptions::{CompiledSubscription, EventSummary, is_replaced};
use contract::{DispatchMode, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, TopicNumber};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const PAGE: ReadLimit = ReadLimit { records: 512, bytes: 1024 * 1024 };

/// A lane that is fed with events of a topic.
#[derive(Clone)]
pub(super) struct LaneReading {
    pub(super) subscription: Arc<CompiledSubscription>,
    /// The filters that the subscription had before.
    pub(super) earlier: Arc<[EarlierFilter]>,
    /// The last sequence of a replay.
    pub(super) until: Option<Sequence>,
}

impl LaneReading {
    /// Whether an event that the filter matches is a job.
    fn takes(&self, ledger: &Ledger, record: &Record, failures: &mut FilterStats) -> bool {
        earlier_match(&self.earlier, record, failures)
            && !is_replaced(ledger, &self.subscription.code, record, self.until.is_some())
    }
}

/// After a start, lanes form a cohort if their offsets differ by no more than this many events.
const COHORT_SPAN: u64 = 8192;
/// Most cohorts of one topic: each of them reads the same events.
const COHORTS_MAX: usize = 16;

/// Lanes for which the topic is read together.
struct LaneCohort {
    /// All of them were scanned to here, or further.
    scanned: Sequence,
    /// The furthest scanned offset when they came together.
    furthest: Sequence,
    lanes: BTreeSet<LaneKey>,
}

impl LaneCohort {
    /// How far apart its lanes would be with another lane.
    fn span_with(&self, scanned: Sequence) -> u64 {
        self.furthest.max(scanned).get() - self.scanned.min(scanned).get()
    }
}

/// The feeder of one topic.
#[derive(Default)]
pub(super) struct TopicFeeder {
    /// The cohorts, the furthest ahead first. More than one only after a start.
    cohorts: Vec<LaneCohort>,
    /// Which of the cohorts behind the first one is read for next.
    next_cohort: usize,
    lanes: BTreeMap<LaneKey, LaneReading>,
    /// Lanes of replays: they end at a sequence.
    bounded: BTreeSet<LaneKey>,
    /// Lanes in no cohort.
    lagging: BTreeSet<LaneKey>,
    /// The lanes that may match events of a type, by its fingerprint.
    index: HashMap<u64, Arc<Vec<LaneKey>>>,
}

impl TopicFeeder {
    /// Adds a lane that was scanned to `scanned`. `all_new`: after a start, cohorts are being formed.
    pub(super) fn put(&mut self, key: LaneKey, reading: LaneReading, scanned: Sequence, all_new: bool) {
        self.leave(key);
        if all_new {
            self.join_near(key, scanned);
        } else {
            self.lagging.insert(key);
        }
        match reading.until {
            Some(_) => self.bounded.insert(key),
            None => self.bounded.remove(&key),
        };
        self.lanes.insert(key, reading);
        self.index.clear();
    }

    pub(super) fn remove(&mut self, key: LaneKey) {
        self.lanes.remove(&key);
        self.bounded.remove(&key);
        self.leave(key);
        self.index.clear();
    }

    /// Removes a lane from its cohort, or from those that lag.
    fn leave(&mut self, key: LaneKey) {
        self.lagging.remove(&key);
        for cohort in &mut self.cohorts {
            cohort.lanes.remove(&key);
        }
        self.cohorts.retain(|cohort| !cohort.lanes.is_empty());
    }

    /// A lane joins the nearest cohort, or starts one.
    fn join_near(&mut self, key: LaneKey, scanned: Sequence) {
        let is_full = self.cohorts.len() >= COHORTS_MAX;
        let nearest = self.cohorts.iter_mut().min_by_key(|cohort| cohort.span_with(scanned));
        match nearest.filter(|cohort| is_full || cohort.span_with(scanned) <= COHORT_SPAN) {
            Some(cohort) => {
                cohort.scanned = cohort.scanned.min(scanned);
                cohort.furthest = cohort.furthest.max(scanned);
                cohort.lanes.insert(key);
            }
            None => self.cohorts.push(LaneCohort { scanned, furthest: scanned, lanes: [key].into() }),
        }
        self.cohorts.sort_by_key(|cohort| std::cmp::Reverse(cohort.scanned));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lanes of replays.
    pub(super) fn bounded(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.bounded.iter().copied()
    }

    /// The scanned offset of a lane in a cohort.
    pub(super) fn scanned(&self, key: LaneKey) -> Option<Sequence> {
        let of_cohort = self.cohorts.iter().find(|cohort| cohort.lanes.contains(&key))?.scanned;
        Some(self.lanes.get(&key)?.until.map_or(of_cohort, |until| of_cohort.min(until)))
    }

    /// The last sequence of a lane of a replay.
    pub(super) fn until(&self, key: LaneKey) -> Option<Sequence> {
        self.lanes.get(&key)?.until
    }

    /// Reads one page for each; true if there is more to read.
    pub(super) async fn step(
        &mut self,
        ledger: &Ledger,
        number: TopicNumber,
        tail: Sequence,
        planner: &mut Planner,
        now: i64,
    ) -> Result<bool> {
        let (mut moved, mut failed) = (false, None);
        for key in self.lagging.iter().copied().collect::<Vec<_>>() {
            // A lane that cannot be read for delays no other one.
            match self.catch_up(ledger, (number, tail), key, planner, now).await {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = Some(error),
            }
        }
        match self.advance_cohort(ledger, (number, tail), 0, planner, now).await {
            Ok(has_moved) => moved |= has_moved,
            Err(error) => failed = Some(error),
        }
        if self.cohorts.len() > 1 {
            // One of the others per step, so that the first one is not delayed.
            self.next_cohort = self.next_cohort % (self.cohorts.len() - 1) + 1;
            match self.advance_cohort(ledger, (number, tail), self.next_cohort, planner, now).await {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = Some(error),
            }
            self.merge(self.next_cohort, planner);
        }
        failed.filter(|_| !moved).map_or(Ok(moved), Err)
    }

    /// Reads one page for a cohort; true if it moved.
    async fn advance_cohort(
        &mut self,
        ledger: &Ledger,
        (number, tail): (TopicNumber, Sequence),
        place: usize,
        planner: &mut Planner,
        now: i64,
    ) -> Result<bool> {
        let Some(mut scanned) = self.cohorts.get(place).map(|cohort| cohort.scanned).filter(|it| *it < tail) else {
            return Ok(false);
        };
        let page = read(ledger, number, &mut scanned).await?;
        let Some(last) = page.last().map(|record| record.header.sequence) else { return Ok(false) };
        let mut cohort = self.cohorts.remove(place);
        let mut failures = FilterStats::default();
        for record in &page {
            self.offer_to_all(&mut cohort, ledger, record, planner, &mut failures, now);
        }
        cohort.scanned = last;
        if !cohort.lanes.is_empty() {
            self.cohorts.insert(place, cohort);
        }
        Ok(true)
    }

    /// Joins a cohort with the one ahead of it that it has caught up with.
    fn merge(&mut self, place: usize, planner: &mut Planner) {
        let Some(ahead) = place.checked_sub(1).and_then(|ahead| self.cohorts.get(ahead)).map(|it| it.scanned) else {
            return;
        };
        if self.cohorts.get(place).is_none_or(|cohort| cohort.scanned < ahead) {
            return;
        }
        let behind = self.cohorts.remove(place);
        for key in &behind.lanes {
            planner.set_scanned(*key, behind.scanned);
        }
        if let Some(ahead) = self.cohorts.get_mut(place - 1) {
            ahead.lanes.extend(behind.lanes);
        }
    }

    fn offer_to_all(
        &mut self,
        cohort: &mut LaneCohort,
        ledger: &Ledger,
        record: &Record,
        planner: &mut Planner,
        failures: &mut FilterStats,
        now: i64,
    ) {
        let Some(facets) = record.header.facets else { return };
        let wanted = match self.index.get(&facets.type_tag) {
            Some(wanted) => Arc::clone(wanted),
            None => self.look_up(facets.type_tag, record),
        };
        let sequence = record.header.sequence;
        for key in wanted.iter().filter(|key| cohort.lanes.contains(key)).copied().collect::<Vec<_>>() {
            let Some(reading) = self.lanes.get(&key) else { continue };
            let is_behind = planner.scanned(key).is_some_and(|scanned| scanned >= sequence);
            if is_behind || reading.until.is_some_and(|until| sequence > until) {
                continue;
            }
            if !planner.has_room(key, now) {
                planner.set_scanned(key, Sequence(sequence.get().saturating_sub(1)));
                cohort.lanes.remove(&key);
                self.lagging.insert(key);
                continue;
            }
            if reading.subscription.matches_filter(record, failures) && reading.takes(ledger, record, failures) {
                offer(&ledger.dispatch(), key, &reading.subscription, record, planner, now);
            }
        }
    }

    fn look_up(&mut self, type_tag: u64, record: &Record) -> Arc<Vec<LaneKey>> {
        let event_type = EventSummary::at(&record.body).map(|summary| summary.event_type).unwrap_or_default();
        let wanted = self.lanes.iter().filter(|(_, reading)| reading.subscription.matches_type(&event_type));
        let wanted = Arc::new(wanted.map(|(key, _)| *key).collect::<Vec<_>>());
        self.index.insert(type_tag, Arc::clone(&wanted));
        wanted
    }

    /// Reads one page for a lane that lags behind; true if it moved.
    async fn catch_up(
        &mut self,
        ledger: &Ledger,
        (number, tail): (TopicNumber, Sequence),
        key: LaneKey,
        planner: &mut Planner,
        now: i64,
    ) -> Result<bool> {
        let Some(reading) = self.lanes.get(&key).cloned() else { return Ok(false) };
        let Some(scanned) = planner.scanned(key) else { return Ok(false) };
        let end = reading.until.map_or(tail, |until| until.min(tail));
        if scanned >= end || !planner.has_much_room(key, now) {
            return Ok(false);
        }
        let first = self.cohorts.first_mut();
        if reading.until.is_none() && first.as_ref().is_none_or(|first| scanned >= first.scanned) {
            self.lagging.remove(&key);
            match first {
                Some(first) => drop(first.lanes.insert(key)),
                // Without another cohort it leads.
                None => self.cohorts.push(LaneCohort { scanned, furthest: scanned, lanes: [key].into() }),
            }
            return Ok(true);
        }
        let mut now_scanned = scanned;
        let page = read(ledger, number, &mut now_scanned).await?;
        let mut failures = FilterStats::default();
        for record in page {
            let sequence = record.header.sequence;
            if sequence > end || !planner.has_room(key, now) {
                break;
            }
            if reading.subscription.matches(&record, &mut failures) && reading.takes(ledger, &record, &mut failures) {
                offer(&ledger.dispatch(), key, &reading.subscription, &record, planner, now);
            }
            now_scanned = sequence;
        }
        planner.set_scanned(key, now_scanned);
        Ok(now_scanned > scanned)
    }
}

/// A page after `scanned`, which skips removed events.
async fn read(ledger: &Ledger, number: TopicNumber, scanned: &mut Sequence) -> Result<Vec<Record>> {
    loop {
        match ledger.log().read(ReadRange::Topic(number, *scanned), PAGE).await {
            Err(LogError::Trimmed(earliest)) if earliest.get() > scanned.get() + 1 => {
                *scanned = Sequence(earliest.get() - 1);
            }
            Err(error) => return Err(unreadable(ledger, ReadRange::Topic(number, *scanned), error).await),
            Ok(page) => return Ok(page),
        }
    }
}

fn offer(
    rows: &DispatchRows,
    key: LaneKey,
    subscription: &CompiledSubscription,
    record: &Record,
    planner: &mut Planner,
    now: i64,
) {
    let sequence = record.header.sequence;
    let Some(lane) = rows.lane(key.lane) else { return };
    // Jobs with a row were offered when the lane was built.
    if lane.slot(sequence).is_some() {
        return;
    }
    let group = (subscription.mode != DispatchMode::Immediate).then(|| group_of(&record.body)).flatten();
    let stored = Some(CachedEvent { id: Uuid::from_u128(record.header.id), text: record.body.clone() });
    let event = EventArrival { time: record.header.time, bytes: u32::try_from(record.body.len()).unwrap_or(u32::MAX) };
    planner.offer(key, NewJob { sequence, group, event, stored }, now);
}

/// The fingerprint of an event's message group.
pub(super) fn group_of(text: &[u8]) -> Option<u64> {
    EventSummary::at(text)?.group().map(|group| tag(&group))
}
