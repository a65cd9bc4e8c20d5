//! How much room the storage of a log has, and what that allows.

/// How much room the storage of a log has for more records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageRoom {
    /// Enough, or nobody knows.
    #[default]
    Ample,
    /// Little: everything is stored still, and somebody should make room.
    Low,
    /// So little that nothing should be stored that makes the log grow for good. What frees space, and what finishes work
    /// that was begun, is stored.
    Short,
    /// None but what is kept for freeing space: nothing else may be stored.
    Full,
}

impl StorageRoom {
    /// Whether what makes the log grow for good may be stored.
    #[must_use]
    pub const fn allows_growth(self) -> bool {
        matches!(self, Self::Ample | Self::Low)
    }
}
