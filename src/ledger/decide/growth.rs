//! Free space: which records are refused while the log's volume has too little of it.
//!
//! - Refused while space is short: events, and registrations of topics, event types, handlers, projections,
//!   subscriptions, pools and tasks.
//! - Stored then: what frees space (trimming, deleting, reclaiming), changes of topics (a shorter retention frees
//!   space), and everything that reading and finishing work needs: consumers, offsets, claims, dead letters,
//!   deliveries.
//! - On a full disk only what frees space is stored: the reserve is the only space left, and it must suffice for that.

use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::facts::entry::Entry;
use contract::{Error, Kind, Result};
use log::StorageRoom;

/// When a client may try again, in seconds.
const RETRY_AFTER_SECONDS: u32 = 10;

/// Refuses what makes the log grow, unless there is free space.
pub(crate) fn check_room(room: StorageRoom) -> Result<()> {
    let detail = match room {
        StorageRoom::Ample | StorageRoom::Low => return Ok(()),
        StorageRoom::Short => {
            "The volume of the log has too little free space (storage.free_space_refuse_bytes), so no events, registrations, \
             subscriptions and tasks are stored until there is more; reading, claims, trimming and deleting go on. Trim or \
             delete topics, or make room on the volume; the broker goes on by itself."
        }
        StorageRoom::Full => return Err(disk_full()),
    };
    Err(Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS))
}

/// The refusal of everything that does not free space.
pub(in crate::ledger) fn disk_full() -> Error {
    let detail = "The disk is full, so nothing is stored but what frees space until there is room again; reading, trimming and \
                  deleting go on. Trim or delete topics, or make room on the disk; the broker goes on by itself.";
    Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS)
}

impl Entry {
    /// Whether this fact makes the log grow permanently.
    pub(in crate::ledger) const fn grows(&self) -> bool {
        match self {
            Self::TopicRegistered { .. }
            | Self::EventTypeRegistered { .. }
            | Self::VersionsChanged { .. }
            | Self::HandlerPut { .. }
            | Self::ProjectionPut { .. } => true,
            // Later ones record that the topic is numbered, changed or being deleted.
            Self::TopicPlaced { placed } => !placed.numbered && !placed.deleting,
            Self::Dispatch { what } => matches!(
                what,
                DispatchFact::SubscriptionPut { .. } | DispatchFact::PoolPut { .. } | DispatchFact::TaskCreated { .. }
            ),
            _ => false,
        }
    }

    /// Whether this fact frees space, or must outlive what is removed: it is stored on a full disk, too.
    pub(in crate::ledger) const fn frees(&self) -> bool {
        match self {
            Self::DictionaryRaised { .. }
            | Self::TopicChanged { .. }
            | Self::TopicDeleted { .. }
            | Self::LogErased { .. }
            | Self::MemoryEmptied { .. }
            | Self::EventTypeArchived { .. }
            | Self::EventTypeDeleted { .. }
            | Self::HistoryCarried { .. }
            | Self::TopicTrimmed { .. }
            | Self::EventsLost { .. }
            | Self::PartsCarried { .. }
            | Self::ConsumerDeleted { .. }
            | Self::ConsumersExpired { .. }
            | Self::ProjectionDeleted { .. }
            | Self::HandlerDeleted { .. }
            | Self::GroupDeleted { .. }
            | Self::SnapshotBegan {}
            | Self::SnapshotPart { .. }
            | Self::SnapshotTaken { .. }
            // Written again so that the original entry can be removed.
            | Self::AnswerKept { kept_at: Some(_), .. } => true,
            Self::TopicPlaced { .. } => !self.grows(),
            Self::Dispatch { what } => {
                matches!(what, DispatchFact::SubscriptionDeleted { .. } | DispatchFact::PoolDeleted { .. })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::decide::decision::Decision;
    use crate::ledger::decide::overlay::Overlay;
    use crate::ledger::disk::table::DiskTables;
    use crate::ledger::state::LedgerState;
    use contract::{FencingToken, Offset, Position, Sequence, Timestamp, Topic};

    #[test]
    fn without_room_nothing_is_registered_and_everything_that_frees_space_is_stored() {
        let id: contract::TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let topic = Topic { definition: contract::NewTopic::new(id.clone()), created_at: Timestamp::from_millis(0) };
        let registered = || Entry::TopicRegistered { number: 1, topic: topic.clone() };
        for (room, is_stored) in [
            (StorageRoom::Ample, true),
            (StorageRoom::Low, true),
            (StorageRoom::Short, false),
            (StorageRoom::Full, false),
        ] {
            let (state, mut overlay) = (LedgerState::new(DiskTables::in_memory(|_| 0)), Overlay::default());
            let mut decision = Decision::new(&state, &mut overlay, 1);
            decision.room = room;
            let outcome = decision.add_entry(registered());
            assert_eq!(outcome.is_ok(), is_stored, "{room:?}");
            if let Err(error) = outcome {
                assert_eq!((error.kind(), error.retry_after_seconds()), (Kind::Unavailable, Some(10)));
                assert!(error.detail().contains("Trim or delete topics"), "{error}");
            }
            decision.add_due_entry(registered()).unwrap();
            for frees in [
                Entry::TopicTrimmed { number: 1, through: Sequence(1) },
                Entry::TopicChanged { topic: topic.clone() },
                Entry::SnapshotTaken {
                    snapshot: Position(1),
                    through: Sequence(1),
                    at: 1,
                    reclaimed_bytes: 1,
                    reclaimed_answer_bytes: 1,
                    live_bytes: 1,
                },
                Entry::TopicDeleted { topic: id.clone(), number: 1, through: Sequence(1) },
            ] {
                decision.add_entry(frees).unwrap();
            }
        }
    }

    /// Claims and releases were stored while the disk was full. They used up the reserve, and nothing could be trimmed.
    #[test]
    fn on_a_full_disk_claims_do_not_take_the_reserve_that_trimming_needs() {
        let id: contract::TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let claim = crate::ledger::ClaimKey { handler: "h".to_owned(), topic: 1, sequence: Sequence(1) };
        let works = || {
            [
                Entry::OffsetCommitted { group: "g".to_owned(), topic: id.clone(), offset: Offset(1) },
                Entry::ClaimDone { claim: claim.clone(), token: FencingToken(1) },
                Entry::ClaimsReleased { handler: "h".to_owned(), topic: 1, sequences: vec![Sequence(1)], spent: false },
            ]
        };
        for (room, is_stored) in [(StorageRoom::Short, true), (StorageRoom::Full, false)] {
            for work in works() {
                let (state, mut overlay) = (LedgerState::new(DiskTables::in_memory(|_| 0)), Overlay::default());
                let mut decision = Decision::new(&state, &mut overlay, 1);
                decision.room = room;
                let outcome = decision.add_entry(work);
                assert_eq!(outcome.is_ok(), is_stored, "{room:?} {outcome:?}");
            }
        }
    }
}
