//! Appending: one batch after the other, each one write and one sync.
//!
//! - A batch is checked, written, synced, made visible, and then acknowledged; nothing is visible before it is durable.
//! - A failed write, sync or roll poisons the log: the state of the disk is unknown, so nothing more is appended until the
//!   log is opened again. Reading continues, up to the last durable position.
//! - A write that fails because the disk is full does not poison a log with a reserve: its bytes are truncated, and the caller
//!   gets the error that the log is full.
//! - A file that cannot be opened because no descriptor is left does not poison it either: nothing was written, and the caller
//!   may retry.
//! - Work per record is kept small: encode, checksum, push.

use super::background::BackgroundTask;
use super::disk::{discard, is_disk_full};
use super::file_names::SegmentName;
use super::frame::{self, BODY_BYTES_MAX, BatchSlot};
use super::index::SegmentIndex;
use super::open_files::is_out_of_files;
use super::segment_head::SegmentHead;
use super::state::{ActiveSegment, LogState, SealedSegment, SharedLog};
use crate::{LogError, Record, RecordHeader, TopicNumber, crash_point};
use contract::{Position, Sequence};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

/// The limit of bytes of one batch on disk; offsets in a segment must fit in 32 bits.
const BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// A buffer that grew beyond this for one large batch is freed.
const BUFFER_BYTES_KEPT: usize = 8 * 1024 * 1024;
/// The free space is checked after this many bytes: more often than by the background thread under load.
const WATCH_BYTES: u64 = 1024 * 1024;

/// Appends batches.
pub(crate) struct LogWriter {
    shared: Arc<SharedLog>,
    /// The batch as it goes to disk; reused.
    buffer: Vec<u8>,
    /// Bytes of each frame in it.
    frames: Vec<usize>,
    /// Bytes written since the free space was last checked here.
    unwatched_bytes: u64,
    /// Why nothing more is appended.
    poison: Option<Arc<io::Error>>,
}

/// Why a batch was not stored.
enum StoreError {
    /// No descriptor was left for its file, before anything of it was written.
    NotOpened(io::Error),
    /// There was no room. What was written of it was truncated.
    NoRoom(io::Error),
    /// A write or sync failed.
    Failed(io::Error),
}

impl StoreError {
    /// The failure of the first write to a file, which opens it. Further writes need no descriptor.
    fn of_first_write(cause: io::Error) -> Self {
        if is_out_of_files(&cause) { Self::NotOpened(cause) } else { Self::Failed(cause) }
    }
}

impl From<io::Error> for StoreError {
    fn from(cause: io::Error) -> Self {
        Self::Failed(cause)
    }
}

impl LogWriter {
    pub(crate) fn new(shared: Arc<SharedLog>) -> Self {
        Self { shared, buffer: Vec::new(), frames: Vec::new(), unwatched_bytes: 0, poison: None }
    }

