//! The grammar of GTS identifiers and of the patterns that select them.
//!
//! - The relaxed grammar takes everything the strict one takes. It is the cheap one, so it alone decides here; the strict
//!   one (crate `gts-id`) is asked only where the profile wants it.
//! - A pattern answers the same for `X` and `X~`. On strict input that is its only difference from `gts-id`.
//!
//! ```text
//! id      = "gts." segment *("~" segment) ["~"]      with "~": a type, without: an instance
//!         / "gts." segment *("~" segment) "~" uuid   an anonymous instance
//! segment = name 1*3("." name) ".v" number ["." number]
//! name    = [a-z_][a-z0-9_]*                         strict wants four names, and two segments for an instance
//! pattern = id / "gts." *(segment "~") [part] "*"    part ends in "." or, before a version, in ".v"
//! ```

use super::IdentifierFault;

/// A pattern of GTS identifiers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GtsPattern {
    /// The segments written out in full; each must be there, though any minor version does where none is written.
    head: Vec<Box<str>>,
    tail: PatternTail,
}

/// What may follow the head of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PatternTail {
    /// Nothing.
    End,
    /// Anything, or nothing: `T~`, `T~*`, `gts.*`.
    Anything,
    /// A segment that starts like this, then anything: `a.b.*`.
    Start(Box<str>),
    /// A segment of exactly these names in any version, then anything: `a.b.c.d.v*`.
    AnyVersionOf(Box<str>),
}

impl GtsPattern {
    /// Whether it selects the GTS identifier whose key, after `gts.`, is `key`.
    pub(super) fn matches(&self, key: &str) -> bool {
        let mut segments = key.split('~');
        self.head.iter().all(|wanted| segments.next().is_some_and(|segment| is_version_of(segment, wanted)))
            && match &self.tail {
                PatternTail::End => segments.next().is_none(),
                PatternTail::Anything => true,
                PatternTail::Start(start) => segments.next().is_some_and(|segment| segment.starts_with(&**start)),
                PatternTail::AnyVersionOf(names) => segments.next().and_then(names_of) == Some(names),
            }
    }

    /// Whether it selects one identifier only (and its minor versions).
    pub(super) fn is_single(&self) -> bool {
        self.tail == PatternTail::End
    }
}

/// What every GTS identifier begins with, and no code.
pub(super) const PREFIX: &str = "gts.";

pub(super) const NO_VERSION: IdentifierFault =
    "Every GTS segment ends in a version, `v1` or `v1.2`, without leading zeros.";
pub(super) const WRONG_COUNT: IdentifierFault =
    "Every GTS segment has two to four names before its version, separated by dots.";
pub(super) const WRONG_NAME: IdentifierFault =
    "GTS names are lower case: a letter or `_`, then letters, digits and `_`; only a UUID tail may have `-`.";
pub(super) const WRONG_STAR: IdentifierFault = "A GTS pattern has at most one `*`, at its end, after `.`, `~` or the `v` of a version; `gts.*` takes all GTS identifiers.";

pub(super) fn check_id(body: &str) -> Result<(), IdentifierFault> {
    match body.rsplit_once('~') {
        None => check_segment(body),
        Some((head, last)) => {
            head.split('~').try_for_each(check_segment)?;
            if last.is_empty() || is_uuid(last) { Ok(()) } else { check_segment(last) }
        }
    }
}

pub(super) fn check_pattern(body: &str) -> Result<GtsPattern, IdentifierFault> {
    let (head, tail) = parts_of(body)?;
    Ok(GtsPattern { head, tail })
}

fn parts_of(body: &str) -> Result<(Vec<Box<str>>, PatternTail), IdentifierFault> {
    let Some(written) = body.strip_suffix('*') else {
        let no_star = if body.contains('*') { Err(WRONG_STAR) } else { Ok(()) };
        no_star.and_then(|()| check_id(body))?;
        return Ok(match body.strip_suffix('~') {
            Some(head) => (head.split('~').map(Box::from).collect(), PatternTail::Anything),
            None => (body.split('~').map(Box::from).collect(), PatternTail::End),
        });
    };
    if written.contains('*') {
        return Err(WRONG_STAR);
    }
    let (head, part) = match written.rsplit_once('~') {
        Some((head, part)) => (head.split('~').map(|it| check_segment(it).map(|()| it.into())).collect(), part),
        None => (Ok(Vec::new()), written),
    };
    Ok((head?, check_part(part)?))
}

/// The part of a segment before the star.
fn check_part(part: &str) -> Result<PatternTail, IdentifierFault> {
    if part.is_empty() {
        return Ok(PatternTail::Anything);
    }
    if let Some(names) = part.strip_suffix(".v") {
        check_names(names, 2)?;
        return Ok(PatternTail::AnyVersionOf(names.into()));
    }
    let start = part.strip_suffix('.').ok_or(WRONG_STAR)?;
    // Four names and a major version, or fewer tokens: those may all be names, since `v1` is a name too.
    match start.rsplit_once('.') {
        Some((names, last)) if is_major(last) && names.split('.').count() == 4 => check_names(names, 4)?,
        _ => check_names(start, 1)?,
    }
    Ok(PatternTail::Start(part.into()))
}

fn check_segment(segment: &str) -> Result<(), IdentifierFault> {
    check_names(names_of(segment).ok_or(NO_VERSION)?, 2)
}

fn check_names(names: &str, count_min: usize) -> Result<(), IdentifierFault> {
    let mut count = 0;
    for name in names.split('.') {
        if !is_name(name) {
            return Err(WRONG_NAME);
        }
        count += 1;
    }
    if (count_min..=4).contains(&count) { Ok(()) } else { Err(WRONG_COUNT) }
}

/// The names of a segment. The version is looked for from the right, because a name may look like one.
fn names_of(segment: &str) -> Option<&str> {
    let (rest, last) = segment.rsplit_once('.')?;
    if is_major(last) {
        return Some(rest);
    }
    let (names, major) = rest.rsplit_once('.')?;
    (is_number(last) && is_major(major)).then_some(names)
}

/// Whether a segment is the wanted one, or a minor version of it. Only a minor version can start with a digit.
fn is_version_of(segment: &str, wanted: &str) -> bool {
    segment.strip_prefix(wanted).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|minor| minor.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn is_name(token: &str) -> bool {
    token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && !token.starts_with(|c: char| c.is_ascii_digit())
        && !token.is_empty()
}

fn is_major(token: &str) -> bool {
    token.strip_prefix('v').is_some_and(is_number)
}

fn is_number(token: &str) -> bool {
    let no_leading_zero = token == "0" || !token.starts_with('0');
    no_leading_zero && token.bytes().all(|byte| byte.is_ascii_digit()) && token.parse::<u32>().is_ok()
}

fn is_uuid(token: &str) -> bool {
    token.len() == 36
        && token.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}
