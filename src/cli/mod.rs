//! The subcommands. Exit codes mean something: 0 well, 1 not well, 2 misused.
//!
//! - Some run or ask a broker (`client`), some work on a data folder (`folders`).
//! - People get lines and tables, programs `--json`. Data goes to standard output, everything else to standard error.
//! - A reader that has seen enough (`| head`) ends a subcommand quietly (`output`).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its streams")]

mod backup;
mod bench;
mod claims;
mod client;
mod completions;
mod config;
mod consumers;
mod dead_letters;
mod export;
mod failure;
mod folders;
mod import;
mod input;
mod jobs;
mod logging;
mod output;
mod projections;
mod publish;
mod reading;
mod repair;
mod restore;
mod serve;
mod settings;
mod sse;
mod subscriptions;
mod tail;
mod topics;
mod types;
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
    event-broker serve                                    run a broker on 127.0.0.1:8087, its log in ./data\n  \
    event-broker types register order_placed.json         say what events there are\n  \
    event-broker publish --type gts.… --subject o-1 --data '{\"total\":9}'\n  \
    event-broker tail --from earliest                     see them come\n  \
    event-broker backup --data ./data --output ./backup   copy the log while the broker runs\n\n\
    Subcommands that ask a running broker find it by --url or EVENT_BROKER_URL (http://127.0.0.1:8087).\n\
    Exit codes: 0 well, 1 not well, 2 misused."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Config(config::Arguments),
    Publish(publish::Arguments),
    Tail(tail::Arguments),
    Topics(topics::Arguments),
    Types(types::Arguments),
    Consumers(consumers::Arguments),
    Claims(claims::Arguments),
    Subscriptions(subscriptions::Arguments),
    Jobs(jobs::Arguments),
    DeadLetters(dead_letters::Arguments),
    Projections(projections::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Verify(verify::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Repair(repair::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
}

/// Runs what the command line asks for.
pub(crate) fn run() -> ExitCode {
    match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Publish(arguments) => publish::run(&arguments),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Topics(arguments) => topics::run(&arguments),
        Command::Types(arguments) => types::run(&arguments),
        Command::Consumers(arguments) => consumers::run(&arguments),
        Command::Claims(arguments) => claims::run(&arguments),
        Command::Subscriptions(arguments) => subscriptions::run(&arguments),
        Command::Jobs(arguments) => jobs::run(&arguments),
        Command::DeadLetters(arguments) => dead_letters::run(&arguments),
        Command::Projections(arguments) => projections::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}

/// Says why not, and what the program ends with.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    output::note(&error);
    ExitCode::FAILURE
}
