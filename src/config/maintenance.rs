//! What is done beside requests: retention, checkpoints, and how far the clock is believed.

use contract::limits;
use serde::{Deserialize, Serialize};

/// Chores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceConfig {
    /// How often events past their topic's retention are looked for, in seconds.
    pub retention_check_secs: u64,
    /// How long the bytes of removed events may stay in files of the log, in seconds.
    pub erase_within_secs: u64,
    /// Rows of the tables kept in RAM before they go to disk.
    pub checkpoint_rows: usize,
    /// So many bytes of the broker's own entries are appended before old ones are reclaimed.
    pub reclaim_bytes: u64,
    /// The broker's own entries stay at least this long, in seconds.
    pub reclaim_after_secs: u64,
    /// How far the wall clock may step ahead at once, in seconds; a longer step must last this long to be believed.
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
