//! Finding one record: by id from the oldest segment, by aggregate from the newest, by time with a binary search.

use super::frame::{self, HEADER_BYTES_MAX};
use super::index::{FrameLocation, LookupError, RecordOrder};
use super::segment_head::SegmentHead;
use super::state::{SealedSegment, SharedLog};
use super::trim_marks::TrimMarks;
use crate::{LogError, ReadLimit, ReadRange, RecordHeader, RecordQuery};
use contract::{Position, Sequence};
use std::sync::Arc;

/// How often a search may restart because a segment was rewritten during it.
const RETRIES_MAX: usize = 100;

const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };

/// A segment to search.
enum SearchSegment {
    Sealed(Arc<SealedSegment>),
    /// The growing segment, and how many records it had when the search began.
    Active(SegmentHead, u32),
}

impl SharedLog {
    /// The result, if the disk is not needed for it.
    pub(crate) fn find_hot(&self, what: RecordQuery) -> Option<Option<RecordHeader>> {
        let state = self.state();
        let (sealed, position) = match what {
            RecordQuery::Id(0) => return Some(None),
            RecordQuery::Id(id) => (
                state.sealed.iter().any(|segment| segment.index.may_hold_id(id)),
                state.active.as_ref().and_then(|active| active.index.first_of_id(id)),
            ),
            RecordQuery::Aggregate(key) => {
                let position = state.active.as_ref().and_then(|active| active.index.last_of_aggregate(key));
                let older = || state.sealed.iter().any(|segment| segment.index.may_hold_aggregate(key));
                (position.is_none() && older(), position)
            }
            RecordQuery::Time(_, time) => (time <= state.tail_time, None),
        };
        match position {
            _ if sealed => None,
            None => Some(None),
            Some(position) => {
                let header = state.hot.get(position)?.header;
                (!state.trim_marks.hides(&header)).then_some(Some(header))
            }
        }
    }

    /// The result, from the disk.
    pub(crate) fn find(&self, what: RecordQuery) -> Result<Option<RecordHeader>, LogError> {
        let mut retries = 0;
        loop {
            let found = match what {
                RecordQuery::Id(id) => self.find_id(id),
                RecordQuery::Time(topic, time) => {
                    self.find_time(topic.map_or(RecordOrder::Log, RecordOrder::Topic), time)
                }
                RecordQuery::Aggregate(key) => self.find_aggregate(key),
            };
            match found {
                Err(LookupError::Gone | LookupError::BadIndex) if retries < RETRIES_MAX => retries += 1,
                other => return other.map_err(|miss| self.lookup_failed(miss)),
            }
        }
    }

    fn find_id(&self, id: u128) -> Result<Option<RecordHeader>, LookupError> {
        let (sealed, active, marks) = {
            let state = self.state();
            let sealed: Vec<_> = state.sealed.iter().filter(|segment| segment.index.may_hold_id(id)).cloned().collect();
            let active = state.active.as_ref().map(|active| (active.head, active.index.ids(id)));
            (sealed, active, Arc::clone(&state.trim_marks))
        };
        let is_it = |header: &RecordHeader| header.id == id && !marks.hides(header);
        for segment in &sealed {
            let offsets = self.rebuild_on_bad_index(segment, segment.index.ids(&*self.disk, id))?;
            if let Some(header) = self.first_at(&segment.head, &offsets, is_it)? {
                return Ok(Some(header));
            }
        }
        active.map_or(Ok(None), |(head, offsets)| self.first_at(&head, &offsets, is_it))
    }

    fn find_aggregate(&self, key: u128) -> Result<Option<RecordHeader>, LookupError> {
        let (sealed, active, marks) = {
            let state = self.state();
            let candidates = state.sealed.iter().rev().filter(|segment| segment.index.may_hold_aggregate(key));
            let sealed: Vec<_> = candidates.cloned().collect();
            let active = state.active.as_ref().map(|active| (active.head, active.index.aggregate(key, usize::MAX)));
            (sealed, active, Arc::clone(&state.trim_marks))
        };
        let is_it = |header: &RecordHeader| !marks.hides(header);
        if let Some((head, offsets)) = active
            && let Some(header) = self.first_at(&head, &offsets, is_it)?
        {
            return Ok(Some(header));
        }
        for segment in &sealed {
            // The last one is the result unless it was removed; then all others of the aggregate, in the same topic, were too.
            for most in [1, usize::MAX] {
                let offsets = self.rebuild_on_bad_index(segment, segment.index.aggregate(&*self.disk, key, most))?;
                if let Some(header) = self.first_at(&segment.head, &offsets, is_it)? {
                    return Ok(Some(header));
                }
            }
        }
        Ok(None)
    }

