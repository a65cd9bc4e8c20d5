//! The options of a log.

use crate::failure::refused;
use log::LogError;
use std::time::Duration;

/// How the log is opened.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The schema its tables are in. Several logs may share a database, each in a schema of its own.
    pub schema: String,
    /// The URL for migrations. Default: the log's own role runs them, if it may.
    pub owner_url: Option<String>,
    /// The URL for retention. Default: the log's own role removes, if it may.
    pub maintenance_url: Option<String>,
    /// Whether the certificate of a host on another machine must be verified.
    pub require_tls: bool,
    /// Connections that read, beside the one that appends and listens and the one that polls the tail.
    pub read_connections: usize,
    /// How long a statement may take before its connection is closed.
    pub answer_timeout: Duration,
    /// How long the loser of a comparison keeps its turn without using it. Then its session releases it; the session of a
    /// process that has stopped is ended by the server after five times as long.
    pub turn: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "event_broker".to_owned(),
            owner_url: None,
            maintenance_url: None,
            require_tls: false,
            read_connections: 4,
            answer_timeout: Duration::from_secs(30),
            turn: Duration::from_millis(200),
        }
    }
}

/// The longest name of a schema: with a prefix it is also the name of a notification channel.
const SCHEMA_BYTES_MAX: usize = 48;

impl PostgresOptions {
    /// The schema's name, quoted, safe to use in a statement.
    pub(crate) fn quoted_schema(&self) -> Result<String, LogError> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let named = !self.schema.is_empty() && self.schema.len() <= SCHEMA_BYTES_MAX;
        match named && self.schema.chars().all(is_plain) && !self.schema.starts_with("pg_") {
            true => Ok(format!("\"{}\"", self.schema)),
            false => Err(refused(format!(
                "a schema's name has 1 to {SCHEMA_BYTES_MAX} lower-case letters, digits and underscores, and does not \
                 begin with pg_"
            ))),
        }
    }
}
