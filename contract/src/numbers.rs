//! The numbers of the log. Each counts something else, so each is a type of its own.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number before the first one: nothing is there yet.
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
    /// A record's number in the whole log (global order); dense, from 1.
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
    /// "Seen through this sequence"; 0 is nothing seen.
    Offset
}

number! {
    /// Which life of a projection: 1 at first, one more with every reset.
    Generation
}

number! {
    /// What fences a claim: grows with every claim, over all events of a log.
    Token
}

impl From<Sequence> for Offset {
    fn from(sequence: Sequence) -> Self {
        Self(sequence.0)
    }
}

impl From<Offset> for Sequence {
    /// The last sequence this offset has seen.
    fn from(offset: Offset) -> Self {
        Self(offset.0)
    }
}
