//! `event-broker verify`: is the log what was written?

use super::failed;
use log::file;
use std::path::PathBuf;
use std::process::ExitCode;

/// Walks a log and checks every checksum, number and index. Changes nothing.
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
    if !arguments.data.join(file::LOG_FOLDER).is_dir() {
        eprintln!("event-broker: there is no log in {}; name the data folder with --data", arguments.data.display());
        return ExitCode::from(2);
    }
    let progress = |done: file::Progress| {
        if !arguments.quiet {
            eprint!("\rchecked {} of {} segments", done.segments, done.segments_total);
        }
    };
    match file::verify(&arguments.data, progress) {
        Ok(report) => {
            if !arguments.quiet {
                eprintln!();
            }
            for damage in &report.damages {
                println!("damaged: {damage}");
            }
            if !arguments.quiet {
                println!(
                    "{} segments, {} records, {} bytes, {} damaged",
                    report.segments,
                    report.records,
                    report.bytes,
                    report.damages.len()
                );
            }
            if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => failed(&error),
    }
}
