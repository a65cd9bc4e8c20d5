//! The grammar of codes: plain names such as `order.created` and `shop:orders:order:created`.
//!
//! ```text
//! code    = part 1*7("." part) / part 1*7(":" part)      one kind of joint per code
//! part    = 1*(ALPHA / DIGIT / "_" / "-")
//! pattern = code / part *6("." part) ".*" / part *6(":" part) ":*"
//! ```
//!
//! A pattern with a star selects every code that begins with what stands before the star. Nothing that begins with `gts.`,
//! in whatever letter case, is a code.

use super::IdentifierFault;
use std::ops::RangeInclusive;

/// Most parts of a code; a pattern's star counts as one.
const PARTS_MAX: usize = 8;

pub(super) const NEITHER: IdentifierFault = "An identifier is a code, as in order.created or shop:orders:order:created (2 to 8 parts \
    of letters, digits, `_` and `-`, all joined by `.` or all by `:`), or a GTS identifier, as in gts.order.created.v1.";
pub(super) const ONE_PART: IdentifierFault = "One word is not an identifier: join at least two by `.` or `:`, as in order.created \
    or shop:orders:order:created, or write a GTS identifier, as in gts.order.created.v1.";
pub(super) const WRONG_CASE: IdentifierFault = "A GTS identifier begins with `gts.` in lower case, as in gts.order.created.v1; a \
    code, as in order.created, does not begin with it in any letter case.";
pub(super) const WRONG_STAR: IdentifierFault = "A pattern of codes ends in `.*` or `:*`, as in order.* or shop:orders:*, with at most \
    7 parts before it and no other `*`; one of GTS identifiers begins with `gts.`, as in gts.*.";

pub(super) fn check_id(text: &str) -> Result<(), IdentifierFault> {
    match text.find(['.', ':']).and_then(|at| text.get(at..)) {
        None if is_part(text) => Err(ONE_PART),
        None => Err(NEITHER),
        Some(rest) => check_parts(text, if rest.starts_with('.') { '.' } else { ':' }, 2..=PARTS_MAX),
    }
}

/// What a pattern's star follows, its joint included; `None` for a code, which selects itself.
pub(super) fn check_pattern(text: &str) -> Result<Option<&str>, IdentifierFault> {
    let Some(start) = text.strip_suffix('*') else {
        return match text.contains('*') {
            true => Err(WRONG_STAR),
            false => check_id(text).map(|()| None),
        };
    };
    let (parts, joint) = match (start.strip_suffix('.'), start.strip_suffix(':')) {
        (Some(parts), _) => (parts, '.'),
        (_, Some(parts)) => (parts, ':'),
        _ => return Err(WRONG_STAR),
    };
    let checked = check_parts(parts, joint, 1..=PARTS_MAX - 1);
    checked.map_err(|reason| if reason == WRONG_CASE { reason } else { WRONG_STAR })?;
    Ok(Some(start))
}

/// Checks parts with one kind of joint between them. A part has neither kind in it, so a second kind is refused.
fn check_parts(text: &str, joint: char, count: RangeInclusive<usize>) -> Result<(), IdentifierFault> {
    let first = text.split(joint).next().unwrap_or_default();
    if joint == '.' && first.eq_ignore_ascii_case("gts") {
        return Err(WRONG_CASE);
    }
    let is_code = text.split(joint).all(is_part) && count.contains(&text.split(joint).count());
    if is_code { Ok(()) } else { Err(NEITHER) }
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
