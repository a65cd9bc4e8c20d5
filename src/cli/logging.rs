//! What the server says about itself, on standard error: for people, or as JSON for programs.

use event_broker::config::{LogFormat, LoggingConfig};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging. The level is a level (`info`) or a filter (`event_broker::access=debug,info`).
pub(super) fn start(logging: &LoggingConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&logging.level).map_err(|error| format!("logging.level: {error}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that cannot be written is lost. The library would print that to standard error, and panic if it cannot: whoever
    // writes a line must not end because the disk of the log file is full, or because nobody reads the pipe any more.
    let lines = lines.log_internal_errors(false).with_ansi(std::io::stderr().is_terminal());
    let started = match logging.format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging: {error}"))
}