    /// Searches for the first record at or after `time`, then reads from there, which skips removed records.
    fn find_time(&self, order: RecordOrder, time: i64) -> Result<Option<RecordHeader>, LookupError> {
        let Some((part, marks)) = self.part_at(order, time) else { return Ok(None) };
        let (mut low, mut high) = (0, self.count(&part, order));
        let mut first = None;
        while low < high {
            let middle = low.midpoint(high);
            let Some(place) = self.nth(&part, order, middle)? else { return Err(LookupError::Gone) };
            if self.header_at(part.head(), place.offset)?.time < time {
                low = middle + 1;
            } else {
                high = middle;
                first = Some(place.number);
            }
        }
        let Some(number) = first else { return Err(LookupError::Gone) };
        let range = match order {
            RecordOrder::Log => ReadRange::All(Position(number - 1)),
            RecordOrder::Topic(topic) => {
                ReadRange::Topic(topic, Sequence(number - 1).max(marks.removed_through(topic)))
            }
        };
        // Headers are enough: the event may be damaged.
        match self.read_headers(range, ONE) {
            Ok(headers) => Ok(headers.first().copied()),
            // Removed in the meantime: start again.
            Err(LogError::Trimmed(_)) => Err(LookupError::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// The segment that contains the first record at or after `time`.
    fn part_at(&self, order: RecordOrder, time: i64) -> Option<(SearchSegment, Arc<TrimMarks>)> {
        let state = self.state();
        let sealed = match order {
            RecordOrder::Log => {
                let at = state.sealed.partition_point(|segment| segment.summary.last_time < time);
                state.sealed.get(at)
            }
            RecordOrder::Topic(topic) => {
                let runs = state.runs(topic);
                let at = runs.partition_point(|run| run.last_time < time);
                runs.get(at).and_then(|run| state.sealed(run.base))
            }
        };
        let part = match sealed {
            Some(segment) => SearchSegment::Sealed(Arc::clone(segment)),
            None => {
                let active = state.active.as_ref()?;
                let (last_time, count) = match order {
                    RecordOrder::Log => (active.index.last_time()?, active.index.count() as u32),
                    RecordOrder::Topic(topic) => {
                        active.index.topic(topic).map(|topic| (topic.last_time, topic.count))?
                    }
                };
                (last_time >= time).then_some(SearchSegment::Active(active.head, count))?
            }
        };
        Some((part, Arc::clone(&state.trim_marks)))
    }

    fn count(&self, part: &SearchSegment, order: RecordOrder) -> u32 {
        match (part, order) {
            (SearchSegment::Active(_, count), _) => *count,
            (SearchSegment::Sealed(segment), RecordOrder::Log) => segment.summary.count,
            (SearchSegment::Sealed(segment), RecordOrder::Topic(topic)) => {
                segment.summary.topic(topic).map_or(0, |topic| topic.count)
            }
        }
    }

    fn nth(&self, part: &SearchSegment, order: RecordOrder, rank: u32) -> Result<Option<FrameLocation>, LookupError> {
        match part {
            SearchSegment::Sealed(segment) => {
                self.rebuild_on_bad_index(segment, segment.index.nth(&*self.disk, order, rank))
            }
            SearchSegment::Active(head, _) => {
                let state = self.state();
                let active = state.active.as_ref().filter(|active| active.head.name == head.name);
                Ok(active.ok_or(LookupError::Gone)?.index.nth(order, rank))
            }
        }
    }

    /// Passes the result of an index on; a bad index is rebuilt for the next attempt.
    fn rebuild_on_bad_index<T>(
        &self,
        segment: &Arc<SealedSegment>,
        found: Result<T, LookupError>,
    ) -> Result<T, LookupError> {
        if matches!(found, Err(LookupError::BadIndex)) {
            self.rebuild_index(segment)?;
        }
        found
    }

    fn first_at(
        &self,
        head: &SegmentHead,
        offsets: &[u64],
        is_it: impl Fn(&RecordHeader) -> bool,
    ) -> Result<Option<RecordHeader>, LookupError> {
        for offset in offsets {
            let header = self.header_at(head, *offset)?;
            if is_it(&header) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn header_at(&self, head: &SegmentHead, offset: u64) -> Result<RecordHeader, LookupError> {
        let file = head.name.file();
        let mut bytes = [0; HEADER_BYTES_MAX];
        let filled = self.disk.read(&file, offset, &mut bytes)?;
        let frame = frame::decode(bytes.get(..filled).unwrap_or_default(), head.salt);
        Ok(frame.map_err(|flaw| LogError::Damaged(self.damage(&file, offset, flaw)))?.header)
    }
}

impl SearchSegment {
    fn head(&self) -> &SegmentHead {
        match self {
            Self::Sealed(segment) => &segment.head,
            Self::Active(head, _) => head,
        }
    }
}
