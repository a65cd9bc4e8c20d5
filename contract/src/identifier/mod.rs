//! Identifiers of topics, event types and subject types, and the patterns that select them.
//!
//! - An identifier is a **GTS id** (`gts.order.created.v1`, [`gts`]) or a **code** (`order.created`, [`code`]). The first
//!   four bytes decide: what begins with `gts.` is a GTS id, everything else must be a code.
//! - Whoever holds an [`Identifier`] holds a valid one; it is kept, compared and printed as it was sent.
//! - Event and subject types compare by [`Identifier::key`], so the GTS ids `X` and `X~` are one type; topics compare
//!   exactly. Codes have no `~` and always compare exactly.
//! - How strict the grammar is depends on the [`IdentifierProfile`]. [`under_profile`] sets it: every identifier and
//!   pattern that is parsed inside, by any parser, is checked against the profile. Outside the profile is relaxed, which
//!   is what code that reads stored data needs: a log may be older than the settings of its broker.
//!
//! Which ids are registered, and what they mean, is known to the registry.

mod code;
mod gts;
mod pattern;

pub use pattern::IdPattern;

use crate::{Error, Kind, limits};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

/// Which grammar an identifier has to satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentifierProfile {
    /// Codes, and GTS ids with two to four names per segment, of which an instance may stand alone.
    #[default]
    Relaxed,
    /// GTS ids as the GTS specification has them, and nothing else.
    Strict,
}

thread_local! {
    /// The profile of the parsing that this thread is in the middle of. A derived deserializer has no parameter that could
    /// carry it.
    static PROFILE: Cell<IdentifierProfile> = const { Cell::new(IdentifierProfile::Relaxed) };
}

/// Runs `parse` with all identifiers and patterns in it held to `profile`.
pub fn under_profile<T>(profile: IdentifierProfile, parse: impl FnOnce() -> T) -> T {
    /// Restores the outer profile, also when `parse` panics.
    struct ProfileGuard(IdentifierProfile);

    impl Drop for ProfileGuard {
        fn drop(&mut self) {
            PROFILE.set(self.0);
        }
    }

    let _outer = ProfileGuard(PROFILE.replace(profile));
    parse()
}

/// Any valid identifier. Equal when spelt the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(
    /// Shared, because one id is held by every event that names it.
    Arc<str>,
);

impl Identifier {
    /// Reads an identifier.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let read = match text.strip_prefix(gts::PREFIX) {
            Some(body) => fits(text, limits::ID_BYTES_MAX).and_then(|()| refused(gts::check_id(body))),
            None => held_to_profile(|| false)
                .and_then(|()| fits(text, limits::CODE_BYTES_MAX))
                .and_then(|()| refused(code::check_id(text))),
        };
        read.and_then(|()| held_to_profile(|| gts_id::GtsId::is_valid(text))).map(|()| Self(text.into()))
    }

    /// The identifier as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a GTS id rather than a code.
    #[must_use]
    pub fn is_gts(&self) -> bool {
        self.0.starts_with(gts::PREFIX)
    }

    /// The strictest grammar it satisfies. Costs a few microseconds; meant for registration, not for publishing.
    #[must_use]
    pub fn profile(&self) -> IdentifierProfile {
        if gts_id::GtsId::is_valid(&self.0) { IdentifierProfile::Strict } else { IdentifierProfile::Relaxed }
    }

    /// Whether it names a GTS type (ends in `~`) rather than an instance.
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

/// Why a text is neither an identifier nor a pattern. The submitted text is never part of it.
type IdentifierFault = &'static str;

const NOT_STRICT: IdentifierFault = "This broker takes strict GTS identifiers only (`gts.profile: strict`), no codes: every segment \
    has exactly four names and a version, as in gts.vendor.package.namespace.type.v1~, and an instance follows its type.";

fn refused<T>(read: Result<T, IdentifierFault>) -> Result<T, Error> {
    read.map_err(|reason| Error::new(Kind::InvalidType, reason))
}

fn fits(text: &str, bytes_max: usize) -> Result<(), Error> {
    match text.len() <= bytes_max {
        true => Ok(()),
        false if bytes_max == limits::ID_BYTES_MAX => {
            Err(Error::new(Kind::InvalidType, format!("A GTS identifier has at most {bytes_max} bytes.")))
        }
        false => Err(Error::new(Kind::InvalidType, format!("A code has at most {bytes_max} bytes."))),
    }
}

/// The profile's say, where it has one.
fn held_to_profile(is_strict: impl FnOnce() -> bool) -> Result<(), Error> {
    match PROFILE.get() {
        IdentifierProfile::Relaxed => Ok(()),
        IdentifierProfile::Strict => refused(if is_strict() { Ok(()) } else { Err(NOT_STRICT) }),
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
                deserializer.deserialize_str(IdentifierVisitor(PhantomData))
            }
        }
    };
}

/// An [`Identifier`] in one role, compared by the text that `$compared` (a method of [`Identifier`]) gives.
macro_rules! role {
    ($(#[$doc:meta])* $name:ident compared by $compared:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Identifier);

        impl $name {
            /// Reads an identifier.
            pub fn parse(text: &str) -> Result<Self, Error> {
                Identifier::parse(text).map(Self)
            }

            /// The identifier as it was sent.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The identifier outside of its role.
            #[must_use]
            pub const fn as_identifier(&self) -> &Identifier {
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

text!(Identifier);
text!(IdPattern);
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

impl TopicId {
    /// What the ids of the broker's own topics contain.
    pub const RESERVED: &'static str = "hx.broker.";

    /// Whether it is the name of one of the broker's own topics, which nobody else registers or writes to.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.as_str().contains(Self::RESERVED)
    }

    /// Refuses a change of one of the broker's own topics, with a pointer to the member that names it.
    pub fn check_unreserved(&self, pointer: &str) -> Result<(), Error> {
        match self.is_reserved() {
            true => Err(Error::invalid(pointer, "belongs to the broker: ids that contain `hx.broker.` are reserved")),
            false => Ok(()),
        }
    }
}

impl Borrow<str> for TopicId {
    /// Only topics can be looked up by text: the other roles hash by key, where `X~` would find nothing.
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Reads a text off the wire without copying it first.
struct IdentifierVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = Error>> de::Visitor<'_> for IdentifierVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identifier as text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        // With its code in front: whoever parses a request must tell this refusal from others.
        text.parse().map_err(|error: Error| E::custom(error))
    }
}

#[cfg(test)]
mod code_tests;
#[cfg(test)]
mod tests;
