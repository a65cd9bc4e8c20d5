//! Verifying a whole log without changing it: every frame, every checksum, every number, every index.
//!
//! - What opening corrects by itself is not damage: a torn last append, an unfinished rewrite or merge, a missing index. A torn
//!   append is reported nevertheless; and one that is known to be acknowledged is damage.
//! - The scan continues after damage, at the next record that can be recognised.

use super::file_names::{LogFileName, SegmentName};
use super::folder_disk::{FolderDisk, FolderLock};
use super::frame::FrameHeader;
use super::frame_scan::{self, FrameScanner, ScanStep, ScannedFrame};
use super::index::{LiveIndex, LookupError, encode_index, index_is_finished};
use super::merge::merged_away;
use super::recover::HEAD_FLAW;
use super::segment_head::{HEAD_BYTES, SegmentHead};
use super::torn::LastSegment;
use super::trim_marks::{TrimMarks, TrimMarksFile};
use super::{Disk, LOG_FOLDER};
use crate::{FileDamage, LogError, TopicNumber};
use contract::{Position, Sequence};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments checked.
    pub segments: u64,
    /// Records checked.
    pub records: u64,
    /// Bytes of segments checked.
    pub bytes: u64,
    /// What is wrong. Empty: nothing.
    pub damages: Vec<FileDamage>,
    /// An incomplete append at the end. It was never acknowledged; opening cuts it off and copies it to `cut/`.
    pub torn: Option<FileDamage>,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Segments checked so far.
    pub segments: u64,
    /// The number of segments.
    pub segments_total: u64,
}

/// Checks the log of a data folder that no broker has open. Everything through `acknowledged` must be in it, unless it was
/// removed.
pub fn verify(
    folder: &Path,
    acknowledged: Position,
    progress: impl FnMut(VerifyProgress),
) -> Result<VerifyReport, LogError> {
    let log_folder = folder.join(LOG_FOLDER);
    // Before taking the lock, which would create the folder.
    log_folder.metadata()?;
    let _lock = FolderLock::acquire(folder)?;
    let disk = FolderDisk::open(&log_folder)?;
    verify_files(&disk, disk.folder(), acknowledged, progress)
}

/// Checks a log on any disk that nothing else uses in the meantime.
pub fn verify_disk(
    disk: &dyn Disk,
    acknowledged: Position,
    progress: impl FnMut(VerifyProgress),
) -> Result<VerifyReport, LogError> {
    verify_files(disk, Path::new(""), acknowledged, progress)
}

pub(super) fn verify_files(
    disk: &dyn Disk,
    folder: &Path,
    acknowledged: Position,
    mut progress: impl FnMut(VerifyProgress),
) -> Result<VerifyReport, LogError> {
    let mut segments: BTreeMap<Position, SegmentName> = BTreeMap::new();
    let mut trim_marks = Vec::new();
    for (name, _) in disk.list()? {
        match LogFileName::parse(&name) {
            Some(LogFileName::Segment(name)) => {
                segments.entry(name.base).and_modify(|lower| *lower = name.min(*lower)).or_insert(name);
            }
            Some(LogFileName::Marks(number)) => trim_marks.push(number),
            Some(LogFileName::Index(_)) | None => {}
        }
    }
    let mut check = LogVerifier::new(disk, folder.to_owned(), acknowledged);
    match TrimMarksFile::load(disk, &check.folder, trim_marks) {
        Ok((_, marks)) => check.trim_marks = marks,
        Err(LogError::Damaged(damage)) => check.report.damages.push(damage),
        Err(error) => return Err(error),
    }
    segments.retain(|base, _| check.trim_marks.dropped_through(*base).is_none());
    for name in merged_away(disk, &segments.values().copied().collect::<Vec<_>>())? {
        segments.remove(&name.base);
    }
    let segments_total = segments.len() as u64;
    for (name, number) in segments.into_values().zip(1..) {
        check.segment(name, number == segments_total)?;
        progress(VerifyProgress { segments: number, segments_total });
    }
    check.end();
    Ok(check.report)
}

