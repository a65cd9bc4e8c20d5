//! Generations of deleted projections: one that is registered again under its name continues the count, so that
//! a worker of the old one is never mistaken for a worker of the new one.
//!
//! - The number of names is bounded. Beyond it the one with the lowest generation is forgotten, and its generation
//!   becomes a floor below which no new projection begins, whatever its name.
//! - A name stays when a projection of that name is registered again: an older broker that shares the log begins with
//!   generation 1.

use contract::Generation;
use contract::limits::DELETED_PROJECTIONS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last generation of each deleted projection, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedProjections {
    /// The highest generation of those that are forgotten.
    floor: Generation,
    names: BTreeMap<String, Generation>,
}

impl DeletedProjections {
    /// The generation that a projection of this name must be above.
    #[must_use]
    pub fn last(&self, name: &str) -> Generation {
        self.names.get(name).copied().unwrap_or_default().max(self.floor)
    }

    /// Records that a projection was deleted in this generation.
    pub(in crate::ledger) fn add(&mut self, name: &str, generation: Generation) {
        let last = self.last(name).max(generation);
        self.names.insert(name.to_owned(), last);
        if self.names.len() > DELETED_PROJECTIONS_MAX {
            self.forget_lowest();
        }
    }

    fn forget_lowest(&mut self) {
        let lowest = self.names.iter().min_by_key(|(_, generation)| **generation).map(|(name, _)| name.clone());
        let forgotten = lowest.and_then(|name| self.names.remove(&name));
        self.floor = self.floor.max(forgotten.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_on_where_it_ended_and_a_new_one_begins_at_the_start() {
        let mut deleted = DeletedProjections::default();
        deleted.add("a", Generation(3));
        deleted.add("a", Generation(1));
        assert_eq!((deleted.last("a"), deleted.last("b")), (Generation(3), Generation(0)));
    }

    #[test]
    fn of_too_many_names_the_lowest_is_forgotten_and_raises_the_floor_of_all() {
        let mut deleted = DeletedProjections::default();
        deleted.add("old", Generation(9));
        for number in 0..DELETED_PROJECTIONS_MAX {
            deleted.add(&format!("p{number:04}"), Generation(2));
        }
        assert_eq!(deleted.names.len(), DELETED_PROJECTIONS_MAX);
        assert_eq!(deleted.last("old"), Generation(9));
        for name in ["p0000", "p0999", "never seen"] {
            assert_eq!(deleted.last(name), Generation(2), "{name}");
        }
    }
}
