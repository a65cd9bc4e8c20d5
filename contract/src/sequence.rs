//! The numbers of the log. Each counts something different, so each is a type.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Accepts `5` and `5.0`, which are the same number in JSON.
struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("u64")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // Doubles hold integers exactly up to 2^53.
        let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        if is_whole { Ok(number as u64) } else { Err(E::invalid_type(Unexpected::Float(number), &self)) }
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_u64(WholeNumber).map(Self)
            }
        }

        impl $name {
            /// The number before the first one.
            pub const ZERO: Self = Self(0);

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The number that follows.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A record's number in its log; dense, from 1.
    Position
}
number! {
    /// An event's number in its topic; dense, from 1.
    Sequence
}
number! {
    /// An event's number in its aggregate; dense, from 1.
    AggregateSequence
}
number! {
    /// The last sequence that was read; 0: none.
    Offset
}

number! {
    /// The generation of a projection: 1 at first, incremented by every reset. It continues if a projection of the
    /// same name was deleted before.
    Generation
}

number! {
    /// The fencing token of a claim: it grows with every claim, over all events of a log.
    FencingToken
}

impl From<Sequence> for Offset {
    fn from(sequence: Sequence) -> Self {
        Self(sequence.0)
    }
}

impl From<Offset> for Sequence {
    /// The last sequence up to this offset.
    fn from(offset: Offset) -> Self {
        Self(offset.0)
    }
}
