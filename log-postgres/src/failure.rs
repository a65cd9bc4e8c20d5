//! What PostgreSQL's refusals mean to whoever uses the log.
//!
//! - The server is away, is full, is going down or takes no writes: [`LogError::Unavailable`]. It passes, or a person
//!   makes it pass, and nothing here has to be opened again.
//! - Anything else is somebody's mistake, and comes as [`LogError::Io`] with PostgreSQL's own words.

use log::LogError;
use std::io;
use std::sync::Arc;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Classes of SQLSTATE that pass by themselves or by an administrator's hand: connection, transaction rolled back,
/// insufficient resources (disk full, out of memory, too many connections), operator intervention (shutdown, a
/// terminated or cancelled session), system error outside PostgreSQL.
const PASSING: [&str; 5] = ["08", "40", "53", "57", "58"];

/// What a failed statement means.
pub(crate) fn of_statement(error: &Error) -> LogError {
    match is_passing(error) {
        true => LogError::Unavailable(Arc::new(told(error))),
        false => LogError::Io(Arc::new(told(error))),
    }
}

/// The server does not answer in time.
pub(crate) fn silent() -> LogError {
    LogError::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, "PostgreSQL does not answer")))
}

/// A mistake of whoever set this up, in our words.
pub(crate) fn refused(text: impl Into<String>) -> LogError {
    LogError::Io(Arc::new(io::Error::other(text.into())))
}

/// Whether the session ends with `error`. Then it may have come too late to undo what was done before it.
pub(crate) fn ends_session(error: &Error) -> bool {
    let ends = |severity| matches!(severity, Some(Severity::Fatal | Severity::Panic));
    error.as_db_error().is_none_or(|said| ends(said.parsed_severity()))
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
    let passing = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::LOCK_NOT_AVAILABLE];
    passing.contains(code) || PASSING.iter().any(|class| code.code().starts_with(class))
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
fn told(error: &Error) -> io::Error {
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
