//! Scanning: lanes walk along their topic together, and those that lag behind by themselves.
//!
//! - Who wants an event is one look-up by its type; lanes are asked for tenant and expression only where the type fits.
//! - A lane without room leaves the walk at the event it has no room for, and goes on from there when it has.
//! - After a start lanes that are near each other form a cohort, and each cohort begins at its own place: so nobody
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

/// A lane that reads a topic.
#[derive(Clone)]
pub(super) struct LaneReading {
    pub(super) subscription: Arc<CompiledSubscription>,
    /// The filters that the subscription had before.
    pub(super) earlier: Arc<[EarlierFilter]>,
    /// The last sequence it reads.
    pub(super) until: Option<Sequence>,
}

impl LaneReading {
    /// Whether an event that the filter matches is a job.
    fn takes(&self, ledger: &Ledger, record: &Record, failures: &mut FilterStats) -> bool {
        earlier_match(&self.earlier, record, failures)
            && !is_replaced(ledger, &self.subscription.code, record, self.until.is_some())
    }
}

/// Lanes walk together after a start if they are no further apart than this many events.
const COHORT_SPAN: u64 = 8192;
/// Most cohorts of one topic: each reads what the others have read.
const COHORTS_MAX: usize = 16;

/// Lanes that walk together.
struct LaneCohort {
    /// All of them were looked through to here, or further.
    scanned: Sequence,
    /// None of them was further when they came together.
    furthest: Sequence,
    lanes: BTreeSet<LaneKey>,
}

impl LaneCohort {
    /// How far apart its lanes would be with another one.
    fn span_with(&self, scanned: Sequence) -> u64 {
        self.furthest.max(scanned).get() - self.scanned.min(scanned).get()
    }
}

/// The walk along one topic.
#[derive(Default)]
pub(super) struct TopicFeeder {
    /// Lanes that walk together, the furthest ahead first. More than one only after a start.
    cohorts: Vec<LaneCohort>,
    /// Which of those behind the first one walks next.
    next_cohort: usize,
    lanes: BTreeMap<LaneKey, LaneReading>,
    /// Those that end somewhere.
    bounded: BTreeSet<LaneKey>,
    /// Those in no cohort.
    lagging: BTreeSet<LaneKey>,
    /// Which lanes want events of a type, by its fingerprint.
    index: HashMap<u64, Arc<Vec<LaneKey>>>,
}

impl TopicFeeder {
    /// A lane that was looked through to `scanned` takes part. `all_new`: nobody walks yet, and cohorts form.
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

    /// A lane walks neither with others nor by itself.
    fn leave(&mut self, key: LaneKey) {
        self.lagging.remove(&key);
        for cohort in &mut self.cohorts {
            cohort.lanes.remove(&key);
        }
        self.cohorts.retain(|cohort| !cohort.lanes.is_empty());
    }

    /// A lane joins the cohort it is nearest to, or begins one.
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

    /// The lanes that end somewhere.
    pub(super) fn bounded(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.bounded.iter().copied()
    }

    /// How far a lane has been looked through, by this walk.
    pub(super) fn scanned(&self, key: LaneKey) -> Option<Sequence> {
        let cursor = self.cohorts.iter().find(|cohort| cohort.lanes.contains(&key))?.scanned;
        Some(self.lanes.get(&key)?.until.map_or(cursor, |until| cursor.min(until)))
    }

    /// The last sequence a lane reads.
    pub(super) fn until(&self, key: LaneKey) -> Option<Sequence> {
        self.lanes.get(&key)?.until
    }

    /// Walks one page on; answers whether there is more to walk.
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
            // A lane that cannot read on holds up no other.
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
            // One of those behind at a time, so that the first one is not held up.
            self.next_cohort = self.next_cohort % (self.cohorts.len() - 1) + 1;
            match self.advance_cohort(ledger, (number, tail), self.next_cohort, planner, now).await {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = Some(error),
            }
            self.merge(self.next_cohort, planner);
        }
        failed.filter(|_| !moved).map_or(Ok(moved), Err)
    }

    /// Walks a cohort one page on; whether it moved.
    async fn advance_cohort(
        &mut self,
        ledger: &Ledger,
        (number, tail): (TopicNumber, Sequence),
        place: usize,
        planner: &mut Planner,
        now: i64,
    ) -> Result<bool> {
        let Some(mut cursor) = self.cohorts.get(place).map(|cohort| cohort.scanned).filter(|it| *it < tail) else {
            return Ok(false);
        };
        let page = read(ledger, number, &mut cursor).await?;
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

    /// A cohort that has caught up with the one ahead of it joins that.
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
        let event_type = EventSummary::at(&record.body).map(|peek| peek.event_type).unwrap_or_default();
        let wanted = self.lanes.iter().filter(|(_, reading)| reading.subscription.matches_type(&event_type));
        let wanted = Arc::new(wanted.map(|(key, _)| *key).collect::<Vec<_>>());
        self.index.insert(type_tag, Arc::clone(&wanted));
        wanted
    }

    /// Walks a lane on that lags behind; whether it moved.
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
                // With nobody ahead it leads.
                None => self.cohorts.push(LaneCohort { scanned, furthest: scanned, lanes: [key].into() }),
            }
            return Ok(true);
        }
        let mut cursor = scanned;
        let page = read(ledger, number, &mut cursor).await?;
        let mut failures = FilterStats::default();
        for record in page {
            let sequence = record.header.sequence;
            if sequence > end || !planner.has_room(key, now) {
                break;
            }
            if reading.subscription.matches(&record, &mut failures) && reading.takes(ledger, &record, &mut failures) {
                offer(&ledger.dispatch(), key, &reading.subscription, &record, planner, now);
            }
            cursor = sequence;
        }
        planner.set_scanned(key, cursor);
        Ok(cursor > scanned)
    }
}

/// A page behind the cursor, which skips what is gone.
async fn read(ledger: &Ledger, number: TopicNumber, cursor: &mut Sequence) -> Result<Vec<Record>> {
    loop {
        match ledger.log().read(ReadRange::Topic(number, *cursor), PAGE).await {
            Err(LogError::Trimmed(earliest)) if earliest.get() > cursor.get() + 1 => {
                *cursor = Sequence(earliest.get() - 1);
            }
            Err(error) => return Err(unreadable(ledger, ReadRange::Topic(number, *cursor), error).await),
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
    // Jobs with a story were offered with it.
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
