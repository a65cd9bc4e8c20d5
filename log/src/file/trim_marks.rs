//! The removal marks: what retention removed, durably, in the file `trimmed.{number}`.
//!
//! - For each topic the last sequence removed, and the positions of dropped segments.
//! - What was lost to damage and cut out by `repair`: its positions count as dropped, and each topic's sequences are listed,
//!   so that their absence can be distinguished from unknown damage. Only a log that was repaired has such a list, and only then
//!   does the file have version 2.
//! - The time of the oldest removal whose bytes may still be in a file. A file with that time has version 3.
//! - The file is written completely under the next number and synced, and only then the one before is removed: the highest valid
//!   one is used. The first one may be torn; a later one may be too, and then the one before it still exists.
//! - Records are hidden from the moment at which the marks are durable; their space is freed later.

use super::file_names::marks_file;
use super::{Disk, disk::discard};
use crate::{FileDamage, LogError, RecordHeader, TopicNumber, crash_point};
use bytes::{Buf, BufMut};
use contract::{Position, Sequence};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const MAGIC: &[u8; 8] = b"EVTRM\r\n\x1A";
const VERSION: u32 = 1;
/// With a list of lost sequences.
const VERSION_LOST: u32 = 2;
/// With the time of the oldest removal that is not erased.
const VERSION_UNERASED: u32 = 3;

/// Sequences of one topic, first and last.
pub type LostSequences = (TopicNumber, Sequence, Sequence);

/// The removal marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrimMarks {
    /// The last sequence removed of each topic.
    trimmed: BTreeMap<TopicNumber, Sequence>,
    /// Positions of dropped segments: first and last, ascending, neither overlapping nor adjacent.
    dropped: Vec<(Position, Position)>,
    /// Runs of sequences that were lost to damage, ascending.
    lost: Vec<LostSequences>,
    /// When the oldest removal was made that may not be erased yet, in milliseconds since 1970. `None`: all are erased, or
    /// it was not noted.
    unerased_since: Option<i64>,
}

impl TrimMarks {
    /// When the oldest removal was made that may not be erased yet.
    pub(crate) fn unerased_since(&self) -> Option<i64> {
        self.unerased_since
    }

    /// Notes that something was removed at this time and is not erased; the oldest such time is kept.
    pub(crate) fn with_unerased(mut self, now: i64) -> Self {
        self.unerased_since = Some(self.unerased_since.map_or(now, |since| since.min(now)));
        self
    }

    /// The same marks after everything they hide is erased.
    pub(crate) fn with_all_erased(&self) -> Self {
        Self { unerased_since: None, ..self.clone() }
    }

    /// The last removed sequence of a topic; 0 if none was removed.
    pub(crate) fn removed_through(&self, topic: TopicNumber) -> Sequence {
        self.trimmed.get(&topic).copied().unwrap_or_default()
    }

    /// Whether a record was removed.
    pub(crate) fn hides(&self, header: &RecordHeader) -> bool {
        header.sequence <= self.removed_through(header.topic)
    }

    /// Adds the removal of a topic's records; `None` if they were removed already.
    pub(crate) fn with_removed(&self, topic: TopicNumber, through: Sequence) -> Option<Self> {
        let mut trim_marks = self.clone();
        trim_marks.trimmed.insert(topic, through);
        (through > self.removed_through(topic)).then_some(trim_marks)
    }

    /// Adds the drop of the segment that covered these positions.
    pub(crate) fn with_dropped(&self, first: Position, last: Position) -> Self {
        let mut trim_marks = self.clone();
        trim_marks.dropped.push((first, last));
        trim_marks.dropped.sort_unstable();
        let mut merged: Vec<(Position, Position)> = Vec::new();
        for range in trim_marks.dropped {
            match merged.last_mut() {
                Some(before) if range.0 <= before.1.next() => before.1 = before.1.max(range.1),
                _ => merged.push(range),
            }
        }
        trim_marks.dropped = merged;
        trim_marks
    }

    /// The last position of the dropped run that contains `position`.
    pub(crate) fn dropped_through(&self, position: Position) -> Option<Position> {
        let run = self.dropped.iter().find(|(first, last)| (*first..=*last).contains(&position))?;
        Some(run.1)
    }

    /// The first dropped position after `position`.
    pub(crate) fn dropped_behind(&self, position: Position) -> Option<Position> {
        self.dropped.iter().map(|(first, _)| *first).find(|first| *first > position)
    }

