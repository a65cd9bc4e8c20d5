//! `event-broker restore`: makes a data folder from a backup.

use super::backup::print_logs;
use super::data_folders::{self, BackupLog, BackupManifest, StagedFolder};
use super::error::{self, CliError, CliResult};
use super::output::print_note;
use super::side_logs::{self, open_ledger};
use event_broker::ledger::LogLocation;
use event_broker::pause_dispatch;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a data folder from a backup.
///
/// The copy is verified, as by `verify`, and compared with the backup's manifest. Its logs are opened and folded once, which
/// also writes the checkpoints that a broker starts from, and every topic is looked up in its own log. Only then does the
/// folder get its final name. The backup itself is not changed.
///
/// Dispatch is paused in the restored folder: a delivery that is pending in the backup may have been made since, so nothing is
/// sent until `POST /v1/server/dispatch:resume` or `event-broker serve --resume-dispatch`.
///
/// Exit code 0: the folder is ready for `serve`. 1: the backup is damaged, incomplete or inconsistent. 2: there is no backup,
/// or the data folder is not empty.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker restore --from /backups/2026-11-16 --data ./data\n  \
    event-broker restore --from /backups/2026-11-16 --data /tmp/look && event-broker serve --data /tmp/look")]
pub(super) struct RestoreArgs {
    /// The backup.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The data folder to create.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Print the content of the folder as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &RestoreArgs) -> ExitCode {
    error::exit_code(restore(arguments))
}

fn restore(arguments: &RestoreArgs) -> CliResult {
    let RestoreArgs { from, data, json } = arguments;
    let found = data_folders::log_folders(from).map_err(|cause| CliError::caused_by(from.display(), cause))?;
    if found.is_empty() {
        return Err(CliError::Misused(format!("there is no backup in {}; name it with --from", from.display())));
    }
    let manifest = manifest(from)?;
    let draft = StagedFolder::begin(data)?;
    let acknowledged = data_folders::copy_logs(from, draft.path())?;
    data_folders::copy_key(from, draft.path())?;
    let logs = data_folders::check_logs(draft.path(), &acknowledged)?;
    match &manifest {
        Some(manifest) => compare(&manifest.logs, &logs)?,
        None => print_note(&format_args!(
            "{} has no {}: what it should contain is unknown",
            from.display(),
            BackupManifest::FILE
        )),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::caused_by("cannot start", cause))?;
    for part in &logs {
        runtime.block_on(fold(&draft.path().join(&part.folder)))?;
    }
    let unknown = runtime.block_on(side_logs::unknown_topics(draft.path()))?;
    if !unknown.is_empty() {
        let topics = side_logs::names(&unknown);
        let reason = format!("the logs of these topics do not know them: {topics}; restore another backup");
        return Err(CliError::caused_by("the backup is not consistent", reason));
    }
    draft.commit()?;
    let begun_at = manifest.map(|manifest| manifest.begun_at);
    print_logs(&logs, "restored", data, begun_at, *json)?;
    print_note(
        &"dispatch is paused; deliver with POST /v1/server/dispatch:resume or `event-broker serve --resume-dispatch`",
    );
    Ok(ExitCode::SUCCESS)
}

/// The backup's manifest; `None` for a folder that was copied by other means.
fn manifest(from: &Path) -> CliResult<Option<BackupManifest>> {
    let path = from.join(BackupManifest::FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(CliError::caused_by(path.display(), cause)),
    };
    let manifest: BackupManifest =
        serde_json::from_slice(&text).map_err(|error| CliError::caused_by(path.display(), error))?;
    match manifest.version {
        BackupManifest::VERSION => Ok(Some(manifest)),
        other => Err(CliError::caused_by(path.display(), format!("this program does not know version {other}"))),
    }
}

fn compare(expected: &[BackupLog], found: &[BackupLog]) -> CliResult<()> {
    if expected == found {
        return Ok(());
    }
    let describe = |parts: &[BackupLog]| {
        let parts = parts.iter().map(|part| format!("{} records in {} segments", part.records, part.segments));
        parts.collect::<Vec<_>>().join(", ")
    };
    let reason = format!("it should contain {}, and contains {}", describe(expected), describe(found));
    Err(CliError::caused_by("the backup is incomplete", reason))
}

/// Opens a log, folds all of it, pauses its dispatch and leaves a checkpoint.
async fn fold(folder: &Path) -> CliResult<()> {
    let ledger = open_ledger(folder).await?;
    for topic in ledger.registry().placed_topics() {
        if let LogLocation::Folder(elsewhere) = &topic.placed.location {
            let id = &topic.placed.topic.definition.id;
            print_note(&format_args!("{id} lives in {elsewhere}, which is not part of this backup"));
        }
    }
    let paused = pause_dispatch(&ledger, "event-broker restore", "The log was restored from a backup.").await;
    ledger.close().await;
    paused.map_err(|error| CliError::caused_by(folder.display(), error))
}
