//! Walking an expression over one event, with a bounded number of steps.
//!
//! - Every node, every item looked at and every 32 bytes of text gone through is a step, and whatever is made costs
//!   [`MADE`] more; after [`STEPS_MAX`] of them the walk ends as [`Failure::TooCostly`], which nothing absorbs. Time and
//!   memory are bounded by that alone.
//! - Any other failure (an absent member, operands of the wrong type) is absorbed by `||`, `&&`, `all` and `exists`
//!   when another operand decides, as CEL has it.
//! - Integers do not wrap; a number that leaves its range is a failure.

use super::expr::{Expr, Loop, LoopKind, Operator};
use super::functions;
use super::json::Members;
use super::value::{List, Map, Value};
use contract::Timestamp;
use std::cmp::Ordering;

/// Most steps one event may take. Measured, a step takes 10 to 100 nanoseconds, so the worst is some 20 milliseconds.
pub(super) const STEPS_MAX: usize = 200_000;
/// The steps of making a text, a list or a map.
pub(super) const MADE: usize = 5;

/// Why an expression has no value for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// A member is absent, or operands do not fit.
    Failed,
    /// The steps are used up.
    TooCostly,
}

/// A value, or why there is none.
pub(super) type Outcome<'t, T = Value<'t>> = Result<T, Failure>;

/// Whether `expr` is true for the event with these members; adds the steps it took to `spent`.
pub(super) fn is_true<'t>(expr: &'t Expr, members: &'t Members<'t>, spent: &mut u64) -> Outcome<'t, bool> {
    let mut walk = Walk { members, variables: Vec::new(), steps: Steps(STEPS_MAX) };
    let truth = walk.truth(expr);
    *spent += (STEPS_MAX - walk.steps.0) as u64;
    truth
}

/// The steps that are left.
pub(super) struct Steps(usize);

impl Steps {
    /// Takes as many steps, if there are so many.
    pub(super) fn take(&mut self, steps: usize) -> Outcome<'static, ()> {
        let left = self.0.checked_sub(steps);
        self.0 = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Failure::TooCostly)
    }

    /// Takes the steps of going through so much text.
    pub(super) fn text(&mut self, bytes: usize) -> Outcome<'static, ()> {
        self.take(bytes / 32)
    }
}

/// One expression over one event.
struct Walk<'t> {
    members: &'t Members<'t>,
    /// The values of the open loops' variables, outermost first.
    variables: Vec<Value<'t>>,
    steps: Steps,
}

impl<'t> Walk<'t> {
    fn value(&mut self, expr: &'t Expr) -> Outcome<'t> {
        self.steps.take(1)?;
        match expr {
            Expr::Literal(literal) => Ok(literal.value()),
            Expr::Event => Ok(Value::Map(Map::Event(self.members))),
            Expr::Member(name) => self.member(name),
            Expr::Moment(name) => self.moment(name),
            Expr::Variable(place) => self.variables.get(*place).cloned().ok_or(Failure::Failed),
            Expr::Field(of, name) => self.find(of, name)?.ok_or(Failure::Failed),
            Expr::Has(of, name) => Ok(Value::Bool(self.find(of, name)?.is_some())),
            Expr::Index(of, key) => self.index(of, key),
            Expr::Not(of) => Ok(Value::Bool(!self.truth(of)?)),
            Expr::Negate(of) => functions::negate(&self.value(of)?),
            Expr::And(operands) => self.decide(operands, false),
            Expr::Or(operands) => self.decide(operands, true),
            Expr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.truth(condition)? { self.value(then) } else { self.value(otherwise) }
            }
            Expr::Binary(operator, operands) => self.binary(*operator, operands),
            Expr::Call(function, operands) => {
                let operands = operands.iter().map(|operand| self.value(operand)).collect::<Outcome<'t, Vec<_>>>()?;
                functions::call(*function, &operands, &mut self.steps)
            }
            Expr::Matches(of, pattern) => {
                let Value::Text(text) = self.value(of)? else { return Err(Failure::Failed) };
                self.steps.take(text.len())?;
                Ok(Value::Bool(pattern.is_match(&text)))
            }
            Expr::List(items) => {
                self.steps.take(MADE)?;
                let items = items.iter().map(|item| self.value(item)).collect::<Outcome<'t, Vec<_>>>()?;
                Ok(Value::List(List::Made(items.into())))
            }
            Expr::Map(entries) => self.map(entries),
            Expr::Loop(repeat) => self.repeat(repeat),
        }
    }

