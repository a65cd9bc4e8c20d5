//! The file engine: an append-only sequence of segment files in a folder. `docs/format.md` describes the bytes.
//!
//! - An append is one write and one sync, by one thread; nothing is visible before the sync.
//! - A sealed segment never changes. Its index is a cache: if it is missing or bad, it is rebuilt from the records.
//! - A removal writes a durable mark; the space is freed in the background, by dropping, rewriting and merging files.
//! - Only the end of the last append can be torn, and is cut off on opening. Anything else that is wrong is damage: it is
//!   reported with file and offset, never guessed at.
//!
//! ```text
//!  append ──▶ log's thread ──▶ write, fdatasync ──▶ state (index, hot tail) ──▶ tail ──▶ return
//!                                     │ roll                   ▲
//!                                     ▼                        │
//!  remove ──▶ trimmed.n ──▶        background: write .idx, rewrite, merge, drop
//!
//!  read ──▶ hot tail, in RAM ──else──▶ segment by segment: index ──▶ locations ──▶ one large read ──▶ checked records
//! ```

mod background;
mod backup;
mod cut_folder;
mod disk;
mod erase;
mod fetch;
mod file_names;
mod find;
mod folder_disk;
mod frame;
mod frame_scan;
mod hot_tail;
mod index;
mod list_segments;
mod merge;
mod open_files;
mod read;
mod recover;
mod repair;
mod reserve;
mod rewrite;
mod segment_head;
mod segment_retention;
mod space;
mod state;
mod torn;
mod trim_marks;
mod verify;
mod writer;

pub use backup::{BackupProgress, backup};
pub use cut_folder::CUT_FOLDER;
pub use disk::{Disk, VolumeSpace, is_disk_full};
pub use folder_disk::{FolderDisk, FolderLock, private_file, private_folder, volume_space};
pub use open_files::{OPEN_FILES_DEFAULT, OpenFiles, is_out_of_files};
pub use repair::{AcknowledgedState, RepairFinding, RepairReport, repair, repair_disk};
pub use reserve::{RESERVE_BYTES, reserve_bytes};
pub use space::SpaceLimits;
pub use trim_marks::LostSequences;
pub use verify::{VerifyProgress, VerifyReport, verify, verify_disk};

use crate::{
    FileDamage, Log, LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, StorageRoom, TopicNumber,
};
use background::BackgroundTask;
use contract::{BoxFuture, Position, Segment, Sequence};
use cut_folder::CutFolder;
use recover::{RecoveredLog, recover};
use segment_retention::holds_removed;
use state::SharedLog;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use writer::LogWriter;

/// The folder of the log inside a data folder.
pub const LOG_FOLDER: &str = "log";
/// The folder inside a data folder that contains other data folders, of topics with a log of their own.
pub const SIDE_LOGS_FOLDER: &str = "logs";
/// Offsets in a segment must fit in 32 bits, with the longest batch after the longest segment.
const SEGMENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The options of a log in files.
#[derive(Debug, Clone)]
pub struct FileLogOptions {
    /// A segment that has grown to this many bytes is sealed, and the next one begins. At most 1 GiB.
    pub segment_bytes: u64,
    /// Bytes of the last records kept in RAM for readers at the tail.
    pub tail_cache_bytes: usize,
    /// The last position known to have been acknowledged, 0 if unknown. Anything wrong at or below it is damage, never a torn
    /// append.
    pub acknowledged: Position,
    /// Bytes reserved on the disk for freeing space when it is full; 0: none.
    pub reserve_bytes: u64,
    /// How much space must be free on its volume.
    pub space_limits: SpaceLimits,
    /// Folders beside the log's own whose volumes are watched as well.
    pub watched_folders: Vec<PathBuf>,
    /// How long the bytes of removed records may stay in the files; `None`: until half of a segment is removed.
    pub erase_within: Option<Duration>,
    /// The wall clock, in milliseconds since 1970. Needed with `erase_within`; the default stands still.
    pub now: fn() -> i64,
    /// Bounds the files that it keeps open, together with the other logs that share this value.
    pub open_files: Arc<OpenFiles>,
}

impl Default for FileLogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            tail_cache_bytes: 8 * 1024 * 1024,
            acknowledged: Position::ZERO,
            reserve_bytes: 0,
            space_limits: SpaceLimits::default(),
            watched_folders: Vec::new(),
            erase_within: None,
            now: || 0,
            open_files: OpenFiles::new(OPEN_FILES_DEFAULT),
        }
    }
}

