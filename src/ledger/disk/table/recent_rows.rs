//! A cache of the rows put last that are on disk already: an aggregate that was written to is usually written to again.
//!
//! - A key has one slot, which it shares with other keys; the row put last occupies it.
//! - Every put updates this cache, so a row that is found is the newest of its key.

use super::row_map::TableRow;

/// How many rows the cache holds: 8 MiB of aggregate heads.
const PLACES: usize = 1 << 18;

/// The rows. Until [`RecentRows::begin`] there are none, and no memory is allocated.
#[derive(Debug, Default)]
pub(super) struct RecentRows<const V: usize> {
    rows: Vec<TableRow<V>>,
}

impl<const V: usize> RecentRows<V> {
    /// Caches what is put from now on.
    pub(super) fn begin(&mut self) {
        if self.rows.is_empty() {
            // A key in a slot that is not its own is never found.
            self.rows = (0..PLACES).map(|place| (place as u128 + 1, [0; V])).collect();
        }
    }

    pub(super) fn get(&self, key: u128) -> Option<&[u8; V]> {
        self.rows.get(place(key)).filter(|(found, _)| *found == key).map(|(_, value)| value)
    }

    pub(super) fn put(&mut self, key: u128, value: [u8; V]) {
        if let Some(row) = self.rows.get_mut(place(key)) {
            *row = (key, value);
        }
    }
}

/// The slot of a key. Keys are uniform, so their lowest bits serve as well as any.
const fn place(key: u128) -> usize {
    key as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_found_that_was_not_put() {
        let mut recent = RecentRows::<16>::default();
        recent.put(7, [7; 16]);
        assert_eq!(recent.get(7), None, "it has not begun");
        recent.begin();
        for key in (0..=PLACES as u128).chain([u128::MAX, u128::MAX - 1]) {
            assert_eq!(recent.get(key), None, "{key}");
        }
    }

    #[test]
    fn the_row_put_last_has_the_place() {
        let mut recent = RecentRows::<1>::default();
        recent.begin();
        let (one, other) = (7, 7 + PLACES as u128);
        recent.put(one, [1]);
        recent.put(8, [8]);
        assert_eq!((recent.get(one), recent.get(other), recent.get(8)), (Some(&[1]), None, Some(&[8])));
        recent.put(other, [2]);
        assert_eq!((recent.get(one), recent.get(other)), (None, Some(&[2])));
        recent.put(other, [3]);
        recent.begin();
        assert_eq!(recent.get(other), Some(&[3]));
    }
}