    fn truth(&mut self, expr: &'t Expr) -> Outcome<'t, bool> {
        match self.value(expr)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(Failure::Failed),
        }
    }

    fn member(&self, name: &str) -> Outcome<'t> {
        Map::Event(self.members).member(name).ok_or(Failure::Failed)
    }

    fn moment(&self, name: &str) -> Outcome<'t> {
        let Value::Text(text) = self.member(name)? else { return Err(Failure::Failed) };
        text.parse::<Timestamp>().map(Value::Time).map_err(|_| Failure::Failed)
    }

    /// The member `name` of a map, if it has it.
    fn find(&mut self, of: &'t Expr, name: &str) -> Outcome<'t, Option<Value<'t>>> {
        let Value::Map(map) = self.value(of)? else { return Err(Failure::Failed) };
        self.steps.take(map.len() / 4)?;
        Ok(map.member(name))
    }

    fn index(&mut self, of: &'t Expr, key: &'t Expr) -> Outcome<'t> {
        let (of, key) = (self.value(of)?, self.value(key)?);
        let found = match of {
            Value::List(list) => functions::place(&key).and_then(|place| list.get(place)),
            Value::Map(map) => {
                self.steps.take(map.len() / 4)?;
                map.get(&key)
            }
            _ => None,
        };
        found.ok_or(Failure::Failed)
    }

    /// `&&` and `||`: the operand that decides wins, even over one that failed.
    fn decide(&mut self, operands: &'t [Expr], deciding: bool) -> Outcome<'t> {
        let mut verdict = Verdict::new(deciding);
        for operand in operands {
            let truth = self.truth(operand);
            if verdict.hear(truth)? {
                break;
            }
        }
        verdict.give()
    }

    fn binary(&mut self, operator: Operator, operands: &'t [Expr; 2]) -> Outcome<'t> {
        let [left, right] = operands;
        let (left, right) = (self.value(left)?, self.value(right)?);
        let order = |steps: &mut Steps| {
            steps.text(text_bytes(&left).min(text_bytes(&right)))?;
            left.order(&right).ok_or(Failure::Failed)
        };
        let truth = match operator {
            Operator::Equal => equal(&left, &right, &mut self.steps)?,
            Operator::Unequal => !equal(&left, &right, &mut self.steps)?,
            Operator::Less => order(&mut self.steps)?.is_lt(),
            Operator::LessOrEqual => order(&mut self.steps)?.is_le(),
            Operator::Greater => order(&mut self.steps)?.is_gt(),
            Operator::GreaterOrEqual => order(&mut self.steps)?.is_ge(),
            Operator::In => contains(&right, &left, &mut self.steps)?,
            _ => return functions::arithmetic(operator, &left, &right, &mut self.steps),
        };
        Ok(Value::Bool(truth))
    }

    fn map(&mut self, entries: &'t [(Expr, Expr)]) -> Outcome<'t> {
        self.steps.take(MADE)?;
        let mut made: Vec<(Value<'t>, Value<'t>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.value(key)?;
            self.steps.take(made.len())?;
            let is_key = key.is_key() && !matches!(key, Value::Double(_));
            if !is_key || made.iter().any(|(own, _)| own.order(&key).is_some_and(Ordering::is_eq)) {
                return Err(Failure::Failed);
            }
            made.push((key, self.value(value)?));
        }
        Ok(Value::Map(Map::Made(made.into())))
    }

    fn repeat(&mut self, repeat: &'t Loop) -> Outcome<'t> {
        let items = match self.value(&repeat.range)? {
            Value::List(list) => list,
            Value::Map(map) => {
                self.steps.take(map.len())?;
                List::Made((0..map.len()).filter_map(|index| map.entry(index)).map(|(key, _)| key).collect())
            }
            _ => return Err(Failure::Failed),
        };
        match repeat.kind {
            LoopKind::All => self.quantify(repeat, &items, false),
            LoopKind::Exists => self.quantify(repeat, &items, true),
            LoopKind::ExistsOne => self.exists_one(repeat, &items),
            LoopKind::Map | LoopKind::Filter => self.collect(repeat, &items),
        }
    }

    fn quantify(&mut self, repeat: &'t Loop, items: &List<'t>, deciding: bool) -> Outcome<'t> {
        let mut verdict = Verdict::new(deciding);
        for item in items.iter() {
            let truth = self.with(item, |walk| walk.truth(&repeat.body));
            if verdict.hear(truth)? {
                break;
            }
        }
        verdict.give()
    }

    fn exists_one(&mut self, repeat: &'t Loop, items: &List<'t>) -> Outcome<'t> {
        let mut found = 0_usize;
        for item in items.iter() {
            found += usize::from(self.with(item, |walk| walk.truth(&repeat.body))?);
        }
        Ok(Value::Bool(found == 1))
    }

    fn collect(&mut self, repeat: &'t Loop, items: &List<'t>) -> Outcome<'t> {
        self.steps.take(MADE)?;
        let mut made = Vec::new();
        for item in items.iter() {
            let kept = if repeat.kind == LoopKind::Filter {
                let is_kept = self.with(item.clone(), |walk| walk.truth(&repeat.body))?;
                is_kept.then_some(item)
            } else {
                self.with(item, |walk| {
                    let wanted = repeat.guard.as_ref().map_or(Ok(true), |guard| walk.truth(guard))?;
                    if wanted { walk.value(&repeat.body).map(Some) } else { Ok(None) }
                })?
            };
            made.extend(kept);
        }
        Ok(Value::List(List::Made(made.into())))
    }

    /// Does something while the innermost loop's variable is `item`.
    fn with<T>(&mut self, item: Value<'t>, then: impl FnOnce(&mut Self) -> Outcome<'t, T>) -> Outcome<'t, T> {
        self.variables.push(item);
        let outcome = then(self);
        self.variables.pop();
        outcome
    }
}

