//! Which version of the dictionary an entry needs.

use super::{DICTIONARY_BASELINE, Entry};

impl Entry {
    /// The first version of the dictionary that has this fact in this form.
    pub(in crate::ledger) fn since(&self) -> u32 {
        match self {
            Self::TopicDeleted { .. }
            | Self::LogErased { .. }
            | Self::EventTypeDeleted { .. }
            | Self::SnapshotBegan {}
            | Self::SnapshotPart { .. }
            | Self::SnapshotTaken { .. }
            | Self::AnswerKept { kept_at: Some(_), .. } => 2,
            Self::TopicPlaced { placed } if placed.deleting => 2,
            Self::EventsRepeated { copies, .. } if !copies.is_empty() => 2,
            Self::Redriven { original: Some(_), .. } => 2,
            Self::AnswerKept { answer, .. } if answer.spans_logs() => 2,
            _ => DICTIONARY_BASELINE,
        }
    }
}
