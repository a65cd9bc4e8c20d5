//! Opening a log, with recovery. The rules and their reasons are in `docs/format.md`.
//!
//! - Of two generations of a segment the lower is used: the higher is unfinished. A segment that an earlier one covers was
//!   merged with it, and is removed.
//! - Positions must be covered without a gap from 1 on, by segments or by runs that the marks record as dropped.
//! - Only the last append can be torn, because each is synced before the next is written: a bad end of the last segment
//!   is truncated unless frames of a later batch follow; anything else is damage.
//! - A position that is known to be acknowledged was never torn: whatever is wrong at or below it is damage.
//! - A damaged log is not opened; the error names file and offset, and nothing was changed. A bad body alone does not prevent
//!   opening: only reads of its record fail.
//! - What is cut off is copied to `cut/` first.

use super::background::write_index;
use super::cut_folder::CutFolder;
use super::disk::discard;
use super::file_names::{LogFileName, SegmentName};
use super::frame_scan::{self, ScannedIndex};
use super::index::{LookupError, PagedIndex, SegmentIndex};
use super::merge::merged_away;
use super::reserve::kept_bytes;
use super::segment_head::{HEAD_BYTES, SegmentHead};
use super::state::{ActiveSegment, LogState, SealedSegment};
use super::torn::{self, LastSegment, SegmentTail};
use super::trim_marks::{TrimMarks, TrimMarksFile};
use super::{Disk, FileLogOptions};
use crate::{FileDamage, LogError};
use contract::Position;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The error of a segment whose head cannot be read.
pub(super) const HEAD_FLAW: &str = "the segment's head does not match its checksum";

/// A recovered log.
pub(crate) struct RecoveredLog {
    pub(crate) state: LogState,
    pub(crate) marks_file: TrimMarksFile,
    /// What was cut off: a torn tail that was never acknowledged.
    pub(crate) cuts: Vec<FileDamage>,
    /// Records of the growing segment whose bodies are damaged; everything else is served.
    pub(crate) bad_bodies: Vec<FileDamage>,
}

/// Reads and recovers a log. Nothing is changed before it is certain that the log opens.
pub(crate) fn recover(
    disk: &dyn Disk,
    folder: &Path,
    options: &FileLogOptions,
    cuts: &CutFolder<'_>,
) -> Result<RecoveredLog, LogError> {
    let files = LogFiles::list(disk)?;
    let (marks_file, marks) = TrimMarksFile::load(disk, folder, files.trim_marks.clone())?;
    let recovery = LogRecovery { disk, folder, acknowledged: options.acknowledged, trim_marks: marks };
    let ChosenSegments { mut segments, superseded } = recovery.choose_generations(&files)?;
    let (last, unused) = recovery.read_last(&mut segments)?;
    let (active, tail) = last.map(|last| (last.active, last.tail)).unzip();
    let sealed = recovery.open_sealed(&segments)?;
    recovery.chain(&sealed, active.as_ref())?;
    let state = LogState::new(sealed, active, recovery.trim_marks.clone(), options);
    recovery.check_acknowledged(&state)?;

    let named = |offset, reason: &dyn ToString| {
        let file = tail.as_ref().map(|tail| tail.head.name.file()).unwrap_or_default();
        FileDamage { file: folder.join(file), offset, reason: reason.to_string() }
    };
    let flaws = tail.iter().flat_map(|tail| &tail.bad_bodies);
    let bad_bodies = flaws.map(|(offset, flaw)| named(*offset, flaw)).collect();
    let torn = tail.as_ref().and_then(|tail| tail.flaw.as_ref());
    let cut_off = torn.map(|(offset, reason)| named(*offset, reason)).into_iter().collect();
    for name in superseded.iter().chain(&unused) {
        discard(disk, &name.file())?;
        discard(disk, &name.index_file())?;
    }
    if let Some(tail) = &tail {
        cut_tail(disk, tail, cuts, options)?;
    }
    marks_file.tidy(disk, &files.trim_marks)?;
    sweep(disk, &files, &state)?;
    Ok(RecoveredLog { state, marks_file, cuts: cut_off, bad_bodies })
}