    /// Notes sequences that were lost.
    pub(crate) fn with_lost(&self, runs: &[LostSequences]) -> Self {
        let mut trim_marks = self.clone();
        trim_marks.lost.extend_from_slice(runs);
        trim_marks.lost.sort_unstable();
        trim_marks.lost.dedup();
        trim_marks
    }

    /// The first sequence of a topic after `after` and before `next` that was neither removed nor lost, if there is one:
    /// its absence is not explained.
    pub(crate) fn unexplained(&self, topic: TopicNumber, after: Sequence, next: Sequence) -> Option<Sequence> {
        let mut missing = after.max(self.removed_through(topic)).next();
        for (_, first, last) in self.lost.iter().filter(|(of, ..)| *of == topic) {
            if (*first..=*last).contains(&missing) {
                missing = last.next();
            }
        }
        (missing < next).then_some(missing)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_slice(MAGIC);
        let version = match (self.unerased_since, self.lost.is_empty()) {
            (Some(_), _) => VERSION_UNERASED,
            (None, false) => VERSION_LOST,
            (None, true) => VERSION,
        };
        out.put_u32_le(version);
        out.put_u32_le(self.trimmed.len() as u32);
        out.put_u32_le(self.dropped.len() as u32);
        if version != VERSION {
            out.put_u32_le(self.lost.len() as u32);
        }
        if let Some(since) = self.unerased_since {
            out.put_i64_le(since);
        }
        for (topic, through) in &self.trimmed {
            out.put_u32_le(topic.0);
            out.put_u64_le(through.get());
        }
        for (first, last) in &self.dropped {
            out.put_u64_le(first.get());
            out.put_u64_le(last.get());
        }
        for (topic, first, last) in &self.lost {
            out.put_u32_le(topic.0);
            out.put_u64_le(first.get());
            out.put_u64_le(last.get());
        }
        out.put_u32_le(crc32c::crc32c(&out));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_prefix(MAGIC)?;
        let version = fields.try_get_u32_le().ok()?;
        let topics = fields.try_get_u32_le().ok()?;
        let runs = fields.try_get_u32_le().ok()?;
        let lost = if version >= VERSION_LOST { fields.try_get_u32_le().ok()? } else { 0 };
        let mut trim_marks = Self::default();
        if version == VERSION_UNERASED {
            trim_marks.unerased_since = Some(fields.try_get_i64_le().ok()?);
        }
        for _ in 0..topics {
            let topic = TopicNumber(fields.try_get_u32_le().ok()?);
            trim_marks.trimmed.insert(topic, Sequence(fields.try_get_u64_le().ok()?));
        }
        for _ in 0..runs {
            let first = Position(fields.try_get_u64_le().ok()?);
            trim_marks.dropped.push((first, Position(fields.try_get_u64_le().ok()?)));
        }
        for _ in 0..lost {
            let topic = TopicNumber(fields.try_get_u32_le().ok()?);
            let first = Sequence(fields.try_get_u64_le().ok()?);
            trim_marks.lost.push((topic, first, Sequence(fields.try_get_u64_le().ok()?)));
        }
        let content = bytes.get(..bytes.len() - fields.len())?;
        let intact = fields.try_get_u32_le().ok()? == crc32c::crc32c(content);
        (intact && (VERSION..=VERSION_UNERASED).contains(&version)).then_some(trim_marks)
    }
}

/// The number of the marks' file: the holder of the lock may write the next.
#[derive(Debug, Default)]
pub(crate) struct TrimMarksFile {
    number: u64,
    /// The number of the valid file; 0 while there is none.
    current: u64,
}

impl TrimMarksFile {
    /// Loads the valid marks of the numbered files.
    pub(crate) fn load(disk: &dyn Disk, folder: &Path, mut numbers: Vec<u64>) -> Result<(Self, TrimMarks), LogError> {
        numbers.sort_unstable();
        let mut file = Self { number: numbers.last().copied().unwrap_or(0), current: 0 };
        for number in numbers.iter().rev().copied() {
            if let Some(trim_marks) = TrimMarks::decode(&read_all(disk, &marks_file(number))?) {
                file.current = number;
                return Ok((file, trim_marks));
            }
        }
        match numbers.last() {
            // Number 1 may be torn: nothing was removed before it, and its removal was never acknowledged.
            None | Some(1) => Ok((file, TrimMarks::default())),
            Some(number) => Err(LogError::Damaged(FileDamage {
                file: folder.join(marks_file(*number)),
                offset: 0,
                reason: "the removal marks do not match their checksum".to_owned(),
            })),
        }
    }

