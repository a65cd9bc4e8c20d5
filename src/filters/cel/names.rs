//! Resolves the names in an expression: members, variables, types, functions and loops.

use super::expr::{CelExpr, CelFunction, CelLiteral, CelLoop, LoopKind, MEMBERS, MOMENTS};
use super::functions;
use super::parse::{CelParser, LOOPS_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX, RESERVED, SubExpr};
use super::pattern::CelPattern;
use super::token::CelError;
use contract::Timestamp;

/// Types that can be compared with `type(x)`.
const TYPES: [&str; 9] = ["bool", "double", "int", "list", "map", "null_type", "string", "timestamp", "uint"];

const UNDECLARED: &str = "this is neither a member of an event nor a variable";
const NO_FUNCTION: &str = "there is no such function with so many operands";

impl<'s> CelParser<'s> {
    /// A name, or the function that it calls.
    pub(super) fn named(&mut self, name: &'s str, at: usize) -> Result<SubExpr, CelError> {
        if RESERVED.contains(&name) {
            return Err(CelError::new(at, super::parse::OPERAND));
        }
        if self.eat("(") {
            let operands = self.operands(")")?;
            return self.call(name, false, operands, at);
        }
        let variable = self.scope.iter().rposition(|own| *own == name).map(CelExpr::Variable);
        let of_type = || TYPES.iter().find(|own| **own == name).map(|own| CelExpr::Literal(CelLiteral::Type(own)));
        let expr = match variable.or_else(|| self.member(name)).or_else(of_type) {
            Some(expr) => expr,
            None if name == "event" => {
                self.wholes += 1;
                CelExpr::Event
            }
            None => return Err(CelError::new(at, UNDECLARED)),
        };
        self.node(expr, 0)
    }

    /// `of.name`. `event.subject` is `subject`, so that an instant stays an instant and a wrong name is detected.
    pub(super) fn field(&mut self, of: SubExpr, name: &str, at: usize) -> Result<SubExpr, CelError> {
        match of.expr {
            CelExpr::Event => {
                self.wholes -= 1;
                self.member(name).map(|expr| SubExpr { expr, depth: 1 }).ok_or(CelError::new(at, UNDECLARED))
            }
            other => self.node(CelExpr::Field(Box::new(other), name.into()), of.depth),
        }
    }

    /// `of.name(…)`, after the opening bracket.
    pub(super) fn method(&mut self, of: SubExpr, name: &'s str, at: usize) -> Result<SubExpr, CelError> {
        if let Some(kind) = LoopKind::find(name) {
            return self.repeat(kind, of);
        }
        let mut operands = self.operands(")")?;
        operands.insert(0, of);
        self.call(name, true, operands, at)
    }

    /// `range.all(x, body)`, after the opening bracket.
    fn repeat(&mut self, kind: LoopKind, range: SubExpr) -> Result<SubExpr, CelError> {
        let at = self.at();
        let variable = self.name(true)?;
        let is_taken = MEMBERS.contains(&variable) || TYPES.contains(&variable) || self.scope.contains(&variable);
        if is_taken || variable == "event" {
            return Err(CelError::new(at, "a loop's variable needs a name of its own"));
        }
        if self.scope.len() == LOOPS_MAX {
            return Err(CelError::new(at, "loops are nested too deeply"));
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
        self.node(CelExpr::Loop(Box::new(CelLoop { kind, range: range.expr, guard, body: body.expr })), depth)
    }

    fn call(&mut self, name: &str, is_method: bool, operands: Vec<SubExpr>, at: usize) -> Result<SubExpr, CelError> {
        let depth = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
        let mut operands: Vec<CelExpr> = operands.into_iter().map(|operand| operand.expr).collect();
        let expr = match (name, operands.as_mut_slice()) {
            ("has", [of]) if !is_method => presence(std::mem::replace(of, CelExpr::Event), at)?,
            ("matches", [of, CelExpr::Literal(CelLiteral::Text(pattern))]) => {
                CelExpr::Matches(Box::new(std::mem::replace(of, CelExpr::Event)), self.pattern(pattern, at)?)
            }
            ("matches", [_, _]) => return Err(CelError::new(at, "the pattern of matches() must be a literal")),
            ("timestamp", [CelExpr::Literal(literal)]) if !is_method => CelExpr::Literal(timestamp(literal, at)?),
            _ => {
                let function = CelFunction::find(name, is_method, operands.len());
                CelExpr::Call(function.ok_or(CelError::new(at, NO_FUNCTION))?, operands)
            }
        };
        self.node(expr, depth)
    }

    fn pattern(&mut self, pattern: &str, at: usize) -> Result<CelPattern, CelError> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX || pattern.len() > PATTERN_BYTES_MAX {
            return Err(CelError::new(at, "there are too many patterns, or one is too long"));
        }
        CelPattern::compile(pattern, at)
    }

    fn member(&mut self, name: &str) -> Option<CelExpr> {
        let name = *MEMBERS.iter().find(|own| **own == name)?;
        if !self.members.contains(&name) {
            self.members.push(name);
        }
        Some(if MOMENTS.contains(&name) { CelExpr::Moment(name) } else { CelExpr::Member(name) })
    }
}

/// Converts a text that is compared with an instant.
pub(super) fn read_time(left: &mut CelExpr, right: &mut CelExpr, at: usize) -> Result<(), CelError> {
    if let (CelExpr::Moment(_), CelExpr::Literal(literal)) | (CelExpr::Literal(literal), CelExpr::Moment(_)) =
        (left, right)
        && let CelLiteral::Text(text) = literal
    {
        *literal = time(text, at)?;
    }
    Ok(())
}

/// The test of `has(of)`: for a bare member, whether the event has it.
fn presence(of: CelExpr, at: usize) -> Result<CelExpr, CelError> {
    match of {
        CelExpr::Field(of, name) => Ok(CelExpr::Has(of, name)),
        CelExpr::Member(name) | CelExpr::Moment(name) => Ok(CelExpr::Has(Box::new(CelExpr::Event), name.into())),
        _ => Err(CelError::new(at, "has() takes a member, or a member of something")),
    }
}

/// The value of `timestamp(literal)`, so that one that can never have a value is refused instead of never matching.
fn timestamp(literal: &CelLiteral, at: usize) -> Result<CelLiteral, CelError> {
    let time = match literal {
        CelLiteral::Text(text) => match time(text, at)? {
            CelLiteral::Time(time) if functions::is_in_range(&time) => Some(time),
            _ => None,
        },
        CelLiteral::Int(seconds) => functions::seconds_after_1970(*seconds),
        _ => return Err(CelError::new(at, "timestamp() takes an RFC 3339 text or seconds since 1970")),
    };
    time.map(CelLiteral::Time).ok_or(CelError::new(at, "a timestamp lies in the years 1 to 9999"))
}

fn time(text: &str, at: usize) -> Result<CelLiteral, CelError> {
    let read: Result<Timestamp, _> = text.parse();
    read.map(CelLiteral::Time).map_err(|_| CelError::new(at, "a time must be RFC 3339, as in 2025-12-03T12:01:59.829Z"))
}
