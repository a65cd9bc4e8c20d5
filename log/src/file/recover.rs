//! Opening a log: what the files say, made whole. The rules and their reasons are in `docs/format.md`.
//!
//! - Of two generations of a segment the lower counts: the higher was not finished.
//! - Positions must be covered without a gap from 1 on, by segments or by what the marks say was dropped.
//! - Only the last append can be torn, because each is synced before the next is written: a bad end of the last segment
//!   is cut unless frames of a later batch stand behind it; anything else is damage.
//! - Damage refuses to open, naming file and offset. Told to repair, it is cut out, and what is intact stays.

use super::disk::discard;
use super::index::{Index, Miss, PagedIndex};
use super::keeper::write_index;
use super::marks::{Marks, MarksFile};
use super::names::{FileName, SegmentName};
use super::scan;
use super::segment::{HEAD_BYTES, SegmentHead};
use super::state::{Active, Sealed, State};
use super::torn::{self, LastSegment};
use super::{Disk, Options};
use crate::{Damage, LogError};
use contract::Position;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A log as it was found, whole again.
pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) marks_file: MarksFile,
    /// What was cut off: a torn tail, or damage if that was asked for.
    pub(crate) cuts: Vec<Damage>,
}

/// Reads a log and makes it whole.
pub(crate) fn recover(disk: &dyn Disk, folder: &Path, options: &Options) -> Result<Recovered, LogError> {
    let files = Files::list(disk)?;
    let (marks_file, marks) = match MarksFile::load(disk, folder, files.marks.clone()) {
        Err(LogError::Damaged(_)) if options.repair => (MarksFile::after(&files.marks), Marks::default()),
        other => other?,
    };
    let mut recovery = Recovery { disk, folder, repair: options.repair, marks, marks_file, cuts: Vec::new() };
    let mut segments = recovery.settle_generations(&files)?;
    let active = recovery.open_last(&mut segments)?;
    let sealed = recovery.open_sealed(&segments)?;
    let sealed = recovery.chain(sealed, active.as_ref())?;
    recovery.sweep(&files, &sealed)?;
    let state = State::new(sealed, active, recovery.marks, options);
    Ok(Recovered { state, marks_file: recovery.marks_file, cuts: recovery.cuts })
}

/// The files of a log.
struct Files {
    /// Generations of each base.
    segments: BTreeMap<Position, Vec<u32>>,
    indexes: Vec<SegmentName>,
    marks: Vec<u64>,
}

impl Files {
    fn list(disk: &dyn Disk) -> Result<Self, LogError> {
        let mut files = Self { segments: BTreeMap::new(), indexes: Vec::new(), marks: Vec::new() };
        for (name, _) in disk.list()? {
            match FileName::parse(&name) {
                Some(FileName::Segment(name)) => files.segments.entry(name.base).or_default().push(name.generation),
                Some(FileName::Index(name)) => files.indexes.push(name),
                Some(FileName::Marks(number)) => files.marks.push(number),
                None => {}
            }
        }
        Ok(files)
    }
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    repair: bool,
    marks: Marks,
    marks_file: MarksFile,
    cuts: Vec<Damage>,
}

