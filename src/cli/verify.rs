//! `event-broker verify`: is the log what was written?

use super::failed;
use log::{LogError, file};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Walks the logs of a data folder and checks every checksum, number and index. Changes nothing.
///
/// Exit code 0: all is well. 1: damage, each named with file, offset and reason. 2: there is no log to check.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  event-broker verify --data ./data")]
pub(super) struct Arguments {
    /// The data folder.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Say nothing but the damage.
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let folders = match folders_of_logs(&arguments.data) {
        Ok(folders) => folders,
        Err(error) => return failed(&error),
    };
    if folders.is_empty() {
        eprintln!("event-broker: there is no log in {}; name the data folder with --data", arguments.data.display());
        return ExitCode::from(2);
    }
    let mut is_sound = true;
    for folder in folders {
        match check(&folder, arguments) {
            Ok(sound) => is_sound &= sound,
            Err(error) => return failed(&error),
        }
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks one log and says what it found; whether all is well.
fn check(folder: &Path, arguments: &Arguments) -> Result<bool, LogError> {
    let progress = |done: file::Progress| {
        if !arguments.quiet {
            eprint!("\rchecked {} of {} segments", done.segments, done.segments_total);
        }
    };
    let report = file::verify(folder, progress)?;
    if !arguments.quiet {
        eprintln!();
    }
    for damage in &report.damages {
        println!("damaged: {damage}");
    }
    if !arguments.quiet {
        let file::Report { segments, records, bytes, .. } = &report;
        if folder != arguments.data {
            print!("{}: ", folder.display());
        }
        println!("{segments} segments, {records} records, {bytes} bytes, {} damaged", report.damages.len());
    }
    Ok(report.damages.is_empty())
}

/// The folder itself, if it holds a log, and those of topics with a log of their own below it.
fn folders_of_logs(data: &Path) -> io::Result<Vec<PathBuf>> {
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
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