impl FileLogOptions {
    fn segment_bytes_clamped(&self) -> u64 {
        self.segment_bytes.min(SEGMENT_BYTES_MAX)
    }
}

/// A log in files. Dropping it finishes work that has begun and releases the folder.
pub struct FileLog {
    shared: Arc<SharedLog>,
    /// One append at a time. The background thread has it too, to seal the growing segment.
    writer: Arc<Mutex<LogWriter>>,
    /// The background thread.
    thread: Option<JoinHandle<()>>,
    cuts: Vec<FileDamage>,
    /// Released last.
    _lock: Option<FolderLock>,
}

impl FileLog {
    /// Opens the log of a data folder, which belongs to this process until the log is dropped.
    ///
    /// [`LogError::Locked`] if another process has it; [`LogError::Damaged`] if it is damaged: then nothing was changed.
    pub fn open_folder(folder: &Path, options: FileLogOptions) -> Result<Self, LogError> {
        let lock = FolderLock::acquire(folder)?;
        let disk = FolderDisk::open_with(&folder.join(LOG_FOLDER), Arc::clone(&options.open_files))?;
        let path = disk.folder().to_path_buf();
        Self::start(Arc::new(disk), path, options, &CutFolder::In(folder), Some(lock))
    }

    /// Opens the log on any disk, which nothing else may use in the meantime.
    pub fn open(disk: Arc<dyn Disk>, options: FileLogOptions) -> Result<Self, LogError> {
        let beside = Arc::clone(&disk);
        Self::start(disk, PathBuf::new(), options, &CutFolder::On(&beside), None)
    }

    /// What was cut off when it was opened: a torn append that was never acknowledged.
    #[must_use]
    pub fn cuts(&self) -> &[FileDamage] {
        &self.cuts
    }

    /// Waits until the background work requested so far is done.
    pub async fn settle(&self) {
        let (done, is_done) = mpsc::channel();
        let _ = self.shared.chores.send(BackgroundTask::Settle(done));
        // An error means that the background thread has ended, and its work with it.
        let _ = blocking(move || Ok(is_done.recv().is_ok())).await;
    }

    fn start(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        options: FileLogOptions,
        cuts_in: &CutFolder<'_>,
        lock: Option<FolderLock>,
    ) -> Result<Self, LogError> {
        let RecoveredLog { state, marks_file, cuts, bad_bodies } = recover(&*disk, &folder, &options, cuts_in)?;
        for cut in &cuts {
            tracing::warn!(file = %cut.file.display(), offset = cut.offset, reason = cut.reason, "cut off a torn tail");
        }
        for FileDamage { file, offset, reason } in &bad_bodies {
            tracing::warn!(file = %file.display(), offset, reason, "a record cannot be read; everything else can");
        }
        let (chores, keepers) = mpsc::channel();
        let shared = Arc::new(SharedLog::new(disk, folder, options, (state, marks_file), chores));
        let writer = Arc::new(Mutex::new(LogWriter::new(Arc::clone(&shared))));
        let (keeping, sealing, data_folder) = (Arc::clone(&shared), Arc::clone(&writer), cuts_in.data_folder());
        let keeper = thread::Builder::new().name("log-keeper".to_owned());
        let thread = Some(keeper.spawn(move || background::run(keeping, sealing, data_folder, &keepers))?);
        shared.reserve.fill(&*shared.disk);
        if shared.reserve.is_missing() {
            tracing::error!("the disk is full: there is no room for the reserve, and only what frees space is stored");
        }
        shared.space.look(&*shared.disk);
        // Indexes and removals that the last run did not finish.
        let _ = shared.chores.send(BackgroundTask::Tidy);
        shared.note_unerased();
        Ok(Self { shared, writer, thread, cuts, _lock: lock })
    }
}

