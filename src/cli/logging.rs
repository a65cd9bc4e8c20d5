//! What the server says about itself, on standard error: for people, or as JSON for programs.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Starts logging. `level` is a level (`info`) or a filter (`event_broker::access=debug,info`).
pub(super) fn start(level: &str, format: Format) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("logging level: {error}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let lines = lines.with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        Format::Text => lines.with_target(false).try_init(),
        Format::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging: {error}"))
}
