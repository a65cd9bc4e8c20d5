//! The background thread: it writes indexes of sealed segments and frees space.
//!
//! - Every task can be repeated: one that fails is retried with the next one, and nothing depends on it.
//! - Only this thread replaces, merges and drops sealed segments, one after the other.
//! - Between tasks it checks whether removed records have to be erased ([`super::erase`]), and how much space is free
//!   ([`super::space`]).

use super::disk::discard;
use super::erase::{EraseUrgency, IDLE_AFTER, urgency};
use super::index::{LiveIndex, PagedIndex, SegmentIndex, encode_index};
use super::rewrite;
use super::segment_head::SegmentHead;
use super::segment_retention::{SegmentAction, choose};
use super::state::{SealedSegment, SharedLog};
use super::writer::LogWriter;
use super::{Disk, index::LookupError};
use crate::{LogError, crash_point};
use contract::Position;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often the thread checks whether something has to be erased, and the free space.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The back-off after erasing has failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A task of the background thread.
pub(crate) enum BackgroundTask {
    /// Write missing indexes and free space.
    Tidy,
    /// Check whether there is room again.
    FillReserve,
    /// Erase everything that was removed, and report when it is done.
    Erase(oneshot::Sender<Result<(), LogError>>),
    /// Check whether something removed has to be erased, and the free space.
    Look,
    /// Report when all earlier tasks are done.
    Settle(Sender<()>),
    /// End.
    Stop,
}

/// Executes tasks until `Stop`. `data_folder` is where torn appends are kept, if not beside the log's files.
pub(crate) fn run(
    shared: Arc<SharedLog>,
    writer: Arc<Mutex<LogWriter>>,
    data_folder: Option<PathBuf>,
    chores: &Receiver<BackgroundTask>,
) {
    let last_append = (shared.state().tail, (shared.options.now)());
    let mut background = BackgroundWorker {
        shared,
        writer,
        data_folder,
        damaged: HashSet::new(),
        waiting: Vec::new(),
        last_append,
        failed_at: None,
        has_more: false,
        probes_space: false,
    };
    loop {
        let chore = background.next_chore(chores);
        background.shared.space.look(&*background.shared.disk);
        match chore {
            BackgroundTask::Look => {
                if std::mem::take(&mut background.probes_space) {
                    background.shared.reserve.fill(&*background.shared.disk);
                }
                background.erase_if_urgent();
            }
            BackgroundTask::Erase(done) => {
                background.waiting.push(done);
                background.has_more = true;
            }
            BackgroundTask::Tidy => {
                background.tidy();
                // A series of tasks must not delay erasing.
                background.erase_if_urgent();
            }
            BackgroundTask::FillReserve if background.shared.reserve.is_missing() => {
                background.shared.reserve.fill(&*background.shared.disk);
            }
            // Later: what is being decided on the full log frees space, and must find it full, so that it has the reserve.
            BackgroundTask::FillReserve => background.probes_space = true,
            BackgroundTask::Settle(done) => {
                // The caller may have stopped waiting.
                let _ = done.send(());
            }
            BackgroundTask::Stop => break,
        }
    }
}

/// Writes the index of a sealed segment and opens it.
pub(crate) fn write_index(disk: &dyn Disk, head: &SegmentHead, live: &LiveIndex) -> Result<PagedIndex, LookupError> {
    let Some(index) = encode_index(live, head) else { return Err(LookupError::BadIndex) };
    let file = head.name.index_file();
    discard(disk, &file)?;
    crash_point("seal.before_index");
    disk.write(&file, index.head.len() as u64, &index.body)?;
    disk.sync(Some(&file))?;
    disk.write(&file, 0, &index.head)?;
    crash_point("seal.after_index_write");
    disk.sync(Some(&file))?;
    disk.sync(None)?;
    crash_point("seal.after_index_sync");
    PagedIndex::open(disk, head)
}

