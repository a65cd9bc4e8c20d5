//! What whoever opens the log decides.

use crate::failure::refused;
use log::LogError;
use std::time::Duration;

/// How the log is opened.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The schema its tables are in. Several logs may share a database, each in a schema of its own.
    pub schema: String,
    /// Where to connect for migrations. Absent: the log's own role runs them, if it may.
    pub owner_url: Option<String>,
    /// Where to connect for retention. Absent: the log's own role removes, if it may.
    pub maintenance_url: Option<String>,
    /// Whether a host beyond this machine must prove its name by a certificate.
    pub require_tls: bool,
    /// Connections that read, beside one that appends and listens and one that looks.
    pub read_connections: usize,
    /// How long a statement may take before its connection is given up.
    pub answer_timeout: Duration,
    /// How long the loser of a compare keeps its turn without using it. Then its session gives it back; a process that
    /// has stopped altogether is cut off by the server after five times as long.
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

/// Longest name of a schema: with a prefix it names a channel of notifications too.
const SCHEMA_BYTES_MAX: usize = 48;

impl PostgresOptions {
    /// The schema's name, in quotes and safe to put into a statement.
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
