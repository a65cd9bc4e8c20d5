//! A log in a data folder: opened with what its checkpoint knows of it.

use crate::ledger::{Checkpointed, checkpointed};
use log::LogError;
use log::file::{FileLog, Known, LOG_FOLDER, Options, RESERVE_BYTES};
use std::path::{Path, PathBuf};

/// The folder inside a data folder that holds the tables and checkpoints of its log.
pub const STATE_FOLDER: &str = "state";

/// Where the tables of a data folder's log are.
pub(crate) fn state_of(folder: &Path) -> PathBuf {
    folder.join(STATE_FOLDER)
}

/// What is known of the log of a data folder from its checkpoint. One that cannot be read knows nothing, and is not
/// believed when the log is opened either.
#[must_use]
pub fn known_of(folder: &Path) -> Known {
    let Checkpointed { position, tails, .. } = checkpointed(&state_of(folder)).unwrap_or_default();
    Known { acknowledged: position, tails }
}

/// Opens the log of a data folder. What its checkpoint knows to be acknowledged is not taken for a torn append.
pub fn open_folder(folder: &Path, segment_bytes: u64) -> Result<FileLog, LogError> {
    let acknowledged = known_of(folder).acknowledged;
    let options = Options { segment_bytes, acknowledged, reserve_bytes: RESERVE_BYTES, ..Options::default() };
    FileLog::open_folder(folder, options)
}

/// What to do about a damaged log, of which this is a file.
pub(crate) fn repair_advice(file: &Path) -> String {
    let inside = |name: &str| file.ancestors().find(|path| path.file_name().is_some_and(|it| it == name));
    let folder = inside(LOG_FOLDER).or_else(|| inside(STATE_FOLDER)).and_then(Path::parent).unwrap_or(file);
    format!(
        "nothing was changed; restore a backup, or see what can be saved: event-broker repair --data {} --dry-run",
        folder.display()
    )
}
