//! The last segment: which batches in it are whole, and whether what follows was torn or damaged.

use super::Disk;
use super::frame::Frame;
use super::scan::{Found, Step, Walk};
use super::segment::{HEAD_BYTES, SegmentHead};
use super::state::Active;
use contract::Position;
use std::io;

/// What the last segment holds.
pub(crate) struct LastSegment {
    pub(crate) head: SegmentHead,
    /// Its whole batches, indexed.
    pub(crate) active: Active,
    /// Where the last of them begins.
    pub(crate) last_batch_at: u64,
    /// Where the first bad bytes are, and what is wrong with them.
    pub(crate) flaw: Option<(u64, String)>,
    /// Whether a batch written after the bad one is there: then the bad one was once whole and answered.
    pub(crate) later_batch_follows: bool,
}

impl LastSegment {
    /// Walks the segment, body checksums and all.
    pub(crate) fn read(disk: &dyn Disk, head: SegmentHead) -> io::Result<Self> {
        let active = Active::empty(head);
        let mut last = Self { head, active, last_batch_at: HEAD_BYTES as u64, flaw: None, later_batch_follows: false };
        let mut walk = Walk::whole(disk, &head);
        let mut batch = Vec::new();
        while last.flaw.is_none() {
            match walk.step()? {
                Step::Frame(found) => last.take(&mut batch, found),
                Step::Flaw(flaw) => last.flaw = Some((walk.offset(), flaw.to_string())),
                Step::End if batch.is_empty() => break,
                Step::End => last.flaw = Some((walk.offset(), "the last batch is not complete".to_owned())),
            }
        }
        if let Some((offset, _)) = &last.flaw {
            let torn = last.next_position();
            last.later_batch_follows = walk.search(*offset, |frame| frame.batch_start() != torn)?.is_some();
        }
        Ok(last)
    }

    /// Takes one more frame; the batch it ends becomes part of the segment.
    fn take(&mut self, batch: &mut Vec<Frame>, found: Found) {
        let wrong = match (found.body, self.unexpected(batch, &found.frame)) {
            (Err(flaw), _) => Some(flaw.to_string()),
            (Ok(()), unexpected) => unexpected.map(str::to_owned),
        };
        if wrong.is_some() {
            self.flaw = wrong.map(|reason| (found.offset, reason));
            return;
        }
        batch.push(found.frame);
        if found.frame.slot.last {
            self.last_batch_at = self.active.index.bytes();
            batch.drain(..).for_each(|frame| self.active.index.push(&frame.header, frame.bytes()));
        }
    }

    /// What is wrong with the numbers of a frame behind the unfinished `batch`.
    fn unexpected(&self, batch: &[Frame], frame: &Frame) -> Option<&'static str> {
        let before = batch.last().map(|frame| frame.header);
        let time = before.map(|header| header.time).or(self.active.index.last_time()).unwrap_or(self.head.time_floor);
        let in_batch = batch.iter().rev().find(|earlier| earlier.header.topic == frame.header.topic);
        let sequence = in_batch.map(|earlier| earlier.header.sequence);
        let sequence = sequence.or(self.active.index.topic(frame.header.topic).map(|topic| topic.last));
        if frame.header.position.get() != self.next_position() + batch.len() as u64 {
            Some("a record's position does not follow the one before it")
        } else if frame.slot.index as usize != batch.len() {
            Some("a record is not where it should be in its batch")
        } else if frame.header.time < time {
            Some("a record's time is before the one before it")
        } else if sequence.is_some_and(|sequence| frame.header.sequence <= sequence) {
            Some("a record's sequence does not follow the one before it")
        } else {
            None
        }
    }

    /// The position behind the last whole batch.
    fn next_position(&self) -> u64 {
        self.active.index.last().map_or(self.head.name.base, Position::next).get()
    }
}

/// Writes the last batch over itself and syncs. A process that was killed may have left it unsynced; one whose sync
/// failed may have left it in memory, marked clean, and never on the disk. Readers see it from now on, so it must be.
/// Of a first batch, or none, the same is true of the segment's head.
pub(crate) fn store_again(disk: &dyn Disk, last: &LastSegment) -> io::Result<()> {
    let (file, end) = (last.head.name.file(), last.active.index.bytes());
    let start = if last.last_batch_at == HEAD_BYTES as u64 { 0 } else { last.last_batch_at };
    let mut bytes = vec![0; (end - start) as usize];
    if disk.read(&file, start, &mut bytes)? == bytes.len() {
        disk.write(&file, start, &bytes)?;
    }
    disk.sync(Some(&file))
}
