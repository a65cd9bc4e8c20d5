//! The section `storage`: the engine and place of the log, how long events stay, and how much space must be free.

use contract::limits;
use log::file::SpaceLimits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The place of the log, and how long events stay in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// What keeps the log.
    #[serde(rename = "type")]
    pub engine: StorageEngine,
    /// The folder of the file engine, and of side logs in files; created if it is missing. Empty: a broker in memory
    /// has none.
    pub path: PathBuf,
    /// Segments are sealed at this size, in bytes.
    pub segment_bytes: u64,
    /// The broker warns if a volume of the log has less free space, in bytes; 0: never.
    pub free_space_warn_bytes: u64,
    /// With less free space on its volume, a log stores nothing that makes it grow, in bytes; 0: off.
    pub free_space_refuse_bytes: u64,
    /// How long events stay in topics without a retention of their own, in days; absent: for ever.
    pub retention_days: Option<u32>,
    /// Folders outside `path` in which topics may have a log of their own.
    pub locations: Vec<PathBuf>,
    /// Whether topics may have a log of their own in memory or in the data folder. If not, only in `locations`.
    pub side_logs: bool,
    /// The database of the database engine, as the role that appends and reads.
    pub url: Option<DatabaseUrl>,
    /// A file with that URL; it is read when the configuration is loaded.
    pub url_file: Option<PathBuf>,
    /// The same database with the role of its owner, which creates and updates the schema; absent: `url` is used.
    pub owner_url: Option<DatabaseUrl>,
    /// The same database with a role that may remove events for retention; absent: `url` is used.
    pub maintenance_url: Option<DatabaseUrl>,
    /// Whether a database on another machine must prove its name with a certificate.
    pub require_tls: bool,
}

impl StorageConfig {
    /// A folder of files with the usual segments.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self { engine: StorageEngine::File, path: path.into(), ..Self::default() }
    }

    /// The database at `url`; the broker's tables are in the folder `path`, or in memory if that is empty.
    pub fn database(url: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            engine: StorageEngine::Database,
            url: Some(DatabaseUrl(url.into())),
            path: path.into(),
            ..Self::default()
        }
    }

    /// The free space that the volumes of the logs must have.
    #[must_use]
    pub const fn space_limits(&self) -> SpaceLimits {
        SpaceLimits { warn_bytes: self.free_space_warn_bytes, refuse_bytes: self.free_space_refuse_bytes }
    }

    /// How long events stay in topics without a retention of their own, in milliseconds.
    #[must_use]
    pub fn retention_millis(&self) -> Option<i64> {
        self.retention_days.map(|days| i64::from(days) * 86_400_000)
    }
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            engine: StorageEngine::Memory,
            path: PathBuf::new(),
            segment_bytes: 64 * 1024 * 1024,
            free_space_warn_bytes: limits::FREE_SPACE_WARN_BYTES_DEFAULT,
            free_space_refuse_bytes: limits::FREE_SPACE_REFUSE_BYTES_DEFAULT,
            retention_days: None,
            locations: Vec::new(),
            side_logs: true,
            url: None,
            url_file: None,
            owner_url: None,
            maintenance_url: None,
            require_tls: false,
        }
    }
}

/// What keeps a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageEngine {
    /// Memory; its contents end with the broker.
    Memory,
    /// A folder of files.
    File,
    /// A PostgreSQL database, which several brokers may share.
    Database,
}

impl StorageEngine {
    /// The name of the engine in a topic's `streaming.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Database => "database",
        }
    }
}

/// The address of a database, with the role. It is always shown without its password.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct DatabaseUrl(pub String);

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&log_postgres::redacted_url(&self.0))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
