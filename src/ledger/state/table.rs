//! What every table of the state has in common: durable rows, an overlay of decided rows, and a form for checkpoints.
//!
//! - One fold serves both: a fact changes the durable rows ([`StateTable::apply`]) as it changed the overlay
//!   ([`StateTable::decide`]) before it was durable.
//! - Decisions read a table through [`DecidedTable`]: the overlay first, then the durable rows.

use crate::ledger::facts::entry::Entry;
use contract::Position;
use log::RecordHeader;
use std::sync::RwLockReadGuard;

/// The rows of one table of the state. They change one by one, and are too many to be copied on every change.
pub trait StateTable: Default {
    /// The rows that were decided and are not durable yet.
    type Overlay: TableOverlay;
    /// The rows in a checkpoint.
    type Snapshot;

    /// Folds one durable fact. Total: a fact about an unknown row, or about another table, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader);

    /// Folds one fact that is not durable yet into the overlay of these rows.
    fn decide(&self, overlay: &mut Self::Overlay, entry: &Entry, header: &RecordHeader);

    /// The rows as a checkpoint stores them.
    fn snapshot(&self) -> Self::Snapshot;

    /// The rows of a checkpoint.
    fn restore(snapshot: Self::Snapshot) -> Self;
}

/// Rows that were decided and are not durable yet.
pub trait TableOverlay: Default {
    /// Takes back the changes of entries after `after`.
    fn undo(&mut self, after: Position);

    /// Drops the changes of entries up to `through`: they are in the durable rows now.
    fn settle(&mut self, through: Position);

    /// Whether no change is pending.
    fn is_empty(&self) -> bool;
}

/// Implements [`TableOverlay`] for a struct whose fields are all overlays themselves.
macro_rules! overlay_of {
    ($overlay:ident { $($field:ident),* $(,)? }) => {
        impl $crate::ledger::state::table::TableOverlay for $overlay {
            fn undo(&mut self, after: contract::Position) {
                let Self { $($field),* } = self;
                $($field.undo(after);)*
            }

            fn settle(&mut self, through: contract::Position) {
                let Self { $($field),* } = self;
                $($field.settle(through);)*
            }

            fn is_empty(&self) -> bool {
                let Self { $($field),* } = self;
                $($field.is_empty())&&*
            }
        }
    };
}
pub(in crate::ledger) use overlay_of;

/// An overlay with the durable rows beneath it, while the entry at `at` is folded into it.
pub(in crate::ledger) struct OverlayWriter<'a, T: StateTable> {
    pub(in crate::ledger) durable: &'a T,
    pub(in crate::ledger) overlay: &'a mut T::Overlay,
    pub(in crate::ledger) at: Position,
}

/// A table as a decision sees it: durable rows, and over them those that were decided.
pub struct DecidedTable<'a, T: StateTable> {
    pub(in crate::ledger) durable: RwLockReadGuard<'a, T>,
    pub(in crate::ledger) overlay: &'a T::Overlay,
    /// The time of the decision, in milliseconds.
    pub(in crate::ledger) now: i64,
}
