//! The last segment: which batches in it are complete, and whether the rest is torn or damaged.
//!
//! - A batch is complete if all its headers are there and the last has its flag. Bodies matter only in the very last batch: a
//!   bad body there looks like a torn append, unless something proves that the batch was complete once. Anywhere else a bad
//!   body affects only its record.
//! - Two things prove that: a frame of a later batch, because each append is synced before the next is written, and a
//!   position known to be acknowledged.

use super::Disk;
use super::frame::FrameFlaw;
use super::frame_scan::{FrameScanner, ScanStep, ScannedFrame};
use super::segment_head::{HEAD_BYTES, SegmentHead};
use super::state::ActiveSegment;
use crate::RecordHeader;
use contract::{Position, Sequence};
use std::io;

/// The last segment.
pub(crate) struct LastSegment {
    /// Its complete batches, indexed.
    pub(crate) active: ActiveSegment,
    /// Where they end, and what follows.
    pub(crate) tail: SegmentTail,
}

/// The end of the last segment.
#[derive(Debug)]
pub(crate) struct SegmentTail {
    pub(crate) head: SegmentHead,
    /// Where the complete batches end.
    pub(crate) end: u64,
    /// Where the last of them begins.
    pub(crate) last_batch_at: u64,
    /// The offset of the first bytes that belong to no complete batch, and what is wrong with them.
    pub(crate) flaw: Option<(u64, String)>,
    /// Whether those were complete and acknowledged once: then they are damaged, not torn.
    pub(crate) is_damage: bool,
    /// Records of complete batches whose bodies are damaged.
    pub(crate) bad_bodies: Vec<(u64, FrameFlaw)>,
}

impl LastSegment {
    /// Scans the segment, and verifies bodies. Everything through `acknowledged` was complete once.
    pub(crate) fn read(disk: &dyn Disk, head: SegmentHead, acknowledged: Position) -> io::Result<Self> {
        let mut reading = TailScan { head, active: ActiveSegment::empty(head), ..TailScan::new(head) };
        let mut walk = FrameScanner::whole(disk, &head);
        while reading.flaw.is_none() {
            match walk.step()? {
                ScanStep::Frame(found) => reading.take(found),
                ScanStep::Flaw(flaw) => reading.flaw = Some((walk.offset(), flaw.to_string())),
                ScanStep::End if reading.batch.is_empty() => break,
                ScanStep::End => reading.flaw = Some((walk.offset(), "the last batch is not complete".to_owned())),
            }
        }
        reading.settle_suspect(disk, acknowledged)?;
        let mut is_damage = false;
        if let Some((offset, _)) = &reading.flaw {
            let next = reading.next_position();
            is_damage = acknowledged.get() >= next || later_batch(disk, &head, *offset, next)?;
        }
        let TailScan { head, active, last_batch_at, flaw, bad_bodies, .. } = reading;
        let end = active.index.bytes();
        Ok(Self { active, tail: SegmentTail { head, end, last_batch_at, flaw, is_damage, bad_bodies } })
    }
}

/// Whether a frame of another batch than the one that begins with position `batch` follows after `offset`.
fn later_batch(disk: &dyn Disk, head: &SegmentHead, offset: u64, batch: u64) -> io::Result<bool> {
    Ok(FrameScanner::whole(disk, head).search(offset, |frame| frame.batch_start() != batch)?.is_some())
}

/// The scan so far.
struct TailScan {
    head: SegmentHead,
    active: ActiveSegment,
    last_batch_at: u64,
    /// A batch with all its headers and a bad body that is the last one so far: torn, unless something follows.
    suspect: Vec<ScannedFrame>,
    /// The batch that is not complete yet.
    batch: Vec<ScannedFrame>,
    flaw: Option<(u64, String)>,
    bad_bodies: Vec<(u64, FrameFlaw)>,
}

impl TailScan {
    fn new(head: SegmentHead) -> Self {
        let (suspect, batch, bad_bodies) = (Vec::new(), Vec::new(), Vec::new());
        let last_batch_at = HEAD_BYTES as u64;
        Self { head, active: ActiveSegment::empty(head), last_batch_at, suspect, batch, flaw: None, bad_bodies }
    }

