//! What PostgreSQL's errors mean to the caller of the log.
//!
//! - The server cannot be reached, is full, shuts down or is read-only: [`LogError::Unavailable`]. The condition ends by itself
//!   or an administrator ends it, and the log does not have to be reopened.
//! - Anything else is a mistake in the configuration, the schema or the program: [`LogError::Io`] with PostgreSQL's own text.

use log::LogError;
use std::io;
use std::sync::Arc;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Classes of SQLSTATE that end by themselves or that an administrator ends: connection, transaction rolled back,
/// insufficient resources (disk full, out of memory, too many connections), operator intervention (shutdown, a
/// terminated or cancelled session, a session of ours that a later one has replaced), system error outside PostgreSQL.
const TRANSIENT_CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];

/// SQLSTATEs of other classes that are transient too. Nothing was written; the statement is retried.
const TRANSIENT_CODES: [&str; 8] = [
    "25006", // read-only: a standby, or a server that is going down
    "25P03", // idle in a transaction for too long; the session ended
    "25P04", // a transaction took too long; the session ended
    "54000", // the queue of notifications is full because of some listener, or transaction numbers run out
    "55006", // an object is in use
    "55P03", // a lock could not be taken in time
    "72000", // snapshot too old
    "XX000", // an internal error: a table changed in the meantime, a standby is being promoted. Not damage (XX001).
];

/// Raised by the schema's functions: a later session appends for this process.
const REPLACED: &str = "57EB1";

/// The routine that warns that a commit did not wait for synchronous standbys. The text depends on the server's language.
const UNREPLICATED_ROUTINE: &str = "SyncRepWaitForLSN";

/// Why a statement has no result.
#[derive(Debug)]
pub(crate) enum StatementFailure {
    /// PostgreSQL refused it, or the connection ended.
    Refused(Error),
    /// There was no response in time, or the response cannot be used.
    Failed(LogError),
}

impl StatementFailure {
    /// Whether the session has ended, or cannot be used any more. Then the failure may be of the time after the commit.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Refused(error) => ends_session(error),
            Self::Failed(_) => true,
        }
    }

    /// Whether a later session appends for this process.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code().is_some_and(|code| code.code() == REPLACED))
    }
}

impl From<LogError> for StatementFailure {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

impl From<StatementFailure> for LogError {
    fn from(failure: StatementFailure) -> Self {
        match failure {
            StatementFailure::Refused(error) => of_statement(&error),
            StatementFailure::Failed(error) => error,
        }
    }
}

/// What PostgreSQL's refusal of a statement means.
pub(crate) fn of_statement(error: &Error) -> LogError {
    match is_transient(error) {
        true => LogError::Unavailable(Arc::new(with_server_message(error))),
        false => LogError::Io(Arc::new(with_server_message(error))),
    }
}

/// The server does not respond in time.
pub(crate) fn no_response() -> LogError {
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, "PostgreSQL does not respond")))
}

/// Synchronous standbys have not confirmed what was written.
pub(crate) fn unconfirmed() -> LogError {
    let text = "synchronous standbys (synchronous_standby_names) have not confirmed what is in the log";
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)))
}

/// What a failure means while a session begins: without a response it may be waiting for standbys, or for the lock.
pub(crate) fn while_confirming(error: LogError) -> LogError {
    match error {
        LogError::Unavailable(cause) if cause.kind() == io::ErrorKind::TimedOut => {
            let text = "PostgreSQL does not respond: it waits for another append, or for synchronous standbys";
            LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)))
        }
        other => other,
    }
}

/// Whether `notice` says that a commit was acknowledged although synchronous standbys may not have it.
pub(crate) fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some(UNREPLICATED_ROUTINE)
}

/// The connection was made again, and the log behind it was not read yet.
pub(crate) fn not_followed() -> LogError {
    let text = "the connection to PostgreSQL was made again; the log is read before anything is appended";
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::ConnectionReset, text)))
}

/// The connection may lead to a server that was replaced while it was used.
pub(crate) fn replaced() -> LogError {
    let text = "the log's server was replaced during a removal; it is repeated on the new one";
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::ConnectionReset, text)))
}

