//! `event-broker verify`: checks that a log is what was written.

use super::data_folders;
use super::error::{self, CliError, CliResult};
use super::output::{CliOutput, print_note};
use event_broker::{acknowledged_state, pending_repair};
use log::FileDamage;
use log::file::VerifyReport;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reads the logs of a data folder and checks every checksum, number and index. Changes nothing.
///
/// Everything that the last checkpoint in `state/` knows to be acknowledged must be in the log. An incomplete append at the
/// end that was never acknowledged is reported as torn. That is no damage: opening the log removes it and keeps it in `cut/`.
///
/// Exit code 0: the logs are undamaged. 1: damage, each with file, offset and reason, or an interrupted repair. 2: there is no
/// log to check.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker verify --data ./data\n  \
    event-broker verify --data /backups/2026-11-16 --json")]
pub(super) struct VerifyArgs {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Print only the damage.
    #[arg(long)]
    quiet: bool,
    /// Print one JSON line per log.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(super) fn run(arguments: &VerifyArgs) -> ExitCode {
    error::exit_code(verify(arguments))
}

fn verify(arguments: &VerifyArgs) -> CliResult {
    let data = &arguments.data;
    let folders = data_folders::log_folders(data).map_err(|cause| CliError::caused_by(data.display(), cause))?;
    if folders.is_empty() {
        let reason = format!("there is no log in {}; name the data folder with --data", data.display());
        return Err(CliError::Misused(reason));
    }
    let mut is_sound = true;
    for folder in folders {
        is_sound &= check(&folder, arguments)?;
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks one log and prints the result; returns whether it is undamaged.
fn check(folder: &Path, arguments: &VerifyArgs) -> CliResult<bool> {
    let known = acknowledged_state(folder).map_err(|cause| CliError::caused_by(folder.display(), cause))?;
    let mut report = data_folders::check(folder, known.acknowledged)?;
    let pending = pending_repair(folder);
    if pending.exists() {
        let reason = "a repair was interrupted and must be run again; until then no broker opens the log".to_owned();
        report.damages.push(FileDamage { file: pending, offset: 0, reason });
    }
    match arguments.json {
        true => print_json(folder, &report)?,
        false => print(folder, &report, arguments)?,
    }
    Ok(report.damages.is_empty())
}

fn print(folder: &Path, report: &VerifyReport, arguments: &VerifyArgs) -> CliResult<()> {
    let VerifyReport { segments, records, bytes, damages, torn } = report;
    let mut output = CliOutput::new();
    damages.iter().try_for_each(|damage| output.line(&format!("damaged: {damage}")))?;
    if arguments.quiet {
        return Ok(());
    }
    if let Some(torn) = torn {
        output.line(&format!("torn: {torn}; it was never acknowledged, and opening removes it"))?;
    }
    let name = if folder == arguments.data { String::new() } else { format!("{}: ", folder.display()) };
    output.line(&format!("{name}{segments} segments, {records} records, {bytes} bytes, {} damaged", damages.len()))?;
    if !damages.is_empty() {
        print_note(&data_folders::advice(folder));
    }
    Ok(())
}

fn print_json(folder: &Path, report: &VerifyReport) -> CliResult<()> {
    let VerifyReport { segments, records, bytes, damages, torn } = report;
    let place = |damage: &FileDamage| json!({"file": damage.file, "offset": damage.offset, "reason": damage.reason});
    let damages: Vec<_> = damages.iter().map(place).collect();
    let mut report = json!({
        "folder": folder.display().to_string(), "segments": segments, "records": records, "bytes": bytes,
        "damages": damages,
    });
    if let (Some(members), Some(torn)) = (report.as_object_mut(), torn) {
        members.insert("torn".to_owned(), place(torn));
    }
    CliOutput::new().json(&report)
}
