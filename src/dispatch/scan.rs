//! Scanning: one walk along a topic for all its lanes, and walks of their own for those that lag behind.
//!
//! - Who wants an event is one look-up by its type; lanes are asked for tenant and expression only where the type fits.
//! - A lane without room leaves the walk at the event it has no room for, and goes on from there when it has.

use super::lane::{LaneKey, Offer, Stored};
use super::planner::Planner;
use crate::filters::FilterFailures;
use crate::ledger::{DispatchRows, Ledger, read_failed, tag};
use crate::subscriptions::{Peek, Terms};
use contract::{DispatchMode, Result, Sequence};
use log::{Limit, LogError, Range, Record, TopicNumber};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const PAGE: Limit = Limit { records: 512, bytes: 1024 * 1024 };

/// A lane that reads a topic.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) terms: Arc<Terms>,
    /// The last sequence it reads.
    pub(super) until: Option<Sequence>,
}

/// The walk along one topic.
#[derive(Default)]
pub(super) struct Walk {
    cursor: Sequence,
    lanes: BTreeMap<LaneKey, Reading>,
    /// Those that end somewhere.
    bounded: BTreeSet<LaneKey>,
    /// Those that walk together.
    front: BTreeSet<LaneKey>,
    /// All the others.
    lagging: BTreeSet<LaneKey>,
    /// Which lanes want events of a type, by its fingerprint.
    index: HashMap<u64, Arc<Vec<LaneKey>>>,
}

impl Walk {
    /// A lane that was looked through to `scanned` takes part. `all_new`: nobody walks yet, so all start together.
    pub(super) fn put(&mut self, key: LaneKey, reading: Reading, scanned: Sequence, all_new: bool) {
        if all_new {
            self.cursor = if self.lanes.is_empty() { scanned } else { self.cursor.min(scanned) };
            self.lead(key);
        } else {
            self.fall_back(key);
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
        self.front.remove(&key);
        self.lagging.remove(&key);
        self.index.clear();
    }

    /// A lane walks with the others.
    fn lead(&mut self, key: LaneKey) {
        self.lagging.remove(&key);
        self.front.insert(key);
    }

    /// A lane walks by itself.
    fn fall_back(&mut self, key: LaneKey) {
        self.front.remove(&key);
        self.lagging.insert(key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lanes that end somewhere.
    pub(super) fn bounded(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.bounded.iter().copied()
    }

    /// How far a lane has been looked through, by this walk.
    pub(super) fn reached(&self, key: LaneKey) -> Option<Sequence> {
        let reading = self.lanes.get(&key).filter(|_| self.front.contains(&key))?;
        Some(reading.until.map_or(self.cursor, |until| self.cursor.min(until)))
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
        let mut moved = false;
        for key in self.lagging.iter().copied().collect::<Vec<_>>() {
            moved |= self.catch_up(ledger, (number, tail), key, planner, now).await?;
        }
        if self.front.is_empty() || self.cursor >= tail {
            return Ok(moved);
        }
        let page = read(ledger, number, &mut self.cursor).await?;
        let Some(last) = page.last().map(|record| record.header.sequence) else { return Ok(moved) };
        let mut failures = FilterFailures::default();
        for record in &page {
            self.offer_to_all(ledger, record, planner, &mut failures, now);
        }
        self.cursor = last;
        Ok(true)
    }

    fn offer_to_all(
        &mut self,
        ledger: &Ledger,
        record: &Record,
        planner: &mut Planner,
        failures: &mut FilterFailures,
        now: i64,
    ) {
        let Some(facets) = record.header.facets else { return };
        let wanted = match self.index.get(&facets.type_tag) {
            Some(wanted) => Arc::clone(wanted),
            None => self.look_up(facets.type_tag, record),
        };
        let sequence = record.header.sequence;
        for key in wanted.iter().filter(|key| self.front.contains(key)).copied().collect::<Vec<_>>() {
            let Some(reading) = self.lanes.get(&key) else { continue };
            let is_behind = planner.scanned(key).is_some_and(|scanned| scanned >= sequence);
            if is_behind || reading.until.is_some_and(|until| sequence > until) {
                continue;
            }
            if !planner.has_room(key, now) {
                planner.set_scanned(key, Sequence(sequence.get().saturating_sub(1)));
                self.fall_back(key);
                continue;
            }
            if reading.terms.takes(record, failures) {
                offer(&ledger.dispatch(), key, &reading.terms, record, planner, now);
            }
        }
    }

    fn look_up(&mut self, type_tag: u64, record: &Record) -> Arc<Vec<LaneKey>> {
        let event_type = Peek::at(&record.body).map(|peek| peek.event_type).unwrap_or_default();
        let wanted = self.lanes.iter().filter(|(_, reading)| reading.terms.takes_type(&event_type));
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
        if reading.until.is_none() && (self.front.is_empty() || scanned >= self.cursor) {
            // With nobody in front it leads.
            self.cursor = if self.front.is_empty() { scanned } else { self.cursor };
            self.lead(key);
            return Ok(true);
        }
        let mut cursor = scanned;
        let page = read(ledger, number, &mut cursor).await?;
        let mut failures = FilterFailures::default();
        for record in page {
            let sequence = record.header.sequence;
            if sequence > end || !planner.has_room(key, now) {
                break;
            }
            if reading.terms.wants(&record, &mut failures) {
                offer(&ledger.dispatch(), key, &reading.terms, &record, planner, now);
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
        match ledger.log().read(Range::Topic(number, *cursor), PAGE).await {
            Err(LogError::Trimmed(earliest)) if earliest.get() > cursor.get() + 1 => {
                *cursor = Sequence(earliest.get() - 1);
            }
            page => return page.map_err(read_failed),
        }
    }
}

fn offer(rows: &DispatchRows, key: LaneKey, terms: &Terms, record: &Record, planner: &mut Planner, now: i64) {
    let sequence = record.header.sequence;
    let Some(lane) = rows.lane(key.lane) else { return };
    // Jobs with a story were offered with it.
    if lane.slot(sequence).is_some() {
        return;
    }
    let group = (terms.mode != DispatchMode::Immediate).then(|| group_of(&record.body)).flatten();
    let mode = if group.is_none() { DispatchMode::Immediate } else { terms.mode };
    let stored = Some(Stored { id: Uuid::from_u128(record.header.id), text: record.body.clone() });
    planner.offer(key, Offer { sequence, group, mode, time: record.header.time, stored }, now);
}

/// The fingerprint of an event's message group.
pub(super) fn group_of(text: &[u8]) -> Option<u64> {
    Peek::at(text)?.group().map(|group| tag(&group))
}
