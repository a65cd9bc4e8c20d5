//! The failures of a subcommand, and the program's exit codes.
//!
//! - 0 success, 1 failure, 2 wrong usage. A closed standard output (`| head`) is a success.
//! - A refusal is printed as the broker wrote it: title, detail, every pointer, and the trace id to look for in its log.

use super::output;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::{self, Write as _};
use std::io;
use std::process::ExitCode;

/// Why a subcommand fails.
#[derive(Debug)]
pub(super) enum CliError {
    /// The command line cannot be executed as it is written.
    Misused(String),
    /// Something failed.
    Failed(String),
    /// No broker answers at the address.
    Unreachable(String),
    /// The connection broke off: whether the request had its effect is unknown.
    Broken(String),
    /// The broker refused the request.
    Refused(Box<BrokerRefusal>),
    /// Standard output was closed.
    Closed,
}

/// The result of a subcommand.
pub(super) type CliResult<T = ExitCode> = Result<T, CliError>;

/// A problem document of the broker.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BrokerRefusal {
    #[serde(rename = "type")]
    problem_type: String,
    title: String,
    status: u16,
    detail: String,
    trace_id: Option<String>,
    errors: Vec<RefusalViolation>,
    actual: Option<u64>,
    /// The first sequence that can be read, if the requested range was removed.
    earliest: Option<u64>,
    /// The offset to continue with in that case.
    pub(super) resume_offset: Option<u64>,
    /// The whole document, for `--json`.
    #[serde(skip)]
    pub(super) document: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RefusalViolation {
    pointer: String,
    detail: String,
}

impl BrokerRefusal {
    /// Reads the body of a response with this status.
    pub(super) fn read(status: u16, body: &[u8]) -> Self {
        let document: Value = serde_json::from_slice(body).unwrap_or_default();
        match Self::deserialize(&document) {
            Ok(refusal) if !refusal.title.is_empty() => Self { status, document, ..refusal },
            _ => Self {
                status,
                document,
                title: "Not an event broker's response".to_owned(),
                detail: "The server at this address does not respond like an event broker; is --url right?".to_owned(),
                ..Self::default()
            },
        }
    }

    /// Reads a problem document that is part of a response.
    pub(super) fn from_document(document: &[u8]) -> Self {
        let read = Self::read(0, document);
        let status = read.document.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
        Self { status: status.unwrap_or_default(), ..read }
    }

    /// The code: the last part of the problem's type.
    pub(super) fn code(&self) -> &str {
        self.problem_type.rsplit('/').next().unwrap_or_default()
    }

    /// Its status.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }
}

impl fmt::Display for BrokerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self.code() {
            "" => String::new(),
            code => format!(" {code}"),
        };
        let mut text = format!("{} ({}{code}): {}", self.title, self.status, self.detail);
        for RefusalViolation { pointer, detail } in &self.errors {
            let place = if pointer.is_empty() { "/" } else { pointer };
            let _ = write!(text, "\n  {place}: {detail}");
        }
        if let Some(actual) = self.actual {
            let _ = write!(text, "\n  actual: {actual}");
        }
        if let Some(earliest) = self.earliest {
            let _ = write!(text, "\n  earliest: {earliest}");
        }
        if let Some(offset) = self.resume_offset {
            let _ = write!(text, "\n  resumeOffset: {offset}");
        }
        if let Some(trace_id) = &self.trace_id {
            let _ = write!(text, "\n  trace: {trace_id}");
        }
        // The text of a server is printed on a terminal: control characters must not reach it.
        f.write_str(&output::escape_controls_per_line(&text))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misused(reason) | Self::Failed(reason) | Self::Unreachable(reason) | Self::Broken(reason) => {
                f.write_str(reason)
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Closed => f.write_str("standard output was closed"),
        }
    }
}

impl From<BrokerRefusal> for CliError {
    fn from(refusal: BrokerRefusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl CliError {
    /// A failure with its cause.
    pub(super) fn caused_by(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {cause}"))
    }

    /// A failure to print.
    pub(super) fn printing(cause: &io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::caused_by("cannot write to standard output", cause),
        }
    }
}

/// Prints the failure, if there is one, and returns the exit code.
pub(super) fn exit_code(outcome: CliResult) -> ExitCode {
    let (code, reason) = match outcome {
        Ok(code) => return code,
        Err(CliError::Closed) => return ExitCode::SUCCESS,
        Err(failure @ CliError::Misused(_)) => (ExitCode::from(2), failure),
        Err(failure) => (ExitCode::FAILURE, failure),
    };
    output::print_note(&reason);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_everything_the_broker_said() {
        let body = br#"{"type":"https://errors.hyperspot.com/EVENT_BROKER_TRIMMED","title":"Trimmed","status":410,
            "detail":"Gone.","traceId":"abc","earliest":7,"resumeOffset":6,"errors":[{"pointer":"/offset","detail":"too low"}]}"#;
        let refusal = BrokerRefusal::read(410, body);
        assert_eq!(refusal.code(), "EVENT_BROKER_TRIMMED");
        assert_eq!(
            refusal.to_string(),
            "Trimmed (410 EVENT_BROKER_TRIMMED): Gone.\n  /offset: too low\n  earliest: 7\n  resumeOffset: 6\n  trace: abc"
        );
    }

    #[test]
    fn what_is_no_problem_document_is_told_apart() {
        for body in [&b"<html>"[..], b"{}", b"[]"] {
            let text = BrokerRefusal::read(502, body).to_string();
            assert!(text.starts_with("Not an event broker's response (502): "), "{text}");
        }
    }
}
