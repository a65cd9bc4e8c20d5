//! The survey of a damaged log: what is intact, frame by frame, and what a repair has to do.

use super::super::disk::Disk;
use super::super::file_names::{LogFileName, SegmentName, marks_file};
use super::super::frame::{FrameFlaw, FrameHeader};
use super::super::frame_scan::{self, FrameScanner, ScanStep, ScannedFrame};
use super::super::merge::merged_away;
use super::super::recover::HEAD_FLAW;
use super::super::segment_head::{HEAD_BYTES, SegmentHead};
use super::super::torn::LastSegment;
use super::super::trim_marks::{LostSequences, TrimMarks, TrimMarksFile};
use super::super::verify::verify_files;
use super::apply::{RepairAction, RepairPlan};
use super::{AcknowledgedState, RepairFinding, RepairReport};
use crate::{FileDamage, LogError, RecordHeader, TopicNumber};
use contract::{Position, Sequence};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const MARKS_REMEDY: &str =
    "rebuilt from what is there; removed events that are still in a segment become visible again";

/// The survey so far.
pub(super) struct LogSurvey<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    known: &'a AcknowledgedState,
    /// Generations of each base, lowest first.
    segments: BTreeMap<Position, Vec<u32>>,
    marks_numbers: Vec<u64>,
    trim_marks: TrimMarks,
    /// Whether the marks could not be read: then removed records cannot be distinguished from lost ones.
    marks_lost: bool,
    repair: RepairReport,
    remedies: Vec<RepairAction>,
    /// The last position accounted for.
    through: Position,
    /// The last sequence of each topic that is kept, and that was seen.
    kept: BTreeMap<TopicNumber, Sequence>,
    seen: BTreeMap<TopicNumber, Sequence>,
    time: i64,
}

/// The survey of one segment.
pub(super) struct SurveyedSegment {
    pub(super) head: SegmentHead,
    /// The offsets of the intact frames.
    pub(super) intact: Vec<(u64, FrameHeader)>,
    /// Records whose headers are intact and whose bodies are not.
    bad_bodies: Vec<RecordHeader>,
    /// The last position of any header.
    last: Option<Position>,
    is_sound: bool,
}

impl<'a> LogSurvey<'a> {
    pub(super) fn new(disk: &'a dyn Disk, folder: &'a Path, known: &'a AcknowledgedState) -> Result<Self, LogError> {
        let mut segments: BTreeMap<Position, Vec<u32>> = BTreeMap::new();
        let mut marks_numbers = Vec::new();
        for (name, _) in disk.list()? {
            match LogFileName::parse(&name) {
                Some(LogFileName::Segment(name)) => segments.entry(name.base).or_default().push(name.generation),
                Some(LogFileName::Marks(number)) => marks_numbers.push(number),
                Some(LogFileName::Index(_)) | None => {}
            }
        }
        segments.values_mut().for_each(|generations| generations.sort_unstable());
        let mut survey = Self {
            disk,
            folder,
            known,
            segments,
            marks_numbers,
            trim_marks: TrimMarks::default(),
            marks_lost: false,
            repair: RepairReport::default(),
            remedies: Vec::new(),
            through: Position::ZERO,
            kept: BTreeMap::new(),
            seen: BTreeMap::new(),
            time: i64::MIN,
        };
        survey.load_marks()?;
        Ok(survey)
    }

