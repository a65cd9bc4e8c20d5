//! Why a handler's runner ended before it was asked to.

use contract::Error;
use std::fmt;

/// Why a runner ended before it was asked to: the broker refused, for good. What was being worked on was finished, or
/// handed back.
#[derive(Debug)]
pub struct HandlerError {
    /// The handler.
    pub handler: String,
    /// What the broker said.
    pub error: Error,
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the broker refuses handler {}: {}", self.handler, self.error)
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
