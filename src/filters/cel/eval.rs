//! Evaluates an expression for one event, with a bounded number of steps.
//!
//! - Every node, every item and every 32 bytes of text are one step, and every value that is created costs [`MADE`]
//!   more; a byte that is matched with a pattern costs at least one. After [`STEPS_MAX`] steps the evaluation ends with
//!   [`EvalFailure::TooCostly`], which nothing absorbs. That alone bounds time and memory.
//! - Any other failure (an absent member, operands of the wrong type) is absorbed by `||`, `&&`, `all` and `exists` if
//!   another operand decides, as CEL specifies.
//! - Integers do not wrap; an overflow is a failure.

use super::expr::{BinaryOperator, CelExpr, CelLoop, LoopKind};
use super::functions;
use super::json::JsonMembers;
use super::value::{CelList, CelMap, CelValue};
use contract::Timestamp;
use std::cmp::Ordering;

/// Most steps for one event. By measurement, a step takes 10 to 100 nanoseconds, so the worst case is about 20
/// milliseconds.
pub(super) const STEPS_MAX: usize = 200_000;
/// The steps for creating a text, a list or a map.
pub(super) const MADE: usize = 5;

/// Why an expression has no value for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvalFailure {
    /// A member is absent, or operands do not fit.
    Failed,
    /// The steps are used up.
    TooCostly,
}

/// A value, or the failure.
pub(super) type EvalResult<'t, T = CelValue<'t>> = Result<T, EvalFailure>;

/// Whether `expr` is true for the event with these members; adds the steps it took to `spent`.
pub(super) fn is_true<'t>(expr: &'t CelExpr, members: &'t JsonMembers<'t>, spent: &mut u64) -> EvalResult<'t, bool> {
    let mut walk = CelEvaluator { members, variables: Vec::new(), steps: StepBudget(STEPS_MAX) };
    let truth = walk.truth(expr);
    *spent += (STEPS_MAX - walk.steps.0) as u64;
    truth
}

/// The steps that are left.
pub(super) struct StepBudget(usize);

impl StepBudget {
    /// Spends steps, if so many are left.
    pub(super) fn take(&mut self, steps: usize) -> EvalResult<'static, ()> {
        let left = self.0.checked_sub(steps);
        self.0 = left.unwrap_or(0);
        left.map(|_| ()).ok_or(EvalFailure::TooCostly)
    }

    /// Spends the steps of reading so much text.
    pub(super) fn text(&mut self, bytes: usize) -> EvalResult<'static, ()> {
        self.take(bytes / 32)
    }
}

/// The evaluation of one expression for one event.
struct CelEvaluator<'t> {
    members: &'t JsonMembers<'t>,
    /// The values of the open loops' variables, outermost first.
    variables: Vec<CelValue<'t>>,
    steps: StepBudget,
}

impl<'t> CelEvaluator<'t> {
    fn value(&mut self, expr: &'t CelExpr) -> EvalResult<'t> {
        self.steps.take(1)?;
        match expr {
            CelExpr::Literal(literal) => Ok(literal.value()),
            CelExpr::Event => Ok(CelValue::Map(CelMap::Event(self.members))),
            CelExpr::Member(name) => self.member(name),
            CelExpr::Moment(name) => self.moment(name),
            CelExpr::Variable(place) => self.variables.get(*place).cloned().ok_or(EvalFailure::Failed),
            CelExpr::Field(of, name) => self.find(of, name)?.ok_or(EvalFailure::Failed),
            CelExpr::Has(of, name) => Ok(CelValue::Bool(self.find(of, name)?.is_some())),
            CelExpr::Index(of, key) => self.index(of, key),
            CelExpr::Not(of) => Ok(CelValue::Bool(!self.truth(of)?)),
            CelExpr::Negate(of) => functions::negate(&self.value(of)?),
            CelExpr::And(operands) => self.decide(operands, false),
            CelExpr::Or(operands) => self.decide(operands, true),
            CelExpr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.truth(condition)? { self.value(then) } else { self.value(otherwise) }
            }
            CelExpr::Binary(operator, operands) => self.binary(*operator, operands),
            CelExpr::Call(function, operands) => {
                let operands =
                    operands.iter().map(|operand| self.value(operand)).collect::<EvalResult<'t, Vec<_>>>()?;
                functions::call(*function, &operands, &mut self.steps)
            }
            CelExpr::Matches(of, pattern) => {
                let CelValue::Text(text) = self.value(of)? else { return Err(EvalFailure::Failed) };
                self.steps.take(pattern.steps(text.len()))?;
                Ok(CelValue::Bool(pattern.is_match(&text)))
            }
            CelExpr::List(items) => {
                self.steps.take(MADE)?;
                let items = items.iter().map(|item| self.value(item)).collect::<EvalResult<'t, Vec<_>>>()?;
                Ok(CelValue::List(CelList::Made(items.into())))
            }
            CelExpr::Map(entries) => self.map(entries),
            CelExpr::Loop(repeat) => self.repeat(repeat),
        }
    }

