//! The section `storage`: what keeps the log, where, for how long, and with how much room.

use contract::limits;
use log::file::SpaceLimits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Where a log lies, and how long events stay in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// What keeps the log.
    #[serde(rename = "type")]
    pub engine: StorageEngine,
    /// The folder of the file engine, and of logs that topics keep in files of their own; made when missing. Empty: a
    /// broker in memory has none.
    pub path: PathBuf,
    /// Segments are sealed at this size, in bytes.
    pub segment_bytes: u64,
    /// Less free space than this on a volume of the log is warned of, in bytes; 0: never.
    pub free_space_warn_bytes: u64,
    /// With less free space than this on its volume a log stores nothing that makes it grow, in bytes; 0: it always does.
    pub free_space_refuse_bytes: u64,
    /// How long events stay in topics that do not say so themselves, in days; absent: for ever.
    pub retention_days: Option<u32>,
    /// Folders outside `path` where topics may have a log of their own.
    pub locations: Vec<PathBuf>,
    /// Whether topics may have a log of their own in memory or in the data folder. Where not, only in `locations`.
    pub side_logs: bool,
    /// The database of the database engine, as the role that appends and reads.
    pub url: Option<DatabaseUrl>,
    /// A file with that URL; read when the configuration is loaded.
    pub url_file: Option<PathBuf>,
    /// The same database as its owner, to create and update the schema; absent: `url` does.
    pub owner_url: Option<DatabaseUrl>,
    /// The same database as the role that may remove what retention lets go; absent: `url` tries.
    pub maintenance_url: Option<DatabaseUrl>,
    /// Whether a database beyond this machine must prove its name by a certificate.
    pub require_tls: bool,
}

impl StorageConfig {
    /// A folder of files with the usual segments.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self { engine: StorageEngine::File, path: path.into(), ..Self::default() }
    }

    /// The database at `url`; the broker's tables lie in the folder `path`, or in memory where that is empty.
    pub fn database(url: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            engine: StorageEngine::Database,
            url: Some(DatabaseUrl(url.into())),
            path: path.into(),
            ..Self::default()
        }
    }

    /// How much space must be free on the volumes of the logs.
    #[must_use]
    pub const fn space_limits(&self) -> SpaceLimits {
        SpaceLimits { warn_bytes: self.free_space_warn_bytes, refuse_bytes: self.free_space_refuse_bytes }
    }

    /// How long events stay in topics that do not say so themselves, in milliseconds.
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
    /// Memory; gone when the broker is.
    Memory,
    /// A folder of files.
    File,
    /// A PostgreSQL database, which several brokers may share.
    Database,
}

impl StorageEngine {
    /// The name a topic's `streaming.type` has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Database => "database",
        }
    }
}

/// Where a database is and who asks. Shown without its password, wherever it is shown.
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
