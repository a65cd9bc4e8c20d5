//! The functions and the arithmetic of the language.
//!
//! - JSON has one kind of number. So `3` and `3.5` may be mixed: an integer is converted to a double.
//! - Conversions fail rather than guess; none loses digits of an integer silently.

use super::eval::{EvalFailure, EvalResult, MADE, StepBudget};
use super::expr::{BinaryOperator, CelFunction};
use super::value::{CelList, CelValue};
use contract::Timestamp;

/// Calls a function; the parser has checked the number of its operands.
pub(super) fn call<'t>(function: CelFunction, operands: &[CelValue<'t>], steps: &mut StepBudget) -> EvalResult<'t> {
    let value = match (function, operands) {
        (CelFunction::Size, [of]) => CelValue::Int(size(of, steps)?),
        (CelFunction::Contains, [CelValue::Text(text), CelValue::Text(part)]) => {
            steps.text(2 * text.len())?;
            CelValue::Bool(text.contains(&**part))
        }
        (CelFunction::StartsWith, [CelValue::Text(text), CelValue::Text(part)]) => {
            CelValue::Bool(text.starts_with(&**part))
        }
        (CelFunction::EndsWith, [CelValue::Text(text), CelValue::Text(part)]) => {
            CelValue::Bool(text.ends_with(&**part))
        }
        (CelFunction::Type, [of]) => CelValue::Type(of.type_name()),
        (CelFunction::Dyn, [of]) => of.clone(),
        (CelFunction::Timestamp, [of]) => {
            steps.take(MADE)?;
            CelValue::Time(to_time(of)?)
        }
        (CelFunction::Int, [of]) => CelValue::Int(to_int(of).ok_or(EvalFailure::Failed)?),
        (CelFunction::UInt, [of]) => CelValue::UInt(to_uint(of).ok_or(EvalFailure::Failed)?),
        (CelFunction::Double, [of]) => CelValue::Double(to_double(of, steps)?),
        (CelFunction::String, [of]) => to_text(of, steps)?,
        (CelFunction::Bool, [of]) => CelValue::Bool(to_bool(of).ok_or(EvalFailure::Failed)?),
        _ => return Err(EvalFailure::Failed),
    };
    Ok(value)
}

/// `left operator right` for arithmetic operators.
pub(super) fn arithmetic<'t>(
    operator: BinaryOperator,
    left: &CelValue<'t>,
    right: &CelValue<'t>,
    steps: &mut StepBudget,
) -> EvalResult<'t> {
    let value = match (left, right) {
        (CelValue::Int(a), CelValue::Int(b)) => int_arithmetic(operator, *a, *b).map(CelValue::Int),
        (CelValue::UInt(a), CelValue::UInt(b)) => uint_arithmetic(operator, *a, *b).map(CelValue::UInt),
        (CelValue::Text(a), CelValue::Text(b)) if operator == BinaryOperator::Add => {
            steps.take(MADE + (a.len() + b.len()) / 4)?;
            Some([&**a, &**b].concat().into())
        }
        (CelValue::List(a), CelValue::List(b)) if operator == BinaryOperator::Add => {
            steps.take(MADE + a.len() + b.len())?;
            Some(CelValue::List(CelList::Made(a.iter().chain(b.iter()).collect())))
        }
        _ => {
            left.number().zip(right.number()).and_then(|(a, b)| double_arithmetic(operator, a, b)).map(CelValue::Double)
        }
    };
    value.ok_or(EvalFailure::Failed)
}

/// `-of`.
pub(super) fn negate<'t>(of: &CelValue<'t>) -> EvalResult<'t> {
    match of {
        CelValue::Int(int) => int.checked_neg().map(CelValue::Int).ok_or(EvalFailure::Failed),
        CelValue::Double(double) => Ok(CelValue::Double(-double)),
        _ => Err(EvalFailure::Failed),
    }
}

/// The position in a list for an index: an integer, or a double without a fraction.
pub(super) fn to_index(index: &CelValue<'_>) -> Option<usize> {
    match index {
        CelValue::Int(int) => usize::try_from(*int).ok(),
        CelValue::UInt(uint) => usize::try_from(*uint).ok(),
        CelValue::Double(double) if double.fract() == 0.0 => usize::try_from(whole(*double)?).ok(),
        _ => None,
    }
}

fn int_arithmetic(operator: BinaryOperator, a: i64, b: i64) -> Option<i64> {
    match operator {
        BinaryOperator::Add => a.checked_add(b),
        BinaryOperator::Subtract => a.checked_sub(b),
        BinaryOperator::Multiply => a.checked_mul(b),
        BinaryOperator::Divide => a.checked_div(b),
        BinaryOperator::Remainder => a.checked_rem(b),
        _ => None,
    }
}