    /// Checks the batch against the tail, then makes it durable and visible.
    pub(crate) fn append(&mut self, after: Position, batch: Vec<Record>) -> Result<(), LogError> {
        if let Some(cause) = &self.poison {
            return Err(LogError::Poisoned(Arc::clone(cause)));
        }
        self.admit(after, &batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.store(batch).map_err(|failure| match failure {
            StoreError::NotOpened(cause) => LogError::Unavailable(Arc::new(cause)),
            StoreError::NoRoom(cause) => LogError::Full(Arc::new(cause)),
            StoreError::Failed(cause) => {
                let cause = Arc::new(cause);
                self.poison = Some(Arc::clone(&cause));
                LogError::Poisoned(cause)
            }
        })
    }

    /// Seals the growing segment and begins the next one, so that the sealed one can be rewritten; returns whether there was
    /// one to seal. If the next one cannot be begun, its file is removed durably: appends continue in the segment before it,
    /// and a file that reappears after a power cut would claim their positions. Then nothing is poisoned. On a full disk this
    /// fails: it is maintenance, and the reserve is for freeing space.
    pub(crate) fn seal(&mut self) -> Result<bool, LogError> {
        if let Some(cause) = &self.poison {
            return Err(LogError::Poisoned(Arc::clone(cause)));
        }
        let (tail, tail_time) = {
            let state = self.shared.state();
            if state.active.as_ref().is_none_or(|active| active.index.count() == 0) {
                return Ok(false);
            }
            (state.tail, state.tail_time)
        };
        let head = head_behind(tail, tail_time, tail_time);
        let disk = &*self.shared.disk;
        let begun = disk.write(&head.name.file(), 0, &head.encode()).and_then(|()| self.sync_begun(&head));
        if let Err(cause) = begun {
            if let Err(left) = discard(disk, &head.name.file()).and_then(|()| disk.sync(None)) {
                self.poison = Some(Arc::new(left));
            }
            return Err(cause.into());
        }
        Ok(self.install(head))
    }

    /// Checks everything that can be refused without writing.
    fn admit(&self, after: Position, batch: &[Record]) -> Result<(), LogError> {
        let state = self.shared.state();
        if after != state.tail {
            return Err(LogError::TailMoved(state.tail));
        }
        check_numbers(after, state.tail_time, batch)?;
        check_sequences(batch, &state)?;
        let too_long = batch.iter().any(|record| record.body.len() > BODY_BYTES_MAX);
        if too_long || batch.iter().map(frame::frame_bytes).sum::<usize>() > BATCH_BYTES_MAX {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "a body or batch is longer than a log can hold");
            return Err(cause.into());
        }
        Ok(())
    }

