//! Maintenance: retention, checkpoints, reclaiming, and how far the clock is trusted.

use contract::limits;
use serde::{Deserialize, Serialize};

/// Periodic work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceConfig {
    /// The interval at which retention is applied, in seconds.
    pub retention_check_secs: u64,
    /// How long the bytes of removed events may stay in files of the log, in seconds.
    pub erase_within_secs: u64,
    /// Rows of the tables that are kept in RAM before they are written to disk.
    pub checkpoint_rows: usize,
    /// How many bytes of the broker's own entries are appended before old ones are reclaimed.
    pub reclaim_bytes: u64,
    /// The broker's own entries stay at least this long, in seconds.
    pub reclaim_after_secs: u64,
    /// How far the wall clock may step ahead at once, in seconds; a longer step must last this long before it is
    /// trusted.
    pub max_clock_jump_secs: u64,
}

impl Default for MaintenanceConfig {
    fn default() -> Self {
        Self {
            retention_check_secs: limits::RETENTION_CHECK_SECONDS_DEFAULT,
            erase_within_secs: limits::ERASE_WITHIN_SECONDS_DEFAULT,
            checkpoint_rows: limits::CHECKPOINT_ROWS_DEFAULT,
            reclaim_bytes: limits::RECLAIM_BYTES_DEFAULT,
            reclaim_after_secs: limits::RECLAIM_AFTER_SECONDS_DEFAULT,
            max_clock_jump_secs: limits::CLOCK_JUMP_SECONDS_DEFAULT,
        }
    }
}