    fn load_marks(&mut self) -> Result<(), LogError> {
        match TrimMarksFile::load(self.disk, self.folder, self.marks_numbers.clone()) {
            Ok((_, marks)) => {
                self.trim_marks = marks;
                // Segments are rewritten for removals, and merged after an erasure.
                let has_rewritten = self.segments.values().any(|generations| generations.iter().any(|it| *it > 1));
                if self.marks_numbers.is_empty() && has_rewritten {
                    self.marks_lost = true;
                    let reason = "the removal marks are missing".to_owned();
                    let damage = FileDamage { file: self.folder.join(marks_file(1)), offset: 0, reason };
                    self.repair.findings.push(RepairFinding { damage, remedy: MARKS_REMEDY.to_owned() });
                }
            }
            Err(LogError::Damaged(damage)) => {
                self.marks_lost = true;
                self.repair.findings.push(RepairFinding { damage, remedy: MARKS_REMEDY.to_owned() });
                let files = self.marks_numbers.iter().map(|number| marks_file(*number));
                self.remedies.extend(files.map(RepairAction::Remove));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Surveys everything; returns the plan.
    pub(super) fn plan(mut self) -> Result<RepairPlan, LogError> {
        let bases: Vec<_> = self.segments.keys().copied().collect();
        let bases: Vec<_> = bases.into_iter().filter(|base| self.trim_marks.dropped_through(*base).is_none()).collect();
        let leftovers = merged_away(self.disk, &bases.iter().map(|base| self.name_of(*base)).collect::<Vec<_>>())?;
        let bases: Vec<_> = bases.into_iter().filter(|base| leftovers.iter().all(|name| name.base != *base)).collect();
        let mut readable = Vec::with_capacity(bases.len());
        for (number, base) in bases.iter().enumerate() {
            // A file without any readable frame does not even show that its segment existed.
            if self.head(self.name_of(*base), number + 1 == bases.len())?.is_some() {
                readable.push(*base);
            }
        }
        let bases = readable;
        for (number, base) in bases.iter().enumerate() {
            self.segment(*base, bases.get(number + 1).copied())?;
        }
        self.end();
        self.indexes()?;
        self.repair.lost_positions = merged(std::mem::take(&mut self.repair.lost_positions));
        self.repair.tail = self.through;
        self.repair.last_topic = self.seen.keys().next_back().copied().unwrap_or_default();
        let trim_marks = self.trim_marks.with_lost(&self.repair.lost_sequences);
        Ok(RepairPlan {
            repair: self.repair,
            remedies: self.remedies,
            marks: trim_marks,
            marks_numbers: self.marks_numbers,
        })
    }

    fn segment(&mut self, base: Position, next: Option<Position>) -> Result<(), LogError> {
        let name = self.name_of(base);
        if base <= self.through {
            let reason = format!("the file before it has its first position, and ends with {}", self.through);
            self.plan_removal(name, &reason);
            return Ok(());
        }
        let Some((head, is_read)) = self.readable_head(name)? else { return Ok(()) };
        if !is_read {
            self.find(name, 0, HEAD_FLAW, "the segment is rewritten with a new head");
        }
        let found = self.walk(head, next.is_none())?;
        let (expected, before) = (self.begins_behind(base), Position(base.get() - 1));
        if expected < base {
            let reason = format!("the segment before it is missing: positions {expected} to {before} are in no file");
            self.find(name, 0, &reason, "noted as lost");
            self.repair.lost_positions.push((expected, before));
            self.trim_marks = self.trim_marks.with_dropped(expected, before);
        }
        self.settle(found, next);
        Ok(())
    }

    /// The valid file of a base: the lowest generation.
    fn name_of(&self, base: Position) -> SegmentName {
        let generation = self.segments.get(&base).and_then(|generations| generations.first()).copied().unwrap_or(1);
        SegmentName { base, generation }
    }

    /// The position that should come next, after a dropped run.
    fn begins_behind(&self, base: Position) -> Position {
        let next = self.through.next();
        let behind = self.trim_marks.dropped_through(next).map_or(next, Position::next);
        behind.min(base)
    }

    /// A segment's head, as it is or reconstructed; `None` if no frame can be read with one, and the file is removed.
    fn head(&mut self, name: SegmentName, is_last: bool) -> Result<Option<SegmentHead>, LogError> {
        if let Some((head, _)) = self.readable_head(name)? {
            return Ok(Some(head));
        }
        let is_unused = is_last
            && name.base > self.known.acknowledged
            && frame_scan::zeros_from(self.disk, &name.file(), HEAD_BYTES as u64)?;
        // A file that was created and never used is removed on opening.
        if !is_unused {
            self.plan_removal(name, HEAD_FLAW);
        }
        Ok(None)
    }

    /// A segment's head, and whether it is valid; otherwise it is one with the salt in the damaged head.
    fn readable_head(&self, name: SegmentName) -> Result<Option<(SegmentHead, bool)>, LogError> {
        if let Some(head) = frame_scan::read_head(self.disk, name)? {
            return Ok(Some((head, true)));
        }
        let mut bytes = [0; HEAD_BYTES];
        self.disk.read(&name.file(), 0, &mut bytes)?;
        if SegmentHead::is_of_another_version(&bytes) {
            return Err(newer(&self.folder.join(name.file())));
        }
        let guessed = SegmentHead::with_salt_of(&bytes, name);
        let is_first = |frame: &FrameHeader| frame.header.position >= name.base;
        let first = FrameScanner::headers(self.disk, &guessed).search(HEAD_BYTES as u64, is_first)?;
        Ok(first.map(|_| (guessed, false)))
    }

    /// Scans a segment and records what is intact.
    fn walk(&mut self, head: SegmentHead, is_last: bool) -> Result<SurveyedSegment, LogError> {
        let is_read = frame_scan::read_head(self.disk, head.name)?.is_some();
        let mut found =
            SurveyedSegment { head, intact: Vec::new(), bad_bodies: Vec::new(), last: None, is_sound: is_read };
        let (mut end, mut is_growing) = (u64::MAX, false);
        if is_last && head.name.generation == 1 {
            let tail = LastSegment::read(self.disk, head, self.known.acknowledged)?.tail;
            is_growing = true;
            // A torn tail is cut off on opening.
            if tail.flaw.is_some() && !tail.is_damage {
                end = tail.end;
            }
        }
        let mut walk = FrameScanner::whole(self.disk, &head);
        while walk.offset() < end {
            match walk.step()? {
                ScanStep::End => break,
                ScanStep::Frame(frame) => self.frame(&mut found, &frame),
                ScanStep::Flaw(FrameFlaw::Field) => return Err(newer(&self.folder.join(head.name.file()))),
                ScanStep::Flaw(flaw) => {
                    found.is_sound = false;
                    self.find(head.name, walk.offset(), &flaw.to_string(), "cut out");
                    let from = walk.offset() + 1;
                    let Some(next) = FrameScanner::whole(self.disk, &head).search(from, |_| true)? else { break };
                    walk.resume(next);
                }
            }
        }
        if is_growing {
            found.forget_torn(self.known.acknowledged);
        }
        let bytes = found.end();
        if found.is_sound && head.rewritten.is_some_and(|it| it.bytes != bytes) {
            found.is_sound = false;
            self.find(head.name, bytes, "the rewritten segment ends too early", "rewritten with what is there");
        }
        Ok(found)
    }

    fn frame(&mut self, segment: &mut SurveyedSegment, found: &ScannedFrame) {
        let (name, header) = (segment.head.name, found.frame.header);
        let follows = segment.last.map_or(name.base, Position::next);
        let sequence = self.seen.get(&header.topic).copied().unwrap_or_default();
        if header.position < follows || header.sequence <= sequence || header.time < self.time {
            segment.is_sound = false;
            return self.find(name, found.offset, "a record's numbers do not follow the one before it", "cut out");
        }
        if name.generation == 1 && header.position > follows {
            segment.is_sound = false;
            self.repair.lost_positions.push((follows, Position(header.position.get() - 1)));
        }
        segment.last = Some(header.position);
        self.seen.insert(header.topic, header.sequence);
        self.time = header.time;
        match found.body {
            Ok(()) => segment.intact.push((found.offset, found.frame)),
            Err(flaw) => {
                segment.is_sound = false;
                segment.bad_bodies.push(header);
                self.find(name, found.offset, &flaw.to_string(), "cut out");
            }
        }
    }

    /// Decides what to do with a segment, and accounts for its positions and sequences.
    fn settle(&mut self, found: SurveyedSegment, next: Option<Position>) {
        let name = found.head.name;
        let base = name.base;
        let last = found.last.unwrap_or(Position(base.get() - 1));
        let ends_before = next.into_iter().chain(self.trim_marks.dropped_behind(base)).min();
        let through = match (found.head.rewritten, ends_before) {
            (Some(rewritten), _) => rewritten.through.max(last),
            (None, Some(before)) => Position(before.get() - 1).max(last),
            (None, None) if name.generation == 1 => last.max(self.known.acknowledged),
            (None, None) => last,
        };
        // A rewritten segment has holes: it is not known which positions are missing at its end.
        if name.generation == 1 && last < through {
            if found.is_sound {
                let reason = format!("the records from position {} to {through} are missing behind it", last.next());
                self.find(name, found.end(), &reason, "noted as lost");
                self.trim_marks = self.trim_marks.with_dropped(last.next(), through);
            }
            self.repair.lost_positions.push((last.next(), through));
        }
        for header in &found.bad_bodies {
            if !self.trim_marks.hides(header) {
                self.repair.lost.push(*header);
                self.repair.lost_positions.push((header.position, header.position));
            }
        }
        found.intact.iter().for_each(|(_, frame)| self.keep(&frame.header));
        self.through = through;
        if found.is_sound {
            return;
        }
        if found.intact.is_empty() {
            self.trim_marks = self.trim_marks.with_dropped(base, through);
            self.remedies.push(RepairAction::Remove(found.head.name.file()));
        } else {
            self.remedies.push(RepairAction::Rewrite(Box::new(found), through));
        }
    }

    /// Accounts for a record that is kept.
    fn keep(&mut self, header: &RecordHeader) {
        let topic = header.topic;
        let before = self.kept.insert(topic, header.sequence);
        if self.marks_lost && before.is_none() {
            // The records before it are taken for removed.
            let through = Sequence(header.sequence.get() - 1);
            self.trim_marks = self.trim_marks.with_removed(topic, through).unwrap_or_else(|| self.trim_marks.clone());
        }
        self.lose_sequences(topic, before.unwrap_or_default(), header.sequence);
    }

    fn lose_sequences(&mut self, topic: TopicNumber, after: Sequence, next: Sequence) {
        if let Some(first) = self.trim_marks.unexplained(topic, after, next) {
            let run: LostSequences = (topic, first, Sequence(next.get() - 1));
            self.repair.lost_sequences.push(run);
        }
    }

    /// Reports what is known to have been stored, and is missing.
    fn end(&mut self) {
        let known = self.trim_marks.dropped_through(self.through.next()).unwrap_or(self.through);
        self.through = known;
        if known < self.known.acknowledged {
            let reason = format!(
                "the checkpoint was taken at position {}, but the log ends at {known}: acknowledged records are missing",
                self.known.acknowledged
            );
            let damage = FileDamage { file: self.folder.to_owned(), offset: 0, reason };
            self.repair.findings.push(RepairFinding { damage, remedy: "noted as lost".to_owned() });
            self.repair.lost_positions.push((known.next(), self.known.acknowledged));
            self.trim_marks = self.trim_marks.with_dropped(known.next(), self.known.acknowledged);
            self.through = self.known.acknowledged;
        }
        let mut tails = self.seen.clone();
        for (topic, tail) in &self.known.tails {
            let seen = tails.entry(*topic).or_default();
            *seen = (*seen).max(*tail);
        }
        for (topic, tail) in tails {
            match self.kept.get(&topic).copied() {
                // Its other records are taken for removed.
                None if self.marks_lost => {
                    self.trim_marks =
                        self.trim_marks.with_removed(topic, tail).unwrap_or_else(|| self.trim_marks.clone());
                }
                kept => self.lose_sequences(topic, kept.unwrap_or_default(), tail.next()),
            }
        }
    }

    /// Reports indexes that do not match their segments; missing ones are rebuilt on opening.
    fn indexes(&mut self) -> Result<(), LogError> {
        let report = verify_files(self.disk, self.folder, Position::ZERO, |_| {})?;
        for damage in report.damages {
            let file = damage.file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if matches!(LogFileName::parse(&file), Some(LogFileName::Index(_))) {
                self.repair.findings.push(RepairFinding { damage, remedy: "removed; it is rebuilt".to_owned() });
                self.remedies.push(RepairAction::Discard(file));
            }
        }
        Ok(())
    }

    fn plan_removal(&mut self, name: SegmentName, reason: &str) {
        self.find(name, 0, reason, "nothing in it can be used; the file is removed");
        self.remedies.push(RepairAction::Remove(name.file()));
    }

    fn find(&mut self, name: SegmentName, offset: u64, reason: &str, remedy: &str) {
        let damage = FileDamage { file: self.folder.join(name.file()), offset, reason: reason.to_owned() };
        self.repair.findings.push(RepairFinding { damage, remedy: remedy.to_owned() });
    }
}

impl SurveyedSegment {
    /// Where its intact frames end.
    fn end(&self) -> u64 {
        self.intact.last().map_or(HEAD_BYTES as u64, |(at, frame)| at + frame.bytes() as u64)
    }

    /// Drops a last batch that is incomplete and was never acknowledged.
    fn forget_torn(&mut self, acknowledged: Position) {
        let last = self.intact.last().map(|(_, frame)| *frame);
        let Some(last) = last.filter(|frame| !frame.slot.last && frame.header.position > acknowledged) else { return };
        if self.last == Some(last.header.position) && !self.is_sound {
            self.intact.retain(|(_, frame)| frame.batch_start() != last.batch_start());
            self.last = self.intact.last().map(|(_, frame)| frame.header.position);
        }
    }
}

/// Runs that overlap or touch, as one.
fn merged(mut runs: Vec<(Position, Position)>) -> Vec<(Position, Position)> {
    runs.sort_unstable();
    let mut merged: Vec<(Position, Position)> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(before) if run.0 <= before.1.next() => before.1 = before.1.max(run.1),
            _ => merged.push(run),
        }
    }
    merged
}

fn newer(file: &Path) -> LogError {
    let reason = format!("{} was written by a newer version of the broker; repair it with that", file.display());
    io::Error::new(io::ErrorKind::Unsupported, reason).into()
}
