//! Whole numbers in JSON bodies, however they are written.
//!
//! - JSON has one type of number, and for JSON Schema `5.0` is an integer. The parser accepts only `5` as an integer. So a
//!   body that fails at such a number is parsed again with that number, and nothing else, written as an integer.
//! - Members that are stored as they were sent (`data`, `payload`) are not parsed here and never change.
//! - A body without such a number costs nothing here.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ops::Range;

/// Most bytes that are parsed again for one request.
const PARSED_AGAIN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Doubles hold integers exactly up to this one.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses `bytes` again if `error` is about a whole number with a fraction or an exponent; returns the first other error.
#[cold]
pub(crate) fn parse_again<T: DeserializeOwned>(bytes: &[u8], error: serde_json::Error) -> serde_json::Result<T> {
    let mut error = error;
    let mut text = bytes.to_vec();
    let mut left = PARSED_AGAIN_BYTES_MAX;
    while let Some((place, integer)) = whole_number(&text, &error) {
        let Some(rest) = left.checked_sub(text.len()) else { break };
        left = rest;
        text.splice(place, integer.into_bytes());
        match serde_json::from_slice(&text) {
            Ok(value) => return Ok(value),
            Err(next) => error = next,
        }
    }
    Err(error)
}

/// The value as a whole number that is not negative; `None` if it is something else.
pub(crate) fn of_value(value: &Value) -> Option<u64> {
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as u64))
}

/// The type that the parser expected, in terms of JSON: a caller does not know Rust's names of integers.
pub(crate) fn describe(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "a nonzero u32" | "a nonzero u64" => "an integer that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        other => other,
    }
}

/// The place of the number that `error` is about, and the number as an integer; `None` if it is about something else.
fn whole_number(text: &[u8], error: &serde_json::Error) -> Option<(Range<usize>, String)> {
    if !error.is_data() || !error.to_string().starts_with("invalid type: floating point") {
        return None;
    }
    // The parser has read the number: `column` counts the bytes of the line up to its end.
    let lines_before = error.line().checked_sub(1)?;
    let line_start = match lines_before {
        0 => 0,
        count => text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(count - 1)?.0 + 1,
    };
    let end = line_start + error.column();
    let before = text.get(..end)?;
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte)).count();
    let place = end - digits..end;
    let number: f64 = std::str::from_utf8(text.get(place.clone())?).ok()?.parse().ok()?;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
    is_whole.then(|| (place, format!("{}", number as i64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    #[derive(Debug, Deserialize)]
    struct Body {
        concurrency: u32,
        nested: Vec<Nested>,
        data: Box<RawValue>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Nested {
        offset: i64,
    }

    fn parse(text: &str) -> Result<Body, String> {
        serde_json::from_str(text)
            .or_else(|error| parse_again(text.as_bytes(), error))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn five_point_zero_is_an_integer() {
        let body = parse(
            "{\"concurrency\":5.0,\n \"data\": {\"kept\": 5.0},\n\"nested\":[{\"offset\":-1e2},{\"offset\" : -0.0 }]}",
        );
        let body = body.unwrap();
        assert_eq!(body.concurrency, 5);
        assert_eq!(body.nested, [Nested { offset: -100 }, Nested { offset: 0 }]);
        assert_eq!(body.data.get(), "{\"kept\": 5.0}");
    }

    #[test]
    fn other_numbers_are_refused_as_before() {
        for (number, why) in [
            ("5.5", "invalid type: floating point"),
            ("-5.0", "invalid value: integer"),
            ("5e9", "invalid value: integer"),
            ("1e300", "invalid type: floating point"),
            ("\"5.0\"", "invalid type: string"),
        ] {
            let refused = parse(&format!("{{\"concurrency\":{number},\"data\":1,\"nested\":[]}}")).unwrap_err();
            assert!(refused.starts_with(why), "{number}: {refused}");
        }
    }
}