/// Cuts off what does not belong to a complete batch, after copying it to `cut/`, and makes the rest durable.
fn cut_tail(
    disk: &dyn Disk,
    tail: &SegmentTail,
    cuts: &CutFolder<'_>,
    options: &FileLogOptions,
) -> Result<(), LogError> {
    let name = tail.head.name;
    // On a full disk without a reserve a copy would take the room that freeing space needs.
    let has_room = options.reserve_bytes == 0 || kept_bytes(disk)?.is_some();
    if tail.flaw.is_some() && has_room {
        match cuts.keep_torn(disk, name, tail.end) {
            Ok(kept) => {
                tracing::warn!(segment = name.base.get(), offset = tail.end, kept, "a torn tail was copied to `cut/`");
            }
            // It was never acknowledged: a full disk must not prevent opening.
            Err(error) => {
                tracing::warn!(segment = name.base.get(), %error, "a torn tail could not be copied to `cut/`");
            }
        }
    }
    if tail.flaw.is_some() {
        disk.truncate(&name.file(), tail.end)?;
    }
    discard(disk, &name.index_file())?;
    Ok(torn::rewrite_last_batch(disk, tail)?)
}

/// Removes files that belong to no segment, and syncs the folder.
fn sweep(disk: &dyn Disk, files: &LogFiles, state: &LogState) -> Result<(), LogError> {
    for name in &files.indexes {
        if !state.sealed.iter().any(|segment| segment.name() == *name) {
            discard(disk, &name.index_file())?;
        }
    }
    Ok(disk.sync(None)?)
}

/// The files of a log.
struct LogFiles {
    /// Generations of each base.
    segments: BTreeMap<Position, Vec<u32>>,
    indexes: Vec<SegmentName>,
    trim_marks: Vec<u64>,
}

impl LogFiles {
    fn list(disk: &dyn Disk) -> Result<Self, LogError> {
        let mut files = Self { segments: BTreeMap::new(), indexes: Vec::new(), trim_marks: Vec::new() };
        for (name, _) in disk.list()? {
            match LogFileName::parse(&name) {
                Some(LogFileName::Segment(name)) => files.segments.entry(name.base).or_default().push(name.generation),
                Some(LogFileName::Index(name)) => files.indexes.push(name),
                Some(LogFileName::Marks(number)) => files.trim_marks.push(number),
                None => {}
            }
        }
        Ok(files)
    }
}

/// The valid segment files.
struct ChosenSegments {
    /// Oldest first.
    segments: Vec<SegmentName>,
    /// Unfinished rewrites, and what was dropped or merged.
    superseded: Vec<SegmentName>,
}

struct LogRecovery<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    /// Everything through here was complete once.
    acknowledged: Position,
    trim_marks: TrimMarks,
}

