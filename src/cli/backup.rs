//! `event-broker backup`: copies a data folder's logs while they are in use.

use super::data_folders::{self, BackupLog, BackupManifest, StagedFolder};
use super::error::{self, CliError, CliResult};
use super::output::{CliOutput, print_note};
use super::side_logs;
use contract::Timestamp;
use event_broker::{Clock, SystemClock};
use log::file::private_file;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How often a data folder is copied until a copy is consistent: topics with a log of their own may be deleted meanwhile.
const COPIES_MAX: usize = 5;

/// Copies the logs of a data folder, also while a broker runs on it.
///
/// The backup holds everything that was acknowledged before it began. It is verified, as by `verify`, before it is renamed to
/// its final name: a backup that exists is complete. Logs of topics outside the data folder (`streaming.location`
/// file:///…) are not part of it: back up those folders in the same way. It contains the key that decrypts the secrets of
/// subscriptions, if the folder has one: protect a backup like the data folder.
///
/// Exit code 0: the backup is complete. 1: it could not be made, or the data folder is damaged. 2: there is nothing to back
/// up, or the output folder is not empty.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker backup --data ./data --output /backups/2026-11-16\n  \
    event-broker backup --data ./data --output \"/backups/$(date +%F)\" --json")]
pub(super) struct BackupArgs {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// The folder to create.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Leave out `secret.key`, which decrypts the secrets of subscriptions; keep it elsewhere, or the secrets are lost.
    #[arg(long)]
    without_key: bool,
    /// Print the content of the backup as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BackupArgs) -> ExitCode {
    error::exit_code(backup(arguments))
}

fn backup(arguments: &BackupArgs) -> CliResult {
    let BackupArgs { data, output, without_key, json } = arguments;
    let begun_at = Timestamp::from_millis(SystemClock.now());
    let found = data_folders::log_folders(data).map_err(|cause| CliError::caused_by(data.display(), cause))?;
    if found.is_empty() {
        let reason = format!("there is no log in {}; name the data folder with --data", data.display());
        return Err(CliError::Misused(reason));
    }
    let (draft, logs) = copy(data, output, *without_key)?;
    let manifest = BackupManifest { version: BackupManifest::VERSION, begun_at, logs };
    write(&manifest, draft.path()).map_err(|cause| CliError::caused_by(output.display(), cause))?;
    draft.commit()?;
    print_logs(&manifest.logs, "backed up", output, Some(begun_at), *json)?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the data folder until a copy is consistent, and checks it.
fn copy(data: &Path, output: &Path, without_key: bool) -> CliResult<(StagedFolder, Vec<BackupLog>)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::caused_by("cannot start", cause))?;
    let mut unknown = Vec::new();
    for _ in 0..COPIES_MAX {
        let draft = StagedFolder::begin(output)?;
        if draft.is_inside(data) {
            return Err(CliError::Misused(format!("{} lies in the data folder itself", output.display())));
        }
        let acknowledged = data_folders::copy_logs(data, draft.path())?;
        if !without_key {
            data_folders::copy_key(data, draft.path())?;
        }
        let logs = data_folders::check_logs(draft.path(), &acknowledged)?;
        unknown = runtime.block_on(side_logs::unknown_topics_of_copy(draft.path()))?;
        if unknown.is_empty() {
            return Ok((draft, logs));
        }
        print_note(&format_args!("{} changed while it was copied: copying again", side_logs::names(&unknown)));
    }
    let topics = side_logs::names(&unknown);
    let reason = format!("the logs of these topics do not know them: {topics}; `event-broker serve` would say more");
    Err(CliError::caused_by(format_args!("{COPIES_MAX} copies were not consistent"), reason))
}

fn write(manifest: &BackupManifest, folder: &Path) -> std::io::Result<()> {
    let mut file = private_file().write(true).create_new(true).open(folder.join(BackupManifest::FILE))?;
    file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Prints the logs that were copied.
pub(super) fn print_logs(
    logs: &[BackupLog],
    done: &str,
    place: &Path,
    begun_at: Option<Timestamp>,
    json: bool,
) -> CliResult<()> {
    let mut output = CliOutput::new();
    if json {
        let folder = place.display().to_string();
        return output.json(&serde_json::json!({"folder": folder, "begunAt": begun_at, "logs": logs}));
    }
    for BackupLog { folder, segments, records, bytes } in logs {
        let name = if folder.as_os_str().is_empty() { "the log".to_owned() } else { folder.display().to_string() };
        output.line(&format!("{name}: {segments} segments, {records} records, {bytes} bytes"))?;
    }
    output.line(&format!("{done} to {}", place.display()))
}
