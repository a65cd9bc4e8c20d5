//! The form of sets of numbers in checkpoints: what the crate `roaring` writes, in base64.
//!
//! A text that is not exactly the form of one set is refused, and the checkpoint with it: a set with numbers missing would
//! repeat work that is done.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use roaring::RoaringTreemap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A bitmap that can be serialised.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::ledger) struct StoredBitmap(pub(in crate::ledger) RoaringTreemap);

impl Serialize for StoredBitmap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(self.0.serialized_size());
        // Writing to memory cannot fail.
        let _ = self.0.serialize_into(&mut bytes);
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for StoredBitmap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let damaged = |cause: &dyn std::fmt::Display| de::Error::custom(format_args!("damaged bitmap: {cause}"));
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(|error| damaged(&error))?;
        let mut rest = bytes.as_slice();
        let bits = RoaringTreemap::deserialize_from(&mut rest).map_err(|error| damaged(&error))?;
        // A damaged count ends the set early.
        if !rest.is_empty() {
            return Err(damaged(&format_args!("{} bytes follow it", rest.len())));
        }
        Ok(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        format!("\"{}\"", STANDARD_NO_PAD.encode(bytes))
    }

    #[test]
    fn a_damaged_bitmap_is_refused_and_is_never_a_smaller_set() {
        let bits = StoredBitmap([1, 7, 1 << 20, 1 << 40].into_iter().collect());
        let whole = serde_json::to_string(&bits).unwrap();
        assert_eq!(serde_json::from_str::<StoredBitmap>(&whole).unwrap(), bits);
        let bytes = STANDARD_NO_PAD.decode(whole.trim_matches('"')).unwrap();
        for end in 0..bytes.len() {
            assert!(serde_json::from_str::<StoredBitmap>(&text(&bytes[..end])).is_err(), "cut at {end}");
        }
        // It begins with the number of its parts, of which it has two: with 0 or 1 the rest would be left out.
        for parts in [0, 1] {
            let mut fewer = bytes.clone();
            fewer[0] = parts;
            assert!(serde_json::from_str::<StoredBitmap>(&text(&fewer)).is_err(), "{parts} parts");
        }
        assert!(serde_json::from_str::<StoredBitmap>(&text(&[bytes, vec![0]].concat())).is_err());
        assert!(serde_json::from_str::<StoredBitmap>("\"?\"").is_err());
    }
}
