//! Finding one record: by id from the oldest segment on, by aggregate from the newest, by time by halving.

use super::frame::{self, HEADER_BYTES_MAX};
use super::index::{Miss, Order, Place};
use super::marks::Marks;
use super::segment::SegmentHead;
use super::state::{Sealed, Shared};
use crate::{Find, Header, Limit, LogError, Range};
use contract::{Position, Sequence};
use std::sync::Arc;

/// How often a search may start again because a segment was rewritten under it.
const RETRIES_MAX: usize = 100;

const ONE: Limit = Limit { records: 1, bytes: 0 };

/// Where a search looks next.
enum Part {
    Sealed(Arc<Sealed>),
    /// The growing segment, and what it held when the search began.
    Active(SegmentHead, u32),
}

impl Shared {
    /// The answer, if it can be given without the disk.
    pub(crate) fn find_hot(&self, what: Find) -> Option<Option<Header>> {
        let state = self.state();
        let (sealed, position) = match what {
            Find::Id(0) => return Some(None),
            Find::Id(id) => (
                state.sealed.iter().any(|segment| segment.index.may_hold_id(id)),
                state.active.as_ref().and_then(|active| active.index.first_of_id(id)),
            ),
            Find::Aggregate(key) => {
                let position = state.active.as_ref().and_then(|active| active.index.last_of_aggregate(key));
                let older = || state.sealed.iter().any(|segment| segment.index.may_hold_aggregate(key));
                (position.is_none() && older(), position)
            }
            Find::Time(_, time) => (time <= state.tail_time, None),
        };
        match position {
            _ if sealed => None,
            None => Some(None),
            Some(position) => {
                let header = state.hot.get(position)?.header;
                (!state.marks.hide(&header)).then_some(Some(header))
            }
        }
    }

    /// The answer, from the disk.
    pub(crate) fn find(&self, what: Find) -> Result<Option<Header>, LogError> {
        let mut retries = 0;
        loop {
            let found = match what {
                Find::Id(id) => self.find_id(id),
                Find::Time(topic, time) => self.find_time(topic.map_or(Order::Log, Order::Topic), time),
                Find::Aggregate(key) => self.find_aggregate(key),
            };
            match found {
                Err(Miss::Gone | Miss::BadIndex) if retries < RETRIES_MAX => retries += 1,
                other => return other.map_err(|miss| self.give_up(miss)),
            }
        }
    }

    fn find_id(&self, id: u128) -> Result<Option<Header>, Miss> {
        let (sealed, active, marks) = {
            let state = self.state();
            let sealed: Vec<_> = state.sealed.iter().filter(|segment| segment.index.may_hold_id(id)).cloned().collect();
            let active = state.active.as_ref().map(|active| (active.head, active.index.ids(id)));
            (sealed, active, Arc::clone(&state.marks))
        };
        let is_it = |header: &Header| header.id == id && !marks.hide(header);
        for segment in &sealed {
            let offsets = self.healing(segment, segment.index.ids(&*self.disk, id))?;
            if let Some(header) = self.first_at(&segment.head, &offsets, is_it)? {
                return Ok(Some(header));
            }
        }
        active.map_or(Ok(None), |(head, offsets)| self.first_at(&head, &offsets, is_it))
    }

    fn find_aggregate(&self, key: u128) -> Result<Option<Header>, Miss> {
        let (sealed, active, marks) = {
            let state = self.state();
            let candidates = state.sealed.iter().rev().filter(|segment| segment.index.may_hold_aggregate(key));
            let sealed: Vec<_> = candidates.cloned().collect();
            let active = state.active.as_ref().map(|active| (active.head, active.index.aggregate(key, usize::MAX)));
            (sealed, active, Arc::clone(&state.marks))
        };
        let is_it = |header: &Header| !marks.hide(header);
        if let Some((head, offsets)) = active
            && let Some(header) = self.first_at(&head, &offsets, is_it)?
        {
            return Ok(Some(header));
        }
        for segment in &sealed {
            // The last one is the answer unless it was removed, which for an aggregate of one topic all others are too.
            for most in [1, usize::MAX] {
                let offsets = self.healing(segment, segment.index.aggregate(&*self.disk, key, most))?;
                if let Some(header) = self.first_at(&segment.head, &offsets, is_it)? {
                    return Ok(Some(header));
                }
            }
        }
        Ok(None)
    }

