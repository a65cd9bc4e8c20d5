//! Dead letters in the order they were given up, overall and by owner, so that the cost of a page is its size.

use super::{DeadLetterRow, StoredDeadLetter};
use contract::{DeadLetterFilter, DeadLetterSource, TopicId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use uuid::Uuid;

/// The sort key of a dead letter: when it was given up, then its id.
pub type DeadLetterSortKey = (i64, Uuid);

/// The owner of a dead letter (a handler or a subscription) and its topic.
pub(crate) type DeadLetterOwner = (DeadLetterSource, String, TopicId);

/// Sort keys of dead letters.
#[derive(Default)]
pub(super) struct DeadLetterIndex {
    places: BTreeSet<DeadLetterSortKey>,
    owners: BTreeMap<DeadLetterOwner, BTreeSet<DeadLetterSortKey>>,
}

/// A part of a list: the dead letters next to a sort key, on one side of it.
#[derive(Debug, Clone, Copy)]
pub enum DeadLetterRange {
    /// Those after it, the nearest first; from the beginning if there is no key.
    After(Option<DeadLetterSortKey>),
    /// Those at it and before it, the nearest first.
    UpTo(DeadLetterSortKey),
    /// Those before it, the nearest first.
    Before(DeadLetterSortKey),
    /// Those at it and after it, the nearest first.
    From(DeadLetterSortKey),
}

fn owner(dead_letter: &StoredDeadLetter) -> DeadLetterOwner {
    (dead_letter.source, dead_letter.name.clone(), dead_letter.topic.clone())
}

impl DeadLetterIndex {
    pub(super) fn insert(&mut self, row: &DeadLetterRow) {
        let place = (row.at, row.letter.id);
        self.places.insert(place);
        self.owners.entry(owner(&row.letter)).or_default().insert(place);
    }

    pub(super) fn remove(&mut self, row: &DeadLetterRow) {
        let (place, owner) = ((row.at, row.letter.id), owner(&row.letter));
        self.places.remove(&place);
        if let Some(places) = self.owners.get_mut(&owner) {
            places.remove(&place);
            if places.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }

    /// The owners of dead letters, with their sort keys.
    pub(super) fn owners(&self) -> impl Iterator<Item = (&DeadLetterOwner, &BTreeSet<DeadLetterSortKey>)> {
        self.owners.iter()
    }

    /// At most `max` sort keys that match the filter, in the order of the range.
    pub(super) fn in_range(
        &self,
        filter: &DeadLetterFilter,
        range: DeadLetterRange,
        max: usize,
    ) -> Vec<DeadLetterSortKey> {
        let DeadLetterFilter { source, name, topic, .. } = filter;
        if source.is_none() && name.is_none() && topic.is_none() {
            return take(&self.places, range, max);
        }
        let is_meant = |(owner, _): &(&DeadLetterOwner, _)| {
            let (of, by, about) = owner;
            source.is_none_or(|it| it == *of)
                && name.as_ref().is_none_or(|it| it == by)
                && topic.as_ref().is_none_or(|it| it == about)
        };
        let meant = self.owners.iter().filter(is_meant);
        let mut found: Vec<_> = meant.flat_map(|(_, places)| take(places, range, max)).collect();
        found.sort_unstable();
        if matches!(range, DeadLetterRange::UpTo(_) | DeadLetterRange::Before(_)) {
            found.reverse();
        }
        found.truncate(max);
        found
    }
}

fn take(places: &BTreeSet<DeadLetterSortKey>, range: DeadLetterRange, max: usize) -> Vec<DeadLetterSortKey> {
    use Bound::{Excluded, Included, Unbounded};
    match range {
        DeadLetterRange::After(None) => places.iter().take(max).copied().collect(),
        DeadLetterRange::After(Some(at)) => places.range((Excluded(at), Unbounded)).take(max).copied().collect(),
        DeadLetterRange::From(at) => places.range((Included(at), Unbounded)).take(max).copied().collect(),
        DeadLetterRange::UpTo(at) => places.range((Unbounded, Included(at))).rev().take(max).copied().collect(),
        DeadLetterRange::Before(at) => places.range((Unbounded, Excluded(at))).rev().take(max).copied().collect(),
    }
}
