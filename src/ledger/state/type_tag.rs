//! Tags: the eight bytes that represent a type in a record's header.

/// The tag of a type's name. Two names with one tag cannot be constructed on purpose, and no decision relies on the tag
/// alone.
#[must_use]
pub fn tag(name: &str) -> u64 {
    blake3::hash(name.as_bytes()).as_bytes().as_chunks::<8>().0.first().map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_name_never_changes() {
        assert_eq!(tag("order.created"), 15_258_825_063_651_043_823);
    }
}
