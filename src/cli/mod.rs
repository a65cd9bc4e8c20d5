//! The subcommands. Each works on a data folder; exit codes mean something: 0 well, 1 not well, 2 misused.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its streams")]

mod bench;
mod logging;
mod serve;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Keeps every event typed, ordered and durable, and makes every side effect happen once.
#[derive(Parser)]
#[command(
    name = "event-broker",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    event-broker bench --data ./data --callers 64 --events 100000\n  \
    event-broker verify --data ./data"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the broker: HTTP on the outside, the log on the inside.
    Serve(serve::Arguments),
    /// Walks a log and checks every checksum, number and index.
    Verify(verify::Arguments),
    /// Publishes made-up events into a data folder and says how fast that went.
    Bench(bench::Arguments),
}

/// Runs what the command line asks for.
pub(crate) fn run() -> ExitCode {
    match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}

/// Says why not, and what the program ends with.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("event-broker: {error}");
    ExitCode::FAILURE
}
