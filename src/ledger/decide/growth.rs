//! What makes a log grow for good, and is refused while its storage has too little room; what frees space, and is all that is
//! stored on a full disk.
//!
//! - Refused while room is short: events, and what is registered: topics, event types, handlers, projections, subscriptions, pools, tasks.
//! - Not refused then: whatever frees space (trimming, deleting, reclaiming), changes of topics (a shorter retention frees space),
//!   and everything that reading and finishing work needs: consumers, offsets, claims, dead letters, deliveries.
//! - On a full disk all of that is refused but what frees space: there is no room but the reserve, which must suffice for it.

use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::facts::entry::Entry;
use contract::{Error, Kind, Result};
use log::StorageRoom;

/// When it may be worth trying again, in seconds.
const RETRY_AFTER_SECONDS: u32 = 10;

/// Refuses what makes the log grow, unless there is room.
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

/// Why nothing but what frees space is stored.
pub(in crate::ledger) fn disk_full() -> Error {
    let detail = "The disk is full, so nothing is stored but what frees space until there is room again; reading, trimming and \
                  deleting go on. Trim or delete topics, or make room on the disk; the broker goes on by itself.";
    Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS)
}

impl Entry {
    /// Whether it makes the log grow for good.
    pub(in crate::ledger) const fn grows(&self) -> bool {
        match self {
            Self::TopicRegistered { .. }
            | Self::EventTypeRegistered { .. }
            | Self::VersionsChanged { .. }
            | Self::HandlerPut { .. }
            | Self::ProjectionPut { .. } => true,
            // Later ones say that it has its number, that it was changed, or that it is being deleted.
            Self::TopicPlaced { placed } => !placed.numbered && !placed.deleting,
            Self::Dispatch { what } => matches!(
                what,
                DispatchFact::SubscriptionPut { .. } | DispatchFact::PoolPut { .. } | DispatchFact::TaskCreated { .. }
            ),
            _ => false,
        }
    }

    /// Whether it frees space, or has to be remembered of what is freed: it is stored on a full disk too.
    pub(in crate::ledger) const fn frees(&self) -> bool {
        match self {
            Self::DictionaryRaised { .. }
            | Self::TopicChanged { .. }
            | Self::TopicDeleted { .. }
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
            // Written again so that the entry that said so can go.
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
    use crate::ledger::decide::decision::{Decision, Overlay};
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

    /// Claims and releases went on while the disk was full, took the reserve, and then nothing could be trimmed.
    #[test]
    fn on_a_full_disk_work_that_was_begun_does_not_take_the_room_for_freeing_space() {
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
