//! `event-broker backup`: a data folder's logs, copied while they are in use.

use super::data_folders::{self, BackupLog, BackupManifest, StagedFolder};
use super::error::{self, CliError, CliResult};
use super::output::CliOutput;
use contract::Timestamp;
use event_broker::{Clock, SystemClock};
use log::file::private_file;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copies the logs of a data folder, also while a broker runs on it.
///
/// Everything that was acknowledged before the backup began is in it, and whatever else is in it is whole. It is checked
/// like `verify` does before it gets its name; a backup that is there is good. Logs of topics that lie outside the data
/// folder (`streaming.location` file:///…) are not in it: back up those folders in the same way. The key to the secrets
/// of subscriptions is in it, if the folder has one: guard a backup like the folder.
///
/// Exit code 0: the backup is there. 1: it could not be made, or what it was taken from is damaged. 2: there is nothing
/// to back up, or something is at its place already.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker backup --data ./data --output /backups/2026-11-16\n  \
    event-broker backup --data ./data --output \"/backups/$(date +%F)\" --json")]
pub(super) struct BackupArgs {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// The folder to make.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Leave out `secret.key`, which opens the secrets of subscriptions; keep it elsewhere, or they are lost.
    #[arg(long)]
    without_key: bool,
    /// Print what is in it as JSON.
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
    let draft = StagedFolder::begin(output)?;
    if draft.is_inside(data) {
        return Err(CliError::Misused(format!("{} lies in the data folder itself", output.display())));
    }
    let acknowledged = data_folders::copy_logs(data, draft.path())?;
    if !without_key {
        data_folders::copy_key(data, draft.path())?;
    }
    let logs = data_folders::check_logs(draft.path(), &acknowledged)?;
    let manifest = BackupManifest { version: BackupManifest::VERSION, begun_at, logs };
    write(&manifest, draft.path()).map_err(|cause| CliError::caused_by(output.display(), cause))?;
    draft.commit()?;
    print_logs(&manifest.logs, "backed up", output, Some(begun_at), *json)?;
    Ok(ExitCode::SUCCESS)
}

fn write(manifest: &BackupManifest, folder: &Path) -> std::io::Result<()> {
    let mut file = private_file().write(true).create_new(true).open(folder.join(BackupManifest::FILE))?;
    file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Says what is there now.
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
