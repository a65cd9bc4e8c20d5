//! Data folders: their logs are listed, checked and copied.
//!
//! - A folder is created under a temporary name and renamed when it is complete: it exists completely or not at all.

use super::error::{CliError, CliResult};
use super::output::{self, print_note};
use contract::Position;
use event_broker::{KEY_FILE, acknowledged_state, pending_repair};
use log::LogError;
use log::file::{self, VerifyReport, private_folder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The manifest of a backup: `backup.json` in its folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackupManifest {
    /// The version of this form.
    pub(super) version: u32,
    /// When the backup began: everything that was acknowledged before is in it.
    pub(super) begun_at: contract::Timestamp,
    pub(super) logs: Vec<BackupLog>,
}

/// One log of a backup. The files alone do not show that the newest records are missing; the number of records does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackupLog {
    /// The log's folder inside the data folder; empty for the default log.
    pub(super) folder: PathBuf,
    pub(super) segments: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl BackupManifest {
    pub(super) const FILE: &'static str = "backup.json";
    pub(super) const VERSION: u32 = 1;
}

/// The folders with logs: the data folder itself, if it holds a log, and the side logs below it.
pub(super) fn log_folders(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if data.join(file::LOG_FOLDER).is_dir() {
        found.push(data.to_owned());
    }
    let mut waiting = vec![data.join(file::SIDE_LOGS_FOLDER)];
    while let Some(folder) = waiting.pop().filter(|folder| folder.is_dir()) {
        if folder.join(file::LOG_FOLDER).is_dir() && folder.join(file::FolderLock::FILE).is_file() {
            // Logs are not nested.
            found.push(folder);
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The last acknowledged position of each log, as its checkpoint knows it, by the log's folder inside the data folder.
pub(super) type AcknowledgedTails = BTreeMap<PathBuf, Position>;

/// Copies the logs of a data folder into another, the default log first: what it says about the side logs is then in their
/// copies. Returns what must be in the copies.
pub(super) fn copy_logs(from: &Path, to: &Path) -> CliResult<AcknowledgedTails> {
    let failed = |cause: &dyn std::fmt::Display| CliError::caused_by(from.display(), cause);
    let mut acknowledged = AcknowledgedTails::new();
    if from.join(file::LOG_FOLDER).is_dir() {
        acknowledged.insert(PathBuf::new(), copy_log(from, to, "")?);
    }
    for folder in log_folders(from).map_err(|cause| failed(&cause))? {
        let inside = folder.strip_prefix(from).unwrap_or(Path::new(""));
        if !inside.as_os_str().is_empty() {
            let copied = copy_log(&folder, &to.join(inside), &inside.display().to_string())?;
            acknowledged.insert(inside.to_owned(), copied);
        }
    }
    Ok(acknowledged)
}

fn copy_log(from: &Path, to: &Path, name: &str) -> CliResult<Position> {
    // Read before anything is copied: what a checkpoint knows is in the log already.
    let acknowledged =
        acknowledged_state(from).map_err(|cause| CliError::caused_by(from.display(), cause))?.acknowledged;
    let pending = pending_repair(from);
    if pending.exists() {
        let reason =
            "a repair was interrupted, and the log does not say yet what was lost; run `event-broker repair` again";
        return Err(CliError::caused_by(pending.display(), reason));
    }
    let bar = output::progress_bar(Some(0), "copying {bar:30} {bytes}/{total_bytes} {msg}");
    bar.set_message(name.to_owned());
    let copied = file::backup(from, to, acknowledged, |copied| {
        bar.set_length(copied.bytes_total);
        bar.set_position(copied.bytes);
    });
    bar.finish_and_clear();
    if let Some(torn) = copied.map_err(|error| damaged(from, &error))? {
        print_note(&format_args!(
            "an append at the end is incomplete and was left out ({torn}); it was never acknowledged"
        ));
    }
    Ok(acknowledged)
}

/// A failure, with advice if the log is damaged.
fn damaged(folder: &Path, error: &LogError) -> CliError {
    match error {
        LogError::Damaged(_) => CliError::caused_by(folder.display(), format!("{error}\n{}", advice(folder))),
        _ => CliError::caused_by(folder.display(), error),
    }
}

/// What to do about a damaged log.
pub(super) fn advice(folder: &Path) -> String {
    format!(
        "restore a backup (`event-broker restore`), or see what can be saved: event-broker repair --data {} --dry-run",
        folder.display()
    )
}

/// Copies the key with which the secrets in the logs are sealed, if the folder has one. Only its owner may read the copy.
pub(super) fn copy_key(from: &Path, to: &Path) -> CliResult<()> {
    let path = from.join(KEY_FILE);
    let copied = match fs::copy(&path, to.join(KEY_FILE)) {
        Ok(_) => File::open(to.join(KEY_FILE)).and_then(|file| file.sync_all()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(cause),
    };
    copied.map_err(|cause| CliError::caused_by(path.display(), cause))
}

/// Checks every log of a data folder that no process has open; returns what they contain.
pub(super) fn check_logs(data: &Path, acknowledged: &AcknowledgedTails) -> CliResult<Vec<BackupLog>> {
    let mut parts = Vec::new();
    for folder in log_folders(data).map_err(|cause| CliError::caused_by(data.display(), cause))? {
        let inside = folder.strip_prefix(data).unwrap_or(Path::new("")).to_owned();
        let acknowledged = acknowledged.get(&inside).copied().unwrap_or_default();
        let VerifyReport { segments, records, bytes, damages, .. } = check(&folder, acknowledged)?;
        if let Some(damage) = damages.first() {
            let (more, advice) = (damages.len() - 1, "restore an older one, or see `event-broker repair --help`");
            let reason = format!("{damage} (and {more} more); {advice}");
            return Err(CliError::caused_by("the copy is damaged, and so is what it was taken from", reason));
        }
        parts.push(BackupLog { folder: inside, segments, records, bytes });
    }
    Ok(parts)
}

pub(super) fn check(folder: &Path, acknowledged: Position) -> CliResult<VerifyReport> {
    let bar = output::progress_bar(Some(0), "checking {bar:30} {pos}/{len} segments");
    let report = file::verify(folder, acknowledged, |done| {
        bar.set_length(done.segments_total);
        bar.set_position(done.segments);
    });
    bar.finish_and_clear();
    report.map_err(|error| CliError::caused_by(folder.display(), error))
}

/// A folder under a temporary name; removed unless it is committed.
pub(super) struct StagedFolder {
    path: PathBuf,
    place: PathBuf,
}

impl StagedFolder {
    /// Creates the temporary folder for `place`, where only an empty folder may exist.
    pub(super) fn begin(place: &Path) -> CliResult<Self> {
        let shown = place.display();
        let is_taken = match fs::read_dir(place) {
            Ok(mut entries) => entries.next().is_some(),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => false,
            Err(cause) => return Err(CliError::caused_by(shown, cause)),
        };
        if is_taken {
            return Err(CliError::Misused(format!("{shown} is not empty; name a folder that does not exist yet")));
        }
        let name = place.file_name().ok_or_else(|| CliError::Misused(format!("{shown} is no name for a folder")))?;
        let path = place.with_file_name(format!("{}.{}.part", name.to_string_lossy(), std::process::id()));
        private_folder().create(parent(place)).map_err(|cause| CliError::caused_by(shown, cause))?;
        private_folder().recursive(false).create(&path).map_err(|cause| CliError::caused_by(path.display(), cause))?;
        Ok(Self { path, place: place.to_owned() })
    }

    /// Its temporary path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is inside this folder.
    pub(super) fn is_inside(&self, folder: &Path) -> bool {
        let folder = folder.canonicalize();
        folder.is_ok_and(|folder| self.path.canonicalize().is_ok_and(|path| path.starts_with(folder)))
    }

    /// Renames it to its final name, durably.
    pub(super) fn commit(self) -> CliResult<()> {
        let placed = sync_folders(&self.path)
            .and_then(|()| fs::rename(&self.path, &self.place))
            .and_then(|()| File::open(parent(&self.place))?.sync_all());
        placed.map_err(|cause| CliError::caused_by(self.place.display(), cause))
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // After a commit it no longer exists under this name.
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                print_note(&format_args!("{} cannot be removed: {error}", self.path.display()));
            }
            _ => (),
        }
    }
}

/// The folder that contains a path.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs a folder and the folders below it, so that their names are durable.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
