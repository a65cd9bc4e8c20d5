//! One key of the configuration: its name, its type, and its meaning.

use super::keys::{KEYS, variable};
use std::fmt;

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// Its path below `modules.event_broker`.
    pub name: &'static str,
    /// The type of its value.
    pub expects: ValueType,
    /// Whether `null` is permitted.
    pub optional: bool,
    /// Its meaning.
    pub about: &'static str,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds, inclusive.
    Number {
        /// Its unit.
        unit: &'static str,
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// A text; this says what kind.
    Text(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts; this says what kind.
    Texts(&'static str),
    /// A list of objects.
    Items(&'static str),
}

impl ConfigKey {
    /// The key with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The environment variable that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    pub(super) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Number { unit, min, max } => write!(f, "a whole number of {unit} from {min} to {max}"),
            Self::Text(what) => f.write_str(what),
            Self::Word(words) => match words.split_last() {
                Some((last, rest)) if !rest.is_empty() => write!(f, "{} or {last}", rest.join(", ")),
                _ => f.write_str(&words.concat()),
            },
            Self::Texts(what) | Self::Items(what) => write!(f, "a list of {what}"),
        }
    }
}

pub(super) const fn key(name: &'static str, expects: ValueType, about: &'static str) -> ConfigKey {
    ConfigKey { name, expects, optional: false, about }
}

pub(super) const fn number(unit: &'static str, min: u64, max: u64) -> ValueType {
    ValueType::Number { unit, min, max }
}
