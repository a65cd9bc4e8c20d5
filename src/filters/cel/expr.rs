//! A checked expression: every name is resolved, every pattern is compiled, every size is within its limit.

use super::pattern::CelPattern;
use super::value::{CelText, CelValue};
use contract::Timestamp;

/// The members of an event that an expression may name.
pub(super) const MEMBERS: [&str; 24] = [
    "id",
    "cloudEventId",
    "dataContentType",
    "type",
    "topic",
    "sequence",
    "aggregateSequence",
    "position",
    "source",
    "subject",
    "subjectType",
    "tenant",
    "dataVersion",
    "correlationId",
    "causationId",
    "messageGroup",
    "deduplicationId",
    "requestId",
    "actor",
    "context",
    "traceParent",
    "data",
    "occurredAt",
    "createdAt",
];

/// The members that are instants, not texts.
pub(super) const MOMENTS: [&str; 2] = ["occurredAt", "createdAt"];

/// One node of an expression.
#[derive(Debug)]
pub(super) enum CelExpr {
    /// A constant.
    Literal(CelLiteral),
    /// The whole event.
    Event,
    /// A member of the event.
    Member(&'static str),
    /// A member of the event that is an instant.
    Moment(&'static str),
    /// A loop's variable: its index among the open loops, outermost first.
    Variable(usize),
    /// `of.name`.
    Field(Box<CelExpr>, Box<str>),
    /// `has(of.name)`.
    Has(Box<CelExpr>, Box<str>),
    /// `of[key]`.
    Index(Box<CelExpr>, Box<CelExpr>),
    /// `!of`.
    Not(Box<CelExpr>),
    /// `-of`.
    Negate(Box<CelExpr>),
    /// `a && b && …`; flat, so that a long one is not deeply nested.
    And(Vec<CelExpr>),
    /// `a || b || …`.
    Or(Vec<CelExpr>),
    /// `condition ? then : otherwise`.
    Choice(Box<[CelExpr; 3]>),
    /// A binary operator and its operands.
    Binary(BinaryOperator, Box<[CelExpr; 2]>),
    /// A function and its operands, the target of a method first.
    Call(CelFunction, Vec<CelExpr>),
    /// `of.matches('literal')`.
    Matches(Box<CelExpr>, CelPattern),
    /// `[…]`.
    List(Vec<CelExpr>),
    /// `{…}`.
    Map(Vec<(CelExpr, CelExpr)>),
    /// `range.all(x, …)` and similar loops.
    Loop(Box<CelLoop>),
}

/// A constant; unlike a [`CelValue`] it can be shared between threads.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CelLiteral {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Box<str>),
    Time(Timestamp),
    Type(&'static str),
}

impl CelLiteral {
    /// The constant as a value that borrows from it.
    pub(super) fn value(&self) -> CelValue<'_> {
        match self {
            CelLiteral::Null => CelValue::Null,
            CelLiteral::Bool(bool) => CelValue::Bool(*bool),
            CelLiteral::Int(int) => CelValue::Int(*int),
            CelLiteral::UInt(uint) => CelValue::UInt(*uint),
            CelLiteral::Double(double) => CelValue::Double(*double),
            CelLiteral::Text(text) => CelValue::Text(CelText::Event(text)),
            CelLiteral::Time(time) => CelValue::Time(*time),
            CelLiteral::Type(name) => CelValue::Type(name),
        }
    }
}

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryOperator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Every function, apart from the loops, `has` and `matches`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CelFunction {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Int,
    UInt,
    Double,
    String,
    Bool,
    Type,
    Dyn,
    Timestamp,
}

impl CelFunction {
    /// The function with this name, as a method or alone, and with this number of operands (a method's target
    /// included).
    pub(super) fn find(name: &str, is_method: bool, operands: usize) -> Option<Self> {
        Some(match (name, is_method, operands) {
            ("size", _, 1) => Self::Size,
            ("contains", true, 2) => Self::Contains,
            ("startsWith", true, 2) => Self::StartsWith,
            ("endsWith", true, 2) => Self::EndsWith,
            ("int", false, 1) => Self::Int,
            ("uint", false, 1) => Self::UInt,
            ("double", false, 1) => Self::Double,
            ("string", false, 1) => Self::String,
            ("bool", false, 1) => Self::Bool,
            ("type", false, 1) => Self::Type,
            ("dyn", false, 1) => Self::Dyn,
            ("timestamp", false, 1) => Self::Timestamp,
            _ => return None,
        })
    }
}

/// A loop over a list's items or a map's keys.
#[derive(Debug)]
pub(super) struct CelLoop {
    /// What the loop computes.
    pub(super) kind: LoopKind,
    /// The list or map.
    pub(super) range: CelExpr,
    /// `map(x, guard, body)`: the items for which this is true.
    pub(super) guard: Option<CelExpr>,
    /// Evaluated once per item.
    pub(super) body: CelExpr,
}

/// What a loop computes of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

impl LoopKind {
    /// The loop with this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "all" => Self::All,
            "exists" => Self::Exists,
            "exists_one" | "existsOne" => Self::ExistsOne,
            "map" => Self::Map,
            "filter" => Self::Filter,
            _ => return None,
        })
    }
}
