//! How much room the storage of a log has, and what may be stored then.

/// How much room the storage of a log has for more records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageRoom {
    /// Enough, or unknown.
    #[default]
    Ample,
    /// Little: everything is still stored, but an operator should make room.
    Low,
    /// So little that nothing is stored that makes the log grow permanently. What frees space, and what finishes work that has
    /// begun, is stored.
    Short,
    /// None except the reserve for freeing space: nothing else may be stored.
    Full,
}

impl StorageRoom {
    /// Whether records that make the log grow permanently may be stored.
    #[must_use]
    pub const fn allows_growth(self) -> bool {
        matches!(self, Self::Ample | Self::Low)
    }
}