    fn truth(&mut self, expr: &'t CelExpr) -> EvalResult<'t, bool> {
        match self.value(expr)? {
            CelValue::Bool(truth) => Ok(truth),
            _ => Err(EvalFailure::Failed),
        }
    }

    fn member(&self, name: &str) -> EvalResult<'t> {
        CelMap::Event(self.members).member(name).ok_or(EvalFailure::Failed)
    }

    fn moment(&self, name: &str) -> EvalResult<'t> {
        let CelValue::Text(text) = self.member(name)? else { return Err(EvalFailure::Failed) };
        text.parse::<Timestamp>().map(CelValue::Time).map_err(|_| EvalFailure::Failed)
    }

    /// The member `name` of a map, if it has it.
    fn find(&mut self, of: &'t CelExpr, name: &str) -> EvalResult<'t, Option<CelValue<'t>>> {
        let CelValue::Map(map) = self.value(of)? else { return Err(EvalFailure::Failed) };
        self.steps.take(map.len() / 4)?;
        Ok(map.member(name))
    }

    fn index(&mut self, of: &'t CelExpr, key: &'t CelExpr) -> EvalResult<'t> {
        let (of, key) = (self.value(of)?, self.value(key)?);
        let found = match of {
            CelValue::List(list) => functions::to_index(&key).and_then(|place| list.get(place)),
            CelValue::Map(map) => {
                self.steps.take(map.len() / 4)?;
                map.get(&key)
            }
            _ => None,
        };
        found.ok_or(EvalFailure::Failed)
    }

    /// `&&` and `||`: the operand that decides wins, even over one that failed.
    fn decide(&mut self, operands: &'t [CelExpr], deciding: bool) -> EvalResult<'t> {
        let mut verdict = LogicVerdict::new(deciding);
        for operand in operands {
            let truth = self.truth(operand);
            if verdict.add(truth)? {
                break;
            }
        }
        verdict.result()
    }

    fn binary(&mut self, operator: BinaryOperator, operands: &'t [CelExpr; 2]) -> EvalResult<'t> {
        let [left, right] = operands;
        let (left, right) = (self.value(left)?, self.value(right)?);
        let order = |steps: &mut StepBudget| {
            steps.text(text_bytes(&left).min(text_bytes(&right)))?;
            left.order(&right).ok_or(EvalFailure::Failed)
        };
        let truth = match operator {
            BinaryOperator::Equal => equal(&left, &right, &mut self.steps)?,
            BinaryOperator::Unequal => !equal(&left, &right, &mut self.steps)?,
            BinaryOperator::Less => order(&mut self.steps)?.is_lt(),
            BinaryOperator::LessOrEqual => order(&mut self.steps)?.is_le(),
            BinaryOperator::Greater => order(&mut self.steps)?.is_gt(),
            BinaryOperator::GreaterOrEqual => order(&mut self.steps)?.is_ge(),
            BinaryOperator::In => contains(&right, &left, &mut self.steps)?,
            _ => return functions::arithmetic(operator, &left, &right, &mut self.steps),
        };
        Ok(CelValue::Bool(truth))
    }

    fn map(&mut self, entries: &'t [(CelExpr, CelExpr)]) -> EvalResult<'t> {
        self.steps.take(MADE)?;
        let mut made: Vec<(CelValue<'t>, CelValue<'t>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.value(key)?;
            self.steps.take(made.len())?;
            let is_key = key.is_key() && !matches!(key, CelValue::Double(_));
            if !is_key || made.iter().any(|(own, _)| own.order(&key).is_some_and(Ordering::is_eq)) {
                return Err(EvalFailure::Failed);
            }
            made.push((key, self.value(value)?));
        }
        Ok(CelValue::Map(CelMap::Made(made.into())))
    }

    fn repeat(&mut self, repeat: &'t CelLoop) -> EvalResult<'t> {
        let items = match self.value(&repeat.range)? {
            CelValue::List(list) => list,
            CelValue::Map(map) => {
                self.steps.take(map.len())?;
                CelList::Made((0..map.len()).filter_map(|index| map.entry(index)).map(|(key, _)| key).collect())
            }
            _ => return Err(EvalFailure::Failed),
        };
        match repeat.kind {
            LoopKind::All => self.quantify(repeat, &items, false),
            LoopKind::Exists => self.quantify(repeat, &items, true),
            LoopKind::ExistsOne => self.exists_one(repeat, &items),
            LoopKind::Map | LoopKind::Filter => self.collect(repeat, &items),
        }
    }

    fn quantify(&mut self, repeat: &'t CelLoop, items: &CelList<'t>, deciding: bool) -> EvalResult<'t> {
        let mut verdict = LogicVerdict::new(deciding);
        for item in items.iter() {
            let truth = self.with(item, |walk| walk.truth(&repeat.body));
            if verdict.add(truth)? {
                break;
            }
        }
        verdict.result()
    }

    fn exists_one(&mut self, repeat: &'t CelLoop, items: &CelList<'t>) -> EvalResult<'t> {
        let mut found = 0_usize;
        for item in items.iter() {
            found += usize::from(self.with(item, |walk| walk.truth(&repeat.body))?);
        }
        Ok(CelValue::Bool(found == 1))
    }

    fn collect(&mut self, repeat: &'t CelLoop, items: &CelList<'t>) -> EvalResult<'t> {
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
        Ok(CelValue::List(CelList::Made(made.into())))
    }

    /// Runs `then` while the innermost loop's variable is `item`.
    fn with<T>(&mut self, item: CelValue<'t>, then: impl FnOnce(&mut Self) -> EvalResult<'t, T>) -> EvalResult<'t, T> {
        self.variables.push(item);
        let outcome = then(self);
        self.variables.pop();
        outcome
    }
}

