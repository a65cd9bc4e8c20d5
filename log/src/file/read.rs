//! Reading pages of records: from the hot tail if all of them are there, otherwise segment by segment from the disk.
//!
//! - A small page in the system's cache is read on the caller's thread; a large one, or one that must come from the disk, on
//!   another thread, which costs two wake-ups.
//! - A read is done in steps: find the next segment under the lock, then look up locations and fetch them without it.
//! - If a segment was rewritten, merged or dropped in the meantime, the step is repeated; the numbers are the same.
//! - Damage ends a page early; a read that starts at the damaged record gets the error.

use super::Disk;
use super::disk::CachedOnlyDisk;
use super::fetch::fetch;
use super::frame_scan::{self, ScannedIndex};
use super::index::{FrameLocation, LookupError, SegmentIndex};
use super::segment_head::SegmentHead;
use super::state::{LogState, SealedSegment, SharedLog};
use crate::{LogError, ReadLimit, ReadRange, Record, RecordHeader};
use contract::{AggregateSequence, Position, Sequence};
use std::io;
use std::sync::Arc;

/// How often a segment may disappear during one read; more often is not explained by rewrites.
const VANISHED_MAX: usize = 100;

/// Pages up to this size are read on the caller's thread if they are in the cache: a fraction of a millisecond.
const CACHED_READ_LIMIT: ReadLimit = ReadLimit { records: 256, bytes: 256 * 1024 };

/// The records read so far.
struct RecordPage {
    records: Vec<Record>,
    limit: ReadLimit,
    bytes: usize,
}

impl RecordPage {
    fn new(limit: ReadLimit) -> Self {
        Self { records: Vec::new(), limit, bytes: 0 }
    }

    /// Adds a record; `false` if it does not fit.
    fn take(&mut self, record: Record) -> bool {
        let bytes = self.bytes.saturating_add(record.body.len());
        if !self.records.is_empty() && (self.records.len() >= self.limit.records || bytes > self.limit.bytes) {
            return false;
        }
        self.bytes = bytes;
        self.records.push(record);
        true
    }

    /// What is left of the limit.
    fn room(&self) -> ReadLimit {
        ReadLimit {
            records: self.limit.records.saturating_sub(self.records.len()),
            bytes: self.limit.bytes.saturating_sub(self.bytes),
        }
    }

    /// Whether nothing more can fit. Bytes do not decide that: an empty body always fits.
    fn is_full(&self) -> bool {
        !self.records.is_empty() && self.room().records == 0
    }
}

/// The segment with the next records of a read.
enum SegmentSource {
    Sealed(Arc<SealedSegment>),
    /// Locations are looked up under the lock, because it grows.
    Active(SegmentHead, Vec<FrameLocation>),
}

/// A read in progress.
struct PageRead<'a> {
    shared: &'a SharedLog,
    disk: &'a dyn Disk,
    /// On the caller's thread: large pages and rebuilding indexes are left to a thread that may block.
    may_not_wait: bool,
    /// Whether bodies are verified; not if only headers are needed.
    check_bodies: bool,
    /// The rest of the range.
    range: ReadRange,
    page: RecordPage,
    /// Segments that end here or before have nothing more. Not by their first position: a segment that is merged with the one
    /// before it begins earlier.
    done: Position,
}

impl SharedLog {
    /// The page, if the disk is not needed for it.
    pub(crate) fn read_hot(&self, range: ReadRange, limit: ReadLimit) -> Option<Result<Vec<Record>, LogError>> {
        let state = self.state();
        if let Some(error) = trimmed(&state, range) {
            return Some(Err(error));
        }
        let at_end = match range {
            ReadRange::All(after) => after >= state.tail,
            ReadRange::Topic(topic, after) => after >= state.last_sequence(topic),
            ReadRange::Aggregate(..) => false,
        };
        if at_end {
            return Some(Ok(Vec::new()));
        }
        let records = state.hot.range(range)?.filter(|record| !state.trim_marks.hides(&record.header));
        let mut page = RecordPage::new(limit);
        let _all = records.cloned().all(|record| page.take(record));
        Some(Ok(page.records))
    }

    /// The page, if it is small and all of it is in the system's cache.
    pub(crate) fn read_cached(&self, range: ReadRange, limit: ReadLimit) -> Option<Vec<Record>> {
        self.read_without_waiting(&CachedOnlyDisk(&*self.disk), range, limit)
    }

