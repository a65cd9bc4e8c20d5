//! `event-broker verify`: is the log what was written?

use super::failure::{self, Failure, Outcome};
use super::folders;
use super::output::{self, Output};
use log::file::{self, Report};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Walks the logs of a data folder and checks every checksum, number and index. Changes nothing.
///
/// Exit code 0: all is well. 1: damage, each named with file, offset and reason. 2: there is no log to check.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker verify --data ./data\n  \
    event-broker verify --data /backups/2026-11-16 --json")]
pub(super) struct Arguments {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Say nothing but the damage.
    #[arg(long)]
    quiet: bool,
    /// Print a JSON line for every log.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    failure::end(verify(arguments))
}

fn verify(arguments: &Arguments) -> Outcome {
    let data = &arguments.data;
    let folders = folders::with_logs(data).map_err(|cause| Failure::because(data.display(), cause))?;
    if folders.is_empty() {
        let reason = format!("there is no log in {}; name the data folder with --data", data.display());
        return Err(Failure::Misused(reason));
    }
    let mut is_sound = true;
    for folder in folders {
        is_sound &= check(&folder, arguments)?;
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks one log and says what it found; whether all is well.
fn check(folder: &Path, arguments: &Arguments) -> Outcome<bool> {
    let bar = output::bar(Some(0), "checking {bar:30} {pos}/{len} segments");
    let report = file::verify(folder, |done| {
        bar.set_length(done.segments_total);
        bar.set_position(done.segments);
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| Failure::because(folder.display(), error))?;
    match arguments.json {
        true => print_json(folder, &report)?,
        false => print(folder, &report, arguments)?,
    }
    Ok(report.damages.is_empty())
}

fn print(folder: &Path, report: &Report, arguments: &Arguments) -> Outcome<()> {
    let Report { segments, records, bytes, damages } = report;
    let mut output = Output::new();
    damages.iter().try_for_each(|damage| output.line(&format!("damaged: {damage}")))?;
    if arguments.quiet {
        return Ok(());
    }
    let name = if folder == arguments.data { String::new() } else { format!("{}: ", folder.display()) };
    output.line(&format!("{name}{segments} segments, {records} records, {bytes} bytes, {} damaged", damages.len()))
}

fn print_json(folder: &Path, report: &Report) -> Outcome<()> {
    let Report { segments, records, bytes, damages } = report;
    let damages = damages.iter().map(
        |damage| json!({"file": damage.file.display().to_string(), "offset": damage.offset, "reason": damage.reason}),
    );
    let damages: Vec<_> = damages.collect();
    let folder = folder.display().to_string();
    let counts = json!({"folder": folder, "segments": segments, "records": records, "bytes": bytes});
    let mut report = counts;
    if let Some(members) = report.as_object_mut() {
        members.insert("damages".to_owned(), json!(damages));
    }
    Output::new().json(&report)
}
