//! Filter expressions in CEL (the Common Expression Language), over the members of an event.
//!
//! - An expression is parsed once and then only evaluated; both are bounded, whoever wrote it. Parsing is bounded by
//!   the length of the text ([`limits::CEL_BYTES_MAX`]), the number of nodes, the nesting, the nesting of loops (two)
//!   and the patterns. Evaluation is bounded by a number of steps per event, after which it fails.
//! - A failed evaluation is no match: [`CelProgram::matches`] returns `None`, and the caller counts it.
//! - A refusal names the fault with its line and column; it never quotes the expression.
//!
//! The language is CEL without bytes, durations, messages, optionals and escaped names. Differences: `has(data)` tests
//! whether the event has that member; `occurredAt` and `createdAt` are instants, which compare with each other, with
//! `timestamp('…')` and with RFC 3339 texts; the pattern of `matches` is a literal; integers and doubles may be mixed.
//!
//! The existing crates are not used because they have no limit of steps, recompile patterns for every event, copy the
//! event's data, and one of them overflows the stack on thirty brackets.

mod eval;
mod expr;
mod functions;
mod json;
mod names;
mod parse;
mod pattern;
#[cfg(test)]
mod tests;
mod token;
mod value;

use contract::{Error, Result, limits};
use expr::CelExpr;
use parse::ParsedExpr;
use token::CelError;

/// A compiled expression.
#[derive(Debug)]
pub(super) struct CelProgram {
    expr: CelExpr,
    /// The members that it uses; `None`: the event as a whole.
    wanted: Option<Vec<&'static str>>,
}

impl CelProgram {
    /// Parses and checks an expression.
    pub(super) fn compile(source: &str) -> Result<Self> {
        if source.len() > limits::CEL_BYTES_MAX {
            let detail = format!("A CEL expression has at most {} bytes.", limits::CEL_BYTES_MAX);
            return Err(Error::invalid(POINTER, detail));
        }
        let ParsedExpr { expr, wanted } = parse::parse(source).map_err(|fault| refusal(source, fault))?;
        Ok(Self { expr, wanted })
    }

    /// Whether it is true for the event with this JSON; `None` if the evaluation fails. Adds its work to `steps`.
    pub(super) fn matches(&self, body: &[u8], steps: &mut u64) -> Option<bool> {
        *steps += body.len() as u64 / 32;
        let members = json::members(body, self.wanted.as_deref())?;
        eval::is_true(&self.expr, &members, steps).ok()
    }
}

/// The pointer to the expression in a request.
const POINTER: &str = "/filter";

fn refusal(source: &str, fault: CelError) -> Error {
    let before = source.get(..fault.at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Error::invalid(POINTER, format!("The CEL expression is not valid at line {line}, column {column}: {}.", fault.why))
}
