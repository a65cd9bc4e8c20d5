//! Tags: the eight bytes that represent a type in a record's header.

use crate::ledger::hash::u64_from_hash;

/// The tag of a type's name. Two names with one tag cannot be constructed on purpose, and no decision relies on the tag
/// alone.
#[must_use]
pub fn tag(name: &str) -> u64 {
    u64_from_hash(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_name_never_changes() {
        assert_eq!(tag("order.created"), 15_258_825_063_651_043_823);
    }
}