struct LogVerifier<'a> {
    disk: &'a dyn Disk,
    folder: PathBuf,
    acknowledged: Position,
    trim_marks: TrimMarks,
    report: VerifyReport,
    /// The position the next segment should begin with, if known.
    next: Option<Position>,
    time: i64,
    /// The last sequence of each topic.
    sequences: HashMap<TopicNumber, Sequence>,
    /// Whether records were skipped: after that a gap in a topic is not reported.
    lost_records: bool,
}

impl<'a> LogVerifier<'a> {
    fn new(disk: &'a dyn Disk, folder: PathBuf, acknowledged: Position) -> Self {
        let (marks, report, sequences) = (TrimMarks::default(), VerifyReport::default(), HashMap::new());
        let (next, time, lost_records) = (Some(Position(1)), i64::MIN, false);
        Self { disk, folder, acknowledged, trim_marks: marks, report, next, time, sequences, lost_records }
    }

    fn segment(&mut self, name: SegmentName, is_last: bool) -> Result<(), LogError> {
        self.report.segments += 1;
        let Some(head) = frame_scan::read_head(self.disk, name)? else {
            // A last segment that has only a torn head was never used.
            let was_used = !is_last || name.base <= self.acknowledged;
            if was_used || !frame_scan::zeros_from(self.disk, &name.file(), HEAD_BYTES as u64)? {
                self.damage(&name.file(), 0, HEAD_FLAW);
                self.lost_records = true;
                self.next = None;
            }
            return Ok(());
        };
        self.base(name);
        let end = if is_last && head.rewritten.is_none() { self.end_of_last(head)? } else { u64::MAX };
        let mut walk = SegmentScan::new(head);
        self.walk(&mut walk, end)?;
        self.finish(&walk, is_last);
        if walk.is_whole && !is_last {
            self.index(&head, &walk.index)?;
        }
        Ok(())
    }

    /// A segment must begin where the one before it ends, or after a dropped run.
    fn base(&mut self, name: SegmentName) {
        let Some(next) = self.next else { return };
        let next = self.trim_marks.dropped_through(next).map_or(next, Position::next);
        if name.base != next {
            let reason = format!("it should begin with position {next}: a segment before it is missing");
            self.damage(&name.file(), 0, &reason);
            self.lost_records = true;
        }
    }

    /// Where the last segment's complete batches end, if only a torn append follows.
    fn end_of_last(&mut self, head: SegmentHead) -> io::Result<u64> {
        let tail = LastSegment::read(self.disk, head, self.acknowledged)?.tail;
        let Some((offset, reason)) = tail.flaw.filter(|_| !tail.is_damage) else { return Ok(u64::MAX) };
        self.report.torn = Some(FileDamage { file: self.folder.join(head.name.file()), offset, reason });
        Ok(tail.end)
    }

    /// Everything that was acknowledged must be there. If something was reported as lost, that is what is missing.
    fn end(&mut self) {
        let Some(next) = self.next.filter(|_| self.report.damages.is_empty()) else { return };
        let tail = self.trim_marks.dropped_through(next).unwrap_or(Position(next.get() - 1));
        if tail < self.acknowledged {
            let reason = format!(
                "the checkpoint in state/ was taken at position {}, but the log ends at {tail}: acknowledged records are \
                 missing",
                self.acknowledged
            );
            self.damage("", 0, &reason);
        }
    }

    fn walk(&mut self, segment: &mut SegmentScan, end: u64) -> io::Result<()> {
        let mut walk = FrameScanner::whole(self.disk, &segment.head);
        while walk.offset() < end {
            match walk.step()? {
                ScanStep::End => break,
                ScanStep::Frame(found) => self.record(segment, &found),
                ScanStep::Flaw(flaw) => {
                    segment.lose_track();
                    self.lost_records = true;
                    self.damage(&segment.head.name.file(), walk.offset(), &flaw.to_string());
                    let from = walk.offset() + 1;
                    let Some(next) = FrameScanner::whole(self.disk, &segment.head).search(from, |_| true)? else {
                        break;
                    };
                    walk.resume(next);
                }
            }
        }
        self.report.bytes += walk.offset();
        Ok(())
    }

