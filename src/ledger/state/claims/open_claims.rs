//! Claims of one handler in one topic that are not finished, also by their owners.

use super::{ClaimRow, ClaimState};
use contract::Sequence;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Rows by sequence.
#[derive(Default)]
pub(super) struct OpenClaims {
    rows: BTreeMap<Sequence, ClaimRow>,
    /// The live ones: by owner, when each lease ends.
    held: BTreeMap<String, BTreeSet<(i64, Sequence)>>,
    /// Those that are not dead letters: an offset must not pass them.
    begun: BTreeSet<Sequence>,
}

impl OpenClaims {
    pub(super) fn get(&self, sequence: Sequence) -> Option<&ClaimRow> {
        self.rows.get(&sequence)
    }

    pub(super) fn contains(&self, sequence: Sequence) -> bool {
        self.rows.contains_key(&sequence)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Sequence, &ClaimRow)> {
        self.rows.iter().map(|(sequence, row)| (*sequence, row))
    }

    /// How many an owner has whose leases have not expired.
    pub(super) fn held_by(&self, owner: &str, now: i64) -> usize {
        let Some(held) = self.held.get(owner) else { return 0 };
        held.range((now.saturating_add(1), Sequence::ZERO)..).count()
    }

    /// Those an owner has, expired leases included.
    pub(super) fn held(&self, owner: &str) -> impl Iterator<Item = Sequence> {
        self.held.get(owner).into_iter().flatten().map(|(_, sequence)| *sequence)
    }

    /// Those that are no dead letters, in order.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = Sequence> {
        self.begun.iter().copied()
    }

    /// Lets every lease end so much later.
    pub(super) fn extend_leases(&mut self, millis: i64) {
        let is_live = |row: &&ClaimRow| matches!(row.standing, ClaimState::Live { .. });
        let live: Vec<_> =
            self.rows.iter().filter(|(_, row)| is_live(row)).map(|(at, row)| (*at, row.clone())).collect();
        for (sequence, mut row) in live {
            if let ClaimState::Live { until } = &mut row.standing {
                *until = until.saturating_add(millis);
            }
            self.insert(sequence, row);
        }
    }

    pub(super) fn insert(&mut self, sequence: Sequence, row: ClaimRow) {
        self.remove(sequence);
        if let ClaimState::Live { until } = row.standing {
            self.held.entry(row.owner.clone()).or_default().insert((until, sequence));
        }
        if !matches!(row.standing, ClaimState::Dead { .. }) {
            self.begun.insert(sequence);
        }
        self.rows.insert(sequence, row);
    }

    pub(super) fn remove(&mut self, sequence: Sequence) {
        let Some(row) = self.rows.remove(&sequence) else { return };
        self.begun.remove(&sequence);
        let ClaimState::Live { until } = row.standing else { return };
        if let Some(held) = self.held.get_mut(&row.owner) {
            held.remove(&(until, sequence));
            if held.is_empty() {
                self.held.remove(&row.owner);
            }
        }
    }

    /// Drops rows of a range that are not to stay.
    pub(super) fn remove_range(&mut self, range: RangeInclusive<Sequence>, stays: impl Fn(&ClaimRow) -> bool) {
        if range.is_empty() {
            return;
        }
        let removed = self.rows.range(range).filter(|(_, row)| !stays(row)).map(|(sequence, _)| *sequence);
        let removed: Vec<_> = removed.collect();
        removed.into_iter().for_each(|sequence| self.remove(sequence));
    }
}

impl FromIterator<(Sequence, ClaimRow)> for OpenClaims {
    fn from_iter<T: IntoIterator<Item = (Sequence, ClaimRow)>>(rows: T) -> Self {
        let mut open = Self::default();
        rows.into_iter().for_each(|(sequence, row)| open.insert(sequence, row));
        open
    }
}
