//! The errors that callers receive when an engine fails: what happened, and what helps. The failure itself, with its
//! files and addresses, goes to the program's log.

use contract::{Error, Kind};
use log::LogError;
use log::file::{is_disk_full, is_out_of_files};
use std::borrow::Cow;
use std::io;

const RETRY_AFTER_SECONDS: u32 = 5;

/// The error that a caller receives when an engine fails.
pub(super) fn unavailable(error: LogError) -> Error {
    let detail: Cow<'_, str> = match &error {
        LogError::Poisoned(cause) if is_disk_full(cause) => "The disk is full (no space left on device). Free space on the \
            volume of the data folder; the broker opens the log again by itself."
            .into(),
        LogError::Full(cause) if is_disk_full(cause) => "The disk is full (no space left on device), and nothing was \
            written. Free space on the volume of the data folder; writes succeed again as soon as there is some."
            .into(),
        LogError::Poisoned(cause) => format!(
            "A write to the log failed ({}). Check the disk of the data folder; the broker opens the log again by itself.",
            cause_of(cause)
        )
        .into(),
        LogError::Damaged(_) => "A stored record is damaged; run `event-broker verify` on the data folder.".into(),
        LogError::Diverged(_) => "The database does not hold everything any more that this broker had read from it: a \
            fail-over lost its last records, or it was restored. The broker opens the log again and goes on with what \
            the database holds."
            .into(),
        LogError::Reclaimed(_) => "Another broker reclaimed entries of the log before this one had read them. The broker \
            opens the log again and goes on from the snapshot that replaces them."
            .into(),
        LogError::Unsupported { .. } => format!("The log needs a newer version of the broker: {error}.").into(),
        LogError::Unavailable(cause) if is_out_of_files(cause) => "The broker has no file descriptor left for its log. It goes \
            on by itself when there is one; raise the limit of open files (`ulimit -n`) if this happens again."
            .into(),
        _ => "The log cannot be reached at the moment.".into(),
    };
    Error::new(Kind::Unavailable, detail).with_source(error).with_retry_after(RETRY_AFTER_SECONDS)
}

/// The error that a reader receives when an engine fails.
pub fn read_failed(error: LogError) -> Error {
    match error {
        LogError::Trimmed(earliest) => Error::trimmed(earliest),
        other => unavailable(other),
    }
}

/// The operating system's message, without the names of files.
fn cause_of(cause: &io::Error) -> String {
    cause.raw_os_error().map_or_else(|| cause.kind().to_string(), |code| io::Error::from_raw_os_error(code).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_disk_is_named_with_what_helps_and_no_path_is_shown() {
        let poisoned = |cause: io::Error| unavailable(LogError::Poisoned(Arc::new(cause)));
        let full = poisoned(io::Error::from(io::ErrorKind::StorageFull));
        assert!(full.detail().starts_with("The disk is full (no space left on device). Free space"), "{full}");
        let refused = unavailable(LogError::Full(Arc::new(io::Error::from(io::ErrorKind::StorageFull))));
        assert!(refused.detail().contains("nothing was written"), "{refused}");
        let failed = poisoned(io::Error::from_raw_os_error(5));
        assert!(
            failed.detail().starts_with("A write to the log failed (Input/output error (os error 5))."),
            "{failed}"
        );
        let named = poisoned(io::Error::other("/var/lib/events: no such disk"));
        assert!(!named.detail().contains("/var"), "{named}");
    }
}
