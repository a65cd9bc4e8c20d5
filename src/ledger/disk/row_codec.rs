//! The rows of the two tables that grow without bound, and their fixed-size form on disk.

use contract::{AggregateSequence, Position, Sequence};

/// The last event of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateHead {
    /// Its last aggregate sequence.
    pub aggregate_sequence: AggregateSequence,
    /// That event's sequence in its topic.
    pub sequence: Sequence,
}

/// A remembered idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// The position of the event, or of the stored reply, under this key.
    pub position: Position,
    /// When it was stored, in milliseconds.
    pub time: i64,
    /// Fingerprint of the event's `data`, or of the request that the reply belongs to.
    pub digest: u64,
}

impl AggregateHead {
    /// Bytes of a row.
    pub const BYTES: usize = 16;

    /// Encodes the row for the disk.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        join([self.aggregate_sequence.0.to_le_bytes(), self.sequence.0.to_le_bytes()])
    }

    /// Decodes a row from the disk.
    #[must_use]
    pub fn decode(row: [u8; Self::BYTES]) -> Self {
        let [aggregate_sequence, sequence] = split(row);
        Self { aggregate_sequence: AggregateSequence(aggregate_sequence), sequence: Sequence(sequence) }
    }
}

impl IdempotencyRow {
    /// Bytes of a row.
    pub const BYTES: usize = 24;

    /// Encodes the row for the disk.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        join([self.position.0.to_le_bytes(), self.time.to_le_bytes(), self.digest.to_le_bytes()])
    }

    /// Decodes a row from the disk.
    #[must_use]
    pub fn decode(row: [u8; Self::BYTES]) -> Self {
        let [position, time, digest] = split(row);
        Self { position: Position(position), time: time.cast_signed(), digest }
    }
}

fn join<const N: usize, const B: usize>(words: [[u8; 8]; N]) -> [u8; B] {
    let mut row = [0; B];
    for (place, word) in row.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word);
    }
    row
}

fn split<const N: usize, const B: usize>(row: [u8; B]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(row.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_trip_to_disk() {
        let head = AggregateHead { aggregate_sequence: AggregateSequence(7), sequence: Sequence(u64::MAX) };
        assert_eq!(AggregateHead::decode(head.encode()), head);
        let remembered = IdempotencyRow { position: Position(1), time: -5, digest: 0xdead_beef_0123_4567 };
        assert_eq!(IdempotencyRow::decode(remembered.encode()), remembered);
    }
}
