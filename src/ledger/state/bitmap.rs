//! The form of sets of numbers in checkpoints: what the crate `roaring` writes, in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use roaring::RoaringTreemap;

pub(in crate::ledger) fn to_text(bits: &RoaringTreemap) -> String {
    let mut bytes = Vec::with_capacity(bits.serialized_size());
    // Writing to memory cannot fail.
    let _ = bits.serialize_into(&mut bytes);
    STANDARD_NO_PAD.encode(bytes)
}

pub(in crate::ledger) fn from_text(text: &str) -> Option<RoaringTreemap> {
    RoaringTreemap::deserialize_from(STANDARD_NO_PAD.decode(text).ok()?.as_slice()).ok()
}

/// Refuses a checkpoint whose bitmap cannot be decoded.
pub(in crate::ledger) mod checked {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in crate::ledger) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(in crate::ledger) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        let text = String::deserialize(deserializer)?;
        match super::from_text(&text) {
            Some(_) => Ok(text),
            None => Err(de::Error::custom("bad bits")),
        }
    }
}
