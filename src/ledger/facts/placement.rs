//! Homes: where a topic lives that is not in the default log.

use contract::{Sequence, Topic};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the broker's other logs, by the name its topics give it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLocation {
    /// In memory, under this name; gone when the broker is.
    Memory(String),
    /// In files, in this folder among the logs of the data folder; it moves with the data folder.
    DataFolder(String),
    /// In files, in this folder anywhere.
    Folder(String),
}

/// A topic and the other log it lives in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPlacement {
    /// The topic.
    pub topic: Topic,
    /// Its log.
    pub location: LogLocation,
    /// Sequences up to here were given in a log that is gone; the topic goes on behind them.
    #[serde(default)]
    pub floor: Sequence,
    /// Whether its own log has given it a number: from then on that log must know it.
    #[serde(default)]
    pub numbered: bool,
    /// Whether it is being deleted: its own log forgets it next, and then this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Whether what uses it is deleted, too. Otherwise its own log refuses while there are users, and it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}

impl LogLocation {
    /// What callers are told it is called: no path of the machine.
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