    /// Adds a frame; if it ends a batch, that becomes part of the segment, or is kept as possibly torn.
    fn take(&mut self, found: ScannedFrame) {
        if let Some(reason) = self.unexpected(&found) {
            self.flaw = Some((found.offset, reason.to_owned()));
            return;
        }
        // It belongs to a later batch, so the one before it was complete.
        self.admit_suspect();
        self.batch.push(found);
        if found.frame.slot.last {
            let batch = std::mem::take(&mut self.batch);
            if batch.iter().any(|found| found.body.is_err()) {
                self.suspect = batch;
            } else {
                self.admit(batch);
            }
        }
    }

    fn admit(&mut self, batch: Vec<ScannedFrame>) {
        self.last_batch_at = self.active.index.bytes();
        for ScannedFrame { offset, frame, body } in batch {
            self.active.index.push(&frame.header, frame.bytes());
            self.bad_bodies.extend(body.err().map(|flaw| (offset, flaw)));
        }
    }

    fn admit_suspect(&mut self) {
        if !self.suspect.is_empty() {
            let batch = std::mem::take(&mut self.suspect);
            self.admit(batch);
        }
    }

    /// Decides on a last batch with a bad body: complete once, or torn.
    fn settle_suspect(&mut self, disk: &dyn Disk, acknowledged: Position) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.suspect.first(), self.suspect.last()) else { return Ok(()) };
        let was_whole = last.frame.header.position <= acknowledged
            || later_batch(disk, &self.head, first.offset, first.frame.batch_start())?;
        if was_whole {
            self.admit_suspect();
        } else {
            let bad = self.suspect.iter().find_map(|found| Some((found.offset, found.body.err()?.to_string())));
            self.flaw = bad;
            self.suspect.clear();
            self.batch.clear();
        }
        Ok(())
    }

    /// What is wrong with the numbers of a frame after those so far.
    fn unexpected(&self, found: &ScannedFrame) -> Option<&'static str> {
        let header = found.frame.header;
        let before = self.pending().next();
        let time = before.map(|before| before.time).or(self.active.index.last_time()).unwrap_or(self.head.time_floor);
        if header.position.get() != self.next_position() + (self.suspect.len() + self.batch.len()) as u64 {
            Some("a record's position does not follow the one before it")
        } else if found.frame.slot.index as usize != self.batch.len() {
            Some("a record is not where it should be in its batch")
        } else if header.time < time {
            Some("a record's time is before the one before it")
        } else if self.last_sequence(&header).is_some_and(|sequence| header.sequence <= sequence) {
            Some("a record's sequence does not follow the one before it")
        } else {
            None
        }
    }

    /// The last sequence so far in the topic of `header`.
    fn last_sequence(&self, header: &RecordHeader) -> Option<Sequence> {
        let pending = self.pending().find(|earlier| earlier.topic == header.topic).map(|earlier| earlier.sequence);
        pending.or(self.active.index.topic(header.topic).map(|topic| topic.last))
    }

    /// What is not indexed yet, newest first.
    fn pending(&self) -> impl Iterator<Item = &RecordHeader> {
        self.batch.iter().rev().chain(self.suspect.iter().rev()).map(|found| &found.frame.header)
    }

    /// The position after the last batch that is indexed.
    fn next_position(&self) -> u64 {
        self.active.index.last().map_or(self.head.name.base, Position::next).get()
    }
}

/// Overwrites the last batch with itself and syncs. A process that was killed may not have synced it; after a failed sync it
/// may be in memory, marked clean, and not on disk. Readers see it from now on, so it must be durable. For a first batch, or
/// none, the same applies to the segment's head.
pub(crate) fn rewrite_last_batch(disk: &dyn Disk, tail: &SegmentTail) -> io::Result<()> {
    let file = tail.head.name.file();
    let start = if tail.last_batch_at == HEAD_BYTES as u64 { 0 } else { tail.last_batch_at };
    let mut bytes = vec![0; (tail.end - start) as usize];
    if disk.read(&file, start, &mut bytes)? == bytes.len() {
        disk.write(&file, start, &bytes)?;
    }
    disk.sync(Some(&file))
}
