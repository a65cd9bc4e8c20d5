//! Erasing: the bytes of removed records are removed from the files, at the latest a given time after the removal.
//!
//! - A sealed segment that holds removed records is rewritten without them, or dropped; one segment at a time, by the
//!   background thread. The growing segment is sealed first, but only when that is urgent.
//! - The urgency follows from the time of the oldest removal that is not erased, which the marks contain.
//! - Apart from segments only torn appends in `cut/` contain bodies; the next erasure that is completed deletes them. What
//!   `repair` copies there has to be deleted by the operator who ran it.

use super::background::BackgroundWorker;
use super::cut_folder::discard_torn;
use super::file_names::LogFileName;
use super::index::LookupError;
use super::merge::remove_files;
use super::rewrite::rewrite;
use super::segment_retention::{SegmentAction, choose, holds_removed};
use super::state::SealedSegment;
use super::trim_marks::TrimMarks;
use crate::{FileDamage, LogError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Without an append for this long the disk counts as idle.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);
/// While the disk is idle, a removal is erased when its age is this part of the allowed time. Retention removes a little at every
/// check, and a segment must not be copied for each of these.
const IDLE_PARTS: i64 = 24;

/// How urgently removed records are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EraseUrgency {
    /// Not now.
    Wait,
    /// One sealed segment, because the disk is idle.
    Idle,
    /// Everything, the growing segment included.
    Due,
}

/// How urgent it is at `now` to erase what was removed `since`, both in milliseconds, if it may stay for `within`.
pub(crate) fn urgency(since: Option<i64>, now: i64, within: Option<Duration>, is_idle: bool) -> EraseUrgency {
    let (Some(since), Some(within)) = (since, within) else { return EraseUrgency::Wait };
    let (age, within) = (now.saturating_sub(since), i64::try_from(within.as_millis()).unwrap_or(i64::MAX));
    if age >= within {
        EraseUrgency::Due
    } else if is_idle && age >= within / IDLE_PARTS {
        EraseUrgency::Idle
    } else {
        EraseUrgency::Wait
    }
}

impl BackgroundWorker {
    /// Erases from one segment; returns whether there may be more to do. The growing segment is sealed if `seals`.
    pub(super) fn erase_next(&mut self, seals: bool) -> Result<bool, LogError> {
        let (next, grows, trim_marks) = {
            let state = self.shared.state();
            let mut touched =
                state.sealed.iter().filter(|segment| holds_removed(&segment.summary.topics, &state.trim_marks));
            let next = touched.find(|segment| !self.damaged.contains(&segment.name().base)).cloned();
            let growing = state.active.as_ref().and_then(|active| active.index.summary());
            let grows = growing.is_some_and(|growing| holds_removed(&growing.topics, &state.trim_marks));
            (next, grows, Arc::clone(&state.trim_marks))
        };
        if let Some(segment) = next {
            self.erase_segment(&segment, &trim_marks)?;
            return Ok(true);
        }
        if grows {
            // Without sealing it nothing more can be done.
            return if seals { self.writer.lock().unwrap_or_else(PoisonError::into_inner).seal() } else { Ok(false) };
        }
        self.discard_replaced()?;
        discard_torn(self.data_folder.as_deref(), &self.shared.disk)?;
        self.conclude(&trim_marks)
    }

    fn erase_segment(&mut self, segment: &Arc<SealedSegment>, trim_marks: &TrimMarks) -> Result<(), LogError> {
        let outcome = match choose(&segment.summary, trim_marks) {
            SegmentAction::Drop => self.drop_segment(segment).map_err(LookupError::from),
            SegmentAction::Keep | SegmentAction::Rewrite => match rewrite(&self.shared, segment, trim_marks) {
                Ok(Some(rewritten)) => {
                    self.seal_or_warn(&rewritten);
                    Ok(())
                }
                Ok(None) => {
                    self.note_damaged(segment);
                    Ok(())
                }
                Err(missed) => Err(missed),
            },
        };
        match outcome {
            // Replaced or dropped in the meantime.
            Ok(()) | Err(LookupError::Gone) => Ok(()),
            Err(LookupError::BadIndex) => match self.shared.rebuild_index(segment) {
                Err(LookupError::Failed(error)) => Err(error),
                _ => Ok(()),
            },
            Err(LookupError::Failed(error)) => Err(error),
        }
    }

    /// Removes files that a failed rewrite, merge or drop left behind.
    fn discard_replaced(&self) -> Result<(), LogError> {
        let disk = &*self.shared.disk;
        let (mut replaced, mut merged) = (Vec::new(), Vec::new());
        for (file, _) in disk.list()? {
            let Some(LogFileName::Segment(name) | LogFileName::Index(name)) = LogFileName::parse(&file) else {
                continue;
            };
            let state = self.shared.state();
            match state.sealed(name.base) {
                Some(segment) if segment.name().generation > name.generation => replaced.push(name),
                Some(_) => {}
                // A segment that is being begun lies after the tail, and in no dropped run.
                None if state.trim_marks.dropped_through(name.base).is_some() => replaced.push(name),
                None if state.covers(name.base) => merged.push(name),
                None => {}
            }
        }
        // While the older generation of a merged segment may come back after a power cut, the others are needed.
        for names in [replaced, merged].iter().filter(|names| !names.is_empty()) {
            remove_files(disk, names)?;
        }
        Ok(())
    }

    /// Notes that everything that `trim_marks` hide is erased, unless more was removed in the meantime; returns whether more was.
    /// The note is written with the next marks: until then a broker that starts finds nothing to erase, and notes it again.
    fn conclude(&self, trim_marks: &Arc<TrimMarks>) -> Result<bool, LogError> {
        if let Some(segment) =
            self.shared.state().sealed.iter().find(|segment| self.damaged.contains(&segment.name().base))
            && holds_removed(&segment.summary.topics, trim_marks)
        {
            let file = self.shared.folder.join(segment.name().file());
            let reason = "removed records cannot be erased beside a damaged one; repair the log".to_owned();
            return Err(LogError::Damaged(FileDamage { file, offset: 0, reason }));
        }
        let _unchanged = self.shared.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.shared.state_mut();
        let is_more = !Arc::ptr_eq(&state.trim_marks, trim_marks);
        if !is_more {
            state.trim_marks = Arc::new(trim_marks.with_all_erased());
        }
        Ok(is_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_erased_early_while_the_disk_is_idle_and_in_time_whatever_it_does() {
        let day = Some(Duration::from_secs(86_400));
        let hour = 3_600_000;
        for (since, within, age, is_idle, urgent) in [
            (None, day, 100 * hour, true, EraseUrgency::Wait),
            (Some(7), None, 100 * hour, true, EraseUrgency::Wait),
            (Some(7), day, hour - 1, true, EraseUrgency::Wait),
            (Some(7), day, hour, true, EraseUrgency::Idle),
            (Some(7), day, 24 * hour - 1, false, EraseUrgency::Wait),
            (Some(7), day, 24 * hour, false, EraseUrgency::Due),
            (Some(7), day, -hour, true, EraseUrgency::Wait),
            (Some(7), Some(Duration::ZERO), 0, false, EraseUrgency::Due),
        ] {
            assert_eq!(urgency(since, 7 + age, within, is_idle), urgent, "{since:?} {within:?} {age} {is_idle}");
        }
    }
}
