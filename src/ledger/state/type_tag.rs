//! Tags: the eight bytes that stand for a type in a record's header.

/// The tag of a type's name. Nobody can make two names share one on purpose, and nothing that matters rests on it alone.
#[must_use]
pub fn tag(name: &str) -> u64 {
    blake3::hash(name.as_bytes()).as_bytes().as_chunks::<8>().0.first().map_or(0, |word| u64::from_le_bytes(*word))
}
