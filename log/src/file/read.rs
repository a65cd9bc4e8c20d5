//! Reading pages of records: from the hot tail if they are all there, else segment by segment from the disk.
//!
//! - A small page that the system has in its cache is read where the caller is; only what the disk must fetch, or what is
//!   large, goes to another thread, which costs two wake-ups.
//! - A read goes in steps: under the lock find the next segment, outside it look up places and fetch them.
//! - A segment rewritten or dropped meanwhile is simply looked for again; its numbers are the same.
//! - Damage ends a page early; the read that starts at the damaged record is told.

use super::Disk;
use super::disk::CachedOnlyDisk;
use super::fetch::fetch;
use super::frame_scan;
use super::index::{FrameLocation, LookupError, SegmentIndex};
use super::segment_head::SegmentHead;
use super::state::{LogState, SealedSegment, SharedLog};
use crate::{LogError, ReadLimit, ReadRange, Record, RecordHeader};
use contract::{AggregateSequence, Position, Sequence};
use std::io;
use std::sync::Arc;

/// How often a segment may vanish under one read before we stop believing in rewrites.
const VANISHED_MAX: usize = 100;

/// Pages up to this size are read where the caller is, if they are at hand: a fraction of a millisecond.
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

    /// Takes one more record; `false` if it does not fit.
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

    /// Whether nothing more can fit. Bytes do not tell: an empty body always does.
    fn is_full(&self) -> bool {
        !self.records.is_empty() && self.room().records == 0
    }
}

/// Where the next records of a read lie.
enum SegmentSource {
    Sealed(Arc<SealedSegment>),
    /// Places are looked up under the lock, since it grows.
    Active(SegmentHead, Vec<FrameLocation>),
}

/// One read, on its way.
struct PageRead<'a> {
    shared: &'a SharedLog,
    disk: &'a dyn Disk,
    /// On the caller's thread: large pages and repairs are left to one that may wait.
    may_not_wait: bool,
    /// Whether a body must be what was written; not where only headers are wanted.
    check_bodies: bool,
    /// What is still to be read.
    range: ReadRange,
    page: RecordPage,
    /// Segments that end here or before have nothing more. Not by their first position: a segment that is merged with the one
    /// before it begins earlier.
    done: Position,
}

impl SharedLog {
    /// The page, if it can be answered without the disk.
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

    /// The page, if it is small and the disk has all of it at hand.
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

    /// The headers of the page, from the disk, whether or not its bodies are what was written.
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

    /// What a reader is told when looking again does not help.
    pub(crate) fn lookup_failed(&self, miss: LookupError) -> LogError {
        match miss {
            LookupError::Failed(error) => error,
            LookupError::Gone | LookupError::BadIndex => {
                io::Error::new(io::ErrorKind::NotFound, "a file of the log keeps vanishing").into()
            }
        }
    }

    /// Rebuilds a sealed segment's index from its records; the keeper writes it down.
    pub(crate) fn rebuild_index(&self, segment: &Arc<SealedSegment>) -> Result<(), LookupError> {
        let head = segment.head;
        let live = frame_scan::index(&*self.disk, &head)?
            .map_err(|(offset, flaw)| LogError::Damaged(self.damage(&head.name.file(), offset, flaw)))?;
        if let Some(summary) = live.summary() {
            let healed = SealedSegment { head, summary, index: SegmentIndex::Live(live) };
            self.state_mut().replace(segment, Arc::new(healed));
            // Without a keeper the index stays in RAM, which serves as well.
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

    /// Reads on; `false` when the page is complete.
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

/// What is left of a range once `number` was read.
fn behind(range: ReadRange, number: u64) -> ReadRange {
    match range {
        ReadRange::All(_) => ReadRange::All(Position(number)),
        ReadRange::Topic(topic, _) => ReadRange::Topic(topic, Sequence(number)),
        ReadRange::Aggregate(key, _) => ReadRange::Aggregate(key, AggregateSequence(number)),
    }
}

/// Whether a range begins in what was removed.
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
        // As of a disk that has everything at hand.
        let read =
            |records| log.shared.read_without_waiting(&*log.shared.disk, range, limit(records)).map(|page| page.len());
        assert_eq!(read(3), Some(3));
        assert_eq!(read(4), None, "it is large");
        assert_eq!(read(CACHED_READ_LIMIT.records + 1), None, "it may be large");
        assert_eq!(log.shared.read_cached(range, limit(3)), None, "it is not at hand");
    }

    /// The hot tail is asked first and would have said so; a removal may come between the two.
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