    fn read_without_waiting(&self, disk: &dyn Disk, range: ReadRange, limit: ReadLimit) -> Option<Vec<Record>> {
        if limit.records > CACHED_READ_LIMIT.records {
            return None;
        }
        let mut reading = PageRead::new(self, disk, range, limit);
        reading.may_not_wait = true;
        loop {
            match reading.step() {
                Ok(true) => {}
                Ok(false) => return Some(reading.page.records),
                Err(_) => return None,
            }
        }
    }

    /// The page, from the disk.
    pub(crate) fn read(&self, range: ReadRange, limit: ReadLimit) -> Result<Vec<Record>, LogError> {
        self.read_all(PageRead::new(self, &*self.disk, range, limit))
    }

    /// The headers of the page, from the disk, even if bodies are damaged.
    pub(crate) fn read_headers(&self, range: ReadRange, limit: ReadLimit) -> Result<Vec<RecordHeader>, LogError> {
        let reading = PageRead { check_bodies: false, ..PageRead::new(self, &*self.disk, range, limit) };
        Ok(self.read_all(reading)?.into_iter().map(|record| record.header).collect())
    }

    fn read_all(&self, mut reading: PageRead<'_>) -> Result<Vec<Record>, LogError> {
        let mut vanished = 0;
        loop {
            match reading.step() {
                Ok(true) => {}
                Ok(false) => return Ok(reading.page.records),
                Err(LookupError::Gone | LookupError::BadIndex) if vanished < VANISHED_MAX => vanished += 1,
                Err(_) if !reading.page.records.is_empty() => return Ok(reading.page.records),
                Err(miss) => return Err(self.lookup_failed(miss)),
            }
        }
    }

    /// The error after all retries have failed.
    pub(crate) fn lookup_failed(&self, miss: LookupError) -> LogError {
        match miss {
            LookupError::Failed(error) => error,
            LookupError::Gone | LookupError::BadIndex => {
                io::Error::new(io::ErrorKind::NotFound, "a file of the log disappears again and again").into()
            }
        }
    }

    /// Rebuilds a sealed segment's index from its records; the background thread writes it to its file.
    pub(crate) fn rebuild_index(&self, segment: &Arc<SealedSegment>) -> Result<(), LookupError> {
        let head = segment.head;
        let live = match frame_scan::index(&*self.disk, &head)? {
            ScannedIndex::Intact(live) => *live,
            ScannedIndex::Damaged(offset, flaw) => {
                return Err(LogError::Damaged(self.damage(&head.name.file(), offset, flaw)).into());
            }
        };
        if let Some(summary) = live.summary() {
            let healed = SealedSegment { head, summary, index: SegmentIndex::Live(live) };
            self.state_mut().replace(segment, Arc::new(healed));
            // Without the background thread the index stays in RAM, which works as well.
            let _ = self.chores.send(super::background::BackgroundTask::Tidy);
        }
        Ok(())
    }
}

impl<'a> PageRead<'a> {
    fn new(shared: &'a SharedLog, disk: &'a dyn Disk, range: ReadRange, limit: ReadLimit) -> Self {
        let page = RecordPage::new(limit);
        Self { shared, disk, may_not_wait: false, check_bodies: true, range, page, done: Position::ZERO }
    }

