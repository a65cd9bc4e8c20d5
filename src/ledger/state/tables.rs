//! The parts of the small state beside the registry: maps that change row by row, too large to copy on every change.
//!
//! - The durable rows of a part stand behind one lock, held for one look: the writer folds into them, everybody reads
//!   them. So what is shown is what is durable, and nothing is copied to be shown.
//! - Decisions see a part through its layer of what is not durable yet ([`crate::ledger::layer`]).
//! - A new part adds a field and a line to each function here; the decision itself need not know.

use super::claims::{
    ClaimRows, ClaimsFold as _, ClaimsOverlay, ClaimsOverlayWriter as LayeredClaims, ClaimsSnapshot, DecidedClaims,
};
use super::consumers::{
    ConsumerRows, ConsumersFold, ConsumersOverlay, ConsumersOverlayWriter, ConsumersSnapshot, DecidedConsumers,
};
use super::dead_letters::{
    DeadLetterRows, DeadLettersFold as _, DeadLettersOverlay, DeadLettersOverlayWriter as LayeredLetters,
    DeadLettersSnapshot, DecidedDeadLetters,
};
use super::dispatch::{
    DecidedDispatch, DispatchFold as _, DispatchOverlay, DispatchOverlayWriter as LayeredDispatch, DispatchRows,
    DispatchSnapshot,
};
use super::projections::{
    DecidedProjections, ProjectionRows, ProjectionsFold as _, ProjectionsOverlay,
    ProjectionsOverlayWriter as LayeredProjections, ProjectionsSnapshot,
};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::disk::row_codec::IdempotencyRow;
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::projections::deleted_projections::DeletedProjections;
use contract::Position;
use log::RecordHeader;
use serde::{Deserialize, Serialize};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The durable rows of every part.
#[derive(Default)]
pub struct StateTables {
    readers: RwLock<ConsumerRows>,
    projections: RwLock<ProjectionRows>,
    claims: RwLock<ClaimRows>,
    dead_letters: RwLock<DeadLetterRows>,
    dispatch: RwLock<DispatchRows>,
}

/// What was decided about each part and is not durable yet.
#[derive(Default)]
pub(in crate::ledger) struct TableOverlays {
    readers: ConsumersOverlay,
    projections: ProjectionsOverlay,
    /// Keys of kept answers. Their durable rows are in the table of idempotency keys.
    answers: OverlayMap<u128, IdempotencyRow>,
    claims: ClaimsOverlay,
    letters: DeadLettersOverlay,
    dispatch: DispatchOverlay,
}

/// The parts in a checkpoint. None of them has a default: a checkpoint that lacks one was written by a version that did
/// not fold it, and the log is folded instead.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct StateTablesSnapshot {
    readers: ConsumersSnapshot,
    projections: ProjectionsSnapshot,
    deleted_projections: DeletedProjections,
    claims: ClaimsSnapshot,
    dead_letters: DeadLettersSnapshot,
    dispatch: DispatchSnapshot,
}

impl StateTables {
    /// Consumers and the offsets of groups. Held, it keeps the writer from folding: look and let go.
    pub fn consumers(&self) -> RwLockReadGuard<'_, ConsumerRows> {
        self.readers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Projections and their checkpoints. Held, it keeps the writer from folding: look and let go.
    pub fn projections(&self) -> RwLockReadGuard<'_, ProjectionRows> {
        self.projections.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims and the policies of handlers. Held, it keeps the writer from folding: look and let go.
    pub fn claims(&self) -> RwLockReadGuard<'_, ClaimRows> {
        self.claims.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dead letters. Held, it keeps the writer from folding: look and let go.
    pub fn dead_letters(&self) -> RwLockReadGuard<'_, DeadLetterRows> {
        self.dead_letters.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscriptions, jobs and pools. Held, it keeps the writer from folding: look and let go.
    pub fn dispatch(&self) -> RwLockReadGuard<'_, DispatchRows> {
        self.dispatch.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one fact.
    pub(in crate::ledger) fn apply(&self, entry: &Entry, header: &RecordHeader) {
        self.readers.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header.time);
        self.projections.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header.time);
        self.claims.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header);
        self.dead_letters.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header);
        self.dispatch.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header);
    }

    pub(in crate::ledger) fn snapshot(&self) -> StateTablesSnapshot {
        StateTablesSnapshot {
            readers: self.consumers().snapshot(),
            projections: self.projections().snapshot(),
            deleted_projections: self.projections().deleted().clone(),
            claims: self.claims().snapshot(),
            dead_letters: self.dead_letters().snapshot(),
            dispatch: self.dispatch().snapshot(),
        }
    }
}

