//! Reading pages of records: from the hot tail if they are all there, else segment by segment from the disk.
//!
//! - A small page that the system has in its cache is read where the caller is; only what the disk must fetch, or what is
//!   large, goes to another thread, which costs two wake-ups.
//! - A read goes in steps: under the lock find the next segment, outside it look up places and fetch them.
//! - A segment rewritten or dropped meanwhile is simply looked for again; its numbers are the same.
//! - Damage ends a page early; the read that starts at the damaged record is told.

use super::Disk;
use super::disk::AtHand;
use super::fetch::fetch;
use super::index::{Index, Miss, Place};
use super::scan;
use super::segment::SegmentHead;
use super::state::{Sealed, Shared, State};
use crate::{Header, Limit, LogError, Range, Record};
use contract::{AggregateSequence, Position, Sequence};
use std::io;
use std::sync::Arc;

/// How often a segment may vanish under one read before we stop believing in rewrites.
const VANISHED_MAX: usize = 100;

/// Pages up to this size are read where the caller is, if they are at hand: a fraction of a millisecond.
const AT_HAND: Limit = Limit { records: 256, bytes: 256 * 1024 };

/// The records read so far.
struct Page {
    records: Vec<Record>,
    limit: Limit,
    bytes: usize,
}

impl Page {
    fn new(limit: Limit) -> Self {
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
    fn room(&self) -> Limit {
        Limit {
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
enum Source {
    Sealed(Arc<Sealed>),
    /// Places are looked up under the lock, since it grows.
    Active(SegmentHead, Vec<Place>),
}

/// One read, on its way.
struct Reading<'a> {
    shared: &'a Shared,
    disk: &'a dyn Disk,
    /// On the caller's thread: large pages and repairs are left to one that may wait.
    hurried: bool,
    /// Whether a body must be what was written; not where only headers are wanted.
    check_bodies: bool,
    /// What is still to be read.
    range: Range,
    page: Page,
    /// Segments up to this base have nothing more.
    done: Position,
}

impl Shared {
    /// The page, if it can be answered without the disk.
    pub(crate) fn read_hot(&self, range: Range, limit: Limit) -> Option<Result<Vec<Record>, LogError>> {
        let state = self.state();
        if let Some(error) = trimmed(&state, range) {
            return Some(Err(error));
        }
        let at_end = match range {
            Range::All(after) => after >= state.tail,
            Range::Topic(topic, after) => after >= state.last_sequence(topic),
            Range::Aggregate(..) => false,
        };
        if at_end {
            return Some(Ok(Vec::new()));
        }
        let records = state.hot.range(range)?.filter(|record| !state.marks.hide(&record.header));
        let mut page = Page::new(limit);
        let _all = records.cloned().all(|record| page.take(record));
        Some(Ok(page.records))
    }

    /// The page, if it is small and the disk has all of it at hand.
    pub(crate) fn read_at_hand(&self, range: Range, limit: Limit) -> Option<Vec<Record>> {
        self.read_hurried(&AtHand(&*self.disk), range, limit)
    }

    fn read_hurried(&self, disk: &dyn Disk, range: Range, limit: Limit) -> Option<Vec<Record>> {
        if limit.records > AT_HAND.records {
            return None;
        }
        let mut reading = Reading::new(self, disk, range, limit);
        reading.hurried = true;
        loop {
            match reading.step() {
                Ok(true) => {}
                Ok(false) => return Some(reading.page.records),
                Err(_) => return None,
            }
        }
    }

    /// The page, from the disk.
    pub(crate) fn read(&self, range: Range, limit: Limit) -> Result<Vec<Record>, LogError> {
        self.read_all(Reading::new(self, &*self.disk, range, limit))
    }

    /// The headers of the page, from the disk, whether or not its bodies are what was written.
    pub(crate) fn read_headers(&self, range: Range, limit: Limit) -> Result<Vec<Header>, LogError> {
        let reading = Reading { check_bodies: false, ..Reading::new(self, &*self.disk, range, limit) };
        Ok(self.read_all(reading)?.into_iter().map(|record| record.header).collect())
    }

    fn read_all(&self, mut reading: Reading<'_>) -> Result<Vec<Record>, LogError> {
        let mut vanished = 0;
        loop {
            match reading.step() {
                Ok(true) => {}
                Ok(false) => return Ok(reading.page.records),
                Err(Miss::Gone | Miss::BadIndex) if vanished < VANISHED_MAX => vanished += 1,
                Err(_) if !reading.page.records.is_empty() => return Ok(reading.page.records),
                Err(miss) => return Err(self.give_up(miss)),
            }
        }
    }

    /// What a reader is told when looking again does not help.
    pub(crate) fn give_up(&self, miss: Miss) -> LogError {
        match miss {
            Miss::Failed(error) => error,
            Miss::Gone | Miss::BadIndex => {
                io::Error::new(io::ErrorKind::NotFound, "a file of the log keeps vanishing").into()
            }
        }
    }

    /// Rebuilds a sealed segment's index from its records; the keeper writes it down.
    pub(crate) fn heal(&self, segment: &Arc<Sealed>) -> Result<(), Miss> {
        let head = segment.head;
        let live = scan::index(&*self.disk, &head)?
            .map_err(|(offset, flaw)| LogError::Damaged(self.damage(&head.name.file(), offset, flaw)))?;
        if let Some(summary) = live.summary() {
            let healed = Sealed { head, summary, index: Index::Live(live) };
            self.state_mut().replace(segment, Arc::new(healed));
            // Without a keeper the index stays in RAM, which serves as well.
            let _ = self.chores.send(super::keeper::Chore::Tidy);
        }
        Ok(())
    }
}

impl<'a> Reading<'a> {
    fn new(shared: &'a Shared, disk: &'a dyn Disk, range: Range, limit: Limit) -> Self {
        let page = Page::new(limit);
        Self { shared, disk, hurried: false, check_bodies: true, range, page, done: Position::ZERO }
    }

    /// Reads on; `false` when the page is complete.
    fn step(&mut self) -> Result<bool, Miss> {
        let (source, marks) = {
            let state = self.shared.state();
            if let Some(error) = trimmed(&state, self.range) {
                return Err(error.into());
            }
            let Some(source) = self.source(&state) else { return Ok(false) };
            (source, Arc::clone(&state.marks))
        };
        let (head, places) = match &source {
            Source::Active(head, places) => (*head, places.clone()),
            Source::Sealed(segment) => (segment.head, self.places(segment)?),
        };
        let Some(last) = places.last() else {
            self.done = head.name.base;
            return Ok(matches!(source, Source::Sealed(_)));
        };
        if self.hurried && places.iter().map(|place| place.bytes).sum::<usize>() > AT_HAND.bytes {
            return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
        }
        let fetched = fetch(self.disk, &head.name.file(), &places)?;
        for (number, place) in places.iter().enumerate() {
            let record = fetched
                .record((number, place), self.range, head.salt, self.check_bodies)
                .map_err(|flaw| LogError::Damaged(self.shared.damage(&head.name.file(), place.offset, flaw)))?;
            if !marks.hide(&record.header) && !self.page.take(record) {
                return Ok(false);
            }
        }
        self.range = behind(self.range, last.number);
        Ok(!self.page.is_full())
    }

    /// The oldest segment that may hold more of the range.
    fn source(&self, state: &State) -> Option<Source> {
        let sealed = match self.range {
            Range::All(after) => {
                let at = state
                    .sealed
                    .partition_point(|segment| segment.summary.last <= after || segment.name().base <= self.done);
                state.sealed.get(at)
            }
            Range::Topic(topic, after) => {
                let runs = state.runs(topic);
                let at = runs.partition_point(|run| run.last <= after || run.base <= self.done);
                runs.get(at).and_then(|run| state.sealed(run.base))
            }
            Range::Aggregate(key, _) => {
                let at = state.sealed.partition_point(|segment| segment.name().base <= self.done);
                state.sealed.iter().skip(at).find(|segment| segment.index.may_hold_aggregate(key))
            }
        };
        if let Some(segment) = sealed {
            return Some(Source::Sealed(Arc::clone(segment)));
        }
        let active = state.active.as_ref()?;
        Some(Source::Active(active.head, active.index.places(self.range, self.page.room())))
    }

    fn places(&self, segment: &Arc<Sealed>) -> Result<Vec<Place>, Miss> {
        let places = segment.index.places(self.disk, self.range, self.page.room());
        if matches!(places, Err(Miss::BadIndex)) && !self.hurried {
            self.shared.heal(segment)?;
        }
        places
    }
}

/// What is left of a range once `number` was read.
fn behind(range: Range, number: u64) -> Range {
    match range {
        Range::All(_) => Range::All(Position(number)),
        Range::Topic(topic, _) => Range::Topic(topic, Sequence(number)),
        Range::Aggregate(key, _) => Range::Aggregate(key, AggregateSequence(number)),
    }
}

/// Whether a range begins in what was removed.
fn trimmed(state: &State, range: Range) -> Option<LogError> {
    let Range::Topic(topic, after) = range else { return None };
    let removed = state.marks.removed_through(topic);
    (after < removed).then(|| LogError::Trimmed(removed.next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileLog, Options};
    use crate::testing::fault_disk::FaultDisk;
    use crate::testing::{NO_LIMIT, Numbering};
    use crate::{Log, TopicNumber};

    #[tokio::test]
    async fn only_a_small_page_at_hand_is_read_where_the_caller_is() {
        let log = FileLog::open(Arc::new(FaultDisk::new()), Options::default()).unwrap();
        let mut batch = Numbering::default().entries(&[1, 1, 1, 1]);
        batch[3].body = vec![b'x'; AT_HAND.bytes].into();
        log.append(Position::ZERO, batch).await.unwrap();
        let range = Range::Topic(TopicNumber(1), Sequence(0));
        let limit = |records| Limit { records, ..NO_LIMIT };
        // As of a disk that has everything at hand.
        let read = |records| log.shared.read_hurried(&*log.shared.disk, range, limit(records)).map(|page| page.len());
        assert_eq!(read(3), Some(3));
        assert_eq!(read(4), None, "it is large");
        assert_eq!(read(AT_HAND.records + 1), None, "it may be large");
        assert_eq!(log.shared.read_at_hand(range, limit(3)), None, "it is not at hand");
    }

    /// The hot tail is asked first and would have said so; a removal may come between the two.
    #[tokio::test]
    async fn a_disk_read_that_begins_in_what_was_just_removed_is_told() {
        let log = FileLog::open(Arc::new(FaultDisk::new()), Options::default()).unwrap();
        log.append(Position::ZERO, Numbering::default().entries(&[1, 1, 1])).await.unwrap();
        log.remove(TopicNumber(1), Sequence(2)).await.unwrap();
        let read = |after| log.shared.read(Range::Topic(TopicNumber(1), Sequence(after)), NO_LIMIT);
        assert!(matches!(read(1), Err(LogError::Trimmed(Sequence(3)))));
        assert_eq!(read(2).unwrap().len(), 1);
    }
}
