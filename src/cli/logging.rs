//! The server's log output on standard error: text, or JSON.

use event_broker::config::{LogFormat, LoggingConfig};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging. The level is a level (`info`) or a filter (`event_broker::access=debug,info`).
pub(super) fn start(logging: &LoggingConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&logging.level).map_err(|error| format!("logging.level: {error}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that cannot be written is lost. The library would print an error on standard error, and panic if that fails: a
    // request must not fail because the disk of the log file is full, or because the reader of the pipe is gone.
    let lines = lines.log_internal_errors(false).with_ansi(std::io::stderr().is_terminal());
    let started = match logging.format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging: {error}"))
}
