//! The functions and the arithmetic of the language.
//!
//! - JSON knows one kind of number. So `3` and `3.5` may be mixed: an integer meets a double as a double.
//! - Conversions fail rather than guess; none of them loses an integer's digits silently.

use super::eval::{Failure, MADE, Outcome, Steps};
use super::expr::{Function, Operator};
use super::value::{List, Value};
use contract::Timestamp;

/// Calls a function; how many operands it has was checked when the expression was read.
pub(super) fn call<'t>(function: Function, operands: &[Value<'t>], steps: &mut Steps) -> Outcome<'t> {
    let value = match (function, operands) {
        (Function::Size, [of]) => Value::Int(size(of, steps)?),
        (Function::Contains, [Value::Text(text), Value::Text(part)]) => {
            steps.text(2 * text.len())?;
            Value::Bool(text.contains(&**part))
        }
        (Function::StartsWith, [Value::Text(text), Value::Text(part)]) => Value::Bool(text.starts_with(&**part)),
        (Function::EndsWith, [Value::Text(text), Value::Text(part)]) => Value::Bool(text.ends_with(&**part)),
        (Function::Type, [of]) => Value::Type(of.type_name()),
        (Function::Dyn, [of]) => of.clone(),
        (Function::Timestamp, [of]) => {
            steps.take(MADE)?;
            Value::Time(time(of)?)
        }
        (Function::Int, [of]) => Value::Int(int(of).ok_or(Failure::Failed)?),
        (Function::UInt, [of]) => Value::UInt(uint(of).ok_or(Failure::Failed)?),
        (Function::Double, [of]) => Value::Double(double(of, steps)?),
        (Function::String, [of]) => string(of, steps)?,
        (Function::Bool, [of]) => Value::Bool(bool(of).ok_or(Failure::Failed)?),
        _ => return Err(Failure::Failed),
    };
    Ok(value)
}

/// `left operator right` for the operators that compute.
pub(super) fn arithmetic<'t>(
    operator: Operator,
    left: &Value<'t>,
    right: &Value<'t>,
    steps: &mut Steps,
) -> Outcome<'t> {
    let value = match (left, right) {
        (Value::Int(a), Value::Int(b)) => int_arithmetic(operator, *a, *b).map(Value::Int),
        (Value::UInt(a), Value::UInt(b)) => uint_arithmetic(operator, *a, *b).map(Value::UInt),
        (Value::Text(a), Value::Text(b)) if operator == Operator::Add => {
            steps.take(MADE + (a.len() + b.len()) / 4)?;
            Some([&**a, &**b].concat().into())
        }
        (Value::List(a), Value::List(b)) if operator == Operator::Add => {
            steps.take(MADE + a.len() + b.len())?;
            Some(Value::List(List::Made(a.iter().chain(b.iter()).collect())))
        }
        _ => left.number().zip(right.number()).and_then(|(a, b)| double_arithmetic(operator, a, b)).map(Value::Double),
    };
    value.ok_or(Failure::Failed)
}

/// `-of`.
pub(super) fn negate<'t>(of: &Value<'t>) -> Outcome<'t> {
    match of {
        Value::Int(int) => int.checked_neg().map(Value::Int).ok_or(Failure::Failed),
        Value::Double(double) => Ok(Value::Double(-double)),
        _ => Err(Failure::Failed),
    }
}

/// The place in a list an index means: an integer, or a double without a fraction.
pub(super) fn place(index: &Value<'_>) -> Option<usize> {
    match index {
        Value::Int(int) => usize::try_from(*int).ok(),
        Value::UInt(uint) => usize::try_from(*uint).ok(),
        Value::Double(double) if double.fract() == 0.0 => usize::try_from(whole(*double)?).ok(),
        _ => None,
    }
}

fn int_arithmetic(operator: Operator, a: i64, b: i64) -> Option<i64> {
    match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => a.checked_div(b),
        Operator::Remainder => a.checked_rem(b),
        _ => None,
    }
}

fn uint_arithmetic(operator: Operator, a: u64, b: u64) -> Option<u64> {
    match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => a.checked_div(b),
        Operator::Remainder => a.checked_rem(b),
        _ => None,
    }
}

