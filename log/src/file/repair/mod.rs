//! Repairing a log that does not open, keeping everything that can still be read.
//!
//! - First a survey reads every frame of every segment and changes nothing. Then the plan is executed.
//! - A damaged segment is rewritten under its next generation, with its intact records. Lost records leave holes, like removed
//!   ones: no number is assigned twice. Files are copied to `cut/` before they are replaced.
//! - Marks are written first, then segments, each as a rewrite: an interrupted repair is run again.
//! - A log of a newer version is not damaged, and is not repaired.

mod apply;
mod survey;

use super::cut_folder::CutFolder;
use super::trim_marks::LostSequences;
use super::{Disk, FolderDisk, FolderLock, LOG_FOLDER};
use crate::{FileDamage, LogError, RecordHeader, TopicNumber};
use contract::{Position, Sequence};
use std::path::Path;
use std::sync::Arc;
use survey::LogSurvey;

/// What is known about a log from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct AcknowledgedState {
    /// The last position known to have been acknowledged; 0 if unknown.
    pub acknowledged: Position,
    /// Topics' last sequences as of then.
    pub tails: Vec<(TopicNumber, Sequence)>,
}

/// What is wrong, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairFinding {
    /// What is wrong, and where.
    pub damage: FileDamage,
    /// What is done about it.
    pub remedy: String,
}

/// What a repair found, did, or would do.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// What is wrong. Empty: the log opens as it is.
    pub findings: Vec<RepairFinding>,
    /// Files copied to `cut/`, by their names there.
    pub kept: Vec<String>,
    /// Lost records whose headers are known.
    pub lost: Vec<RecordHeader>,
    /// All lost positions, as far as is known: first and last of each run.
    pub lost_positions: Vec<(Position, Position)>,
    /// Lost sequences of topics: first and last of each run.
    pub lost_sequences: Vec<LostSequences>,
    /// The last position of the log.
    pub tail: Position,
    /// The highest number of a topic in it.
    pub last_topic: TopicNumber,
}

/// Repairs the log of a data folder that no broker has open; a dry run only reports what it would do.
pub fn repair(folder: &Path, known: &AcknowledgedState, dry_run: bool) -> Result<RepairReport, LogError> {
    let log_folder = folder.join(LOG_FOLDER);
    // Before taking the lock, which would create the folder.
    log_folder.metadata()?;
    let _lock = FolderLock::acquire(folder)?;
    let disk: Arc<dyn Disk> = Arc::new(FolderDisk::open(&log_folder)?);
    run(&disk, &log_folder, known, dry_run, &CutFolder::In(folder))
}

/// The same on any disk that nothing else uses in the meantime.
pub fn repair_disk(disk: &Arc<dyn Disk>, known: &AcknowledgedState, dry_run: bool) -> Result<RepairReport, LogError> {
    run(disk, Path::new(""), known, dry_run, &CutFolder::On(disk))
}

fn run(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    known: &AcknowledgedState,
    dry_run: bool,
    cuts: &CutFolder<'_>,
) -> Result<RepairReport, LogError> {
    let plan = LogSurvey::new(&**disk, folder, known)?.plan()?;
    let mut repair = plan.repair.clone();
    if !dry_run && !repair.findings.is_empty() {
        repair.kept = plan.carry_out(&**disk, cuts)?;
    }
    Ok(repair)
}
