//! The source of each value in force.

use super::keys::KEYS;
use super::yaml::YamlNode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum ValueSource {
    /// The built-in default.
    Default,
    /// A line of the file.
    File {
        /// The file, as it was named.
        file: Arc<PathBuf>,
        /// The line, from 1.
        line: u64,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// Its name, with the dashes.
        flag: String,
    },
}

impl ValueSource {
    /// Another line of the same source; only a file has lines.
    pub(super) fn at(&self, line: u64) -> Self {
        match self {
            Self::File { file, .. } => Self::File { file: Arc::clone(file), line },
            other => other.clone(),
        }
    }
}

/// The sources of all values.
#[derive(Debug, Clone, Default)]
pub struct ValueSources {
    settings: BTreeMap<&'static str, KeySetting>,
}

/// A key that was set.
#[derive(Debug, Clone)]
pub(super) struct KeySetting {
    pub(super) source: ValueSource,
    pub(super) node: YamlNode,
}

impl ValueSources {
    /// The source of a key's value, or of a member inside it: `polling.max_timeout_secs`, `topics[2].id`.
    #[must_use]
    pub fn of(&self, path: &str) -> ValueSource {
        let name = path.split('[').next().unwrap_or(path);
        let Some(setting) = self.settings.get(name) else { return ValueSource::Default };
        let inside = path.get(name.len()..).unwrap_or_default();
        let way = inside.split(['[', ']', '.']).filter(|step| !step.is_empty());
        match setting.node.line_at(way) {
            Some(line) => setting.source.at(line),
            None => setting.source.clone(),
        }
    }

    /// Every key with its source, in the order of [`KEYS`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, ValueSource)> {
        KEYS.iter().map(|key| (key.name, self.of(key.name)))
    }

    /// Whether a key has its default value.
    #[must_use]
    pub fn is_default(&self, name: &str) -> bool {
        !self.settings.contains_key(name)
    }

    pub(super) fn set(&mut self, name: &'static str, setting: KeySetting) {
        self.settings.insert(name, setting);
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, &KeySetting)> {
        self.settings.iter().map(|(name, setting)| (*name, setting))
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{}:{line}", file.display()),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}
