//! What PostgreSQL's refusals mean to whoever uses the log.
//!
//! - The server is away, is full, is going down or takes no writes: [`LogError::Unavailable`]. It passes, or a person
//!   makes it pass, and nothing here has to be opened again.
//! - Anything else is somebody's mistake, and comes as [`LogError::Io`] with PostgreSQL's own words.

use log::LogError;
use std::io;
use std::sync::Arc;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Classes of SQLSTATE that pass by themselves or by an administrator's hand: connection, transaction rolled back,
/// insufficient resources (disk full, out of memory, too many connections), operator intervention (shutdown, a
/// terminated or cancelled session, a session of ours that a later one has replaced), system error outside PostgreSQL.
const PASSING: [&str; 5] = ["08", "40", "53", "57", "58"];

/// SQLSTATEs of other classes that pass likewise. Nothing was written; it is tried again.
const PASSING_CODES: [&str; 8] = [
    "25006", // read-only: a standby, or a server that is going down
    "25P03", // idle in a transaction for too long; the session ended
    "25P04", // a transaction took too long; the session ended
    "54000", // the queue of notifications is full because of some listener, or transaction numbers run out
    "55006", // an object is in use
    "55P03", // a lock was not to be had in time
    "72000", // a snapshot too old
    "XX000", // an error inside PostgreSQL: a table changed meanwhile, a server on its way to primary. Not damage, XX001.
];

/// Raised by the schema's functions: a later session appends for this process.
const REPLACED: &str = "57EB1";

/// Where PostgreSQL says that it has not waited for synchronous standbys. Its words depend on the server's language.
const UNREPLICATED_ROUTINE: &str = "SyncRepWaitForLSN";

/// What a failed statement means.
pub(crate) fn of_statement(error: &Error) -> LogError {
    match is_passing(error) {
        true => LogError::Unavailable(Arc::new(with_server_message(error))),
        false => LogError::Io(Arc::new(with_server_message(error))),
    }
}

/// The server does not answer in time.
pub(crate) fn no_answer() -> LogError {
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, "PostgreSQL does not answer")))
}

/// Synchronous standbys have not confirmed what was written.
pub(crate) fn unconfirmed() -> LogError {
    let text = "synchronous standbys (synchronous_standby_names) have not confirmed what is in the log";
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)))
}

/// What a failure means while a session begins: who gets no answer then may be waiting for standbys, or for the lock.
pub(crate) fn while_confirming(error: LogError) -> LogError {
    match error {
        LogError::Unavailable(cause) if cause.kind() == io::ErrorKind::TimedOut => {
            let text = "PostgreSQL does not answer: it waits for another append, or for synchronous standbys";
            LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)))
        }
        other => other,
    }
}

/// Whether `notice` says that a commit was answered though synchronous standbys may not have it.
pub(crate) fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some(UNREPLICATED_ROUTINE)
}

/// The connection was made again, and nobody has looked yet what is behind it.
pub(crate) fn not_followed() -> LogError {
    let text = "the connection to PostgreSQL was made again; the log is read before anything is appended";
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::ConnectionReset, text)))
}

/// A mistake of whoever set this up, in our words.
pub(crate) fn refused(text: impl Into<String>) -> LogError {
    LogError::Io(Arc::new(io::Error::other(text.into())))
}

/// Whether the session ends with `error`, or is of no more use. Then it may have come too late to undo what was done
/// before it.
pub(crate) fn ends_session(error: &Error) -> bool {
    let ends = |severity| matches!(severity, Some(Severity::Fatal | Severity::Panic));
    error.as_db_error().is_none_or(|said| ends(said.parsed_severity()) || said.code().code() == REPLACED)
}

/// Whether `error` is about a value that a column cannot hold.
pub(crate) fn is_about_a_value(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("22"))
}

/// Whether `error` says that a number was given before.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

/// Whether `error` says that the role may not do this.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

fn is_passing(error: &Error) -> bool {
    let Some(code) = error.code() else {
        // Without a code it is not PostgreSQL that speaks: the connection failed, or was never made.
        return error.is_closed() || has_io_source(error);
    };
    passes(code.code())
}

/// Whether a SQLSTATE says something that passes.
fn passes(code: &str) -> bool {
    PASSING_CODES.contains(&code) || PASSING.iter().any(|class| code.starts_with(class))
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

/// The library prints only "db error"; what the server said stands behind it.
fn with_server_message(error: &Error) -> io::Error {
    if let Some(said) = error.as_db_error() {
        let detail = [said.detail(), said.hint()].into_iter().flatten().map(|text| format!(" {text}"));
        let text = format!("{}{} (SQLSTATE {})", said.message(), detail.collect::<String>(), said.code().code());
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
    use super::passes;

    /// One that passes and is taken for one that stays fails the broker until it is started again; one that stays and is
    /// taken for one that passes is tried for ever.
    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_told() {
        let passing = [
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
        let staying = [
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
            ("P0001", "somebody's trigger"),
            ("XX001", "data corrupted"),
            ("XX002", "index corrupted"),
        ];
        for (code, what) in passing {
            assert!(passes(code), "{code}: {what}");
        }
        for (code, what) in staying {
            assert!(!passes(code), "{code}: {what}");
        }
    }
}