    fn store(&mut self, batch: Vec<Record>) -> Result<(), StoreError> {
        let (head, sealed) = self.segment_for(&batch)?;
        self.encode(&batch, head.salt);
        let offset = self.shared.state().active.as_ref().map_or(0, |active| active.index.bytes());
        self.write(&head.name.file(), offset)?;
        self.shared.state_mut().push_batch(batch, &self.frames);
        let tail = self.shared.state().tail;
        self.shared.tail.send_replace(tail);
        crash_point("append.after_visible");
        self.unwatched_bytes += self.buffer.len() as u64;
        if sealed || self.unwatched_bytes >= WATCH_BYTES {
            self.unwatched_bytes = 0;
            self.shared.space.look(&*self.shared.disk);
        }
        if sealed {
            // After the batch is durable: an index can wait.
            let _ = self.shared.chores.send(BackgroundTask::Tidy);
        }
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// The one place where records become durable.
    fn write(&self, file: &str, offset: u64) -> Result<(), StoreError> {
        crash_point("append.before_write");
        let disk = &*self.shared.disk;
        let written = self.shared.reserve.append(disk, || disk.write(file, offset, &self.buffer));
        written.or_else(|cause| {
            self.take_back(cause, || disk.truncate(file, offset).and_then(|()| disk.sync(Some(file))))
        })?;
        crash_point("append.after_write");
        self.shared.disk.sync(Some(file))?;
        crash_point("append.after_sync");
        Ok(())
    }

    /// Handles a failed write. If there was only no room, the disk is as before after `undo`.
    fn take_back(&self, cause: io::Error, undo: impl FnOnce() -> io::Result<()>) -> Result<(), StoreError> {
        if !self.shared.reserve.is_on() || !is_disk_full(&cause) {
            return Err(StoreError::of_first_write(cause));
        }
        undo()?;
        Err(StoreError::NoRoom(cause))
    }

    fn encode(&mut self, batch: &[Record], salt: u32) {
        self.buffer.clear();
        self.frames.clear();
        for (record, index) in batch.iter().zip(0..) {
            let start = self.buffer.len();
            let last = index as usize + 1 == batch.len();
            frame::encode(record, BatchSlot { index, last }, salt, &mut self.buffer);
            self.frames.push(self.buffer.len() - start);
        }
        debug_assert_eq!(self.frames.iter().sum::<usize>(), self.buffer.len(), "frames follow each other");
    }

    /// The segment for the batch: a new one if there is none or the last is full; and whether that was sealed.
    fn segment_for(&self, batch: &[Record]) -> Result<(SegmentHead, bool), StoreError> {
        let (tail, time_floor) = {
            let state = self.shared.state();
            let has_room = |active: &&ActiveSegment| {
                let is_small = active.index.bytes() < self.shared.options.segment_bytes_clamped();
                // If records after it were lost, it ends before them: a segment has no holes until it is rewritten.
                active.last() == state.tail && (active.index.count() == 0 || is_small)
            };
            if let Some(active) = state.active.as_ref().filter(has_room) {
                return Ok((active.head, false));
            }
            (state.tail, state.tail_time)
        };
        let created = batch.first().map_or(time_floor, |record| record.header.time);
        let head = head_behind(tail, created, time_floor);
        self.create(&head)?;
        Ok((head, self.install(head)))
    }

    fn create(&self, head: &SegmentHead) -> Result<(), StoreError> {
        let (disk, file) = (&self.shared.disk, head.name.file());
        crash_point("roll.before_create");
        let written = self.shared.reserve.append(&**disk, || disk.write(&file, 0, &head.encode()));
        written.or_else(|cause| self.take_back(cause, || discard(&**disk, &file).and_then(|()| disk.sync(None))))?;
        Ok(self.sync_begun(head)?)
    }

    /// Makes the head of a segment durable, then its name.
    fn sync_begun(&self, head: &SegmentHead) -> io::Result<()> {
        crash_point("roll.after_create");
        self.shared.disk.sync(Some(&head.name.file()))?;
        crash_point("roll.after_header_sync");
        self.shared.disk.sync(None)?;
        crash_point("roll.after_folder_sync");
        Ok(())
    }

    /// Makes the segment the growing one; returns whether the one before was sealed.
    fn install(&self, head: SegmentHead) -> bool {
        let mut next = ActiveSegment::empty(head);
        let mut state = self.shared.state_mut();
        if let Some(full) = &state.active {
            next.index = next.index.with_room_of(&full.index);
        }
        let Some(full) = state.active.replace(next) else { return false };
        let Some(summary) = full.index.summary() else { return false };
        state.push_sealed(Arc::new(SealedSegment { head: full.head, summary, index: SegmentIndex::Live(full.index) }));
        true
    }
}

/// The head of a new segment after `tail`.
fn head_behind(tail: Position, created: i64, time_floor: i64) -> SegmentHead {
    let name = SegmentName { base: tail.next(), generation: 1 };
    SegmentHead { name, created, time_floor, salt: random(), rewritten: None }
}

fn check_numbers(after: Position, mut time: i64, batch: &[Record]) -> Result<(), LogError> {
    let mut last = after;
    for Record { header, .. } in batch {
        if header.position != last.next() {
            return Err(LogError::Misnumbered("positions must be dense from the tail"));
        }
        if header.time < time {
            return Err(LogError::Misnumbered("times must not fall"));
        }
        (last, time) = (header.position, header.time);
    }
    Ok(())
}

/// The caller assigns sequences, but an index with decreasing ones would give wrong results permanently, and it counts them in
/// 32 bits from the first of the segment.
fn check_sequences(batch: &[Record], state: &LogState) -> Result<(), LogError> {
    let mut known: HashMap<TopicNumber, (Sequence, Sequence)> = HashMap::new();
    for run in batch.chunk_by(|one, next| one.header.topic == next.header.topic) {
        let Some(RecordHeader { topic, sequence, .. }) = run.first().map(|record| record.header) else { continue };
        let (first, mut last) = known.get(&topic).copied().unwrap_or_else(|| {
            let active = state.active.as_ref().and_then(|active| active.index.topic(topic));
            (active.map_or(sequence, |topic| topic.first), state.last_sequence(topic))
        });
        for Record { header, .. } in run {
            if header.sequence <= last {
                return Err(LogError::Misnumbered("sequences of a topic must increase"));
            }
            if header.sequence.get() - first.get() > u64::from(u32::MAX) {
                return Err(LogError::Misnumbered("sequences of a topic must not skip that many numbers"));
            }
            last = header.sequence;
        }
        known.insert(topic, (first, last));
    }
    Ok(())
}

/// A random number that the authors of bodies do not know.
fn random() -> u32 {
    RandomState::new().hash_one(0u8) as u32
}
