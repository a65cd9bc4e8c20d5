//! Numbers and ids that are computed from a hash. They are stored, so they never change.

use uuid::{Builder, Uuid};

/// The first eight bytes of the hash of `bytes`, as a number.
pub(crate) fn u64_from_hash(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(hash_prefix(bytes))
}

/// The first sixteen bytes of the hash of `bytes`, as a number.
pub(crate) fn u128_from_hash(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(hash_prefix(bytes))
}

/// The id that is computed from a name, so that a decision that is made again gives the same id. It is a version 8 UUID.
pub(crate) fn uuid_from_hash(name: &str) -> Uuid {
    Builder::from_custom_bytes(hash_prefix(name.as_bytes())).into_uuid()
}

fn hash_prefix<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().unwrap_or([0; N])
}
