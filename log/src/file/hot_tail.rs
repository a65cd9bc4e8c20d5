//! The hot tail: the last appended records, in RAM.
//!
//! A reader that an append woke finds them here without reading the disk. Positions in it are dense up to the tail.

use crate::{ReadRange, Record, TopicNumber};
use contract::{Position, Sequence};
use std::collections::{HashMap, VecDeque};

/// Bytes of a record without its body.
const OVERHEAD_BYTES: usize = 256;

/// The last records, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct HotTail {
    bytes_max: usize,
    bytes: usize,
    /// The position of the first record.
    first: Position,
    records: VecDeque<Record>,
    /// Positions of each topic's records.
    topics: HashMap<TopicNumber, VecDeque<Position>>,
}

impl HotTail {
    /// An empty hot tail after `tail`.
    pub(crate) fn new(tail: Position, bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, first: tail.next(), records: VecDeque::new(), topics: HashMap::new() }
    }

    /// Adds the next record, and drops the oldest ones beyond the limit.
    pub(crate) fn push(&mut self, record: Record) {
        self.bytes += cost(&record);
        self.topics.entry(record.header.topic).or_default().push_back(record.header.position);
        self.records.push_back(record);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= cost(&oldest);
            self.first = oldest.header.position.next();
            if let Some(positions) = self.topics.get_mut(&oldest.header.topic) {
                positions.pop_front();
                if positions.is_empty() {
                    self.topics.remove(&oldest.header.topic);
                }
            }
        }
    }

    /// One record.
    pub(crate) fn get(&self, position: Position) -> Option<&Record> {
        let at = position.get().checked_sub(self.first.get())?;
        self.records.get(usize::try_from(at).ok()?)
    }

    /// The records of `range`, if all of them are here. For a topic that is known only if its next sequence is here.
    pub(crate) fn range(&self, range: ReadRange) -> Option<Box<dyn Iterator<Item = &Record> + '_>> {
        match range {
            ReadRange::All(after) => {
                let start = usize::try_from(after.next().get().checked_sub(self.first.get())?).ok()?;
                Some(Box::new(self.records.iter().skip(start)))
            }
            ReadRange::Topic(topic, after) => {
                let positions = self.topics.get(&topic)?;
                let sequence =
                    |position: &Position| self.get(*position).map_or(Sequence::ZERO, |record| record.header.sequence);
                let complete = sequence(positions.front()?) <= after.next();
                let start = positions.partition_point(|position| sequence(position) <= after);
                complete
                    .then(|| Box::new(positions.range(start..).filter_map(|position| self.get(*position))) as Box<_>)
            }
            ReadRange::Aggregate(..) => None,
        }
    }
}

fn cost(record: &Record) -> usize {
    record.body.len() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{positions, record};

    fn read(tail: &HotTail, range: ReadRange) -> Option<Vec<u64>> {
        Some(positions(&tail.range(range)?.cloned().collect::<Vec<_>>()))
    }

    #[test]
    fn serves_only_what_it_has_whole() {
        let mut tail = HotTail::new(Position(10), 3 * (OVERHEAD_BYTES + 20));
        for (position, topic, sequence) in [(11, 1, 5), (12, 2, 9), (13, 1, 6), (14, 1, 7)] {
            tail.push(record(position, topic, sequence));
        }
        let topic = |number, after| ReadRange::Topic(TopicNumber(number), Sequence(after));
        for (range, expected) in [
            (ReadRange::All(Position(10)), None),
            (ReadRange::All(Position(11)), Some(vec![12, 13, 14])),
            (ReadRange::All(Position(14)), Some(vec![])),
            (topic(1, 4), None),
            (topic(1, 5), Some(vec![13, 14])),
            (topic(1, 6), Some(vec![14])),
            (topic(2, 8), Some(vec![12])),
            (topic(2, 7), None),
            (topic(3, 0), None),
        ] {
            assert_eq!(read(&tail, range), expected, "{range:?}");
        }
        assert_eq!(tail.get(Position(11)), None);
        assert_eq!(tail.get(Position(12)).map(|record| record.header.sequence), Some(Sequence(9)));
    }
}