fn double_arithmetic(operator: Operator, a: f64, b: f64) -> Option<f64> {
    match operator {
        Operator::Add => Some(a + b),
        Operator::Subtract => Some(a - b),
        Operator::Multiply => Some(a * b),
        Operator::Divide => Some(a / b),
        _ => None,
    }
}

fn size(of: &Value<'_>, steps: &mut Steps) -> Outcome<'static, i64> {
    let size = match of {
        Value::Text(text) => {
            steps.text(text.len())?;
            text.chars().count()
        }
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(Failure::Failed),
    };
    i64::try_from(size).map_err(|_| Failure::Failed)
}

fn time(of: &Value<'_>) -> Outcome<'static, Timestamp> {
    match of {
        Value::Time(time) => Ok(*time),
        Value::Text(text) => text.parse().ok().filter(is_in_range).ok_or(Failure::Failed),
        Value::Int(seconds) => seconds_after_1970(*seconds).ok_or(Failure::Failed),
        _ => Err(Failure::Failed),
    }
}

/// The instant `timestamp(seconds)` means.
pub(super) fn seconds_after_1970(seconds: i64) -> Option<Timestamp> {
    let time = Timestamp::from_millis(seconds.checked_mul(1000)?);
    (time.seconds() == seconds && is_in_range(&time)).then_some(time)
}

/// CEL's timestamps begin with the year 1 and end with the year 9999.
pub(super) fn is_in_range(time: &Timestamp) -> bool {
    time.seconds() >= -62_135_596_800
}

/// An instant as CEL prints it: as many decimals as it needs.
fn time_text(time: Timestamp) -> String {
    let whole = time.to_string();
    let whole = whole.split_once('.').map_or(&*whole, |(whole, _)| whole);
    let decimals = format!("{:09}", time.subsecond_nanos());
    match decimals.trim_end_matches('0') {
        "" => format!("{whole}Z"),
        decimals => format!("{whole}.{decimals}Z"),
    }
}

fn int(of: &Value<'_>) -> Option<i64> {
    match of {
        Value::Int(int) => Some(*int),
        Value::UInt(uint) => i64::try_from(*uint).ok(),
        Value::Double(double) => whole(*double),
        Value::Text(text) => number_text(text)?.parse().ok(),
        Value::Time(time) => Some(time.seconds()),
        _ => None,
    }
}

fn uint(of: &Value<'_>) -> Option<u64> {
    match of {
        Value::UInt(uint) => Some(*uint),
        Value::Int(int) => u64::try_from(*int).ok(),
        Value::Double(double) if (0.0..18_446_744_073_709_551_616.0).contains(double) => Some(*double as u64),
        Value::Text(text) => number_text(text)?.parse().ok(),
        _ => None,
    }
}

fn double(of: &Value<'_>, steps: &mut Steps) -> Outcome<'static, f64> {
    if let Value::Text(text) = of {
        steps.take(MADE)?;
        return number_text(text).and_then(|text| text.parse().ok()).ok_or(Failure::Failed);
    }
    of.number().ok_or(Failure::Failed)
}

fn string<'t>(of: &Value<'t>, steps: &mut Steps) -> Outcome<'t> {
    steps.take(MADE)?;
    let text = match of {
        Value::Text(_) => return Ok(of.clone()),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::UInt(uint) => uint.to_string(),
        Value::Double(double) => double.to_string(),
        Value::Time(time) => time_text(*time),
        _ => return Err(Failure::Failed),
    };
    Ok(text.into())
}

fn bool(of: &Value<'_>) -> Option<bool> {
    match of {
        Value::Bool(bool) => Some(*bool),
        Value::Text(text) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// No number is written longer than this; the rest is not worth a look.
fn number_text(text: &str) -> Option<&str> {
    (text.len() <= 400).then_some(text)
}

/// A double cut to an integer, where it fits. CEL leaves out both ends: the double nearest to them may have been rounded.
fn whole(double: f64) -> Option<i64> {
    (double.abs() < 9_223_372_036_854_775_808.0).then_some(double as i64)
}
