//! A map with a maximum number of entries: the least recently used one is dropped first.
//!
//! Dropping an entry reads all of them, so the number must be some hundreds or thousands, not millions.

use std::collections::HashMap;
use std::hash::Hash;

/// A map of recently used entries.
pub(super) struct LruMap<K, V> {
    entries: HashMap<K, (V, u64)>,
    entries_max: usize,
    /// Grows with every use.
    uses: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> LruMap<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::new(), entries_max: entries_max.max(1), uses: 0 }
    }

    /// The value at `key`, which is the most recently used one now.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.uses += 1;
        let (value, used) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(value.clone())
    }

    /// Inserts a value, and drops the oldest one if there are too many.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.uses += 1;
        self.entries.insert(key, (value, self.uses));
        while self.entries.len() > self.entries_max {
            self.forget_oldest();
        }
    }

    /// Drops the least recently used entry unless it is the only one; true if it did.
    pub(super) fn forget_oldest(&mut self) -> bool {
        if self.entries.len() < 2 {
            return false;
        }
        let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
        oldest.is_some_and(|key| self.entries.remove(&key).is_some())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_is_forgotten_first_and_the_last_one_stays() {
        let mut recent = LruMap::new(2);
        recent.put("a", 1);
        recent.put("b", 2);
        assert_eq!(recent.get(&"a"), Some(1));
        recent.put("c", 3);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (Some(1), None, Some(3)));
        assert!(recent.forget_oldest());
        assert!(!recent.forget_oldest());
        assert_eq!((recent.get(&"c"), recent.len()), (Some(3), 1));
    }
}