    fn record(&mut self, segment: &mut SegmentScan, found: &ScannedFrame) {
        let header = found.frame.header;
        self.report.records += 1;
        let sequence = self.sequences.insert(header.topic, header.sequence).unwrap_or_default();
        let lost_sequences = self.trim_marks.unexplained(header.topic, sequence, header.sequence).is_some();
        let reason = if let Err(flaw) = found.body {
            Some(flaw.to_string())
        } else if let Some(reason) = segment.misplaced(&found.frame) {
            Some(reason.to_owned())
        } else if header.time < self.time {
            Some("the record's time is before the one before it".to_owned())
        } else if header.sequence <= sequence || (lost_sequences && !self.lost_records) {
            Some(format!("sequence {} of topic {} follows {sequence}", header.sequence, header.topic.0))
        } else {
            None
        };
        if let Some(reason) = reason {
            self.damage(&segment.head.name.file(), found.offset, &reason);
        }
        self.time = self.time.max(header.time);
        segment.pass(&found.frame);
    }

    /// Checks that are possible only at the end of a segment.
    fn finish(&mut self, segment: &SegmentScan, is_last: bool) {
        let (file, end) = (segment.head.name.file(), segment.index.bytes());
        self.next = (!segment.lost_track).then_some(segment.next);
        match segment.head.rewritten {
            Some(rewritten) => {
                self.next = Some(rewritten.through.next());
                if segment.is_whole && rewritten.bytes != end {
                    self.damage(&file, end, "the rewritten segment ends too early");
                }
            }
            None if segment.is_whole && segment.in_batch > 0 => {
                self.damage(&file, end, "the last batch is not complete");
            }
            None if segment.index.count() == 0 && segment.is_whole && !is_last => {
                self.damage(&file, end, "a sealed segment holds no record");
            }
            None => {}
        }
    }

    /// An index must be exactly what its segment gives. A missing or unfinished one is rebuilt on opening.
    fn index(&mut self, head: &SegmentHead, live: &LiveIndex) -> Result<(), LogError> {
        match index_is_finished(self.disk, head) {
            Ok(true) => {}
            Err(LookupError::Failed(error)) => return Err(error),
            _ => return Ok(()),
        }
        let file = head.name.index_file();
        let Some(index) = encode_index(live, head) else { return Ok(()) };
        let expected = [index.head, index.body].concat();
        let mut stored = vec![0; expected.len() + 1];
        let filled = self.disk.read(&file, 0, &mut stored)?;
        stored.truncate(filled);
        if stored != expected {
            let same = stored.iter().zip(&expected).take_while(|(stored, expected)| stored == expected).count();
            self.damage(&file, same as u64, "the index does not match its segment; it will be rebuilt when it is read");
        }
        Ok(())
    }

    fn damage(&mut self, file: &str, offset: u64, reason: &str) {
        self.report.damages.push(FileDamage { file: self.folder.join(file), offset, reason: reason.to_owned() });
    }
}

/// One segment, as far as it was scanned.
struct SegmentScan {
    head: SegmentHead,
    index: LiveIndex,
    /// The position that should come next.
    next: Position,
    /// Records of the current batch so far.
    in_batch: u32,
    /// Whether every frame so far was found where it should be.
    is_whole: bool,
    /// Whether records may just have been skipped.
    lost_track: bool,
}

impl SegmentScan {
    fn new(head: SegmentHead) -> Self {
        let index = LiveIndex::new(head.name.base, HEAD_BYTES as u64);
        Self { head, index, next: head.name.base, in_batch: 0, is_whole: true, lost_track: false }
    }

    /// What is wrong with a frame's position.
    fn misplaced(&self, frame: &FrameHeader) -> Option<&'static str> {
        let position = frame.header.position;
        if self.head.rewritten.is_some() || self.lost_track {
            return (position < self.next).then_some("the record's position does not follow the one before it");
        }
        if position != self.next {
            Some("the record's position does not follow the one before it")
        } else if frame.slot.index != self.in_batch {
            Some("the record is not where it should be in its batch")
        } else {
            None
        }
    }

    fn pass(&mut self, frame: &FrameHeader) {
        self.next = frame.header.position.next();
        self.in_batch = if frame.slot.last || self.head.rewritten.is_some() { 0 } else { frame.slot.index + 1 };
        self.index.push(&frame.header, frame.bytes());
        self.lost_track = false;
    }

    fn lose_track(&mut self) {
        self.is_whole = false;
        self.lost_track = true;
    }
}