    /// Halves down to the first record at or after `time`, then reads from there, which skips what was removed.
    fn find_time(&self, order: Order, time: i64) -> Result<Option<Header>, Miss> {
        let Some((part, marks)) = self.part_at(order, time) else { return Ok(None) };
        let (mut low, mut high) = (0, self.count(&part, order));
        let mut first = None;
        while low < high {
            let middle = low.midpoint(high);
            let Some(place) = self.nth(&part, order, middle)? else { return Err(Miss::Gone) };
            if self.header_at(part.head(), place.offset)?.time < time {
                low = middle + 1;
            } else {
                high = middle;
                first = Some(place.number);
            }
        }
        let Some(number) = first else { return Err(Miss::Gone) };
        let range = match order {
            Order::Log => Range::All(Position(number - 1)),
            Order::Topic(topic) => Range::Topic(topic, Sequence(number - 1).max(marks.removed_through(topic))),
        };
        match self.read(range, ONE) {
            Ok(records) => Ok(records.first().map(|record| record.header)),
            // Removed meanwhile: start again.
            Err(LogError::Trimmed(_)) => Err(Miss::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// The segment in which time reaches `time`.
    fn part_at(&self, order: Order, time: i64) -> Option<(Part, Arc<Marks>)> {
        let state = self.state();
        let sealed = match order {
            Order::Log => {
                let at = state.sealed.partition_point(|segment| segment.summary.last_time < time);
                state.sealed.get(at)
            }
            Order::Topic(topic) => {
                let runs = state.runs(topic);
                let at = runs.partition_point(|run| run.last_time < time);
                runs.get(at).and_then(|run| state.sealed(run.base))
            }
        };
        let part = match sealed {
            Some(segment) => Part::Sealed(Arc::clone(segment)),
            None => {
                let active = state.active.as_ref()?;
                let (last_time, count) = match order {
                    Order::Log => (active.index.last_time()?, active.index.count() as u32),
                    Order::Topic(topic) => active.index.topic(topic).map(|topic| (topic.last_time, topic.count))?,
                };
                (last_time >= time).then_some(Part::Active(active.head, count))?
            }
        };
        Some((part, Arc::clone(&state.marks)))
    }

    fn count(&self, part: &Part, order: Order) -> u32 {
        match (part, order) {
            (Part::Active(_, count), _) => *count,
            (Part::Sealed(segment), Order::Log) => segment.summary.count,
            (Part::Sealed(segment), Order::Topic(topic)) => segment.summary.topic(topic).map_or(0, |topic| topic.count),
        }
    }

    fn nth(&self, part: &Part, order: Order, rank: u32) -> Result<Option<Place>, Miss> {
        match part {
            Part::Sealed(segment) => self.healing(segment, segment.index.nth(&*self.disk, order, rank)),
            Part::Active(head, _) => {
                let state = self.state();
                let active = state.active.as_ref().filter(|active| active.head.name == head.name);
                Ok(active.ok_or(Miss::Gone)?.index.nth(order, rank))
            }
        }
    }

    /// Passes on what an index said; a bad one is rebuilt for the next try.
    fn healing<T>(&self, segment: &Arc<Sealed>, said: Result<T, Miss>) -> Result<T, Miss> {
        if matches!(said, Err(Miss::BadIndex)) {
            self.heal(segment)?;
        }
        said
    }

    fn first_at(
        &self,
        head: &SegmentHead,
        offsets: &[u64],
        is_it: impl Fn(&Header) -> bool,
    ) -> Result<Option<Header>, Miss> {
        for offset in offsets {
            let header = self.header_at(head, *offset)?;
            if is_it(&header) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn header_at(&self, head: &SegmentHead, offset: u64) -> Result<Header, Miss> {
        let file = head.name.file();
        let mut bytes = [0; HEADER_BYTES_MAX];
        let filled = self.disk.read(&file, offset, &mut bytes)?;
        let frame = frame::decode(bytes.get(..filled).unwrap_or_default(), head.salt);
        Ok(frame.map_err(|flaw| LogError::Damaged(self.damage(&file, offset, flaw)))?.header)
    }
}

impl Part {
    fn head(&self) -> &SegmentHead {
        match self {
            Self::Sealed(segment) => &segment.head,
            Self::Active(head, _) => head,
        }
    }
}
