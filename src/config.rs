//! What an operator decides: where the log lies, what is declared, what is let through.

use contract::{GtsPattern, NewEventType, NewTopic, Profile, TopicId, limits};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The broker's configuration. `Default` is a broker in memory that takes registered types only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the default log lies.
    pub storage: Storage,
    /// Where logs lie that topics keep in files of their own, if the default log has no folder.
    pub data_folder: Option<PathBuf>,
    /// Folders in which topics may put logs by an absolute location.
    pub storage_locations: Vec<PathBuf>,
    /// Topics registered at start.
    pub topics: Vec<NewTopic>,
    /// Event types registered at start.
    pub event_types: Vec<NewEventType>,
    /// Which topic the events of a type go to, where the type itself does not say.
    pub routes: Vec<Route>,
    /// Where everything else goes; registered at start.
    pub default_topic: Option<TopicId>,
    /// What happens to events of types nobody registered.
    pub unregistered: Unregistered,
    /// How strict identifiers are.
    pub gts_profile: Profile,
    /// Whether an event must name its tenant.
    pub tenant_required: bool,
    /// Default and largest number of events in one answer.
    pub read_events_max: usize,
    /// Most events in one batch.
    pub batch_events_max: usize,
    /// Largest batch, in bytes of its events.
    pub batch_bytes_max: usize,
    /// Rows of the tables kept in RAM before they go to disk.
    pub checkpoint_rows: usize,
    /// How often events past their topic's retention are looked for, in seconds.
    pub retention_check_seconds: u64,
}

/// Where a log lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Storage {
    /// In memory; gone when the broker is.
    Memory,
    /// In a folder of files.
    File {
        /// The folder; made when missing.
        path: PathBuf,
        /// Segments are sealed at this size, in bytes.
        #[serde(default = "Storage::segment_bytes_default")]
        segment_bytes: u64,
    },
}

impl Storage {
    /// A folder of files with the usual segments.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), segment_bytes: Self::segment_bytes_default() }
    }

    const fn segment_bytes_default() -> u64 {
        64 * 1024 * 1024
    }
}

/// Events whose type matches go to this topic; the most specific route wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Which types.
    #[serde(rename = "type")]
    pub pattern: GtsPattern,
    /// Where to.
    pub topic: TopicId,
}

/// What happens to events of types nobody registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unregistered {
    /// They are refused.
    #[default]
    Refuse,
    /// They are stored without validation.
    Accept,
}

impl Config {
    /// A broker that keeps its log in this folder.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self { storage: Storage::folder(path), ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            storage: Storage::Memory,
            data_folder: None,
            storage_locations: Vec::new(),
            topics: Vec::new(),
            event_types: Vec::new(),
            routes: Vec::new(),
            default_topic: TopicId::parse("gts.hx.core.events.topic.v1~").ok(),
            unregistered: Unregistered::Refuse,
            gts_profile: Profile::Relaxed,
            tenant_required: true,
            read_events_max: limits::READ_EVENTS_MAX,
            batch_events_max: limits::BATCH_EVENTS_MAX,
            batch_bytes_max: limits::BATCH_BYTES_MAX,
            checkpoint_rows: limits::CHECKPOINT_ROWS_DEFAULT,
            retention_check_seconds: limits::RETENTION_CHECK_SECONDS_DEFAULT,
        }
    }
}