/// Logs a failure, which is retried: an operator should know of a full disk.
fn warn_on_failure(outcome: Result<(), LookupError>, what: &str, segment: &SealedSegment) {
    if let Err(LookupError::Failed(error)) = outcome {
        tracing::warn!(segment = segment.name().base.get(), %error, "{what}; it is retried");
    }
}

pub(super) struct BackgroundWorker {
    pub(super) shared: Arc<SharedLog>,
    /// Seals the growing segment; its lock is held no longer than a roll takes.
    pub(super) writer: Arc<Mutex<LogWriter>>,
    /// Where torn appends are kept in `cut/`.
    pub(super) data_folder: Option<PathBuf>,
    /// Segments that cannot be rewritten because a record to keep is damaged.
    pub(super) damaged: HashSet<Position>,
    /// Callers that wait until everything removed is erased.
    waiting: Vec<oneshot::Sender<Result<(), LogError>>>,
    /// The tail when it was last seen to change, and the time of that, in milliseconds.
    last_append: (Position, i64),
    /// When erasing last failed, in milliseconds.
    failed_at: Option<i64>,
    /// Whether there is more to erase at once. Requested tasks still come first.
    has_more: bool,
    /// Whether to check for room at the next look: the reserve is there, and an append found the disk full.
    probes_space: bool,
}

impl BackgroundWorker {
    /// The next requested task, or `Look` if there is none for a while.
    fn next_chore(&self, chores: &Receiver<BackgroundTask>) -> BackgroundTask {
        let is_watching = self.shared.options.erase_within.is_some() || self.shared.space.is_on();
        if !is_watching && !self.probes_space && self.waiting.is_empty() {
            return chores.recv().unwrap_or(BackgroundTask::Stop);
        }
        let wait = if self.has_more { Duration::ZERO } else { LOOK_EVERY };
        chores.recv_timeout(wait).unwrap_or_else(|nothing| match nothing {
            RecvTimeoutError::Timeout => BackgroundTask::Look,
            RecvTimeoutError::Disconnected => BackgroundTask::Stop,
        })
    }

    /// Erases removed records from one segment, if that is urgent.
    fn erase_if_urgent(&mut self) {
        let urgent = self.urgency();
        self.has_more = false;
        if urgent == EraseUrgency::Wait {
            return;
        }
        let outcome = self.erase_next(urgent == EraseUrgency::Due);
        self.has_more = urgent == EraseUrgency::Due && matches!(outcome, Ok(true));
        self.failed_at = outcome.is_err().then(self.shared.options.now);
        if let Err(error) = &outcome {
            tracing::warn!(%error, "removed events were not erased; it is retried");
        }
        if !self.has_more && urgent == EraseUrgency::Due {
            for waiting in self.waiting.drain(..) {
                // The caller may have stopped waiting.
                let _ = waiting.send(outcome.as_ref().map(|_| ()).map_err(LogError::clone));
            }
        }
    }

    fn urgency(&mut self) -> EraseUrgency {
        let (tail, since) = {
            let state = self.shared.state();
            (state.tail, state.trim_marks.unerased_since())
        };
        let options = &self.shared.options;
        let now = (options.now)();
        if tail != self.last_append.0 {
            self.last_append = (tail, now);
        }
        if !self.waiting.is_empty() {
            return EraseUrgency::Due;
        }
        // A clock that is set back or ahead causes one more wait at most.
        let has_passed = |time: i64, wait: Duration| u128::from(now.abs_diff(time)) >= wait.as_millis();
        if self.failed_at.is_some_and(|failed| !has_passed(failed, RETRY_AFTER)) {
            return EraseUrgency::Wait;
        }
        let is_idle = has_passed(self.last_append.1, IDLE_AFTER);
        // A clock that was ahead when something was removed must not delay its erasure.
        if since.is_some_and(|since| since > now) {
            let _held = self.shared.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self.shared.state_mut();
            state.trim_marks = Arc::new(state.trim_marks.as_ref().clone().with_unerased(now));
        }
        urgency(since, now, options.erase_within, is_idle)
    }

