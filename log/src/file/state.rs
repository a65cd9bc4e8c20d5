//! The engine's state in RAM: the sealed segments, the growing one, the hot tail, and the removal marks.
//!
//! - One lock protects all of it; it is held for work in memory only, never during a disk call.
//! - Only the appending thread changes `active`, `hot` and `tail`; only the background thread replaces, merges or drops sealed
//!   segments.
//! - Everything in it is durable. The tail's watch changes after the state, so a woken reader finds the records.

use super::FileLogOptions;
use super::background::BackgroundTask;
use super::frame::FrameFlaw;
use super::hot_tail::HotTail;
use super::index::{LiveIndex, SegmentIndex, SegmentSummary, TopicSummary};
use super::reserve::DiskReserve;
use super::segment_head::{HEAD_BYTES, SegmentHead};
use super::space::SpaceWatch;
use super::trim_marks::{TrimMarks, TrimMarksFile};
use super::{Disk, file_names::SegmentName};
use crate::{FileDamage, Record, TopicNumber};
use contract::{Position, Sequence};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// The parts that the threads and readers of one log share.
pub(crate) struct SharedLog {
    pub(crate) disk: Arc<dyn Disk>,
    /// The folder of the files, for messages; empty on a disk that is not a folder.
    pub(crate) folder: PathBuf,
    pub(crate) options: FileLogOptions,
    state: RwLock<LogState>,
    /// Held while marks are written. Taken before the state's lock, never while that is held.
    pub(crate) marks_file: Mutex<TrimMarksFile>,
    pub(crate) tail: watch::Sender<Position>,
    pub(crate) chores: Sender<BackgroundTask>,
    pub(crate) reserve: DiskReserve,
    pub(crate) space: SpaceWatch,
}

/// Everything behind the lock.
pub(crate) struct LogState {
    /// Sealed segments, by base.
    pub(crate) sealed: Vec<Arc<SealedSegment>>,
    /// The growing segment; absent until the first append, and after a rewritten last segment.
    pub(crate) active: Option<ActiveSegment>,
    /// The sealed segments of each topic.
    runs: HashMap<TopicNumber, Vec<TopicRun>>,
    pub(crate) hot: HotTail,
    pub(crate) trim_marks: Arc<TrimMarks>,
    /// The last durable position, and its time.
    pub(crate) tail: Position,
    pub(crate) tail_time: i64,
}

/// A segment that no longer grows.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub(crate) head: SegmentHead,
    pub(crate) summary: SegmentSummary,
    pub(crate) index: SegmentIndex,
}

/// The segment that grows.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) head: SegmentHead,
    pub(crate) index: LiveIndex,
}

/// The end of a topic's records in one sealed segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicRun {
    pub(crate) base: Position,
    /// The last position that the segment covers.
    pub(crate) through: Position,
    pub(crate) last: Sequence,
    pub(crate) last_time: i64,
}

impl SealedSegment {
    /// Its file.
    pub(crate) fn name(&self) -> SegmentName {
        self.head.name
    }

    /// The last position it covers, removed ones included.
    pub(crate) fn through(&self) -> Position {
        self.head.rewritten.map_or(self.summary.last, |rewritten| rewritten.through)
    }

    /// Where each topic's records in it end.
    fn topic_runs(&self) -> impl Iterator<Item = (TopicNumber, TopicRun)> {
        let (base, through) = (self.name().base, self.through());
        let run = move |topic: &TopicSummary| TopicRun { base, through, last: topic.last, last_time: topic.last_time };
        self.summary.topics.iter().map(move |topic| (topic.topic, run(topic)))
    }
}

impl ActiveSegment {
    /// A segment without records.
    pub(crate) fn empty(head: SegmentHead) -> Self {
        Self { head, index: LiveIndex::new(head.name.base, HEAD_BYTES as u64) }
    }

    /// The last position in it, or the one before it while it is empty.
    pub(crate) fn last(&self) -> Position {
        self.index.last().unwrap_or(Position(self.head.name.base.get() - 1))
    }
}

impl LogState {
    /// The state of the log that was found on disk.
    pub(crate) fn new(
        sealed: Vec<Arc<SealedSegment>>,
        active: Option<ActiveSegment>,
        trim_marks: TrimMarks,
        options: &FileLogOptions,
    ) -> Self {
        let (tail, tail_time) = match (&active, sealed.last()) {
            (Some(active), _) => (active.last(), active.index.last_time().unwrap_or(active.head.time_floor)),
            (None, Some(last)) => (last.through(), last.summary.last_time),
            (None, None) => (Position::ZERO, i64::MIN),
        };
        let tail = trim_marks.dropped_through(tail.next()).unwrap_or(tail);
        let hot = HotTail::new(tail, options.tail_cache_bytes);
        let mut state = Self {
            sealed: Vec::new(),
            active,
            runs: HashMap::new(),
            hot,
            trim_marks: Arc::new(trim_marks),
            tail,
            tail_time,
        };
        sealed.into_iter().for_each(|segment| state.push_sealed(segment));
        state
    }

    /// Adds the newest sealed segment.
    pub(crate) fn push_sealed(&mut self, segment: Arc<SealedSegment>) {
        segment.topic_runs().for_each(|(topic, run)| self.runs.entry(topic).or_default().push(run));
        self.sealed.push(segment);
    }

