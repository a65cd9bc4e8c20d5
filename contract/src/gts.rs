//! GTS identifiers and the patterns that select them.
//!
//! - Whoever holds a [`GtsId`] holds a valid one; it is kept, compared and printed as it was sent.
//! - The relaxed grammar takes everything the strict one takes. It is the cheap one, so it alone decides at parse;
//!   the strict one (crate `gts-id`) is asked only by [`GtsId::profile`].
//! - Event and subject types compare by [`GtsId::key`], so `X` and `X~` are one type; topics compare exactly.
//! - A pattern answers the same for `X` and `X~`. On strict input that is its only difference from `gts-id`.
//!
//! ```text
//! id      = "gts." segment *("~" segment) ["~"]      with "~": a type, without: an instance
//!         / "gts." segment *("~" segment) "~" uuid   an anonymous instance
//! segment = name 1*3("." name) ".v" number ["." number]
//! name    = [a-z_][a-z0-9_]*                         strict wants four names, and two segments for an instance
//! pattern = id / "gts." *(segment "~") [part] "*"    part ends in "." or, before a version, in ".v"
//! ```
//!
//! Which ids are known, and what they mean, is the registry's business.

use crate::{Error, Kind, limits};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

/// Which grammar an identifier has to satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Two to four names per segment, and an instance may stand alone.
    #[default]
    Relaxed,
    /// As the GTS specification has it.
    Strict,
}

/// Any valid GTS identifier. Equal when spelt the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GtsId(
    /// Shared, because one id is held by every event that names it.
    Arc<str>,
);

impl GtsId {
    /// Reads an identifier of either profile.
    pub fn parse(text: &str) -> Result<Self, Error> {
        read(text, check_id).map(|()| Self(text.into()))
    }

    /// The identifier as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The strictest grammar it satisfies. Costs a few microseconds; meant for registration, not for publishing.
    #[must_use]
    pub fn profile(&self) -> Profile {
        if gts_id::GtsId::is_valid(&self.0) { Profile::Strict } else { Profile::Relaxed }
    }

    /// Whether it names a type (ends in `~`) rather than an instance.
    #[must_use]
    pub fn is_type(&self) -> bool {
        self.0.ends_with('~')
    }

    /// The identifier without one trailing `~`: what event and subject types compare by.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.strip_suffix('~').unwrap_or(&self.0)
    }
}

/// Gives a type with `parse` and `as_str` everything a text on the wire needs.
macro_rules! text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.as_str()).finish()
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(FromText(PhantomData))
            }
        }
    };
}

/// A [`GtsId`] in one role, compared by the text that `$compared` (a method of [`GtsId`]) gives.
macro_rules! role {
    ($(#[$doc:meta])* $name:ident compared by $compared:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(GtsId);

        impl $name {
            /// Reads an identifier of either profile.
            pub fn parse(text: &str) -> Result<Self, Error> {
                GtsId::parse(text).map(Self)
            }

            /// The identifier as it was sent.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The identifier outside of its role.
            #[must_use]
            pub const fn as_gts(&self) -> &GtsId {
                &self.0
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.$compared() == other.0.$compared()
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.$compared().cmp(other.0.$compared())
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.$compared().hash(state);
            }
        }

        text!($name);
    };
}

/// Adds the comparison key to a role that is compared by it.
macro_rules! keyed {
    ($name:ident) => {
        impl $name {
            /// What it is compared by: the identifier without one trailing `~`.
            #[must_use]
            pub fn key(&self) -> &str {
                self.0.key()
            }
        }
    };
}

text!(GtsId);
role! {
    /// The name of a topic. `X` and `X~` are two topics.
    TopicId compared by as_str
}
role! {
    /// The name of an event type. `X` and `X~` are the same type.
    EventTypeId compared by key
}
role! {
    /// The name of the type of thing an event is about. `X` and `X~` are the same type.
    SubjectTypeId compared by key
}
keyed!(EventTypeId);
keyed!(SubjectTypeId);

impl Borrow<str> for TopicId {
    /// Only topics can be looked up by text: the other roles hash by key, where `X~` would find nothing.
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Selects identifiers: one exactly, everything derived from a type, or everything that starts alike.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GtsPattern {
    text: Arc<str>,
    /// The segments written out in full; each must be there, though any minor version does where none is written.
    head: Vec<Box<str>>,
    tail: Tail,
}

/// What may follow the head of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Tail {
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
    /// Reads a pattern; every identifier is one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        read(text, check_pattern).map(|(head, tail)| Self { text: text.into(), head, tail })
    }

    /// The pattern as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is written without a star. (A type still covers what is derived from it.)
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.text.ends_with('*')
    }

    /// Whether it selects `id`; the same for `X` and `X~`.
    #[must_use]
    pub fn matches(&self, id: &GtsId) -> bool {
        let mut segments = id.key().strip_prefix(PREFIX).unwrap_or_default().split('~');
        self.head.iter().all(|wanted| segments.next().is_some_and(|segment| is_version_of(segment, wanted)))
            && match &self.tail {
                Tail::End => segments.next().is_none(),
                Tail::Anything => true,
                Tail::Start(start) => segments.next().is_some_and(|segment| segment.starts_with(&**start)),
                Tail::AnyVersionOf(names) => segments.next().and_then(names_of) == Some(names),
            }
    }

    /// Ranks patterns that select the same id: the one of a single id first, then the longer, then the one without `*`.
    #[must_use]
    pub fn specificity(&self) -> usize {
        let written = self.text.trim_end_matches('*').len();
        let single = if self.tail == Tail::End { limits::ID_BYTES_MAX + 1 } else { 0 };
        2 * (written + single) + usize::from(self.is_exact())
    }
}