    /// Writes a segment's index. On failure it stays in RAM, and the next task retries.
    pub(super) fn seal_or_warn(&self, segment: &Arc<SealedSegment>) {
        warn_on_failure(self.seal(segment), "the index of a segment was not written", segment);
    }

    /// Notes that a segment cannot be rewritten.
    pub(super) fn note_damaged(&mut self, segment: &SealedSegment) {
        let base = segment.name().base;
        tracing::error!(segment = base.get(), "a segment is not rewritten because a record in it is damaged");
        self.damaged.insert(base);
    }

    fn tidy(&mut self) {
        let segments = self.shared.state().sealed.clone();
        for segment in &segments {
            // On failure the index stays in RAM, which works as well; the next task retries.
            self.seal_or_warn(segment);
        }
        self.seal_growing_if_short();
        self.reclaim();
        self.merge_small();
        self.shared.reserve.fill(&*self.shared.disk);
        self.shared.space.look(&*self.shared.disk);
    }

    fn seal(&self, segment: &Arc<SealedSegment>) -> Result<(), LookupError> {
        let SegmentIndex::Live(live) = &segment.index else { return Ok(()) };
        let disk = &*self.shared.disk;
        // Zeros that were written ahead of the next append are no longer needed.
        disk.truncate(&segment.name().file(), segment.summary.bytes)?;
        let paged = write_index(disk, &segment.head, live)?;
        let sealed =
            SealedSegment { head: segment.head, summary: segment.summary.clone(), index: SegmentIndex::Paged(paged) };
        self.shared.state_mut().replace(segment, Arc::new(sealed));
        Ok(())
    }

    /// While room is short, seals the growing segment if retention would rewrite or drop it: it may take most of a small volume.
    fn seal_growing_if_short(&self) {
        if self.shared.space.room().allows_growth() && !self.shared.reserve.is_full() {
            return;
        }
        let is_wanted = {
            let state = self.shared.state();
            let growing = state.active.as_ref().and_then(|active| active.index.summary());
            growing.is_some_and(|growing| choose(&growing, &state.trim_marks) != SegmentAction::Keep)
        };
        if is_wanted && let Err(error) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).seal() {
            tracing::warn!(%error, "the growing segment was not sealed, and its space is not freed; it is retried");
        }
    }

    /// Executes what retention chooses. A segment that fails stays unchanged.
    fn reclaim(&mut self) {
        let (segments, trim_marks) = {
            let state = self.shared.state();
            (state.sealed.clone(), Arc::clone(&state.trim_marks))
        };
        for segment in &segments {
            let base = segment.name().base;
            match choose(&segment.summary, &trim_marks) {
                SegmentAction::Keep => {}
                SegmentAction::Drop => {
                    warn_on_failure(
                        self.drop_segment(segment).map_err(LookupError::from),
                        "a segment was not dropped",
                        segment,
                    );
                }
                SegmentAction::Rewrite if self.damaged.contains(&base) => {}
                SegmentAction::Rewrite => match rewrite::rewrite(&self.shared, segment, &trim_marks) {
                    Ok(Some(rewritten)) => self.seal_or_warn(&rewritten),
                    Ok(None) => self.note_damaged(segment),
                    Err(LookupError::BadIndex) => _ = self.shared.rebuild_index(segment),
                    missed => warn_on_failure(missed.map(drop), "a segment was not rewritten", segment),
                },
            }
        }
    }

    /// Records durably that the segment is dropped, then removes its files.
    pub(super) fn drop_segment(&self, segment: &SealedSegment) -> io::Result<()> {
        let name = segment.name();
        {
            let mut file = self.shared.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
            let trim_marks = self.shared.state().trim_marks.with_dropped(name.base, segment.through());
            let disk = &*self.shared.disk;
            self.shared.reserve.spend_if_full(disk, || file.store(disk, &trim_marks))?;
            let mut state = self.shared.state_mut();
            state.trim_marks = Arc::new(trim_marks);
            state.drop_sealed(name.base);
        }
        let disk = &*self.shared.disk;
        discard(disk, &name.file())?;
        discard(disk, &name.index_file())?;
        disk.sync(None)
    }
}
