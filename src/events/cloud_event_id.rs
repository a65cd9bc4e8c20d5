//! The broker's id of a CloudEvent.
//!
//! An `id` that is a UUID is the broker's id as well. In CloudEvents, two events are the same if their `source` and `id`
//! are, so any other `id` becomes the version 5 UUID of both, with a NUL byte between them (neither may contain one). The
//! namespace is part of the contract: producers can compute the id, too (`docs/identifiers.md`).

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use uuid::{Builder, Uuid};

/// The namespace of these UUIDs; it never changes.
const NAMESPACE: Uuid = Uuid::from_u128(0x8c5d_3b0f_7a0e_4c1a_9f64_2f1b_6d0a_e7c3);

/// The broker's id of the CloudEvent with this `source` and `id`.
pub(crate) fn id_of(source: &str, id: &str) -> Uuid {
    Uuid::try_parse(id).unwrap_or_else(|_| name_based(&[source.as_bytes(), b"\0", id.as_bytes()].concat()))
}

/// A version 5 UUID. The version is defined with SHA-1; its strength does not matter here.
fn name_based(name: &[u8]) -> Uuid {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[NAMESPACE.as_bytes(), name].concat());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, of_hash)| *byte = *of_hash);
    Builder::from_sha1_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python: `uuid.uuid5(namespace, source + "\\0" + id)`.
    #[test]
    fn the_rule_is_uuid_version_5_of_source_nul_and_id() {
        for (source, id, ours) in [
            ("/mycontext", "A234-1234-1234", "5e2a383a-1b31-521a-958b-996553bd1c18"),
            ("https://github.com/cloudevents", "", "86f5ddf4-4879-5c63-8673-8ef9803d9f20"),
            ("caf\u{e9}", "0HZXEQ5Y8JY5Z", "0be7fc2f-8106-57e3-8fdf-fdfd43cab72b"),
        ] {
            assert_eq!(id_of(source, id).to_string(), ours, "{source} {id}");
        }
        assert_ne!(id_of("a", "b-c"), id_of("a-b", "c"));
    }

    #[test]
    fn a_uuid_in_any_spelling_is_itself() {
        let id = "550e8400-e29b-41d4-a716-446655440000";
        for spelling in [id, &id.to_uppercase(), &id.replace('-', ""), &format!("urn:uuid:{id}")] {
            assert_eq!(id_of("anywhere", spelling).to_string(), id);
        }
    }
}