impl StateTables {
    /// All of them are these from here on.
    pub(in crate::ledger) fn replace(&self, snapshot: StateTablesSnapshot) {
        let StateTablesSnapshot { readers, projections, deleted_projections, claims, dead_letters: letters, dispatch } =
            snapshot;
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = readers.into();
        *self.projections.write().unwrap_or_else(PoisonError::into_inner) = (projections, deleted_projections).into();
        *self.claims.write().unwrap_or_else(PoisonError::into_inner) = claims.into();
        *self.dead_letters.write().unwrap_or_else(PoisonError::into_inner) = letters.into();
        *self.dispatch.write().unwrap_or_else(PoisonError::into_inner) = dispatch.counted();
    }
}

impl From<StateTablesSnapshot> for StateTables {
    fn from(snapshot: StateTablesSnapshot) -> Self {
        let StateTablesSnapshot { readers, projections, deleted_projections, claims, dead_letters: letters, dispatch } =
            snapshot;
        Self {
            readers: RwLock::new(readers.into()),
            projections: RwLock::new((projections, deleted_projections).into()),
            claims: RwLock::new(claims.into()),
            dead_letters: RwLock::new(letters.into()),
            dispatch: RwLock::new(dispatch.counted()),
        }
    }
}

impl TableOverlays {
    /// Consumers and offsets as decided so far, judged at `now`.
    pub(in crate::ledger) fn consumers<'a>(&'a self, tables: &'a StateTables, now: i64) -> DecidedConsumers<'a> {
        DecidedConsumers { durable: tables.consumers(), layer: &self.readers, now }
    }

    /// Projections as decided so far.
    pub(in crate::ledger) fn projections<'a>(&'a self, tables: &'a StateTables) -> DecidedProjections<'a> {
        DecidedProjections { durable: tables.projections(), layer: &self.projections }
    }

    /// Claims as decided so far.
    pub(in crate::ledger) fn claims<'a>(&'a self, tables: &'a StateTables) -> DecidedClaims<'a> {
        DecidedClaims { durable: tables.claims(), layer: &self.claims }
    }

    /// Dead letters as decided so far.
    pub(in crate::ledger) fn dead_letters<'a>(&'a self, tables: &'a StateTables) -> DecidedDeadLetters<'a> {
        DecidedDeadLetters { durable: tables.dead_letters(), layer: &self.letters }
    }

    /// Subscriptions, jobs and pools as decided so far.
    pub(in crate::ledger) fn dispatch<'a>(&'a self, tables: &'a StateTables) -> DecidedDispatch<'a> {
        DecidedDispatch { durable: tables.dispatch(), layer: &self.dispatch }
    }

    /// Makes a fact visible to the decisions that follow.
    pub(in crate::ledger) fn note(&mut self, tables: &StateTables, entry: &Entry, header: &RecordHeader) {
        let mut consumers =
            ConsumersOverlayWriter { durable: &tables.consumers(), layer: &mut self.readers, at: header.position };
        consumers.apply(entry, header.time);
        let (durable, layer, at) = (&tables.projections(), &mut self.projections, header.position);
        LayeredProjections { durable, layer, at }.apply(entry, header.time);
        LayeredClaims { durable: &tables.claims(), layer: &mut self.claims, at }.apply(entry, header);
        LayeredLetters { durable: &tables.dead_letters(), layer: &mut self.letters, at }.apply(entry, header);
        LayeredDispatch { durable: &tables.dispatch(), layer: &mut self.dispatch, at }.apply(entry, header);
    }

    /// The answer decided under a key and not durable yet.
    pub(in crate::ledger) fn answer(&self, key: u128) -> Option<IdempotencyRow> {
        self.answers.get(&key).flatten().copied()
    }

    /// Makes a kept answer visible to the decisions that follow.
    pub(in crate::ledger) fn note_answer(&mut self, key: u128, row: IdempotencyRow) {
        self.answers.set(row.position, key, Some(row));
    }

    /// Takes back the facts behind `after`.
    pub(in crate::ledger) fn undo(&mut self, after: Position) {
        self.readers.undo(after);
        self.projections.undo(after);
        self.answers.undo(after);
        self.claims.undo(after);
        self.letters.undo(after);
        self.dispatch.undo(after);
    }

    /// Facts up to `through` are durable and in the parts.
    pub(in crate::ledger) fn settle(&mut self, through: Position) {
        self.readers.settle(through);
        self.projections.settle(through);
        self.answers.settle(through);
        self.claims.settle(through);
        self.letters.settle(through);
        self.dispatch.settle(through);
    }
}

#[cfg(test)]
mod tests {
    use super::super::consumers::GroupKey;
    use super::*;
    use crate::ledger::decide::decision::{Decision, Overlay};
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
    fn a_fact_is_decided_first_then_durable_and_then_no_longer_in_the_layer() {
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
        assert!(overlay.layers.readers.is_empty() && overlay.layers.projections.is_empty());
    }
}
