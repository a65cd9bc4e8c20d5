//! Keys of sixteen bytes, numbered in the order in which they were added.
//!
//! - A key costs 16 bytes and a slot of 6 to 12; in a map from such keys to numbers it would be 37 to 76.
//! - The values of keys are in vectors outside this set, by number.
//! - Clients choose some of the keys, so slots are found by a hash with a random seed.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A set of keys that gives each a number.
#[derive(Debug, Default)]
pub(super) struct KeyNumbers {
    keys: Vec<u128>,
    slots: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl KeyNumbers {
    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, keys: usize) {
        let Self { keys: known, slots, hasher } = self;
        known.reserve(keys);
        slots.reserve(keys, |number| hash_of(hasher, known, *number));
    }

    /// A key's number, if it has one.
    pub(super) fn find(&self, key: u128) -> Option<u32> {
        self.slots.find(self.hasher.hash_one(key), |number| self.key(*number) == Some(key)).copied()
    }

    /// Adds a key; returns the number it had before, if any. A new one gets the next number.
    pub(super) fn insert(&mut self, key: u128) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let Self { keys, slots, hasher } = self;
        if let Some(known) = slots.find(hash, |number| keys.get(*number as usize) == Some(&key)) {
            return Some(*known);
        }
        let number = keys.len() as u32;
        keys.push(key);
        slots.insert_unique(hash, number, |number| hash_of(hasher, keys, *number));
        None
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys in the order of their numbers.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = u128> {
        self.keys.iter().copied()
    }

    /// Numbers and keys in the order of the keys.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (u32, u128)> {
        let mut numbers: Vec<u32> = (0..self.keys.len() as u32).collect();
        numbers.sort_unstable_by_key(|number| self.key(*number));
        numbers.into_iter().filter_map(|number| Some((number, self.key(number)?)))
    }

    fn key(&self, number: u32) -> Option<u128> {
        self.keys.get(number as usize).copied()
    }
}

fn hash_of(hasher: &DefaultHashBuilder, keys: &[u128], number: u32) -> u64 {
    hasher.hash_one(keys.get(number as usize).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_number_they_came_with() {
        let mut numbered = KeyNumbers::default();
        numbered.reserve(3);
        // Far more than were reserved: the slots are reallocated several times.
        for key in 0..1000_u128 {
            assert_eq!(numbered.insert(key * key), None);
        }
        for key in 0..1000_u128 {
            assert_eq!(numbered.insert(key * key), Some(key as u32));
            assert_eq!(numbered.find(key * key), Some(key as u32));
        }
        assert_eq!(numbered.find(2), None);
        assert_eq!(numbered.len(), 1000);
        assert!(numbered.keys().eq((0..1000).map(|key| key * key)));
    }

    #[test]
    fn keys_are_told_in_their_order() {
        let mut numbered = KeyNumbers::default();
        for key in [7, u128::MAX, 0, 8] {
            assert_eq!(numbered.insert(key), None);
        }
        assert!(numbered.sorted().eq([(2, 0), (0, 7), (3, 8), (1, u128::MAX)]));
    }
}