fn uint_arithmetic(operator: BinaryOperator, a: u64, b: u64) -> Option<u64> {
    match operator {
        BinaryOperator::Add => a.checked_add(b),
        BinaryOperator::Subtract => a.checked_sub(b),
        BinaryOperator::Multiply => a.checked_mul(b),
        BinaryOperator::Divide => a.checked_div(b),
        BinaryOperator::Remainder => a.checked_rem(b),
        _ => None,
    }
}

fn double_arithmetic(operator: BinaryOperator, a: f64, b: f64) -> Option<f64> {
    match operator {
        BinaryOperator::Add => Some(a + b),
        BinaryOperator::Subtract => Some(a - b),
        BinaryOperator::Multiply => Some(a * b),
        BinaryOperator::Divide => Some(a / b),
        _ => None,
    }
}

fn size(of: &CelValue<'_>, steps: &mut StepBudget) -> EvalResult<'static, i64> {
    let size = match of {
        CelValue::Text(text) => {
            steps.text(text.len())?;
            text.chars().count()
        }
        CelValue::List(list) => list.len(),
        CelValue::Map(map) => map.len(),
        _ => return Err(EvalFailure::Failed),
    };
    i64::try_from(size).map_err(|_| EvalFailure::Failed)
}

fn to_time(of: &CelValue<'_>) -> EvalResult<'static, Timestamp> {
    match of {
        CelValue::Time(time) => Ok(*time),
        CelValue::Text(text) => text.parse().ok().filter(is_in_range).ok_or(EvalFailure::Failed),
        CelValue::Int(seconds) => seconds_after_1970(*seconds).ok_or(EvalFailure::Failed),
        _ => Err(EvalFailure::Failed),
    }
}

/// The instant of `timestamp(seconds)`.
pub(super) fn seconds_after_1970(seconds: i64) -> Option<Timestamp> {
    let time = Timestamp::from_millis(seconds.checked_mul(1000)?);
    (time.seconds() == seconds && is_in_range(&time)).then_some(time)
}

/// CEL's timestamps are in the years 1 to 9999.
pub(super) fn is_in_range(time: &Timestamp) -> bool {
    time.seconds() >= -62_135_596_800
}

/// An instant as CEL prints it, with as many decimals as it needs.
fn time_text(time: Timestamp) -> String {
    let whole = time.to_string();
    let whole = whole.split_once('.').map_or(&*whole, |(whole, _)| whole);
    let decimals = format!("{:09}", time.subsecond_nanos());
    match decimals.trim_end_matches('0') {
        "" => format!("{whole}Z"),
        decimals => format!("{whole}.{decimals}Z"),
    }
}

fn to_int(of: &CelValue<'_>) -> Option<i64> {
    match of {
        CelValue::Int(int) => Some(*int),
        CelValue::UInt(uint) => i64::try_from(*uint).ok(),
        CelValue::Double(double) => whole(*double),
        CelValue::Text(text) => number_text(text)?.parse().ok(),
        CelValue::Time(time) => Some(time.seconds()),
        _ => None,
    }
}

fn to_uint(of: &CelValue<'_>) -> Option<u64> {
    match of {
        CelValue::UInt(uint) => Some(*uint),
        CelValue::Int(int) => u64::try_from(*int).ok(),
        CelValue::Double(double) if (0.0..18_446_744_073_709_551_616.0).contains(double) => Some(*double as u64),
        CelValue::Text(text) => number_text(text)?.parse().ok(),
        _ => None,
    }
}

fn to_double(of: &CelValue<'_>, steps: &mut StepBudget) -> EvalResult<'static, f64> {
    if let CelValue::Text(text) = of {
        steps.take(MADE)?;
        return number_text(text).and_then(|text| text.parse().ok()).ok_or(EvalFailure::Failed);
    }
    of.number().ok_or(EvalFailure::Failed)
}

fn to_text<'t>(of: &CelValue<'t>, steps: &mut StepBudget) -> EvalResult<'t> {
    steps.take(MADE)?;
    let text = match of {
        CelValue::Text(_) => return Ok(of.clone()),
        CelValue::Bool(bool) => bool.to_string(),
        CelValue::Int(int) => int.to_string(),
        CelValue::UInt(uint) => uint.to_string(),
        CelValue::Double(double) => double.to_string(),
        CelValue::Time(time) => time_text(*time),
        _ => return Err(EvalFailure::Failed),
    };
    Ok(text.into())
}

fn to_bool(of: &CelValue<'_>) -> Option<bool> {
    match of {
        CelValue::Bool(bool) => Some(*bool),
        CelValue::Text(text) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Longest text of a number; a longer one is refused.
fn number_text(text: &str) -> Option<&str> {
    (text.len() <= 400).then_some(text)
}

/// A double truncated to an integer, if it fits. CEL excludes both ends: the double nearest to them may have been
/// rounded.
fn whole(double: f64) -> Option<i64> {
    (double.abs() < 9_223_372_036_854_775_808.0).then_some(double as i64)
}
