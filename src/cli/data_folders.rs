//! Data folders: the logs in them, checked, copied and put in place.
//!
//! - A folder that is made here is made under another name and renamed when it is whole: it is there or it is not.

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

/// What a backup says about itself, in the folder's `backup.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackupManifest {
    /// Of this form.
    pub(super) version: u32,
    /// When it was begun: everything acknowledged before is in it.
    pub(super) begun_at: contract::Timestamp,
    pub(super) logs: Vec<BackupLog>,
}

/// One log of a backup. The newest records cannot be missed in the files alone; their number can.
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

/// The folder itself, if it holds a log, and those of topics with a log of their own below it.
pub(super) fn log_folders(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if data.join(file::LOG_FOLDER).is_dir() {
        found.push(data.to_owned());
    }
    let mut waiting = vec![data.join(file::SIDE_LOGS_FOLDER)];
    while let Some(folder) = waiting.pop().filter(|folder| folder.is_dir()) {
        if folder.join(file::LOG_FOLDER).is_dir() && folder.join(file::FolderLock::FILE).is_file() {
            // Logs do not lie within each other.
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

/// What the checkpoints of a data folder know to be acknowledged, by the folder of each log inside it.
pub(super) type AcknowledgedTails = BTreeMap<PathBuf, Position>;

/// Copies the logs of a data folder into another, the default one first: what it says of the others is then in them.
/// Answers what must be in the copy.
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
    // Before anything is copied: what it knows is in the log by now.
    let acknowledged =
        acknowledged_state(from).map_err(|cause| CliError::caused_by(from.display(), cause))?.acknowledged;
    let pending = pending_repair(from);
    if pending.exists() {
        let reason = "a repair was cut short, and what it lost is not in the log yet; run it again first";
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
            "an append at the end is not complete and was left out ({torn}); nobody was told that it is stored"
        ));
    }
    Ok(acknowledged)
}

/// A failure with what to do about it.
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

/// Copies the key that the secrets in the logs are sealed with, where the folder has one. Only its owner may read it.
pub(super) fn copy_key(from: &Path, to: &Path) -> CliResult<()> {
    let path = from.join(KEY_FILE);
    let copied = match fs::copy(&path, to.join(KEY_FILE)) {
        Ok(_) => File::open(to.join(KEY_FILE)).and_then(|file| file.sync_all()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(cause),
    };
    copied.map_err(|cause| CliError::caused_by(path.display(), cause))
}

/// Checks every log of a data folder nobody has open; what is in them.
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

/// A folder in the making; taken away again unless it is put in place.
pub(super) struct StagedFolder {
    path: PathBuf,
    place: PathBuf,
}

impl StagedFolder {
    /// Begins what is to be at `place`, where nothing may be yet but an empty folder.
    pub(super) fn begin(place: &Path) -> CliResult<Self> {
        let shown = place.display();
        let is_taken = match fs::read_dir(place) {
            Ok(mut entries) => entries.next().is_some(),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => false,
            Err(cause) => return Err(CliError::caused_by(shown, cause)),
        };
        if is_taken {
            return Err(CliError::Misused(format!("{shown} is not empty; name a folder that is not there yet")));
        }
        let name = place.file_name().ok_or_else(|| CliError::Misused(format!("{shown} is no name for a folder")))?;
        let path = place.with_file_name(format!("{}.{}.part", name.to_string_lossy(), std::process::id()));
        private_folder().create(parent(place)).map_err(|cause| CliError::caused_by(shown, cause))?;
        private_folder().recursive(false).create(&path).map_err(|cause| CliError::caused_by(path.display(), cause))?;
        Ok(Self { path, place: place.to_owned() })
    }

    /// Where it is while it is made.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it lies in this folder.
    pub(super) fn is_inside(&self, folder: &Path) -> bool {
        let folder = folder.canonicalize();
        folder.is_ok_and(|folder| self.path.canonicalize().is_ok_and(|path| path.starts_with(folder)))
    }

    /// Puts it in place, durably.
    pub(super) fn commit(self) -> CliResult<()> {
        let placed = sync_folders(&self.path)
            .and_then(|()| fs::rename(&self.path, &self.place))
            .and_then(|()| File::open(parent(&self.place))?.sync_all());
        placed.map_err(|cause| CliError::caused_by(self.place.display(), cause))
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // Gone already where it was put in place.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder something lies in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a folder, and in those below it, durable.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
