//! The subcommands. Exit codes: 0 success, 1 failure, 2 wrong usage.
//!
//! - Some run a broker or call one (`client`), others work on a data folder (`data_folders`).
//! - The output is lines and tables, or JSON with `--json`. Data goes to standard output, everything else to standard error.
//! - When the reader of standard output closes it (`| head`), a subcommand ends without an error (`output`).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its streams")]

mod backup;
mod bench;
mod claims;
mod client;
mod completions;
mod config;
mod consumers;
mod data_folders;
mod dead_letters;
mod error;
mod export;
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
mod side_logs;
mod subscriptions;
mod tail;
mod topics;
mod types;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An event broker: stores typed events durably and in order, and coordinates work that must be done once per event.
#[derive(Parser)]
#[command(
    name = "event-broker",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    event-broker serve                                    run a broker on 127.0.0.1:8087, its log in ./data\n  \
    event-broker types register order_placed.json         register an event type and its schema\n  \
    event-broker publish --type gts.… --subject o-1 --data '{\"total\":9}'\n  \
    event-broker tail --from earliest                     print events as they arrive\n  \
    event-broker backup --data ./data --output ./backup   copy the log while the broker runs\n\n\
    Subcommands that call a running broker find it by --url or EVENT_BROKER_URL (default http://127.0.0.1:8087).\n\
    Exit codes: 0 success, 1 failure, 2 wrong usage."
)]
struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    Serve(serve::ServeArgs),
    Config(config::ConfigArgs),
    Publish(publish::PublishArgs),
    Tail(tail::TailArgs),
    Topics(topics::TopicsArgs),
    Types(types::TypesArgs),
    Consumers(consumers::ConsumersArgs),
    Claims(claims::ClaimsArgs),
    Subscriptions(subscriptions::SubscriptionsArgs),
    Jobs(jobs::JobsArgs),
    DeadLetters(dead_letters::DeadLettersArgs),
    Projections(projections::ProjectionsArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Verify(verify::VerifyArgs),
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    Repair(repair::RepairArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
}

/// Runs the subcommand that the command line names.
pub(crate) fn run() -> ExitCode {
    match CommandLine::parse().command {
        CliCommand::Serve(arguments) => serve::run(&arguments),
        CliCommand::Config(arguments) => config::run(&arguments),
        CliCommand::Publish(arguments) => publish::run(&arguments),
        CliCommand::Tail(arguments) => tail::run(&arguments),
        CliCommand::Topics(arguments) => topics::run(&arguments),
        CliCommand::Types(arguments) => types::run(&arguments),
        CliCommand::Consumers(arguments) => consumers::run(&arguments),
        CliCommand::Claims(arguments) => claims::run(&arguments),
        CliCommand::Subscriptions(arguments) => subscriptions::run(&arguments),
        CliCommand::Jobs(arguments) => jobs::run(&arguments),
        CliCommand::DeadLetters(arguments) => dead_letters::run(&arguments),
        CliCommand::Projections(arguments) => projections::run(&arguments),
        CliCommand::Import(arguments) => import::run(&arguments),
        CliCommand::Export(arguments) => export::run(&arguments),
        CliCommand::Verify(arguments) => verify::run(&arguments),
        CliCommand::Backup(arguments) => backup::run(&arguments),
        CliCommand::Restore(arguments) => restore::run(&arguments),
        CliCommand::Repair(arguments) => repair::run(&arguments),
        CliCommand::Bench(arguments) => bench::run(&arguments),
        CliCommand::Completions(arguments) => completions::run(&arguments),
    }
}

/// Prints a failure, and returns the exit code.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    output::print_note(&error);
    ExitCode::FAILURE
}