text!(GtsPattern);

const PREFIX: &str = "gts.";

/// Why a text is neither an id nor a pattern. The submitted text is never part of it.
type Reason = &'static str;

const NO_PREFIX: Reason = "A GTS identifier starts with `gts.`, as in gts.vendor.package.namespace.type.v1~.";
const NO_VERSION: Reason = "Every GTS segment ends in a version, `v1` or `v1.2`, without leading zeros.";
const WRONG_COUNT: Reason = "Every GTS segment has two to four names before its version, separated by dots.";
const WRONG_NAME: Reason =
    "GTS names are lower case: a letter or `_`, then letters, digits and `_`; only a UUID tail may have `-`.";
const WRONG_STAR: Reason =
    "A GTS pattern has at most one `*`, at its end, after `.`, `~` or the `v` of a version; `gts.*` takes all.";

/// Reads the text behind `gts.`, within the limit of length.
fn read<'a, T>(text: &'a str, check: impl FnOnce(&'a str) -> Result<T, Reason>) -> Result<T, Error> {
    if text.len() > limits::ID_BYTES_MAX {
        let detail = format!("A GTS identifier has at most {} bytes.", limits::ID_BYTES_MAX);
        return Err(Error::new(Kind::InvalidType, detail));
    }
    text.strip_prefix(PREFIX).ok_or(NO_PREFIX).and_then(check).map_err(|reason| Error::new(Kind::InvalidType, reason))
}

fn check_id(body: &str) -> Result<(), Reason> {
    match body.rsplit_once('~') {
        None => check_segment(body),
        Some((head, last)) => {
            head.split('~').try_for_each(check_segment)?;
            if last.is_empty() || is_uuid(last) { Ok(()) } else { check_segment(last) }
        }
    }
}

fn check_pattern(body: &str) -> Result<(Vec<Box<str>>, Tail), Reason> {
    let Some(written) = body.strip_suffix('*') else {
        let no_star = if body.contains('*') { Err(WRONG_STAR) } else { Ok(()) };
        no_star.and_then(|()| check_id(body))?;
        return Ok(match body.strip_suffix('~') {
            Some(head) => (head.split('~').map(Box::from).collect(), Tail::Anything),
            None => (body.split('~').map(Box::from).collect(), Tail::End),
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
fn check_part(part: &str) -> Result<Tail, Reason> {
    if part.is_empty() {
        return Ok(Tail::Anything);
    }
    if let Some(names) = part.strip_suffix(".v") {
        check_names(names, 2)?;
        return Ok(Tail::AnyVersionOf(names.into()));
    }
    let start = part.strip_suffix('.').ok_or(WRONG_STAR)?;
    // Four names and a major version, or fewer tokens: those may all be names, since `v1` is a name too.
    match start.rsplit_once('.') {
        Some((names, last)) if is_major(last) && names.split('.').count() == 4 => check_names(names, 4)?,
        _ => check_names(start, 1)?,
    }
    Ok(Tail::Start(part.into()))
}

fn check_segment(segment: &str) -> Result<(), Reason> {
    check_names(names_of(segment).ok_or(NO_VERSION)?, 2)
}

fn check_names(names: &str, count_min: usize) -> Result<(), Reason> {
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

/// Reads a text off the wire without copying it first.
struct FromText<T>(PhantomData<T>);

impl<T: FromStr<Err = Error>> de::Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GTS identifier as text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        // With its code in front: whoever parses a request must tell this refusal from others.
        text.parse().map_err(|error: Error| E::custom(error))
    }
}

#[cfg(test)]
mod tests;