impl LogRecovery<'_> {
    /// The valid segments; rewrites, merges and drops that were interrupted are finished or undone.
    fn choose_generations(&self, files: &LogFiles) -> Result<ChosenSegments, LogError> {
        let mut chosen = ChosenSegments { segments: Vec::new(), superseded: Vec::new() };
        for (base, generations) in &files.segments {
            let counts = generations.iter().min().filter(|_| self.trim_marks.dropped_through(*base).is_none());
            let named = |generation: &u32| SegmentName { base: *base, generation: *generation };
            chosen.segments.extend(counts.map(named));
            chosen.superseded.extend(generations.iter().filter(|generation| Some(*generation) != counts).map(named));
        }
        let merged = merged_away(self.disk, &chosen.segments)?;
        chosen.segments.retain(|name| !merged.contains(name));
        chosen.superseded.extend(merged);
        Ok(chosen)
    }

    /// The segment to append to, removed from the list, and those after it that were created and never used. A last one that was
    /// rewritten stays on the list as sealed.
    fn read_last(&self, segments: &mut Vec<SegmentName>) -> Result<(Option<LastSegment>, Vec<SegmentName>), LogError> {
        let mut unused = Vec::new();
        while let Some(name) = segments.pop_if(|name| name.generation == 1) {
            if let Some(head) = frame_scan::read_head(self.disk, name)? {
                let last = LastSegment::read(self.disk, head, self.acknowledged)?;
                if let Some((offset, reason)) = last.tail.flaw.as_ref().filter(|_| last.tail.is_damage) {
                    return Err(self.damaged(name, *offset, reason));
                }
                return Ok((Some(last), unused));
            }
            // A head is synced before the first record is written: a file without one never had any.
            if name.base <= self.acknowledged || !frame_scan::zeros_from(self.disk, &name.file(), HEAD_BYTES as u64)? {
                return Err(self.damaged(name, 0, HEAD_FLAW));
            }
            unused.push(name);
        }
        Ok((None, unused))
    }

    /// Opens the sealed segments, and rebuilds indexes that are missing or bad.
    fn open_sealed(&self, segments: &[SegmentName]) -> Result<Vec<Arc<SealedSegment>>, LogError> {
        let mut sealed = Vec::with_capacity(segments.len());
        for name in segments {
            let head = frame_scan::read_head(self.disk, *name)?.ok_or_else(|| self.damaged(*name, 0, HEAD_FLAW))?;
            sealed.extend(self.open_segment(head)?.map(Arc::new));
        }
        Ok(sealed)
    }

    /// A sealed segment with its index; `None` if it has no record.
    fn open_segment(&self, head: SegmentHead) -> Result<Option<SealedSegment>, LogError> {
        match PagedIndex::open(self.disk, &head) {
            Ok(index) => {
                return Ok(Some(SealedSegment {
                    head,
                    summary: index.summary().clone(),
                    index: SegmentIndex::Paged(index),
                }));
            }
            Err(LookupError::Failed(error)) => return Err(error),
            Err(LookupError::Gone | LookupError::BadIndex) => {}
        }
        let live = match frame_scan::index(self.disk, &head)? {
            ScannedIndex::Intact(live) => *live,
            ScannedIndex::Damaged(offset, flaw) => return Err(self.damaged(head.name, offset, flaw.to_string())),
        };
        let Some(summary) = live.summary() else { return Ok(None) };
        let index = match write_index(self.disk, &head, &live) {
            Ok(index) => SegmentIndex::Paged(index),
            Err(error) => {
                tracing::debug!(segment = head.name.base.get(), ?error, "an index was not written; it stays in memory");
                SegmentIndex::Live(live)
            }
        };
        Ok(Some(SealedSegment { head, summary, index }))
    }

    /// Checks that no position is missing except dropped ones.
    fn chain(&self, sealed: &[Arc<SealedSegment>], active: Option<&ActiveSegment>) -> Result<(), LogError> {
        let mut next = Position(1);
        let parts = sealed.iter().map(|segment| (segment.name(), Some(segment)));
        for (name, segment) in parts.chain(active.map(|active| (active.head.name, None))) {
            next = self.trim_marks.dropped_through(next).map_or(next, Position::next);
            if name.base != next {
                let reason = format!("the segment before it is missing: position {next} is in no file");
                return Err(self.damaged(name, 0, reason));
            }
            if let Some(segment) = segment {
                self.check_length(segment)?;
                next = segment.through().next();
            }
        }
        Ok(())
    }

    /// A sealed segment's file must hold all of its records, and a rewritten one the bytes in its head.
    fn check_length(&self, segment: &SealedSegment) -> Result<(), LogError> {
        let (file, end) = (segment.name().file(), segment.summary.bytes);
        let mut last = [0];
        let promised = segment.head.rewritten.is_none_or(|rewritten| rewritten.bytes == end);
        match promised && self.disk.read(&file, end - 1, &mut last)? > 0 {
            true => Ok(()),
            false => Err(self.damaged(segment.name(), end, "the file ends before its last record does")),
        }
    }

    /// Everything that was acknowledged must be there.
    fn check_acknowledged(&self, state: &LogState) -> Result<(), LogError> {
        if state.tail >= self.acknowledged {
            return Ok(());
        }
        let last = state.active.as_ref().map(|active| active.head.name).or(state.sealed.last().map(|last| last.name()));
        let file = last.map_or_else(|| self.folder.to_owned(), |name| self.folder.join(name.file()));
        let offset = state.active.as_ref().map_or(0, |active| active.index.bytes());
        let reason = format!(
            "the checkpoint was taken at position {}, but the log ends at {}: acknowledged records are missing",
            self.acknowledged, state.tail
        );
        Err(LogError::Damaged(FileDamage { file, offset, reason }))
    }

    fn damaged(&self, name: SegmentName, offset: u64, reason: impl Into<String>) -> LogError {
        LogError::Damaged(FileDamage { file: self.folder.join(name.file()), offset, reason: reason.into() })
    }
}
