//! Positions of records by their number in a topic or aggregate, and by their id.

use contract::Position;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};

/// The positions of one topic's or aggregate's numbers; both ascend.
pub(super) struct NumberIndex<N>(pub(super) VecDeque<(N, Position)>);

impl<N> Default for NumberIndex<N> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<N: Ord + Copy> NumberIndex<N> {
    pub(super) fn push(&mut self, number: N, position: Position) {
        self.0.push_back((number, position));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<(N, Position)> {
        self.0.front().copied()
    }

    pub(super) fn last(&self) -> Option<(N, Position)> {
        self.0.back().copied()
    }

    pub(super) fn count_through(&self, number: N) -> usize {
        self.0.partition_point(|(entry, _)| *entry <= number)
    }

    pub(super) fn behind(&self, number: N) -> impl Iterator<Item = Position> {
        self.0.range(self.count_through(number)..).map(|(_, position)| *position)
    }

    /// The first position for which `earlier` is false; it is true for all before it.
    pub(super) fn first_not(&self, earlier: impl Fn(Position) -> bool) -> Option<Position> {
        self.0.get(self.0.partition_point(|(_, position)| earlier(*position))).map(|(_, position)| *position)
    }

    pub(super) fn remove(&mut self, number: N) {
        if let Ok(at) = self.0.binary_search_by_key(&number, |(entry, _)| *entry) {
            self.0.remove(at);
        }
    }
}

/// The position at which each id was stored first. 0 is no id.
#[derive(Default)]
pub(super) struct IdIndex {
    pub(super) first: HashMap<u128, Position>,
    /// Positions at which it was stored again: rare, and needed only after the first is removed.
    pub(super) again: BTreeSet<(u128, Position)>,
}

impl IdIndex {
    pub(super) fn first(&self, id: u128) -> Option<Position> {
        self.first.get(&id).copied()
    }

    pub(super) fn put(&mut self, id: u128, position: Position) {
        if id == 0 {
            return;
        }
        match self.first.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(position);
            }
            Entry::Occupied(_) => {
                self.again.insert((id, position));
            }
        }
    }

    pub(super) fn remove(&mut self, id: u128, position: Position) {
        if self.again.remove(&(id, position)) {
            return;
        }
        let next = self.again.range((id, Position::ZERO)..=(id, Position(u64::MAX))).next().copied();
        match next {
            Some(next) => {
                self.again.remove(&next);
                self.first.insert(id, next.1);
            }
            None => {
                self.first.remove(&id);
            }
        }
    }
}