    /// Reads from the next segment; `false` when the page is complete.
    fn step(&mut self) -> Result<bool, LookupError> {
        let (source, marks) = {
            let state = self.shared.state();
            if let Some(error) = trimmed(&state, self.range) {
                return Err(error.into());
            }
            let Some(source) = self.source(&state) else { return Ok(false) };
            (source, Arc::clone(&state.trim_marks))
        };
        let (head, places) = match &source {
            SegmentSource::Active(head, places) => (*head, places.clone()),
            SegmentSource::Sealed(segment) => (segment.head, self.places(segment)?),
        };
        let Some(last) = places.last() else {
            let SegmentSource::Sealed(segment) = &source else { return Ok(false) };
            self.done = segment.through();
            return Ok(true);
        };
        if self.may_not_wait && places.iter().map(|place| place.bytes).sum::<usize>() > CACHED_READ_LIMIT.bytes {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        let fetched = fetch(self.disk, &head.name.file(), &places)?;
        for (number, place) in places.iter().enumerate() {
            let record = fetched
                .record((number, place), self.range, head.salt, self.check_bodies)
                .map_err(|flaw| LogError::Damaged(self.shared.damage(&head.name.file(), place.offset, flaw)))?;
            if !marks.hides(&record.header) && !self.page.take(record) {
                return Ok(false);
            }
        }
        self.range = behind(self.range, last.number);
        Ok(!self.page.is_full())
    }

    /// The oldest segment that may hold more of the range.
    fn source(&self, state: &LogState) -> Option<SegmentSource> {
        let sealed = match self.range {
            ReadRange::All(after) => {
                let at = state
                    .sealed
                    .partition_point(|segment| segment.summary.last <= after || segment.through() <= self.done);
                state.sealed.get(at)
            }
            ReadRange::Topic(topic, after) => {
                let runs = state.runs(topic);
                let at = runs.partition_point(|run| run.last <= after || run.through <= self.done);
                runs.get(at).and_then(|run| state.sealed(run.base))
            }
            ReadRange::Aggregate(key, _) => {
                let at = state.sealed.partition_point(|segment| segment.through() <= self.done);
                state.sealed.iter().skip(at).find(|segment| segment.index.may_hold_aggregate(key))
            }
        };
        if let Some(segment) = sealed {
            return Some(SegmentSource::Sealed(Arc::clone(segment)));
        }
        let active = state.active.as_ref()?;
        Some(SegmentSource::Active(active.head, active.index.places(self.range, self.page.room())))
    }

    fn places(&self, segment: &Arc<SealedSegment>) -> Result<Vec<FrameLocation>, LookupError> {
        let places = segment.index.places(self.disk, self.range, self.page.room());
        if matches!(places, Err(LookupError::BadIndex)) && !self.may_not_wait {
            self.shared.rebuild_index(segment)?;
        }
        places
    }
}

/// The rest of a range after `number` was read.
fn behind(range: ReadRange, number: u64) -> ReadRange {
    match range {
        ReadRange::All(_) => ReadRange::All(Position(number)),
        ReadRange::Topic(topic, _) => ReadRange::Topic(topic, Sequence(number)),
        ReadRange::Aggregate(key, _) => ReadRange::Aggregate(key, AggregateSequence(number)),
    }
}

/// The error of a range that begins among removed records.
fn trimmed(state: &LogState, range: ReadRange) -> Option<LogError> {
    let ReadRange::Topic(topic, after) = range else { return None };
    let removed = state.trim_marks.removed_through(topic);
    (after < removed).then(|| LogError::Trimmed(removed.next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileLog, FileLogOptions};
    use crate::testing::fault_disk::FaultDisk;
    use crate::testing::{NO_LIMIT, RecordNumbering};
    use crate::{Log, TopicNumber};

    #[tokio::test]
    async fn only_a_small_page_at_hand_is_read_where_the_caller_is() {
        let log = FileLog::open(Arc::new(FaultDisk::new()), FileLogOptions::default()).unwrap();
        let mut batch = RecordNumbering::default().entries(&[1, 1, 1, 1]);
        batch[3].body = vec![b'x'; CACHED_READ_LIMIT.bytes].into();
        log.append(Position::ZERO, batch).await.unwrap();
        let range = ReadRange::Topic(TopicNumber(1), Sequence(0));
        let limit = |records| ReadLimit { records, ..NO_LIMIT };
        // As if the disk had everything in its cache.
        let read =
            |records| log.shared.read_without_waiting(&*log.shared.disk, range, limit(records)).map(|page| page.len());
        assert_eq!(read(3), Some(3));
        assert_eq!(read(4), None, "it is large");
        assert_eq!(read(CACHED_READ_LIMIT.records + 1), None, "it may be large");
        assert_eq!(log.shared.read_cached(range, limit(3)), None, "it is not in the cache");
    }

    /// The hot tail is read first and would have reported it; a removal may come between the two reads.
    #[tokio::test]
    async fn a_disk_read_that_begins_in_what_was_just_removed_is_told() {
        let log = FileLog::open(Arc::new(FaultDisk::new()), FileLogOptions::default()).unwrap();
        log.append(Position::ZERO, RecordNumbering::default().entries(&[1, 1, 1])).await.unwrap();
        log.remove(TopicNumber(1), Sequence(2)).await.unwrap();
        let read = |after| log.shared.read(ReadRange::Topic(TopicNumber(1), Sequence(after)), NO_LIMIT);
        assert!(matches!(read(1), Err(LogError::Trimmed(Sequence(3)))));
        assert_eq!(read(2).unwrap().len(), 1);
    }
}