impl Log for FileLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        // On the thread that polls: handing it to another thread would leave the disk idle twice per batch.
        Box::pin(async move { self.writer.lock().unwrap_or_else(PoisonError::into_inner).append(after, batch) })
    }

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            if let Some(answer) = self.shared.read_hot(range, limit) {
                return answer;
            }
            if let Some(page) = self.shared.read_cached(range, limit) {
                return Ok(page);
            }
            let shared = Arc::clone(&self.shared);
            blocking(move || shared.read(range, limit)).await
        })
    }

    fn headers(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<RecordHeader>, LogError>> {
        Box::pin(async move {
            if let Some(answer) = self.shared.read_hot(range, limit) {
                return Ok(answer?.into_iter().map(|record| record.header).collect());
            }
            let shared = Arc::clone(&self.shared);
            blocking(move || shared.read_headers(range, limit)).await
        })
    }

    fn tail(&self) -> watch::Receiver<Position> {
        self.shared.tail.subscribe()
    }

    fn find(&self, what: RecordQuery) -> BoxFuture<'_, Result<Option<RecordHeader>, LogError>> {
        Box::pin(async move {
            if let Some(answer) = self.shared.find_hot(what) {
                return Ok(answer);
            }
            let shared = Arc::clone(&self.shared);
            blocking(move || shared.find(what)).await
        })
    }

    fn segments(&self, topic: TopicNumber) -> BoxFuture<'_, Result<Vec<Segment>, LogError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(blocking(move || shared.segments(topic)))
    }

    fn remove(&self, topic: TopicNumber, through: Sequence) -> BoxFuture<'_, Result<(), LogError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(blocking(move || shared.remove(topic, through)))
    }

    fn erase(&self) -> BoxFuture<'_, Result<(), LogError>> {
        let (done, is_done) = oneshot::channel();
        let _ = self.shared.chores.send(BackgroundTask::Erase(done));
        let closing = || LogError::Unavailable(Arc::new(io::Error::other("the log is being closed")));
        Box::pin(async move { is_done.await.unwrap_or_else(|_| Err(closing())) })
    }

    fn give_space_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.settle())
    }

    fn room(&self) -> StorageRoom {
        if !self.shared.reserve.is_full() {
            return self.shared.space.room();
        }
        if self.shared.reserve.should_check_space() {
            let _ = self.shared.chores.send(BackgroundTask::FillReserve);
        }
        StorageRoom::Full
    }

    fn storage_warning(&self) -> Option<String> {
        if self.shared.reserve.is_full() {
            return Some(
                "its disk is full, so nothing is stored but what frees space until there is room again. Trim topics, or make \
                 room on the volume."
                    .to_owned(),
            );
        }
        self.shared.space.warning()
    }
}

impl SharedLog {
    /// Marks records as removed, durably; the background thread frees their space.
    fn remove(&self, topic: TopicNumber, through: Sequence) -> Result<(), LogError> {
        let mut file = self.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
        let trim_marks = {
            let state = self.state();
            // Records that are appended later are not removed.
            state.trim_marks.with_removed(topic, through.min(state.last_sequence(topic)))
        };
        let Some(mut trim_marks) = trim_marks else { return Ok(()) };
        if self.options.erase_within.is_some() {
            trim_marks = trim_marks.with_unerased((self.options.now)());
        }
        self.reserve.spend_if_full(&*self.disk, || file.store(&*self.disk, &trim_marks))?;
        self.state_mut().trim_marks = Arc::new(trim_marks);
        let _ = self.chores.send(BackgroundTask::Tidy);
        Ok(())
    }
}

impl SharedLog {
    /// Notes since when something has to be erased, if the marks, of an older version, do not say so.
    fn note_unerased(&self) {
        let mut file = self.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
        let trim_marks = {
            let state = self.state();
            let growing = state.active.as_ref().and_then(|active| active.index.summary());
            let mut summaries = state.sealed.iter().map(|segment| &segment.summary).chain(&growing);
            let holds_removed = summaries.any(|summary| holds_removed(&summary.topics, &state.trim_marks));
            if !holds_removed || state.trim_marks.unerased_since().is_some() || self.options.erase_within.is_none() {
                return;
            }
            state.trim_marks.as_ref().clone().with_unerased((self.options.now)())
        };
        if let Err(error) = file.store(&*self.disk, &trim_marks) {
            tracing::warn!(%error, "the time of a removal was not noted; the next removal, or start, notes it");
        }
        self.state_mut().trim_marks = Arc::new(trim_marks);
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        let _ = self.shared.chores.send(BackgroundTask::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been logged.
            let _ = thread.join();
        }
    }
}

/// Does disk work on a thread where it does not block a runtime's tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    match Handle::try_current() {
        Ok(runtime) => {
            let done = runtime.spawn_blocking(work).await;
            done.unwrap_or_else(|failed| Err(io::Error::other(failed).into()))
        }
        Err(_) => work(),
    }
}
