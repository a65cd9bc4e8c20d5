//! Whether `jsonb` can hold a JSON text.
//!
//! PostgreSQL refuses two things that are good JSON: the character U+0000, and numbers beyond `numeric`'s range. An event
//! that has one must be stored all the same, so such a text is told here before PostgreSQL sees it. The answer is on the
//! safe side: a number of more than 4,096 digits, or with an exponent beyond that, counts as one it cannot hold.

/// Most characters of a number, and its largest exponent. `numeric` takes 16,383 digits behind the point and more before.
const NUMBER_MAX: usize = 4096;

/// Whether `jsonb` holds `text`, which must be valid JSON.
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

/// What follows a string whose opening quote was taken; `None` where it holds what `jsonb` cannot.
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

/// What follows `\u`; `None` for U+0000 and for half a pair of surrogates.
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

/// What follows a number; `None` where it may be beyond `numeric`.
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
    fn what_jsonb_takes_is_told_from_what_it_refuses() {
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
