//! The parts of the small state beside the registry: maps that change row by row, too large to copy on every change.
//!
//! - The durable rows of a part stand behind one lock, held for one look: the writer folds into them, everybody reads
//!   them. So what is shown is what is durable, and nothing is copied to be shown.
//! - Decisions see a part through its layer of what is not durable yet ([`super::layer`]).
//! - A new part adds a field and a line to each function here; the decision itself need not know.

use super::entry::Entry;
use super::readers::{Decided, Layered, Readers, ReadersLayer, ReadersSnapshot, Rows};
use contract::Position;
use log::Header;
use serde::{Deserialize, Serialize};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The durable rows of every part.
#[derive(Default)]
pub struct Parts {
    readers: RwLock<Readers>,
}

/// What was decided about each part and is not durable yet.
#[derive(Default)]
pub(super) struct Layers {
    readers: ReadersLayer,
}

/// The parts in a checkpoint. None of them has a default: a checkpoint that lacks one was written by a version that did
/// not fold it, and the log is folded instead.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsSnapshot {
    readers: ReadersSnapshot,
}

impl Parts {
    /// Consumers and the offsets of groups. Held, it keeps the writer from folding: look and let go.
    pub fn readers(&self) -> RwLockReadGuard<'_, Readers> {
        self.readers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one fact.
    pub(super) fn apply(&self, entry: &Entry, header: &Header) {
        self.readers.write().unwrap_or_else(PoisonError::into_inner).apply(entry, header.time);
    }

    pub(super) fn snapshot(&self) -> PartsSnapshot {
        PartsSnapshot { readers: self.readers().snapshot() }
    }
}

impl From<PartsSnapshot> for Parts {
    fn from(snapshot: PartsSnapshot) -> Self {
        Self { readers: RwLock::new(snapshot.readers.into()) }
    }
}

impl Layers {
    /// Consumers and offsets as decided so far, judged at `now`.
    pub(super) fn readers<'a>(&'a self, parts: &'a Parts, now: i64) -> Decided<'a> {
        Decided { durable: parts.readers(), layer: &self.readers, now }
    }

    /// Makes a fact visible to the decisions that follow.
    pub(super) fn note(&mut self, parts: &Parts, entry: &Entry, header: &Header) {
        let mut readers = Layered { durable: &parts.readers(), layer: &mut self.readers, at: header.position };
        readers.apply(entry, header.time);
    }

    /// Takes back the facts behind `after`.
    pub(super) fn undo(&mut self, after: Position) {
        self.readers.undo(after);
    }

    /// Facts up to `through` are durable and in the parts.
    pub(super) fn settle(&mut self, through: Position) {
        self.readers.settle(through);
    }
}
