//! Carrying a repair out: files are kept aside, then the marks are written, then the segments.

use super::super::cuts::Cuts;
use super::super::disk::{Disk, discard};
use super::super::frame::Frame;
use super::super::marks::{Marks, MarksFile};
use super::super::names::FileName;
use super::super::segment::{HEAD_BYTES, Rewritten, SegmentHead};
use super::Repair;
use super::survey::Surveyed;
use crate::LogError;
use contract::Position;
use std::io;

/// Bytes copied at once, unless one record is longer.
const STEP_BYTES: usize = 1024 * 1024;

/// What is to be done.
pub(super) struct Plan {
    pub(super) repair: Repair,
    pub(super) remedies: Vec<Remedy>,
    pub(super) marks: Marks,
    pub(super) marks_numbers: Vec<u64>,
}

/// What is done about one file.
pub(super) enum Remedy {
    /// It is kept aside and goes.
    TakeAway(String),
    /// Its intact records are written under the next generation, which stands for positions through this one.
    WriteAnew(Box<Surveyed>, Position),
    /// A cache that goes.
    Discard(String),
}

impl Plan {
    /// Carries the plan out; the names of what was kept aside.
    pub(super) fn carry_out(&self, disk: &dyn Disk, cuts: &Cuts<'_>) -> Result<Vec<String>, LogError> {
        let mut kept = Vec::new();
        for remedy in &self.remedies {
            match remedy {
                Remedy::TakeAway(file) => kept.push(cuts.keep_file(disk, file)?),
                Remedy::WriteAnew(found, _) => kept.push(cuts.keep_file(disk, &found.head.name.file())?),
                Remedy::Discard(_) => {}
            }
        }
        let mut marks_file = MarksFile::after(&self.marks_numbers);
        marks_file.store(disk, &self.marks)?;
        marks_file.tidy(disk, &self.marks_numbers)?;
        for remedy in &self.remedies {
            match remedy {
                Remedy::TakeAway(file) => take_away(disk, file)?,
                Remedy::WriteAnew(found, through) => write_anew(disk, found, *through)?,
                Remedy::Discard(file) => discard(disk, file)?,
            }
        }
        disk.sync(None)?;
        Ok(kept)
    }
}

fn take_away(disk: &dyn Disk, file: &str) -> io::Result<()> {
    if let Some(FileName::Segment(name)) = FileName::parse(file) {
        discard(disk, &name.index_file())?;
    }
    discard(disk, file)
}

/// Writes the intact records under the next generation, durably, before the old file goes.
fn write_anew(disk: &dyn Disk, found: &Surveyed, through: Position) -> io::Result<()> {
    let (old, name) = (found.head.name, found.head.name.next_generation());
    let file = name.file();
    discard(disk, &file)?;
    let bytes = copy(disk, &old.file(), &found.intact, &file)?;
    let first = found.intact.first().map_or(found.head.created, |(_, frame)| frame.header.time);
    let (created, time_floor) = (found.head.created.min(first), found.head.time_floor.min(first));
    let rewritten = Some(Rewritten { through, bytes });
    disk.write(&file, 0, &SegmentHead { name, created, time_floor, salt: found.head.salt, rewritten }.encode())?;
    disk.truncate(&file, bytes)?;
    disk.sync(Some(&file))?;
    disk.sync(None)?;
    discard(disk, &old.file())?;
    discard(disk, &old.index_file())?;
    disk.sync(None)
}

/// Copies frames as they are: the salt stays the same. Answers where they end.
fn copy(disk: &dyn Disk, from: &str, frames: &[(u64, Frame)], to: &str) -> io::Result<u64> {
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
