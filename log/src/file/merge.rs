//! Merging neighbouring small segments into one, so that sparse topics and erasures do not accumulate files.
//!
//! ```text
//!  before      1.1.log  4.1.log  9.2.log  12.1.log ...       positions 1-3, 4-8, 9-11, 12-20
//!  written     1.1.log  1.2.log  4.1.log  9.2.log ...        1.1 counts (the lower generation), 1.2 is unfinished
//!  then                 1.2.log  4.1.log  9.2.log ...        1.2 counts, and covers 4.1, 9.2 ...: they are leftovers
//!  after                1.2.log                              positions 1-20
//! ```
//!
//! The merged segment is written like a rewritten one: the next generation of the first segment, with the last position it
//! covers in its head. It counts from the moment at which the first segment's file is durably removed. Until then all of the
//! others are needed, so they are removed only after that.

use super::background::BackgroundWorker;
use super::disk::{Disk, discard};
use super::file_names::SegmentName;
use super::frame_scan;
use super::index::{LiveIndex, LookupError, SegmentIndex};
use super::rewrite::{copy, kept_places};
use super::segment_head::{HEAD_BYTES, RewrittenExtent, SegmentHead};
use super::segment_retention::choose_merge;
use super::state::{SealedSegment, SharedLog};
use super::trim_marks::TrimMarks;
use crate::LogError;
use std::sync::Arc;

/// Merges in one go; further ones wait for the next task.
const MERGES_MAX: usize = 4;

impl BackgroundWorker {
    /// Merges neighbouring small segments, if there are enough of them. Nothing depends on it.
    pub(super) fn merge_small(&mut self) {
        for _ in 0..MERGES_MAX {
            // It needs room for a copy.
            if !self.shared.space.room().allows_growth() || self.shared.reserve.is_full() {
                return;
            }
            let (segments, trim_marks) = {
                let state = self.shared.state();
                (state.sealed.clone(), Arc::clone(&state.trim_marks))
            };
            let sizes = segments
                .iter()
                .map(|segment| (!self.damaged.contains(&segment.name().base)).then_some(segment.summary.bytes));
            let run = choose_merge(&sizes.collect::<Vec<_>>(), self.shared.options.segment_bytes);
            let Some(run) = run.and_then(|run| segments.get(run)) else { return };
            match merge(&self.shared, run, &trim_marks) {
                Ok(MergeOutcome::Merged(merged)) => self.seal_or_warn(&merged),
                Ok(MergeOutcome::Damaged(segment)) => self.note_damaged(&segment),
                Ok(MergeOutcome::Skipped) | Err(LookupError::Gone | LookupError::BadIndex) => return,
                Err(LookupError::Failed(error)) => {
                    tracing::warn!(%error, "small segments were not merged; it is retried");
                    return;
                }
            }
        }
    }
}

/// What a merge has done.
enum MergeOutcome {
    Merged(Arc<SealedSegment>),
    /// A record to keep is damaged in this segment; everything is as before.
    Damaged(Arc<SealedSegment>),
    /// The segments cannot be merged; everything is as before.
    Skipped,
}

fn merge(shared: &SharedLog, run: &[Arc<SealedSegment>], trim_marks: &TrimMarks) -> Result<MergeOutcome, LookupError> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(MergeOutcome::Skipped) };
    // Indexes count positions from the base in 32 bits.
    if u32::try_from(last.through().get() - first.name().base.get()).is_err() {
        return Ok(MergeOutcome::Skipped);
    }
    let head = SegmentHead { name: first.name().next_generation(), ..first.head };
    let written = write(shared, run, head, trim_marks);
    let Ok(MergeOutcome::Merged(merged)) = written else {
        discard(&*shared.disk, &head.name.file())?;
        return written;
    };
    if !shared.state_mut().replace_run(run, Arc::clone(&merged)) {
        discard(&*shared.disk, &head.name.file())?;
        return Err(LookupError::Gone);
    }
    remove_files(&*shared.disk, &[first.name()])?;
    let others: Vec<_> = run.iter().skip(1).map(|segment| segment.name()).collect();
    remove_files(&*shared.disk, &others)?;
    Ok(MergeOutcome::Merged(merged))
}

/// Writes the new file, durably.
fn write(
    shared: &SharedLog,
    run: &[Arc<SealedSegment>],
    mut head: SegmentHead,
    trim_marks: &TrimMarks,
) -> Result<MergeOutcome, LookupError> {
    let file = head.name.file();
    discard(&*shared.disk, &file)?;
    let mut live = LiveIndex::new(head.name.base, HEAD_BYTES as u64);
    let mut through = head.name.base;
    for segment in run {
        let kept = kept_places(shared, segment, trim_marks)?;
        if !copy(shared, segment, &head, &kept, &mut live)? {
            return Ok(MergeOutcome::Damaged(Arc::clone(segment)));
        }
        through = segment.through();
    }
    // Nothing is left: they are dropped instead.
    let Some(summary) = live.summary() else { return Ok(MergeOutcome::Skipped) };
    head.rewritten = Some(RewrittenExtent { through, bytes: live.bytes() });
    shared.disk.write(&file, 0, &head.encode())?;
    shared.disk.sync(Some(&file))?;
    shared.disk.sync(None)?;
    Ok(MergeOutcome::Merged(Arc::new(SealedSegment { head, summary, index: SegmentIndex::Live(live) })))
}

/// Removes files of segments and their indexes, durably.
pub(super) fn remove_files(disk: &dyn Disk, names: &[SegmentName]) -> Result<(), LogError> {
    for name in names {
        discard(disk, &name.file())?;
        discard(disk, &name.index_file())?;
    }
    Ok(disk.sync(None)?)
}

/// Of the segment files that count, by ascending base, those that an earlier one has been merged with.
pub(super) fn merged_away(disk: &dyn Disk, segments: &[SegmentName]) -> Result<Vec<SegmentName>, LogError> {
    let mut merged = Vec::new();
    let mut covered = None;
    for name in segments {
        if covered.is_some_and(|through| name.base <= through) {
            merged.push(*name);
        } else if name.generation > 1 {
            // One whose head is damaged is reported by whoever reads it next.
            let head = frame_scan::read_head(disk, *name)?;
            covered = head.and_then(|head| head.rewritten).map(|rewritten| rewritten.through);
        }
    }
    Ok(merged)
}
