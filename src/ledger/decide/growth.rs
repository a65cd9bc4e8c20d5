//! What makes a log grow for good, and is refused while its storage has too little room.
//!
//! - Refused: events, and what is registered: topics, event types, handlers, projections, subscriptions, pools, tasks.
//! - Not refused: whatever frees space (trimming, deleting, reclaiming), changes of topics (a shorter retention frees space),
//!   and everything that reading and finishing work needs: consumers, offsets, claims, dead letters, deliveries.

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
        StorageRoom::Full => {
            "The disk is full, so no events, registrations, subscriptions and tasks are stored until there is room again; \
             reading, claims, trimming and deleting go on. Trim or delete topics, or make room on the disk."
        }
    };
    Err(Error::new(Kind::Unavailable, detail).with_retry_after(RETRY_AFTER_SECONDS))
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::decide::decision::{Decision, Overlay};
    use crate::ledger::disk::table::DiskTables;
    use crate::ledger::state::LedgerState;
    use contract::{Offset, Position, Sequence, Timestamp, Topic};

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
                Entry::OffsetCommitted { group: "g".to_owned(), topic: id.clone(), offset: Offset(1) },
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
}
