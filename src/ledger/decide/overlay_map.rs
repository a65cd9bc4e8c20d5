//! A layer: rows decided but not durable yet, laid over the durable ones.
//!
//! - A row here hides the durable row of its key; a row may also say that the durable one is gone.
//! - Every change carries the position of the entry that made it. Undoing is dropping what came after a position,
//!   settling is dropping what came up to one; nobody else has to remember anything.
//! - Its cost is that of what is under way, however much there is beneath.

use crate::ledger::state::table::TableOverlay;
use contract::Position;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Rows by key, over others.
pub struct OverlayMap<K, V> {
    rows: HashMap<K, OverlayRow<V>>,
    /// In the order of their positions, with what each replaced in this layer.
    changes: VecDeque<OverlayChange<K, V>>,
}

/// What an entry made of a row; `None`: it is gone.
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
    /// What was decided about this row: `None` is nothing, `Some(None)` that it is gone.
    pub(in crate::ledger) fn get(&self, key: &K) -> Option<Option<&V>> {
        self.rows.get(key).map(|decided| decided.value.as_ref())
    }

    /// The rows there are something decided about, but for those that are gone.
    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().filter_map(|(key, decided)| Some((key, decided.value.as_ref()?)))
    }

    /// The entry at `at` makes this of a row.
    pub(in crate::ledger) fn set(&mut self, at: Position, key: K, value: Option<V>) {
        let before = self.rows.insert(key.clone(), OverlayRow { at, value });
        self.changes.push_back(OverlayChange { at, key, before });
    }

    /// Whether the whole, `durable` rows beneath and these, has fewer than `max` rows.
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

    fn layer() -> OverlayMap<&'static str, u8> {
        let mut layer = OverlayMap::default();
        layer.set(Position(1), "a", Some(1));
        layer.set(Position(2), "b", Some(2));
        layer.set(Position(3), "a", Some(3));
        layer.set(Position(4), "b", None);
        layer
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
            let mut layer = layer();
            layer.undo(Position(after));
            assert_eq!((layer.get(&"a"), layer.get(&"b")), (a, b), "undone behind {after}");
        }
    }

    #[test]
    fn a_settled_row_leaves_unless_it_was_decided_again() {
        for (through, a, b) in
            [(0, Some(Some(&3)), Some(None)), (1, Some(Some(&3)), Some(None)), (3, None, Some(None)), (4, None, None)]
        {
            let mut layer = layer();
            layer.settle(Position(through));
            assert_eq!((layer.get(&"a"), layer.get(&"b")), (a, b), "settled through {through}");
        }
    }

    #[test]
    fn a_settled_row_is_not_brought_back_by_undoing_a_later_one() {
        let mut layer = layer();
        layer.settle(Position(2));
        layer.set(Position(5), "a", Some(5));
        layer.undo(Position(4));
        assert_eq!(layer.get(&"a"), Some(Some(&3)));
        layer.settle(Position(4));
        assert!(layer.is_empty());
    }

    #[test]
    fn room_counts_rows_once_and_gone_ones_not_at_all() {
        // Beneath are b and c: with a there are two left.
        let beneath = |key: &&str| ["b", "c"].contains(key);
        for (max, has_room) in [(2, false), (3, true), (4, true), (9, true)] {
            assert_eq!(layer().has_room(2, beneath, max), has_room, "{max}");
        }
    }
}
