//! Rows of the two on-disk tables that outlive removed events, in the form that an entry carries them.
//!
//! In the log each list is one string of hexadecimal digits: for each row 16 bytes of key, then the row. The topics of
//! keys are a list of numbers beside them: an older version ignores it.

use crate::ledger::disk::row_codec::{AggregateHead, IdempotencyRow};
use log::TopicNumber;
use serde::{Deserialize, Serialize};

/// Rows whose events are no longer in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RowsText", into = "RowsText")]
pub struct CarriedRows {
    /// Aggregates that lose all their events.
    pub heads: Vec<(u128, AggregateHead)>,
    /// Idempotency keys that have not expired.
    pub keys: Vec<CarriedKey>,
}

/// An idempotency key that has not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedKey {
    /// The fingerprint.
    pub key: u128,
    /// Its row.
    pub row: IdempotencyRow,
    /// The topic whose window it expires with; `None` in entries of older versions.
    pub topic: Option<TopicNumber>,
}

/// The rows as they are in the log.
#[derive(Serialize, Deserialize)]
struct RowsText {
    heads: String,
    keys: String,
    /// The number of each key's topic, in the same order; 0 if it is not known. Empty in entries of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    key_topics: Vec<u32>,
}

impl From<CarriedRows> for RowsText {
    fn from(CarriedRows { heads, keys }: CarriedRows) -> Self {
        Self {
            heads: to_text(heads.iter().map(|(key, head)| (*key, head.encode()))),
            keys: to_text(keys.iter().map(|carried| (carried.key, carried.row.encode()))),
            key_topics: keys.iter().map(|carried| carried.topic.map_or(0, |topic| topic.0)).collect(),
        }
    }
}

impl TryFrom<RowsText> for CarriedRows {
    type Error = &'static str;

    fn try_from(RowsText { heads, keys, key_topics }: RowsText) -> Result<Self, Self::Error> {
        let (heads, keys) = (from_text(&heads).ok_or(BAD_ROWS)?, from_text(&keys).ok_or(BAD_ROWS)?);
        let topics = key_topics.into_iter().chain(std::iter::repeat(0));
        let topics = topics.map(|number| (number > 0).then_some(TopicNumber(number)));
        let carried = |((key, row), topic)| CarriedKey { key, row: IdempotencyRow::decode(row), topic };
        Ok(Self {
            heads: heads.into_iter().map(|(key, row)| (key, AggregateHead::decode(row))).collect(),
            keys: keys.into_iter().zip(topics).map(carried).collect(),
        })
    }
}

const BAD_ROWS: &str = "bad rows";

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
        let key = |topic| CarriedKey { key: 7, row: remembered, topic };
        let keys = vec![key(Some(TopicNumber(3))), key(None)];
        let carried = CarriedRows { heads: vec![(1, head), (u128::MAX, head)], keys };
        let mut stored = serde_json::to_value(&carried).unwrap();
        assert_eq!(stored["key_topics"], serde_json::json!([3, 0]));
        assert_eq!(serde_json::from_value::<CarriedRows>(stored.clone()).unwrap(), carried);
        // An older version wrote no topics.
        stored.as_object_mut().unwrap().remove("key_topics");
        let older = serde_json::from_value::<CarriedRows>(stored).unwrap();
        assert_eq!(older, CarriedRows { keys: vec![key(None); 2], ..carried });
        assert!(serde_json::from_str::<CarriedRows>(r#"{"heads":"00","keys":""}"#).is_err());
    }
}