    /// The state to continue with if none of the numbered files is valid.
    pub(crate) fn after(numbers: &[u64]) -> Self {
        Self { number: numbers.iter().max().copied().unwrap_or(0), current: 0 }
    }

    /// Removes every numbered file except the valid one.
    pub(crate) fn tidy(&self, disk: &dyn Disk, numbers: &[u64]) -> io::Result<()> {
        let others = numbers.iter().filter(|number| **number != self.current);
        others.copied().try_for_each(|number| discard(disk, &marks_file(number)))
    }

    /// Stores the marks durably. On failure the ones before stay valid.
    pub(crate) fn store(&mut self, disk: &dyn Disk, trim_marks: &TrimMarks) -> io::Result<()> {
        self.number += 1;
        let name = marks_file(self.number);
        if let Err(cause) = write_durably(disk, &name, &trim_marks.encode()) {
            if let Err(error) = discard(disk, &name) {
                tracing::debug!(%error, "removal marks that were not stored stay as a file; opening removes it");
            }
            return Err(cause);
        }
        let before = std::mem::replace(&mut self.current, self.number);
        if before > 0 {
            // The newer one is used whether or not this one is gone.
            if let Err(error) = discard(disk, &marks_file(before)) {
                tracing::debug!(%error, "old removal marks stay as a file; opening removes it");
            }
        }
        Ok(())
    }
}

fn write_durably(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    crash_point("remove.before_mark");
    disk.write(name, 0, bytes)?;
    crash_point("remove.after_mark_write");
    disk.sync(Some(name))?;
    disk.sync(None)?;
    crash_point("remove.after_mark_sync");
    Ok(())
}

fn read_all(disk: &dyn Disk, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    loop {
        let filled = disk.read(name, 0, &mut bytes)?;
        if filled < bytes.len() {
            bytes.truncate(filled);
            return Ok(bytes);
        }
        bytes.resize(bytes.len() * 4, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_trip_to_disk_in_the_oldest_version_that_can_hold_them() {
        let topic = TopicNumber(3);
        let removed =
            TrimMarks::default().with_removed(topic, Sequence(5)).unwrap().with_dropped(Position(2), Position(9));
        let lost = removed.with_lost(&[(topic, Sequence(8), Sequence(9)), (topic, Sequence(11), Sequence(11))]);
        let unerased = removed.clone().with_unerased(1_700_000_000_000);
        let both = lost.clone().with_unerased(-5);
        for (trim_marks, version) in [(&removed, 1), (&lost, 2), (&unerased, 3), (&both, 3)] {
            let bytes = trim_marks.encode();
            assert_eq!(bytes[8], version);
            assert_eq!(TrimMarks::decode(&bytes).as_ref(), Some(trim_marks));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(TrimMarks::decode(&flipped), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_oldest_removal_that_is_not_erased_is_the_one_that_counts() {
        let trim_marks = TrimMarks::default().with_unerased(20).with_unerased(30);
        assert_eq!(trim_marks.unerased_since(), Some(20));
        assert_eq!(trim_marks.with_all_erased().with_unerased(30).unerased_since(), Some(30));
        assert_eq!(trim_marks.with_unerased(10).unerased_since(), Some(10), "a clock that was set back");
    }

    #[test]
    fn only_what_was_removed_or_lost_may_be_missing() {
        let topic = TopicNumber(3);
        let trim_marks = TrimMarks::default().with_removed(topic, Sequence(5)).unwrap();
        let trim_marks =
            trim_marks.with_lost(&[(topic, Sequence(8), Sequence(9)), (topic, Sequence(10), Sequence(10))]);
        for (after, next, unexplained) in [
            (0, 6, None),
            (0, 7, Some(6)),
            (7, 11, None),
            (7, 8, None),
            (7, 12, Some(11)),
            (8, 11, None),
            (10, 12, Some(11)),
        ] {
            let found = trim_marks.unexplained(topic, Sequence(after), Sequence(next));
            assert_eq!(found, unexplained.map(Sequence), "behind {after}, before {next}");
        }
        assert_eq!(trim_marks.unexplained(TopicNumber(4), Sequence(1), Sequence(3)), Some(Sequence(2)));
    }
}