/// The result of several operands, of which one value decides.
struct LogicVerdict {
    deciding: bool,
    decided: bool,
    failed: bool,
}

impl LogicVerdict {
    fn new(deciding: bool) -> Self {
        Self { deciding, decided: false, failed: false }
    }

    /// Adds one operand's result; returns whether the rest can be skipped.
    fn add(&mut self, truth: EvalResult<'_, bool>) -> EvalResult<'static, bool> {
        match truth {
            Ok(truth) => self.decided = truth == self.deciding,
            Err(EvalFailure::Failed) => self.failed = true,
            Err(EvalFailure::TooCostly) => return Err(EvalFailure::TooCostly),
        }
        Ok(self.decided)
    }

    fn result<'t>(self) -> EvalResult<'t> {
        if self.failed && !self.decided {
            return Err(EvalFailure::Failed);
        }
        Ok(CelValue::Bool(self.deciding == self.decided))
    }
}

/// Equality never fails: values of different kinds are unequal.
pub(super) fn equal(left: &CelValue<'_>, right: &CelValue<'_>, steps: &mut StepBudget) -> EvalResult<'static, bool> {
    steps.take(1)?;
    match (left, right) {
        (CelValue::Null, CelValue::Null) => Ok(true),
        (CelValue::Type(a), CelValue::Type(b)) => Ok(a == b),
        (CelValue::List(a), CelValue::List(b)) => {
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
        (CelValue::Map(a), CelValue::Map(b)) => equal_maps(a, b, steps),
        (CelValue::Text(a), CelValue::Text(b)) if a.len() != b.len() => Ok(false),
        _ => {
            steps.text(text_bytes(left).min(text_bytes(right)))?;
            Ok(left.order(right).is_some_and(Ordering::is_eq))
        }
    }
}

fn equal_maps(left: &CelMap<'_>, right: &CelMap<'_>, steps: &mut StepBudget) -> EvalResult<'static, bool> {
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

/// Whether `item` is in a list, or a key of a map.
fn contains(within: &CelValue<'_>, item: &CelValue<'_>, steps: &mut StepBudget) -> EvalResult<'static, bool> {
    match within {
        CelValue::List(list) => {
            for own in list.iter() {
                if equal(&own, item, steps)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        CelValue::Map(map) => {
            steps.take(map.len() / 4)?;
            // A value that cannot be a key is not in the map.
            Ok(item.is_key() && map.get(item).is_some())
        }
        _ => Err(EvalFailure::Failed),
    }
}

fn text_bytes(value: &CelValue<'_>) -> usize {
    if let CelValue::Text(text) = value { text.len() } else { 0 }
}
