//! The data dictionary: every fact that the broker writes into the log, and the values that facts carry.

pub(super) mod carried_rows;
pub(super) mod carried_state;
pub(super) mod dispatch;
pub(super) mod entry;
pub(super) mod placement;
