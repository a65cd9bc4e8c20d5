//! Letters in the order they were given up, overall and by owner, so that a page of a list costs what it holds.

use super::{Letter, LetterRow};
use contract::{LetterFilter, LetterSource, TopicId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use uuid::Uuid;

/// A letter's place: when it was given up, then its id.
pub type LetterPlace = (i64, Uuid);

/// Whose letter, of which topic.
pub(crate) type LetterOwner = (LetterSource, String, TopicId);

/// Places of letters.
#[derive(Default)]
pub(super) struct LetterIndex {
    places: BTreeSet<LetterPlace>,
    owners: BTreeMap<LetterOwner, BTreeSet<LetterPlace>>,
}

/// A part of a list: the letters next to a place, on one side of it.
#[derive(Debug, Clone, Copy)]
pub enum LetterRange {
    /// Those behind it, the nearest first; from the beginning where there is no place.
    After(Option<LetterPlace>),
    /// Those at it and before it, the nearest first.
    UpTo(LetterPlace),
    /// Those before it, the nearest first.
    Before(LetterPlace),
    /// Those at it and behind it, the nearest first.
    From(LetterPlace),
}

fn owner(letter: &Letter) -> LetterOwner {
    (letter.source, letter.name.clone(), letter.topic.clone())
}

impl LetterIndex {
    pub(super) fn insert(&mut self, row: &LetterRow) {
        let place = (row.at, row.letter.id);
        self.places.insert(place);
        self.owners.entry(owner(&row.letter)).or_default().insert(place);
    }

    pub(super) fn remove(&mut self, row: &LetterRow) {
        let (place, owner) = ((row.at, row.letter.id), owner(&row.letter));
        self.places.remove(&place);
        if let Some(places) = self.owners.get_mut(&owner) {
            places.remove(&place);
            if places.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }

    /// Everybody who has letters, with their places.
    pub(super) fn owners(&self) -> impl Iterator<Item = (&LetterOwner, &BTreeSet<LetterPlace>)> {
        self.owners.iter()
    }

    /// At most `max` places of letters that are meant, in the order of the range.
    pub(super) fn near(&self, filter: &LetterFilter, range: LetterRange, max: usize) -> Vec<LetterPlace> {
        let LetterFilter { source, name, topic, .. } = filter;
        if source.is_none() && name.is_none() && topic.is_none() {
            return take(&self.places, range, max);
        }
        let is_meant = |(owner, _): &(&LetterOwner, _)| {
            let (of, by, about) = owner;
            source.is_none_or(|it| it == *of)
                && name.as_ref().is_none_or(|it| it == by)
                && topic.as_ref().is_none_or(|it| it == about)
        };
        let meant = self.owners.iter().filter(is_meant);
        let mut found: Vec<_> = meant.flat_map(|(_, places)| take(places, range, max)).collect();
        found.sort_unstable();
        if matches!(range, LetterRange::UpTo(_) | LetterRange::Before(_)) {
            found.reverse();
        }
        found.truncate(max);
        found
    }
}

fn take(places: &BTreeSet<LetterPlace>, range: LetterRange, max: usize) -> Vec<LetterPlace> {
    use Bound::{Excluded, Included, Unbounded};
    match range {
        LetterRange::After(None) => places.iter().take(max).copied().collect(),
        LetterRange::After(Some(at)) => places.range((Excluded(at), Unbounded)).take(max).copied().collect(),
        LetterRange::From(at) => places.range((Included(at), Unbounded)).take(max).copied().collect(),
        LetterRange::UpTo(at) => places.range((Unbounded, Included(at))).rev().take(max).copied().collect(),
        LetterRange::Before(at) => places.range((Unbounded, Excluded(at))).rev().take(max).copied().collect(),
    }
}
