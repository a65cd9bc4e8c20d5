//! What is done beside requests: retention, checkpoints, and how far the clock is believed.

use contract::limits;
use serde::{Deserialize, Serialize};

/// Chores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maintenance {
    /// How often events past their topic's retention are looked for, in seconds.
    pub retention_check_secs: u64,
    /// Rows of the tables kept in RAM before they go to disk.
    pub checkpoint_rows: usize,
    /// How far the wall clock may step ahead at once, in seconds; a longer step must last this long to be believed.
    pub max_clock_jump_secs: u64,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            retention_check_secs: limits::RETENTION_CHECK_SECONDS_DEFAULT,
            checkpoint_rows: limits::CHECKPOINT_ROWS_DEFAULT,
            max_clock_jump_secs: limits::CLOCK_JUMP_SECONDS_DEFAULT,
        }
    }
}