    /// Puts `segment` in the place of the one with its base, if that is still `expected`.
    pub(crate) fn replace(&mut self, expected: &Arc<SealedSegment>, segment: Arc<SealedSegment>) -> bool {
        let Some(at) = self.position_of(expected.name().base) else { return false };
        let Some(place) = self.sealed.get_mut(at).filter(|place| Arc::ptr_eq(place, expected)) else { return false };
        let gone = expected.summary.topics.iter().filter(|topic| segment.summary.topic(topic.topic).is_none());
        gone.for_each(|topic| forget_run(&mut self.runs, topic.topic, expected.name().base));
        *place = segment;
        true
    }

    /// Puts `merged` in the place of neighbouring segments, if they are all still `expected`.
    pub(crate) fn replace_run(&mut self, expected: &[Arc<SealedSegment>], merged: Arc<SealedSegment>) -> bool {
        let Some(first) = expected.first().and_then(|first| self.position_of(first.name().base)) else { return false };
        let places = self.sealed.get(first..first + expected.len()).unwrap_or_default();
        if places.len() != expected.len() || !places.iter().zip(expected).all(|(now, then)| Arc::ptr_eq(now, then)) {
            return false;
        }
        for segment in expected {
            segment.topic_runs().for_each(|(topic, run)| forget_run(&mut self.runs, topic, run.base));
        }
        for (topic, run) in merged.topic_runs() {
            let runs = self.runs.entry(topic).or_default();
            runs.insert(runs.partition_point(|other| other.base < run.base), run);
        }
        self.sealed.splice(first..first + expected.len(), [merged]);
        debug_assert!(
            self.sealed.is_sorted_by(|one, next| one.through() < next.name().base),
            "segments do not overlap"
        );
        true
    }

    /// Forgets the sealed segment with this base.
    pub(crate) fn drop_sealed(&mut self, base: Position) {
        let Some(at) = self.position_of(base) else { return };
        let segment = self.sealed.remove(at);
        segment.summary.topics.iter().for_each(|topic| forget_run(&mut self.runs, topic.topic, base));
    }

    /// The sealed segment with this base.
    pub(crate) fn sealed(&self, base: Position) -> Option<&Arc<SealedSegment>> {
        self.position_of(base).and_then(|at| self.sealed.get(at))
    }

    /// Whether a sealed segment that begins before this position covers it.
    pub(crate) fn covers(&self, position: Position) -> bool {
        let behind = self.sealed.partition_point(|segment| segment.name().base < position);
        let before = behind.checked_sub(1).and_then(|at| self.sealed.get(at));
        before.is_some_and(|segment| position <= segment.through())
    }

    /// A topic's sealed segments, oldest first.
    pub(crate) fn runs(&self, topic: TopicNumber) -> &[TopicRun] {
        self.runs.get(&topic).map(Vec::as_slice).unwrap_or_default()
    }

    /// The last sequence a topic ever had; 0 if it never had a record.
    pub(crate) fn last_sequence(&self, topic: TopicNumber) -> Sequence {
        let active = self.active.as_ref().and_then(|active| active.index.topic(topic)).map(|summary| summary.last);
        let stored = active.or_else(|| self.runs(topic).last().map(|run| run.last)).unwrap_or_default();
        stored.max(self.trim_marks.removed_through(topic))
    }

    /// Makes a durable batch visible. `frames` are the bytes of each record on disk.
    pub(crate) fn push_batch(&mut self, batch: Vec<Record>, frames: &[usize]) {
        let Some(active) = &mut self.active else { return };
        for (record, frame_bytes) in batch.into_iter().zip(frames) {
            debug_assert_eq!(record.header.position, self.tail.next(), "positions are dense");
            debug_assert!(record.header.time >= self.tail_time, "times do not decrease");
            active.index.push(&record.header, *frame_bytes);
            (self.tail, self.tail_time) = (record.header.position, record.header.time);
            self.hot.push(record);
        }
    }

    fn position_of(&self, base: Position) -> Option<usize> {
        self.sealed.binary_search_by_key(&base, |segment| segment.name().base).ok()
    }
}

/// Forgets a topic's run: a rewritten segment may have lost a topic, a dropped one has lost all.
fn forget_run(runs: &mut HashMap<TopicNumber, Vec<TopicRun>>, topic: TopicNumber, base: Position) {
    if let Some(list) = runs.get_mut(&topic) {
        list.retain(|run| run.base != base);
        if list.is_empty() {
            runs.remove(&topic);
        }
    }
}

impl SharedLog {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        options: FileLogOptions,
        (state, marks_file): (LogState, TrimMarksFile),
        chores: Sender<BackgroundTask>,
    ) -> Self {
        let (tail, reserve) = (watch::Sender::new(state.tail), DiskReserve::new(options.reserve_bytes));
        let space = SpaceWatch::new(options.space_limits, options.watched_folders.clone());
        let (state, marks_file) = (RwLock::new(state), Mutex::new(marks_file));
        Self { disk, folder, options, state, marks_file, tail, chores, reserve, space }
    }

    /// The state, for reading. It is never left half changed, so it stays valid after a panic elsewhere.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, LogState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for writing.
    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, LogState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Damage in one of the log's files.
    pub(crate) fn damage(&self, file: &str, offset: u64, reason: FrameFlaw) -> FileDamage {
        FileDamage { file: self.folder.join(file), offset, reason: reason.to_string() }
    }
}