/// The answer of many operands, where one kind of answer decides.
struct Verdict {
    deciding: bool,
    decided: bool,
    failed: bool,
}

impl Verdict {
    fn new(deciding: bool) -> Self {
        Self { deciding, decided: false, failed: false }
    }

    /// Takes one operand's answer and says whether the rest need not be asked.
    fn hear(&mut self, truth: Outcome<'_, bool>) -> Outcome<'static, bool> {
        match truth {
            Ok(truth) => self.decided = truth == self.deciding,
            Err(Failure::Failed) => self.failed = true,
            Err(Failure::TooCostly) => return Err(Failure::TooCostly),
        }
        Ok(self.decided)
    }

    fn give<'t>(self) -> Outcome<'t> {
        if self.failed && !self.decided {
            return Err(Failure::Failed);
        }
        Ok(Value::Bool(self.deciding == self.decided))
    }
}

/// Equality never fails: values of different kinds are unequal.
pub(super) fn equal(left: &Value<'_>, right: &Value<'_>, steps: &mut Steps) -> Outcome<'static, bool> {
    steps.take(1)?;
    match (left, right) {
        (Value::Null, Value::Null) => Ok(true),
        (Value::Type(a), Value::Type(b)) => Ok(a == b),
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a, &b, steps)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, steps),
        (Value::Text(a), Value::Text(b)) if a.len() != b.len() => Ok(false),
        _ => {
            steps.text(text_bytes(left).min(text_bytes(right)))?;
            Ok(left.order(right).is_some_and(Ordering::is_eq))
        }
    }
}

fn equal_maps(left: &Map<'_>, right: &Map<'_>, steps: &mut Steps) -> Outcome<'static, bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (key, value) in (0..left.len()).filter_map(|index| left.entry(index)) {
        steps.take(right.len() / 4)?;
        match right.get(&key) {
            Some(other) if equal(&value, &other, steps)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether `item` is an item of a list or a key of a map.
fn contains(within: &Value<'_>, item: &Value<'_>, steps: &mut Steps) -> Outcome<'static, bool> {
    match within {
        Value::List(list) => {
            for own in list.iter() {
                if equal(&own, item, steps)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => {
            steps.take(map.len() / 4)?;
            // What cannot be a key is not one.
            Ok(item.is_key() && map.get(item).is_some())
        }
        _ => Err(Failure::Failed),
    }
}

fn text_bytes(value: &Value<'_>) -> usize {
    if let Value::Text(text) = value { text.len() } else { 0 }
}
