//! The error that ends a handler's runner.

use contract::Error;
use std::fmt;

/// Why a runner ended before the stop signal: the broker refused a request for good. The work in flight was finished, or its
/// claim was released.
#[derive(Debug)]
pub struct HandlerError {
    /// The handler.
    pub handler: String,
    /// The refusal.
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
