//! Where a topic is stored that is not in the default log.

use contract::{Sequence, Topic};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A side log, as its topics name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLocation {
    /// In memory, under this name; lost when the broker stops.
    Memory(String),
    /// In files, in this folder under `logs/` of the data folder; it moves with the data folder.
    DataFolder(String),
    /// In files, in this folder outside of the data folder.
    Folder(String),
}

/// A topic and the side log that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPlacement {
    /// The topic.
    pub topic: Topic,
    /// Its side log.
    #[serde(rename = "home")]
    pub location: LogLocation,
    /// Sequences up to here were assigned in a log that no longer exists; the topic continues after them.
    #[serde(default)]
    pub floor: Sequence,
    /// Whether the side log has numbered the topic: from then on that log must know it.
    #[serde(default)]
    pub numbered: bool,
    /// Whether it is being deleted: the side log deletes it next, and then the default log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Whether its users are deleted, too. Otherwise the side log refuses while there are users, and the topic stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}

impl LogLocation {
    /// The name of the log that callers see: it holds no path of the machine.
    #[must_use]
    pub fn public_name(&self) -> String {
        match self {
            Self::Folder(_) => "file:// outside the data folder".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for LogLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(f, "memory://{name}"),
            Self::DataFolder(folder) | Self::Folder(folder) => write!(f, "file://{folder}"),
        }
    }
}
