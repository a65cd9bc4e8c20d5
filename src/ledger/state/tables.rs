//! The tables of the state beside the registry: maps that change row by row, too large to copy on every change.
//!
//! - The durable rows of a table are behind one lock, which is held for one look: the writer folds into them, everyone
//!   else reads them. What is shown is therefore what is durable, and nothing is copied to be shown.
//! - Decisions see a table through its overlay of rows that are not durable yet ([`StateTable::Overlay`]).
//! - A new table is one line of [`state_tables!`] and one member of [`StateTablesSnapshot`].

use super::claims::{ClaimRows, HandlerSnapshot};
use super::consumers::{ConsumerRows, ConsumersSnapshot};
use super::dead_letters::{DeadLetterRows, DeadLettersSnapshot};
use super::dispatch::DispatchRows;
use super::projections::deleted_projections::DeletedProjections;
use super::projections::{ProjectionRows, ProjectionsSnapshot};
use super::table::{DecidedTable, StateTable, TableOverlay};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::disk::row_codec::IdempotencyRow;
use crate::ledger::facts::entry::Entry;
use contract::Position;
use log::RecordHeader;
use serde::{Deserialize, Serialize};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Declares the tables: their durable rows ([`StateTables`]) and their overlays ([`TableOverlays`]).
macro_rules! state_tables {
    ($($(#[$doc:meta])* $table:ident: $rows:ty,)*) => {
        /// The durable rows of every table.
        #[derive(Default)]
        pub struct StateTables {
            $($table: RwLock<$rows>,)*
        }

        impl StateTables {
            $($(#[$doc])*
            ///
            /// The writer cannot fold while the guard is held: take what is needed and drop it.
            pub fn $table(&self) -> RwLockReadGuard<'_, $rows> {
                self.$table.read().unwrap_or_else(PoisonError::into_inner)
            })*

            /// Lets leases and sessions end so much later.
            pub(in crate::ledger) fn extend_leases(&self, millis: i64) {
                self.claims.write().unwrap_or_else(PoisonError::into_inner).extend_leases(millis);
                self.consumers.write().unwrap_or_else(PoisonError::into_inner).extend_sessions(millis);
            }

            /// Folds one durable fact into every table.
            pub(in crate::ledger) fn apply(&self, entry: &Entry, header: &RecordHeader) {
                $(StateTable::apply(&mut *self.$table.write().unwrap_or_else(PoisonError::into_inner), entry, header);)*
            }

            /// Replaces the rows of every table.
            pub(in crate::ledger) fn replace(&self, snapshot: StateTablesSnapshot) {
                let new = Self::from(snapshot);
                $({
                    let rows = new.$table.into_inner().unwrap_or_else(PoisonError::into_inner);
                    *self.$table.write().unwrap_or_else(PoisonError::into_inner) = rows;
                })*
            }
        }

        /// What was decided about each table and is not durable yet.
        #[derive(Default)]
        pub(in crate::ledger) struct TableOverlays {
            /// Idempotency keys of stored replies. Their durable rows are in the on-disk table of idempotency keys.
            replies: OverlayMap<u128, IdempotencyRow>,
            $($table: <$rows as StateTable>::Overlay,)*
        }

        impl TableOverlays {
            $($(#[$doc])*
            /// As decided so far, at `now`.
            pub(in crate::ledger) fn $table<'a>(&'a self, tables: &'a StateTables, now: i64) -> DecidedTable<'a, $rows> {
                DecidedTable { durable: tables.$table(), overlay: &self.$table, now }
            })*

            /// Makes a fact visible to the decisions that follow.
            pub(in crate::ledger) fn decide(&mut self, tables: &StateTables, entry: &Entry, header: &RecordHeader) {
                $(tables.$table().decide(&mut self.$table, entry, header);)*
            }

            /// Takes back the facts after `after`.
            pub(in crate::ledger) fn undo(&mut self, after: Position) {
                self.replies.undo(after);
                $(self.$table.undo(after);)*
            }

            /// Facts up to `through` are durable and folded into the tables.
            pub(in crate::ledger) fn settle(&mut self, through: Position) {
                self.replies.settle(through);
                $(self.$table.settle(through);)*
            }

            /// Whether nothing is decided that is not durable.
            pub(in crate::ledger) fn is_empty(&self) -> bool {
                self.replies.is_empty() $(&& self.$table.is_empty())*
            }
        }
    };
}

state_tables! {
    /// Consumers and the offsets of groups.
    consumers: ConsumerRows,
    /// Projections and their checkpoints.
    projections: ProjectionRows,
    /// Claims and the policies of handlers.
    claims: ClaimRows,
    /// Dead letters.
    dead_letters: DeadLetterRows,
    /// Subscriptions, jobs and pools.
    dispatch: DispatchRows,
}

impl TableOverlays {
    /// The reply that was decided under a key and is not durable yet.
    pub(in crate::ledger) fn reply(&self, key: u128) -> Option<IdempotencyRow> {
        self.replies.get(&key).flatten().copied()
    }

    /// Makes a stored reply visible to the decisions that follow.
    pub(in crate::ledger) fn decide_reply(&mut self, key: u128, row: IdempotencyRow) {
        self.replies.set(row.position, key, Some(row));
    }
}

/// The tables in a checkpoint. No member has a default: a checkpoint that lacks one was written by a version that did
/// not fold that table, and the log is folded instead.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct StateTablesSnapshot {
    #[serde(rename = "readers")]
    consumers: ConsumersSnapshot,
    projections: ProjectionsSnapshot,
    deleted_projections: DeletedProjections,
    claims: Vec<HandlerSnapshot>,
    #[serde(rename = "letters")]
    dead_letters: DeadLettersSnapshot,
    dispatch: DispatchRows,
}

impl StateTables {
    pub(in crate::ledger) fn snapshot(&self) -> StateTablesSnapshot {
        let (projections, deleted_projections) = self.projections().snapshot();
        StateTablesSnapshot {
            consumers: self.consumers().snapshot(),
            projections,
            deleted_projections,
            claims: self.claims().snapshot(),
            dead_letters: self.dead_letters().snapshot(),
            dispatch: self.dispatch().snapshot(),
        }
    }
}

impl From<StateTablesSnapshot> for StateTables {
    fn from(snapshot: StateTablesSnapshot) -> Self {
        let StateTablesSnapshot { consumers, projections, deleted_projections, claims, dead_letters, dispatch } =
            snapshot;
        Self {
            consumers: RwLock::new(StateTable::restore(consumers)),
            projections: RwLock::new(StateTable::restore((projections, deleted_projections))),
            claims: RwLock::new(StateTable::restore(claims)),
            dead_letters: RwLock::new(StateTable::restore(dead_letters)),
            dispatch: RwLock::new(StateTable::restore(dispatch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::consumers::GroupKey;
    use super::*;
    use crate::ledger::decide::decision::Decision;
    use crate::ledger::decide::overlay::Overlay;
    use crate::ledger::disk::table::DiskTables;
    use crate::ledger::state::LedgerState;
    use contract::{NewProjection, Offset, TopicId};

    const GROUP: &str = "billing";

    fn topic() -> TopicId {
        "gts.hx.core.events.topic.v1~".parse().unwrap()
    }

    fn commit(decision: &mut Decision<'_>, offset: u64) {
        let (group, topic) = (GROUP.to_owned(), topic());
        let (name, definition) = (format!("p{offset}"), NewProjection::of_log());
        decision.add_entry(Entry::ProjectionPut { name, definition }).unwrap();
        decision.add_entry(Entry::OffsetCommitted { group, topic, offset: Offset(offset) }).unwrap();
    }

    fn decided(decision: &Decision<'_>) -> Option<u64> {
        decision.consumers().offset(&GroupKey { group: GROUP.to_owned(), topic: topic() }).map(Offset::get)
    }

    fn durable(state: &LedgerState) -> Option<u64> {
        state.tables.consumers().group(GROUP).map(|group| group.offsets[&topic()].0)
    }

    #[test]
    fn a_fact_is_decided_first_then_durable_and_then_no_longer_in_the_overlay() {
        let (mut state, mut overlay) = (LedgerState::new(DiskTables::in_memory(|_| 0)), Overlay::default());
        let mut decision = Decision::new(&state, &mut overlay, 1);
        commit(&mut decision, 1);
        let mark = decision.mark();
        commit(&mut decision, 2);
        commit(&mut decision, 3);
        assert_eq!((decided(&decision), durable(&state)), (Some(3), None));
        let is_decided = |decision: &Decision<'_>, name: &str| decision.projections().known(name).is_ok();
        assert!(is_decided(&decision, "p3"));
        decision.undo(mark);
        assert_eq!(decided(&decision), Some(1));
        assert!(is_decided(&decision, "p1") && !is_decided(&decision, "p3"));
        let mut decision = Decision::new(&state, &mut overlay, 1);
        commit(&mut decision, 4);
        let records = overlay.take_records();
        assert_eq!(records.len(), 4);
        for (pair, offset) in records.chunks(2).zip([1, 4]) {
            for record in pair {
                state.apply(record).unwrap();
                overlay.remove_durable(record);
            }
            assert_eq!(durable(&state), Some(offset));
            assert!(state.tables.projections().get(&format!("p{offset}")).is_some());
            assert_eq!(decided(&Decision::new(&state, &mut overlay, 1)), Some(4));
        }
        assert!(overlay.tables.is_empty());
    }
}
