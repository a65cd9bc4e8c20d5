//! Handlers: named work with a policy for its claims.

use super::BoxFuture;
use crate::{Cursor, Handler, NewHandler, Page, RegisterOutcome, Result};

/// Handlers.
pub trait HandlerApi: Send + Sync {
    /// Registers a handler's policy: lease, attempts, back-off, order. It replaces the previous policy.
    fn put_handler<'a>(&'a self, name: &'a str, handler: NewHandler)
    -> BoxFuture<'a, Result<RegisterOutcome<Handler>>>;
    /// One handler: it has a policy, or has claimed an event.
    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>>;
    /// Handlers in the order of their names.
    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>>;
    /// Deletes a handler: its policy, its open claims and what it has finished; its open dead letters are closed. Refused
    /// while a shared group of its name has live members.
    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
}
