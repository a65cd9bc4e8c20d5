//! What the names in an expression mean: members, variables, types, functions and loops.

use super::expr::{Expr, Function, Literal, Loop, LoopKind, MEMBERS, MOMENTS};
use super::functions;
use super::parse::{LOOPS_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX, Parser, RESERVED, Sub};
use super::token::Fault;
use contract::Timestamp;
use regex::{Regex, RegexBuilder};

/// Largest compiled pattern, in bytes.
const PATTERN_SIZE_MAX: usize = 128 * 1024;

/// Types that can be compared with `type(x)`.
const TYPES: [&str; 9] = ["bool", "double", "int", "list", "map", "null_type", "string", "timestamp", "uint"];

const UNDECLARED: &str = "this is neither a member of an event nor a variable";
const NO_FUNCTION: &str = "there is no such function with so many operands";

impl<'s> Parser<'s> {
    /// A name that stands alone, or the function it calls.
    pub(super) fn named(&mut self, name: &'s str, at: usize) -> Result<Sub, Fault> {
        if RESERVED.contains(&name) {
            return Err(Fault::new(at, super::parse::OPERAND));
        }
        if self.eat("(") {
            let operands = self.operands(")")?;
            return self.call(name, false, operands, at);
        }
        let variable = self.scope.iter().rposition(|own| *own == name).map(Expr::Variable);
        let of_type = || TYPES.iter().find(|own| **own == name).map(|own| Expr::Literal(Literal::Type(own)));
        let expr = match variable.or_else(|| self.member(name)).or_else(of_type) {
            Some(expr) => expr,
            None if name == "event" => {
                self.wholes += 1;
                Expr::Event
            }
            None => return Err(Fault::new(at, UNDECLARED)),
        };
        self.node(expr, 0)
    }

    /// `of.name`. `event.subject` is `subject`, so that an instant stays one and a wrong name is found out.
    pub(super) fn field(&mut self, of: Sub, name: &str, at: usize) -> Result<Sub, Fault> {
        match of.expr {
            Expr::Event => {
                self.wholes -= 1;
                self.member(name).map(|expr| Sub { expr, depth: 1 }).ok_or(Fault::new(at, UNDECLARED))
            }
            other => self.node(Expr::Field(Box::new(other), name.into()), of.depth),
        }
    }

    /// `of.name(…)`; the opening bracket is behind us.
    pub(super) fn method(&mut self, of: Sub, name: &'s str, at: usize) -> Result<Sub, Fault> {
        if let Some(kind) = LoopKind::find(name) {
            return self.repeat(kind, of);
        }
        let mut operands = self.operands(")")?;
        operands.insert(0, of);
        self.call(name, true, operands, at)
    }

    /// `range.all(x, body)`; the opening bracket is behind us.
    fn repeat(&mut self, kind: LoopKind, range: Sub) -> Result<Sub, Fault> {
        let at = self.at();
        let variable = self.name(true)?;
        let is_taken = MEMBERS.contains(&variable) || TYPES.contains(&variable) || self.scope.contains(&variable);
        if is_taken || variable == "event" {
            return Err(Fault::new(at, "a loop's variable needs a name of its own"));
        }
        if self.scope.len() == LOOPS_MAX {
            return Err(Fault::new(at, "loops are nested too deeply"));
        }
        self.expect(",", "`,` is expected here")?;
        self.scope.push(variable);
        let mut body = self.expression()?;
        let mut guard = None;
        if kind == LoopKind::Map && self.eat(",") {
            guard = Some(std::mem::replace(&mut body, self.expression()?));
        }
        self.scope.pop();
        self.expect(")", "`)` is expected here")?;
        let depth = range.depth.max(body.depth).max(guard.as_ref().map_or(0, |guard| guard.depth));
        let guard = guard.map(|guard| guard.expr);
        self.node(Expr::Loop(Box::new(Loop { kind, range: range.expr, guard, body: body.expr })), depth)
    }

    fn call(&mut self, name: &str, is_method: bool, operands: Vec<Sub>, at: usize) -> Result<Sub, Fault> {
        let depth = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
        let mut operands: Vec<Expr> = operands.into_iter().map(|operand| operand.expr).collect();
        let expr = match (name, operands.as_mut_slice()) {
            ("has", [of]) if !is_method => presence(std::mem::replace(of, Expr::Event), at)?,
            ("matches", [of, Expr::Literal(Literal::Text(pattern))]) => {
                Expr::Matches(Box::new(std::mem::replace(of, Expr::Event)), self.pattern(pattern, at)?)
            }
            ("matches", [_, _]) => return Err(Fault::new(at, "the pattern of matches() must be a literal")),
            ("timestamp", [Expr::Literal(literal)]) if !is_method => Expr::Literal(timestamp(literal, at)?),
            _ => {
                let function = Function::find(name, is_method, operands.len());
                Expr::Call(function.ok_or(Fault::new(at, NO_FUNCTION))?, operands)
            }
        };
        self.node(expr, depth)
    }

    fn pattern(&mut self, pattern: &str, at: usize) -> Result<Regex, Fault> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX || pattern.len() > PATTERN_BYTES_MAX {
            return Err(Fault::new(at, "there are too many patterns, or one is too long"));
        }
        RegexBuilder::new(pattern)
            .size_limit(PATTERN_SIZE_MAX)
            .dfa_size_limit(PATTERN_SIZE_MAX)
            .nest_limit(16)
            .build()
            .map_err(|_| Fault::new(at, "the pattern is not a regular expression, or too large"))
    }

    fn member(&mut self, name: &str) -> Option<Expr> {
        let name = *MEMBERS.iter().find(|own| **own == name)?;
        if !self.members.contains(&name) {
            self.members.push(name);
        }
        Some(if MOMENTS.contains(&name) { Expr::Moment(name) } else { Expr::Member(name) })
    }
}

/// A text that is compared with an instant is one.
pub(super) fn read_time(left: &mut Expr, right: &mut Expr, at: usize) -> Result<(), Fault> {
    if let (Expr::Moment(_), Expr::Literal(literal)) | (Expr::Literal(literal), Expr::Moment(_)) = (left, right)
        && let Literal::Text(text) = literal
    {
        *literal = time(text, at)?;
    }
    Ok(())
}

/// What `has(of)` asks: a bare member means that the event has it.
fn presence(of: Expr, at: usize) -> Result<Expr, Fault> {
    match of {
        Expr::Field(of, name) => Ok(Expr::Has(of, name)),
        Expr::Member(name) | Expr::Moment(name) => Ok(Expr::Has(Box::new(Expr::Event), name.into())),
        _ => Err(Fault::new(at, "has() takes a member, or a member of something")),
    }
}

/// What `timestamp(literal)` is, so that one that can never have a value is refused instead of never matching.
fn timestamp(literal: &Literal, at: usize) -> Result<Literal, Fault> {
    let time = match literal {
        Literal::Text(text) => match time(text, at)? {
            Literal::Time(time) if functions::is_in_range(&time) => Some(time),
            _ => None,
        },
        Literal::Int(seconds) => functions::seconds_after_1970(*seconds),
        _ => return Err(Fault::new(at, "timestamp() takes an RFC 3339 text or seconds since 1970")),
    };
    time.map(Literal::Time).ok_or(Fault::new(at, "a timestamp lies in the years 1 to 9999"))
}

fn time(text: &str, at: usize) -> Result<Literal, Fault> {
    let read: Result<Timestamp, _> = text.parse();
    read.map(Literal::Time).map_err(|_| Fault::new(at, "a time must be RFC 3339, as in 2025-12-03T12:01:59.829Z"))
}