/// Records that are to be removed stay in their table.
pub(crate) fn not_removable() -> LogError {
    let text = "another process removes the same records, or this role cannot see all of them; the removal is retried";
    LogError::Unavailable(Arc::new(io::Error::other(text)))
}

/// A mistake in the configuration or the schema, with our own text.
pub(crate) fn refused(text: impl Into<String>) -> LogError {
    LogError::Io(Arc::new(io::Error::other(text.into())))
}

fn ends_session(error: &Error) -> bool {
    let ends = |severity| matches!(severity, Some(Severity::Fatal | Severity::Panic));
    error.as_db_error().is_none_or(|error| ends(error.parsed_severity()) || error.code().code() == REPLACED)
}

/// Whether `error` is about a value that a column cannot hold.
pub(crate) fn is_about_a_value(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("22"))
}

/// Whether `error` says that a number is assigned already.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

/// Whether `error` says that the role may not do this.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

fn is_transient(error: &Error) -> bool {
    let Some(code) = error.code() else {
        // An error without a code is not PostgreSQL's: the connection failed, or could not be made.
        return error.is_closed() || has_io_source(error);
    };
    is_transient_code(code.code())
}

/// Whether a SQLSTATE is transient.
fn is_transient_code(code: &str) -> bool {
    TRANSIENT_CODES.contains(&code) || TRANSIENT_CLASSES.iter().any(|class| code.starts_with(class))
}

fn has_io_source(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The library prints only "db error"; the server's message is in its source.
fn with_server_message(error: &Error) -> io::Error {
    if let Some(refusal) = error.as_db_error() {
        let detail = [refusal.detail(), refusal.hint()].into_iter().flatten().map(|text| format!(" {text}"));
        let text = format!("{}{} (SQLSTATE {})", refusal.message(), detail.collect::<String>(), refusal.code().code());
        return io::Error::other(text);
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    io::Error::other(text)
}

#[cfg(test)]
mod tests {
    use super::is_transient_code;

    /// A transient error that is taken for a permanent one fails the broker until it is restarted; a permanent one that is
    /// taken for transient is retried for ever.
    #[test]
    fn transient_errors_are_retried_and_permanent_ones_are_reported() {
        let transient = [
            ("08006", "connection failure"),
            ("08P01", "protocol violation"),
            ("25006", "read-only"),
            ("25P03", "idle in transaction"),
            ("25P04", "transaction timeout"),
            ("40001", "serialization failure"),
            ("40P01", "deadlock"),
            ("53100", "disk full"),
            ("53200", "out of memory"),
            ("53300", "too many connections"),
            ("54000", "NOTIFY queue full, wraparound"),
            ("55006", "object in use"),
            ("55P03", "lock timeout"),
            ("57014", "cancelled, statement timeout"),
            ("57P01", "shutdown, terminated"),
            ("57P02", "crash of another session"),
            ("57P03", "starting up"),
            ("57P05", "idle session"),
            ("57EB1", "a later session of ours"),
            ("58030", "I/O error"),
            ("72000", "snapshot too old"),
            ("XX000", "internal error"),
        ];
        let permanent = [
            ("0A000", "feature not supported"),
            ("22P02", "bad value"),
            ("22021", "bad character"),
            ("23505", "duplicate"),
            ("23514", "check violation"),
            ("26000", "no such prepared statement: a pooler in transaction mode"),
            ("28P01", "wrong password"),
            ("3D000", "no such database"),
            ("3F000", "no such schema"),
            ("42501", "permission denied"),
            ("42601", "syntax error"),
            ("42P01", "no such table"),
            ("42883", "no such function"),
            ("54001", "statement too complex"),
            ("P0001", "a trigger"),
            ("XX001", "data corrupted"),
            ("XX002", "index corrupted"),
        ];
        for (code, what) in transient {
            assert!(is_transient_code(code), "{code}: {what}");
        }
        for (code, what) in permanent {
            assert!(!is_transient_code(code), "{code}: {what}");
        }
    }
}
