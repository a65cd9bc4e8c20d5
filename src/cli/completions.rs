//! `event-broker completions`: the completion script of a shell.

use super::error::{self, CliError};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

/// Prints the script that completes this command line in a shell.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker completions bash > ~/.local/share/bash-completion/completions/event-broker\n  \
    event-broker completions zsh > \"${fpath[1]}/_event-broker\"\n  \
    event-broker completions fish > ~/.config/fish/completions/event-broker.fish")]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(super) fn run(arguments: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::CommandLine::command(), "event-broker", &mut script);
    let printed = std::io::stdout().lock().write_all(&script);
    error::exit_code(printed.map(|()| ExitCode::SUCCESS).map_err(|cause| CliError::printing(&cause)))
}
