//! Rows of the two on-disk tables that outlive removed events, in the form that an entry carries them.
//!
//! In the log each list is one string of hexadecimal digits: for each row 16 bytes of key, then the row.

use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Rows whose events are no longer in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRows {
    /// Aggregates that lose all their events.
    #[serde(serialize_with = "heads_to_text", deserialize_with = "heads_from_text")]
    pub heads: Vec<(u128, AggregateHead)>,
    /// Idempotency keys that have not expired.
    #[serde(serialize_with = "keys_to_text", deserialize_with = "keys_from_text")]
    pub keys: Vec<(u128, IdempotencyRow)>,
}

fn heads_to_text<S: Serializer>(rows: &[(u128, AggregateHead)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_text(rows.iter().map(|(key, head)| (*key, head.encode()))))
}

fn heads_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u128, AggregateHead)>, D::Error> {
    let rows = from_text(&String::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("bad rows"))?;
    Ok(rows.into_iter().map(|(key, row)| (key, AggregateHead::decode(row))).collect())
}

fn keys_to_text<S: Serializer>(rows: &[(u128, IdempotencyRow)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_text(rows.iter().map(|(key, remembered)| (*key, remembered.encode()))))
}

fn keys_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u128, IdempotencyRow)>, D::Error> {
    let rows = from_text(&String::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("bad rows"))?;
    Ok(rows.into_iter().map(|(key, row)| (key, IdempotencyRow::decode(row))).collect())
}

fn to_text<const V: usize>(rows: impl Iterator<Item = (u128, [u8; V])>) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (key, row) in rows {
        // Writing to memory cannot fail.
        let _ = write!(text, "{key:032x}");
        for byte in row {
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

fn from_text<const V: usize>(text: &str) -> Option<Vec<(u128, [u8; V])>> {
    let width = 32 + 2 * V;
    let mut rows = Vec::with_capacity(text.len() / width);
    let mut rest = text;
    while !rest.is_empty() {
        let (row, behind) = rest.split_at_checked(width)?;
        let (key, digits) = row.split_at_checked(32)?;
        let mut value = [0; V];
        for (index, byte) in value.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        rows.push((u128::from_str_radix(key, 16).ok()?, value));
        rest = behind;
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{AggregateSequence, Position, Sequence};

    #[test]
    fn carried_rows_survive_the_trip_to_disk() {
        let head = AggregateHead { aggregate_sequence: AggregateSequence(3), sequence: Sequence(9) };
        let remembered = IdempotencyRow { position: Position(4), time: 1_764_763_200_000, digest: u64::MAX };
        let carried = CarriedRows { heads: vec![(1, head), (u128::MAX, head)], keys: vec![(7, remembered)] };
        let text = serde_json::to_string(&carried).unwrap();
        assert_eq!(serde_json::from_str::<CarriedRows>(&text).unwrap(), carried);
        assert!(serde_json::from_str::<CarriedRows>(r#"{"heads":"00","keys":""}"#).is_err());
    }
}
