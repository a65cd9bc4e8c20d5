//! An overlay: rows that were decided and are not durable yet, on top of the durable rows.
//!
//! - A row here hides the durable row of its key; it can also mean that the durable row is deleted.
//! - Every change carries the position of the entry that made it. To undo is to drop what came after a position, to
//!   settle is to drop what came up to one; no other bookkeeping is needed.
//! - The cost depends on the pending changes alone, not on the number of durable rows.

use crate::ledger::state::table::TableOverlay;
use contract::Position;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Decided rows by key, on top of durable ones.
pub struct OverlayMap<K, V> {
    rows: HashMap<K, OverlayRow<V>>,
    /// The changes in the order of their positions, with what each replaced in this overlay.
    changes: VecDeque<OverlayChange<K, V>>,
}

/// The value that an entry gave a row; `None`: it was deleted.
struct OverlayRow<V> {
    at: Position,
    value: Option<V>,
}

struct OverlayChange<K, V> {
    at: Position,
    key: K,
    before: Option<OverlayRow<V>>,
}

impl<K: Clone + Eq + Hash, V> OverlayMap<K, V> {
    /// What was decided about this row: `None` is nothing, `Some(None)` that it is deleted.
    pub(in crate::ledger) fn get(&self, key: &K) -> Option<Option<&V>> {
        self.rows.get(key).map(|decided| decided.value.as_ref())
    }

    /// The decided rows, without those that are deleted.
    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().filter_map(|(key, decided)| Some((key, decided.value.as_ref()?)))
    }

    /// Sets a row for the entry at `at`.
    pub(in crate::ledger) fn set(&mut self, at: Position, key: K, value: Option<V>) {
        let before = self.rows.insert(key.clone(), OverlayRow { at, value });
        self.changes.push_back(OverlayChange { at, key, before });
    }

    /// Whether the `durable` rows and these together are fewer than `max`.
    pub(in crate::ledger) fn has_room(&self, durable: usize, is_durable: impl Fn(&K) -> bool, max: usize) -> bool {
        if durable + self.rows.len() < max {
            return true;
        }
        let count = |gone: bool| {
            let changed = self.rows.iter().filter(|(key, row)| row.value.is_none() == gone && is_durable(key) == gone);
            changed.count()
        };
        durable + count(false) < max + count(true)
    }
}

impl<K: Clone + Eq + Hash, V> TableOverlay for OverlayMap<K, V> {
    fn undo(&mut self, after: Position) {
        while let Some(OverlayChange { key, before, .. }) = self.changes.pop_back_if(|change| change.at > after) {
            match before {
                Some(decided) => self.rows.insert(key, decided),
                None => self.rows.remove(&key),
            };
        }
    }

    fn settle(&mut self, through: Position) {
        while let Some(OverlayChange { key, .. }) = self.changes.pop_front_if(|change| change.at <= through) {
            if self.rows.get(&key).is_some_and(|decided| decided.at <= through) {
                self.rows.remove(&key);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.changes.is_empty()
    }
}

impl<K, V> Default for OverlayMap<K, V> {
    fn default() -> Self {
        Self { rows: HashMap::new(), changes: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay() -> OverlayMap<&'static str, u8> {
        let mut overlay = OverlayMap::default();
        overlay.set(Position(1), "a", Some(1));
        overlay.set(Position(2), "b", Some(2));
        overlay.set(Position(3), "a", Some(3));
        overlay.set(Position(4), "b", None);
        overlay
    }

    #[test]
    fn undoing_brings_back_what_was_decided_before() {
        for (after, a, b) in [
            (4, Some(Some(&3)), Some(None)),
            (3, Some(Some(&3)), Some(Some(&2))),
            (2, Some(Some(&1)), Some(Some(&2))),
            (1, Some(Some(&1)), None),
            (0, None, None),
        ] {
            let mut overlay = overlay();
            overlay.undo(Position(after));
            assert_eq!((overlay.get(&"a"), overlay.get(&"b")), (a, b), "undone behind {after}");
        }
    }

    #[test]
    fn a_settled_row_leaves_unless_it_was_decided_again() {
        for (through, a, b) in
            [(0, Some(Some(&3)), Some(None)), (1, Some(Some(&3)), Some(None)), (3, None, Some(None)), (4, None, None)]
        {
            let mut overlay = overlay();
            overlay.settle(Position(through));
            assert_eq!((overlay.get(&"a"), overlay.get(&"b")), (a, b), "settled through {through}");
        }
    }

    #[test]
    fn a_settled_row_is_not_brought_back_by_undoing_a_later_one() {
        let mut overlay = overlay();
        overlay.settle(Position(2));
        overlay.set(Position(5), "a", Some(5));
        overlay.undo(Position(4));
        assert_eq!(overlay.get(&"a"), Some(Some(&3)));
        overlay.settle(Position(4));
        assert!(overlay.is_empty());
    }

    #[test]
    fn room_counts_rows_once_and_gone_ones_not_at_all() {
        // The durable rows are b and c: with a added and b deleted, two are left.
        let is_durable = |key: &&str| ["b", "c"].contains(key);
        for (max, has_room) in [(2, false), (3, true), (4, true), (9, true)] {
            assert_eq!(overlay().has_room(2, is_durable, max), has_room, "{max}");
        }
    }
}
