//! Reading: where a range starts and where a limit stops it.

use crate::testing::{Engine, LogProbe, RecordSetters, positions, sequences};
use crate::{ReadLimit, ReadRange, TopicNumber};
use contract::{AggregateSequence, Position, Sequence};

/// From 0, from the middle, at the tail, beyond it, and at the largest number there is.
pub async fn a_read_of_the_whole_log_starts_behind_any_position(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1, 2, 1]).await;
    probe.put_entries(&[0, 2]).await;
    for (after, expected) in
        [(0, &[1, 2, 3, 4, 5][..]), (1, &[2, 3, 4, 5]), (3, &[4, 5]), (4, &[5]), (5, &[]), (6, &[]), (u64::MAX, &[])]
    {
        assert_eq!(positions(&probe.all(after).await), expected, "behind {after}");
    }
}

/// The same edges, counted in the topic; a topic without records is empty.
pub async fn a_read_of_a_topic_starts_behind_any_sequence(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[7, 8, 7, 8, 8, 7, 0]).await;
    for (topic, after, expected) in [
        (7, 0, &[1, 3, 6][..]),
        (7, 1, &[3, 6]),
        (7, 2, &[6]),
        (7, 3, &[]),
        (7, 4, &[]),
        (7, u64::MAX, &[]),
        (8, 0, &[2, 4, 5]),
        (8, 2, &[5]),
        (0, 0, &[7]),
        (0, 1, &[]),
        (9, 0, &[]),
        (9, u64::MAX, &[]),
        (u32::MAX, 0, &[]),
    ] {
        let read = probe.topic(topic, after).await.unwrap();
        assert_eq!(positions(&read), expected, "topic {topic} behind {after}");
    }
}

/// The same edges, counted in the aggregate; records of no aggregate are in none, not even in aggregate 0.
pub async fn a_read_of_an_aggregate_starts_behind_any_number(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_events(&[(1, 10), (1, 11), (2, 20)]).await;
    probe.put_entries(&[1, 2]).await;
    probe.put_events(&[(1, 10), (1, u128::MAX), (1, 10)]).await;
    for (key, after, expected) in [
        (10, 0, &[1, 6, 8][..]),
        (10, 1, &[6, 8]),
        (10, 2, &[8]),
        (10, 3, &[]),
        (10, 4, &[]),
        (10, u64::MAX, &[]),
        (11, 0, &[2]),
        (20, 0, &[3]),
        (u128::MAX, 0, &[7]),
        (12, 0, &[]),
        (12, u64::MAX, &[]),
        (0, 0, &[]),
    ] {
        assert_eq!(positions(&probe.aggregate(key, after).await), expected, "aggregate {key} behind {after}");
    }
}

/// Exactly that many if there are enough; one even if the limit is 0.
pub async fn a_read_stops_at_its_most_records(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1; 5]).await;
    probe.put_entries(&[1; 5]).await;
    for (records, expected) in [(0, 1), (1, 1), (4, 4), (5, 5), (6, 6), (10, 10), (11, 10), (usize::MAX, 10)] {
        let limit = ReadLimit { records, bytes: usize::MAX };
        let read = probe.read(ReadRange::All(Position::ZERO), limit).await.unwrap();
        assert_eq!(positions(&read), (1..=expected).collect::<Vec<_>>(), "{limit:?}");
    }
}

/// The returned bodies never have more bytes together, and one more would not have fitted.
pub async fn a_read_stops_at_its_most_bytes(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    put_sizes(&mut probe, &[10, 20, 0, 30, 0]).await;
    for (bytes, expected) in
        [(0, 1), (9, 1), (10, 1), (29, 1), (30, 3), (31, 3), (59, 3), (60, 5), (61, 5), (usize::MAX, 5)]
    {
        let limit = ReadLimit { records: usize::MAX, bytes };
        let read = probe.read(ReadRange::All(Position::ZERO), limit).await.unwrap();
        assert_eq!(positions(&read), (1..=expected).collect::<Vec<_>>(), "{limit:?}");
    }
}

/// A record larger than the limit is returned alone; otherwise a reader could never continue after it.
pub async fn the_first_record_is_given_however_large(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    put_sizes(&mut probe, &[1, 1 << 20, 1, 0]).await;
    for bytes in [0, 1, 1 << 10, (1 << 20) - 1, 1 << 20] {
        let limit = ReadLimit { records: 10, bytes };
        let read = probe.read(ReadRange::All(Position(1)), limit).await.unwrap();
        assert_eq!(positions(&read), [2], "{limit:?}");
    }
}

/// Both limits at once, in ranges that pick their records from among others.
pub async fn limits_hold_in_topics_and_aggregates(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for _ in 0..4 {
        let batch =
            [(1, 10), (2, 20), (1, 11)].map(|(topic, key)| probe.numbering.event(topic, key).body(vec![7; 100]));
        probe.put(batch.to_vec()).await;
    }
    for (records, bytes, expected) in [(0, 0, 1), (2, 1000, 2), (9, 199, 1), (9, 200, 2), (3, 399, 3), (9, 1000, 4)] {
        let limit = ReadLimit { records, bytes };
        for range in [
            ReadRange::Topic(TopicNumber(2), Sequence::ZERO),
            ReadRange::Aggregate(10, AggregateSequence::ZERO),
            ReadRange::Aggregate(20, AggregateSequence::ZERO),
        ] {
            assert_eq!(probe.read(range, limit).await.unwrap().len(), expected, "{range:?} {limit:?}");
        }
        let read = probe.read(ReadRange::Topic(TopicNumber(1), Sequence(4)), limit).await.unwrap();
        assert_eq!(sequences(&read), (5..5 + expected as u64).collect::<Vec<_>>(), "topic 1 behind 4 {limit:?}");
    }
}

async fn put_sizes(probe: &mut LogProbe<'_>, sizes: &[usize]) {
    let batch = sizes.iter().map(|size| probe.numbering.entry(1).body(vec![7; *size])).collect();
    probe.put(batch).await;
}
