//! Rows in RAM: a hash map whose keys are hashes already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One row outside of a map.
pub(super) type TableRow<const V: usize> = (u128, [u8; V]);

/// The hasher of a map with uniform keys.
pub(crate) type KeyMap<T> = HashMap<u128, T, BuildHasherDefault<LowHalfHasher>>;

/// Rows by key, in no order.
pub(super) type RowMap<const V: usize> = KeyMap<[u8; V]>;

/// The rows in the order of their keys.
pub(super) fn sorted<const V: usize>(rows: &RowMap<V>) -> Vec<TableRow<V>> {
    let mut sorted: Vec<_> = rows.iter().map(|(key, value)| (*key, *value)).collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    sorted
}

/// Uses the low half of a uniform key as its hash.
#[derive(Debug, Default)]
pub(crate) struct LowHalfHasher(u64);

impl Hasher for LowHalfHasher {
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    /// A `u128` hashes itself through `write_u128`; the trait requires this method.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
