//! Which part of the state each fact changes.

use super::Entry;

/// Which part of the state a fact changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum EntryConcern {
    /// Topics and event types.
    Registry,
    /// Rows that outlive removed events.
    History,
    /// The tables that change row by row ([`crate::ledger::state::tables`]).
    Tables,
    /// The table of idempotency keys.
    Keys,
    /// Only the space that entries use ([`crate::ledger::reclaim::usage`]).
    Usage,
    /// A topic, and the rows of every table that belong to it.
    Topic,
    /// All tables at once.
    AllTables,
}

impl Entry {
    /// The part of the state that this fact changes.
    pub(in crate::ledger) const fn concern(&self) -> EntryConcern {
        match self {
            Self::DictionaryRaised { .. }
            | Self::TopicRegistered { .. }
            | Self::TopicChanged { .. }
            | Self::TopicPlaced { .. }
            | Self::LogErased { .. }
            | Self::MemoryEmptied { .. }
            | Self::EventTypeRegistered { .. }
            | Self::VersionsChanged { .. }
            | Self::EventTypeArchived { .. }
            | Self::EventTypeDeleted { .. } => EntryConcern::Registry,
            Self::TopicDeleted { .. } => EntryConcern::Topic,
            Self::HistoryCarried { .. } | Self::TopicTrimmed { .. } | Self::EventsLost { .. } => EntryConcern::History,
            Self::ConsumerCreated { .. }
            | Self::ConsumerSeen { .. }
            | Self::ConsumerDeleted { .. }
            | Self::ConsumersExpired { .. }
            | Self::OffsetCommitted { .. }
            | Self::OffsetReset { .. }
            | Self::ProjectionPut { .. }
            | Self::ProjectionDeleted { .. }
            | Self::CheckpointMoved { .. }
            | Self::ProjectionReset { .. }
            | Self::HandlerPut { .. }
            | Self::ClaimTaken { .. }
            | Self::ClaimExtended { .. }
            | Self::ClaimDone { .. }
            | Self::ClaimFailed { .. }
            | Self::ClaimsReleased { .. }
            | Self::HandlerDeleted { .. }
            | Self::GroupDeleted { .. }
            | Self::DeadLettered { .. }
            | Self::Redriven { .. }
            | Self::GroupBegan { .. }
            | Self::EventsPassed { .. }
            | Self::EventsRepeated { .. }
            | Self::GroupMoved { .. }
            | Self::Discarded { .. }
            | Self::Dispatch { .. } => EntryConcern::Tables,
            Self::AnswerKept { .. } => EntryConcern::Keys,
            Self::PartsCarried { .. } => EntryConcern::AllTables,
            Self::SnapshotBegan {} | Self::SnapshotPart { .. } | Self::SnapshotTaken { .. } => EntryConcern::Usage,
        }
    }
}
