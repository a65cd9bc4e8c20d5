//! Whether `jsonb` can store a JSON text.
//!
//! PostgreSQL refuses two things that are valid JSON: the character U+0000, and numbers outside the range of `numeric`. An event
//! that contains one must be stored as well, so such a text is recognised here before PostgreSQL refuses it. The check is
//! conservative: a number of more than 4,096 digits, or with a larger exponent, counts as one that cannot be stored.

/// The longest number, and the largest exponent. `numeric` stores 16,383 digits after the point, and more before it.
const NUMBER_MAX: usize = 4096;

/// Whether `jsonb` can store `text`, which must be valid JSON.
pub(crate) fn fits_jsonb(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let after = match first {
            b'"' => string(behind),
            b'0'..=b'9' => number(rest),
            _ => Some(behind),
        };
        match after {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

/// The rest after a string whose opening quote was consumed; `None` if `jsonb` cannot store it.
fn string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'u', behind @ ..] => escaped(behind)?,
            [b'\\', _, behind @ ..] | [_, behind @ ..] => behind,
            [] => return None,
        };
    }
}

/// The rest after `\u` and its digits; `None` for U+0000 and for an unpaired surrogate.
fn escaped(rest: &[u8]) -> Option<&[u8]> {
    let (unit, behind) = code_unit(rest)?;
    match unit {
        0 | 0xDC00..=0xDFFF => None,
        0xD800..=0xDBFF => {
            let (low, behind) = code_unit(behind.strip_prefix(b"\\u")?)?;
            (0xDC00..=0xDFFF).contains(&low).then_some(behind)
        }
        _ => Some(behind),
    }
}

fn code_unit(rest: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, behind) = rest.split_at_checked(4)?;
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((unit, behind))
}

/// The rest after a number; `None` if it may be outside the range of `numeric`.
fn number(rest: &[u8]) -> Option<&[u8]> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    let (number, behind) = rest.split_at_checked(end)?;
    let exponent = number.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let small = exponent.is_none_or(|at| {
        let digits = number.get(at + 1..).unwrap_or_default();
        let digits = std::str::from_utf8(digits).unwrap_or_default().trim_start_matches(['+', '-']);
        digits.parse::<usize>().is_ok_and(|exponent| exponent <= NUMBER_MAX)
    });
    (number.len() <= NUMBER_MAX && small).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_jsonb_cannot_store_are_recognised() {
        let long = "1".repeat(5000);
        for (text, fits) in [
            ("{}", true),
            (r#"{"a":[1,-2.5e10,"x\\u0000","\u0041\"","😀",true,null]}"#, true),
            (r#""\ud83d\ude00""#, true),
            ("1e4096", true),
            ("1E-4096", true),
            (r#"{"a":"\u0000"}"#, false),
            (r#"{"\u0000":1}"#, false),
            (r#""\\\u0000""#, false),
            (r#""\ud83d""#, false),
            (r#""\ude00x""#, false),
            (r#""\ud83d\u0041""#, false),
            ("[1e400000]", false),
            ("[-1e-400000]", false),
            ("1e99999999999999999999999", false),
            (&long, false),
        ] {
            assert_eq!(fits_jsonb(text), fits, "{}", &text[..text.len().min(40)]);
        }
    }
}