impl Recovery<'_> {
    /// The segments that count, oldest first; rewrites and drops that were cut short are finished or undone.
    fn settle_generations(&self, files: &Files) -> Result<Vec<SegmentName>, LogError> {
        let mut segments = Vec::new();
        for (base, generations) in &files.segments {
            let counts = generations.iter().min().filter(|_| self.marks.dropped_through(*base).is_none());
            for generation in generations.iter().filter(|generation| Some(*generation) != counts) {
                let name = SegmentName { base: *base, generation: *generation };
                discard(self.disk, &name.file())?;
                discard(self.disk, &name.index_file())?;
            }
            segments.extend(counts.map(|generation| SegmentName { base: *base, generation: *generation }));
        }
        Ok(segments)
    }

    /// The segment to go on with, taken off the list; a last one that was rewritten stays on it as sealed.
    fn open_last(&mut self, segments: &mut Vec<SegmentName>) -> Result<Option<Active>, LogError> {
        while let Some(name) = segments.last().copied() {
            if name.generation > 1 {
                return Ok(None);
            }
            segments.pop();
            discard(self.disk, &name.index_file())?;
            if let Some(head) = scan::read_head(self.disk, name)? {
                return self.cut_tail(LastSegment::read(self.disk, head)?).map(Some);
            }
            if !scan::zeros_from(self.disk, &name.file(), HEAD_BYTES as u64)? {
                self.damaged(name, 0, "the segment's head does not match its checksum")?;
            }
            // A head is synced before the first record is written: this file never had one.
            self.disk.remove(&name.file())?;
        }
        Ok(None)
    }

    /// Cuts what does not belong to a whole batch, and makes the rest durable.
    fn cut_tail(&mut self, last: LastSegment) -> Result<Active, LogError> {
        let file = last.head.name.file();
        if let Some((offset, reason)) = &last.flaw {
            if last.later_batch_follows {
                self.damaged(last.head.name, *offset, reason)?;
            } else {
                self.cuts.push(self.damage(&file, *offset, reason));
            }
            self.disk.truncate(&file, last.active.index.bytes())?;
        }
        torn::store_again(self.disk, &last)?;
        Ok(last.active)
    }

    /// Opens the sealed segments, rebuilding indexes where they are missing or bad.
    fn open_sealed(&mut self, segments: &[SegmentName]) -> Result<Vec<Arc<Sealed>>, LogError> {
        let mut sealed = Vec::with_capacity(segments.len());
        for name in segments {
            let Some(head) = scan::read_head(self.disk, *name)? else {
                self.damaged(*name, 0, "the segment's head does not match its checksum")?;
                discard(self.disk, &name.file())?;
                continue;
            };
            match self.open_segment(head)? {
                Some(segment) => sealed.push(Arc::new(segment)),
                None => discard(self.disk, &name.file())?,
            }
        }
        Ok(sealed)
    }

    /// A sealed segment with its index; `None` if nothing of it could be saved.
    fn open_segment(&mut self, head: SegmentHead) -> Result<Option<Sealed>, LogError> {
        match PagedIndex::open(self.disk, &head) {
            Ok(index) => {
                return Ok(Some(Sealed { head, summary: index.summary().clone(), index: Index::Paged(index) }));
            }
            Err(Miss::Failed(error)) => return Err(error),
            Err(Miss::Gone | Miss::BadIndex) => {}
        }
        let live = match scan::index(self.disk, &head)? {
            Ok(live) => live,
            Err((offset, flaw)) => {
                self.damaged(head.name, offset, flaw.to_string())?;
                if head.rewritten.is_some() {
                    return Ok(None);
                }
                let intact = LastSegment::read(self.disk, head)?.active.index;
                self.disk.truncate(&head.name.file(), intact.bytes())?;
                self.disk.sync(Some(&head.name.file()))?;
                intact
            }
        };
        let Some(summary) = live.summary() else { return Ok(None) };
        // An index that cannot be written stays in RAM.
        let index = write_index(self.disk, &head, &live).map_or_else(|_| Index::Live(live), Index::Paged);
        Ok(Some(Sealed { head, summary, index }))
    }

    /// Checks that no position is missing but those that were dropped; what repairing lost counts as dropped.
    fn chain(&mut self, sealed: Vec<Arc<Sealed>>, active: Option<&Active>) -> Result<Vec<Arc<Sealed>>, LogError> {
        let mut next = Position(1);
        let parts = sealed.iter().map(|segment| (segment.name(), Some(segment)));
        let mut lost = Vec::new();
        for (name, segment) in parts.chain(active.map(|active| (active.head.name, None))) {
            next = self.marks.dropped_through(next).map_or(next, Position::next);
            if name.base != next {
                self.damaged(name, 0, format!("the segment before it is missing: position {next} is in no file"))?;
                lost.push((next, Position(name.base.get() - 1)));
            }
            if let Some(segment) = segment {
                self.check_length(segment)?;
                next = segment.through().next();
            }
        }
        for (first, last) in lost.into_iter().filter(|(first, last)| first <= last) {
            self.marks = self.marks.with_dropped(first, last);
            self.marks_file.store(self.disk, &self.marks)?;
        }
        Ok(sealed)
    }

    /// A sealed segment's file must hold all of its records, and a rewritten one as many as it was written with.
    fn check_length(&mut self, segment: &Sealed) -> Result<(), LogError> {
        let (file, end) = (segment.name().file(), segment.summary.bytes);
        let mut last = [0];
        let promised = segment.head.rewritten.is_none_or(|rewritten| rewritten.bytes == end);
        if !promised || self.disk.read(&file, end - 1, &mut last)? == 0 {
            self.damaged(segment.name(), end, "the file ends before its last record does")?;
        }
        Ok(())
    }

    /// Takes away what belongs to no segment, and makes the folder durable as it is now.
    fn sweep(&self, files: &Files, sealed: &[Arc<Sealed>]) -> Result<(), LogError> {
        self.marks_file.tidy(self.disk, &files.marks)?;
        for name in &files.indexes {
            if !sealed.iter().any(|segment| segment.name() == *name) {
                discard(self.disk, &name.index_file())?;
            }
        }
        Ok(self.disk.sync(None)?)
    }

    /// Refuses to open, or notes what is being cut out.
    fn damaged(&mut self, name: SegmentName, offset: u64, reason: impl Into<String>) -> Result<(), LogError> {
        let damage = self.damage(&name.file(), offset, reason);
        if !self.repair {
            return Err(LogError::Damaged(damage));
        }
        self.cuts.push(damage);
        Ok(())
    }

    fn damage(&self, file: &str, offset: u64, reason: impl Into<String>) -> Damage {
        Damage { file: self.folder.join(file), offset, reason: reason.into() }
    }
}
