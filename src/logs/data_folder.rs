//! A log in a data folder, opened with what its checkpoint shows to be acknowledged.

use crate::clock::{Clock, SystemClock};
use crate::ledger::{LastCheckpoint, last_checkpoint};
use log::file::{
    AcknowledgedState, CUT_FOLDER, FileLog, FileLogOptions, LOG_FOLDER, OPEN_FILES_DEFAULT, OpenFiles, SpaceLimits,
    reserve_bytes, volume_space,
};
use log::{FileDamage, LogError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The folder inside a data folder that holds the tables and checkpoints of its log.
pub const STATE_FOLDER: &str = "state";

/// The folder with the tables of a data folder's log.
pub(crate) fn state_of(folder: &Path) -> PathBuf {
    folder.join(STATE_FOLDER)
}

/// What the checkpoint of a data folder shows to be acknowledged in its log. A damaged checkpoint, or one of another
/// version, shows nothing, and is not used when the log is opened, either. An error if the system refuses to read it:
/// then its content is unknown, not empty.
pub fn acknowledged_state(folder: &Path) -> io::Result<AcknowledgedState> {
    let LastCheckpoint { position, tails, .. } = match last_checkpoint(&state_of(folder)) {
        Err(error) if is_unreadable(&error) => LastCheckpoint::default(),
        read => read?,
    };
    Ok(AcknowledgedState { acknowledged: position, tails })
}

/// Whether the error means that the checkpoint is damaged, or that the file is not a checkpoint.
fn is_unreadable(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof | NotADirectory | IsADirectory)
}

/// The file in which a repair of a data folder's log notes what was lost, until that is recorded in the log itself.
#[must_use]
pub fn pending_repair(folder: &Path) -> PathBuf {
    folder.join(CUT_FOLDER).join("repair.json")
}

/// The settings of the log in a data folder.
#[derive(Debug, Clone)]
pub(crate) struct FolderSettings {
    /// The size at which segments are sealed.
    pub(crate) segment_bytes: u64,
    /// The limit of open files, shared by all logs.
    pub(crate) open_files: Arc<OpenFiles>,
    /// How much space must be free on its volumes.
    pub(crate) space_limits: SpaceLimits,
    /// How long the bytes of removed events may stay in files; `None`: nothing is erased for its age.
    pub(crate) erase_within: Option<Duration>,
}

impl FolderSettings {
    /// The settings for a tool that opens a log once.
    fn once(segment_bytes: u64) -> Self {
        let (open_files, space_limits) = (OpenFiles::new(OPEN_FILES_DEFAULT), SpaceLimits::default());
        Self { segment_bytes, open_files, space_limits, erase_within: None }
    }
}

/// Opens the log of a data folder. What its checkpoint shows to be acknowledged is not mistaken for a torn append.
/// Refuses a log whose repair was interrupted: numbers of lost events would be assigned again.
pub fn open_folder(folder: &Path, segment_bytes: u64) -> Result<FileLog, LogError> {
    open_folder_with(folder, FolderSettings::once(segment_bytes))
}

/// Opens the log of a data folder with the settings of a broker.
fn open_folder_with(folder: &Path, settings: FolderSettings) -> Result<FileLog, LogError> {
    let pending = pending_repair(folder);
    if pending.try_exists()? {
        let reason = "a repair was interrupted; run it again, it continues where it stopped".to_owned();
        return Err(LogError::Damaged(FileDamage { file: pending, offset: 0, reason }));
    }
    open_checked(folder, settings)
}

/// Opens the log of a data folder on a thread of its own, because recovery reads the disk: while a broker is opened
/// again, its server must answer requests.
pub(crate) async fn open_folder_apart(folder: PathBuf, settings: FolderSettings) -> Result<FileLog, LogError> {
    let opened = tokio::task::spawn_blocking(move || open_folder_with(&folder, settings)).await;
    opened.unwrap_or_else(|failed| Err(io::Error::other(failed).into()))
}

/// Opens the log of a data folder for the repair that records in it what was lost.
pub(super) fn open_repaired(folder: &Path, segment_bytes: u64) -> Result<FileLog, LogError> {
    open_checked(folder, FolderSettings::once(segment_bytes))
}

fn open_checked(folder: &Path, settings: FolderSettings) -> Result<FileLog, LogError> {
    warn_of_readers(folder);
    let acknowledged = acknowledged_state(folder)?.acknowledged;
    let FolderSettings { segment_bytes, open_files, space_limits, erase_within } = settings;
    let options = FileLogOptions {
        segment_bytes,
        acknowledged,
        // Before the first start the folder does not exist; the next start replaces a reserve of another size.
        reserve_bytes: reserve_bytes(segment_bytes, volume_space(folder).ok().flatten()),
        space_limits,
        // The tables may be mounted elsewhere.
        watched_folders: vec![state_of(folder)],
        erase_within,
        now: || SystemClock.read().wall,
        open_files,
        ..FileLogOptions::default()
    };
    FileLog::open_folder(folder, options)
}

/// Warns of a data folder that other users than its owner can read: the broker creates files for the owner alone, but
/// an older version, or another program, may have created files that are not.
pub(crate) fn warn_of_readers(folder: &Path) {
    let Ok(found) = std::fs::metadata(folder) else { return };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            folder = %folder.display(),
            mode = format!("{mode:o}"),
            "users other than its owner can read the data folder; `chmod -R go= FOLDER` keeps events and keys private"
        );
    }
}

/// What to do about a damaged log; `file` is one of its files.
pub(crate) fn repair_advice(file: &Path) -> String {
    let inside = |name: &str| file.ancestors().find(|path| path.file_name().is_some_and(|it| it == name));
    let folder = inside(LOG_FOLDER).or_else(|| inside(STATE_FOLDER)).or_else(|| inside(CUT_FOLDER));
    let folder = folder.and_then(Path::parent).unwrap_or(file);
    format!(
        "nothing was changed; restore a backup, or see what can be saved: event-broker repair --data {} --dry-run",
        folder.display()
    )
}
