//! Executing a repair: files are copied to `cut/`, then the marks are written, then the segments.

use super::super::cut_folder::CutFolder;
use super::super::disk::{Disk, discard};
use super::super::file_names::LogFileName;
use super::super::frame::FrameHeader;
use super::super::segment_head::{HEAD_BYTES, RewrittenExtent, SegmentHead};
use super::super::trim_marks::{TrimMarks, TrimMarksFile};
use super::RepairReport;
use super::survey::SurveyedSegment;
use crate::LogError;
use contract::Position;
use std::io;

/// Bytes copied at once, unless one record is longer.
const STEP_BYTES: usize = 1024 * 1024;

/// What a repair will do.
pub(super) struct RepairPlan {
    pub(super) repair: RepairReport,
    pub(super) remedies: Vec<RepairAction>,
    pub(super) marks: TrimMarks,
    pub(super) marks_numbers: Vec<u64>,
}

/// What a repair does with one file.
pub(super) enum RepairAction {
    /// It is copied to `cut/` and removed.
    Remove(String),
    /// Its intact records are written under the next generation, which covers positions through this one.
    Rewrite(Box<SurveyedSegment>, Position),
    /// A cache that is removed.
    Discard(String),
}

impl RepairPlan {
    /// Executes the plan; returns the names of the copies in `cut/`.
    pub(super) fn carry_out(&self, disk: &dyn Disk, cuts: &CutFolder<'_>) -> Result<Vec<String>, LogError> {
        let mut kept = Vec::new();
        for remedy in &self.remedies {
            match remedy {
                RepairAction::Remove(file) => kept.push(cuts.keep_file(disk, file)?),
                RepairAction::Rewrite(found, _) => kept.push(cuts.keep_file(disk, &found.head.name.file())?),
                RepairAction::Discard(_) => {}
            }
        }
        let mut marks_file = TrimMarksFile::after(&self.marks_numbers);
        marks_file.store(disk, &self.marks)?;
        marks_file.tidy(disk, &self.marks_numbers)?;
        for remedy in &self.remedies {
            match remedy {
                RepairAction::Remove(file) => remove_file(disk, file)?,
                RepairAction::Rewrite(found, through) => rewrite_segment(disk, found, *through)?,
                RepairAction::Discard(file) => discard(disk, file)?,
            }
        }
        disk.sync(None)?;
        Ok(kept)
    }
}

fn remove_file(disk: &dyn Disk, file: &str) -> io::Result<()> {
    if let Some(LogFileName::Segment(name)) = LogFileName::parse(file) {
        discard(disk, &name.index_file())?;
    }
    discard(disk, file)
}

/// Writes the intact records under the next generation, durably, before the old file is removed.
fn rewrite_segment(disk: &dyn Disk, found: &SurveyedSegment, through: Position) -> io::Result<()> {
    let (old, name) = (found.head.name, found.head.name.next_generation());
    let file = name.file();
    discard(disk, &file)?;
    let bytes = copy(disk, &old.file(), &found.intact, &file)?;
    let first = found.intact.first().map_or(found.head.created, |(_, frame)| frame.header.time);
    let (created, time_floor) = (found.head.created.min(first), found.head.time_floor.min(first));
    let rewritten = Some(RewrittenExtent { through, bytes });
    disk.write(&file, 0, &SegmentHead { name, created, time_floor, salt: found.head.salt, rewritten }.encode())?;
    disk.truncate(&file, bytes)?;
    disk.sync(Some(&file))?;
    disk.sync(None)?;
    discard(disk, &old.file())?;
    discard(disk, &old.index_file())?;
    disk.sync(None)
}

/// Copies frames unchanged: the salt stays the same. Returns where they end.
fn copy(disk: &dyn Disk, from: &str, frames: &[(u64, FrameHeader)], to: &str) -> io::Result<u64> {
    let mut end = HEAD_BYTES as u64;
    let mut out = Vec::new();
    for (offset, frame) in frames {
        let start = out.len();
        out.resize(start + frame.bytes(), 0);
        let target = out.get_mut(start..).unwrap_or_default();
        if disk.read(from, *offset, target)? < frame.bytes() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if out.len() >= STEP_BYTES {
            disk.write(to, end, &out)?;
            end += out.len() as u64;
            out.clear();
        }
    }
    disk.write(to, end, &out)?;
    Ok(end + out.len() as u64)
}
