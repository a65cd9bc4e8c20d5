//! A log in a data folder: opened with what its checkpoint knows of it.

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

/// Where the tables of a data folder's log are.
pub(crate) fn state_of(folder: &Path) -> PathBuf {
    folder.join(STATE_FOLDER)
}

/// What is known of the log of a data folder from its checkpoint. One that is damaged, or of another version, knows nothing,
/// and is not believed when the log is opened either. An error where nobody can tell, because the system refuses to read it:
/// what it knows must not be taken for nothing.
pub fn acknowledged_state(folder: &Path) -> io::Result<AcknowledgedState> {
    let LastCheckpoint { position, tails, .. } = match last_checkpoint(&state_of(folder)) {
        Err(error) if is_unreadable(&error) => LastCheckpoint::default(),
        read => read?,
    };
    Ok(AcknowledgedState { acknowledged: position, tails })
}

/// Whether a checkpoint is there that says nothing, or something that is no checkpoint.
fn is_unreadable(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof | NotADirectory | IsADirectory)
}

/// Where a repair of a data folder's log notes what it lost, until the log says so itself.
#[must_use]
pub fn pending_repair(folder: &Path) -> PathBuf {
    folder.join(CUT_FOLDER).join("repair.json")
}

/// How the log of a data folder is kept.
#[derive(Debug, Clone)]
pub(crate) struct FolderSettings {
    /// Segments are sealed at this size.
    pub(crate) segment_bytes: u64,
    /// The open files of all logs together.
    pub(crate) open_files: Arc<OpenFiles>,
    /// How much space must be free on its volumes.
    pub(crate) space_limits: SpaceLimits,
    /// How long the bytes of removed events may stay in files; `None`: nothing is erased for its age.
    pub(crate) erase_within: Option<Duration>,
}

impl FolderSettings {
    /// For a tool that opens a log once, and for no longer than it needs.
    fn once(segment_bytes: u64) -> Self {
        let (open_files, space_limits) = (OpenFiles::new(OPEN_FILES_DEFAULT), SpaceLimits::default());
        Self { segment_bytes, open_files, space_limits, erase_within: None }
    }
}

/// Opens the log of a data folder. What its checkpoint knows to be acknowledged is not taken for a torn append. Refuses one
/// whose repair was cut short: numbers of lost events would be given again.
pub fn open_folder(folder: &Path, segment_bytes: u64) -> Result<FileLog, LogError> {
    open_folder_with(folder, FolderSettings::once(segment_bytes))
}

/// The same, kept as a broker keeps it.
fn open_folder_with(folder: &Path, settings: FolderSettings) -> Result<FileLog, LogError> {
    let pending = pending_repair(folder);
    if pending.try_exists()? {
        let reason = "a repair was cut short; run it again, it goes on where it was".to_owned();
        return Err(LogError::Damaged(FileDamage { file: pending, offset: 0, reason }));
    }
    open_checked(folder, settings)
}

/// The same on a thread of its own: recovery reads the disk, and others may wait for this one. A broker that is opened again
/// has a server beside it that answers meanwhile.
pub(crate) async fn open_folder_apart(folder: PathBuf, settings: FolderSettings) -> Result<FileLog, LogError> {
    let opened = tokio::task::spawn_blocking(move || open_folder_with(&folder, settings)).await;
    opened.unwrap_or_else(|failed| Err(io::Error::other(failed).into()))
}

/// The same for whoever says what a repair lost.
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
        // Before the first start there is no folder to ask: the next one makes the reserve anew if it differs.
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

/// Tells of a data folder that others than its owner can look into: what the broker creates in it is for the owner alone, but
/// an older version, or somebody else, may have put files there that are not.
pub(crate) fn warn_of_readers(folder: &Path) {
    let Ok(found) = std::fs::metadata(folder) else { return };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            folder = %folder.display(),
            mode = format!("{mode:o}"),
            "the data folder is open to others than its owner; `chmod -R go= FOLDER` keeps events and keys private"
        );
    }
}

/// What to do about a damaged log, of which this is a file.
pub(crate) fn repair_advice(file: &Path) -> String {
    let inside = |name: &str| file.ancestors().find(|path| path.file_name().is_some_and(|it| it == name));
    let folder = inside(LOG_FOLDER).or_else(|| inside(STATE_FOLDER)).or_else(|| inside(CUT_FOLDER));
    let folder = folder.and_then(Path::parent).unwrap_or(file);
    format!(
        "nothing was changed; restore a backup, or see what can be saved: event-broker repair --data {} --dry-run",
        folder.display()
    )
}
