//! Removing: what is gone, what is left, and the error that a reader gets.

use crate::testing::{Engine, LogProbe, LogRefusal, NO_LIMIT, RecordSetters, positions, record, sequences};
use crate::{ReadLimit, ReadRange, RecordQuery, TopicNumber};
use contract::{Position, Sequence};

fn trimmed<T>(earliest: u64) -> Result<T, LogRefusal> {
    Err(LogRefusal::Trimmed(Sequence(earliest)))
}

/// From 0 and from every sequence that was removed but the last: the first one left.
pub async fn a_trimmed_read_is_told_the_earliest(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1, 2, 1, 2, 1, 1, 1]).await;
    for removed in [1, 3, 4, 5] {
        probe.remove(1, removed).await;
        for after in 0..removed {
            assert_eq!(probe.topic(1, after).await, trimmed(removed + 1), "behind {after}, removed through {removed}");
        }
        let limit = ReadLimit { records: 0, bytes: 0 };
        let read = probe.read(ReadRange::Topic(TopicNumber(1), Sequence::ZERO), limit).await;
        assert_eq!(read, trimmed(removed + 1), "{limit:?}");
    }
}

/// `earliest - 1` is where a reader continues after the error; beyond the end a read is still empty, without an error.
pub async fn the_rest_of_a_trimmed_topic_reads_from_just_before_it(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let stored = probe.put_entries(&[1, 2, 1, 2, 1]).await;
    probe.remove(1, 1).await;
    assert_eq!(probe.topic(1, 1).await, Ok(vec![stored[2].clone(), stored[4].clone()]));
    assert_eq!(probe.topic(1, 2).await, Ok(vec![stored[4].clone()]));
    probe.remove(1, 3).await;
    for after in [3, 4, u64::MAX] {
        assert_eq!(probe.topic(1, after).await, Ok(vec![]), "behind {after}");
    }
}

/// Whatever they start after, a removed record included.
pub async fn reads_of_log_and_aggregate_skip_holes(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_events(&[(1, 10), (2, 20), (1, 10), (1, 11), (2, 20), (1, 10), (1, 11)]).await;
    probe.remove(1, 3).await;
    for (after, expected) in
        [(0, &[2, 5, 6, 7][..]), (1, &[2, 5, 6, 7]), (2, &[5, 6, 7]), (3, &[5, 6, 7]), (5, &[6, 7])]
    {
        assert_eq!(positions(&probe.all(after).await), expected, "behind {after}");
    }
    for (key, after, expected) in [(10, 0, &[6][..]), (10, 1, &[6]), (10, 2, &[6]), (10, 3, &[]), (11, 0, &[7])] {
        assert_eq!(positions(&probe.aggregate(key, after).await), expected, "aggregate {key} behind {after}");
    }
    assert_eq!(positions(&probe.aggregate(20, 0).await), [2, 5]);
    probe.remove(1, 5).await;
    assert_eq!(positions(&probe.all(0).await), [2, 5]);
    assert_eq!(probe.aggregate(10, 0).await, []);
}

/// "At least one if there is one", also where it lies thousands of holes away.
pub async fn a_hole_of_any_length_does_not_end_a_read(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[2]).await;
    for _ in 0..4 {
        probe.put_entries(&[1; 1000]).await;
    }
    probe.put_entries(&[2, 1]).await;
    probe.remove(1, 4000).await;
    for _ in 0..2 {
        let read = probe.read(ReadRange::All(Position(1)), ReadLimit { records: 1, bytes: 0 }).await.unwrap();
        assert_eq!(positions(&read), [4002]);
        assert_eq!(positions(&probe.all(0).await), [1, 4002, 4003]);
        assert_eq!(positions(&probe.topic(1, 4000).await.unwrap()), [4003]);
        probe = probe.reopen().await;
    }
}

/// By id, by time or by aggregate: the search goes on to what is left.
pub async fn removed_records_are_not_found(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let stored = probe.put_events(&[(1, 10), (2, 20), (1, 11), (1, 10), (2, 20), (1, 11)]).await;
    let time = |position: usize| stored[position - 1].header.time;
    probe.remove(1, 2).await;
    for _ in 0..2 {
        for (what, expected) in [
            (RecordQuery::Id(1), None),
            (RecordQuery::Id(2), Some(2)),
            (RecordQuery::Id(3), None),
            (RecordQuery::Id(4), Some(4)),
            (RecordQuery::Time(None, i64::MIN), Some(2)),
            (RecordQuery::Time(None, time(3)), Some(4)),
            (RecordQuery::Time(Some(TopicNumber(1)), i64::MIN), Some(4)),
            (RecordQuery::Time(Some(TopicNumber(2)), i64::MIN), Some(2)),
            (RecordQuery::Aggregate(10), Some(4)),
            (RecordQuery::Aggregate(11), Some(6)),
            (RecordQuery::Aggregate(20), Some(5)),
        ] {
            assert_eq!(probe.position_of(what).await, expected, "{what:?}");
        }
        probe = probe.reopen().await;
    }
    probe.remove(1, 4).await;
    for (what, expected) in [
        (RecordQuery::Id(6), None),
        (RecordQuery::Time(None, time(6)), None),
        (RecordQuery::Time(None, time(3)), Some(5)),
        (RecordQuery::Time(Some(TopicNumber(1)), i64::MIN), None),
        (RecordQuery::Aggregate(10), None),
        (RecordQuery::Aggregate(11), None),
        (RecordQuery::Aggregate(20), Some(5)),
    ] {
        assert_eq!(probe.position_of(what).await, expected, "{what:?}");
    }
}

/// The first of those that are left.
pub async fn an_id_whose_first_record_is_removed_finds_the_next(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let batch = [1, 2, 1, 2].map(|topic| probe.numbering.entry(topic).id(7));
    probe.put(batch.to_vec()).await;
    for (topic, through, expected) in [(1, 1, Some(2)), (2, 1, Some(3)), (2, 2, Some(3)), (1, 2, None)] {
        probe.remove(topic, through).await;
        assert_eq!(probe.position_of(RecordQuery::Id(7)).await, expected, "topic {topic} removed through {through}");
        probe = probe.reopen().await;
        assert_eq!(probe.position_of(RecordQuery::Id(7)).await, expected, "the same after reopening");
    }
}

/// What is gone stays gone, what is left stays left.
pub async fn removing_twice_or_less_does_nothing(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1; 6]).await;
    probe.remove(1, 0).await;
    assert_eq!(sequences(&probe.topic(1, 0).await.unwrap()), [1, 2, 3, 4, 5, 6]);
    probe.remove(1, 4).await;
    for through in [4, 3, 0, 1, 4] {
        probe.remove(1, through).await;
        assert_eq!(probe.topic(1, 3).await, trimmed(5), "after removing through {through} again");
        assert_eq!(sequences(&probe.topic(1, 4).await.unwrap()), [5, 6]);
        assert_eq!(positions(&probe.all(0).await), [5, 6]);
        probe = probe.reopen().await;
    }
}

/// Only existing records can be removed: a number that is not assigned yet is not removed in advance.
pub async fn removing_past_the_end_leaves_what_comes_later(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1, 1, 2, 2]).await;
    probe.remove(1, 100).await;
    probe.remove(2, u64::MAX).await;
    for _ in 0..2 {
        for topic in [1, 2] {
            assert_eq!(probe.topic(topic, 0).await, trimmed(3), "topic {topic}");
            assert_eq!(probe.topic(topic, 2).await, Ok(vec![]), "topic {topic}");
        }
        probe = probe.reopen().await;
    }
    let added = probe.put_entries(&[1, 2, 1, 2]).await;
    let mut probe = probe.reopen().await;
    assert_eq!(probe.all(0).await, added);
    for topic in [1, 2] {
        assert_eq!(sequences(&probe.topic(topic, 2).await.unwrap()), [3, 4], "topic {topic}");
    }
    probe.remove(1, 3).await;
    probe.put_entries(&[1]).await;
    assert_eq!(sequences(&probe.topic(1, 3).await.unwrap()), [4, 5]);
}

/// It stays unknown, and begins at 1 with its first record.
pub async fn removing_from_an_unknown_topic_does_nothing(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[2]).await;
    probe.remove(1, 5).await;
    probe.remove(3, u64::MAX).await;
    for _ in 0..2 {
        assert_eq!(probe.topic(1, 0).await, Ok(vec![]));
        assert_eq!(probe.topic(3, 0).await, Ok(vec![]));
        probe = probe.reopen().await;
    }
    probe.put_entries(&[1, 1, 3]).await;
    let probe = probe.reopen().await;
    assert_eq!(sequences(&probe.topic(1, 0).await.unwrap()), [1, 2]);
    assert_eq!(sequences(&probe.topic(3, 0).await.unwrap()), [1]);
    assert_eq!(positions(&probe.all(0).await), [1, 2, 3, 4]);
}

/// The tail stays, and neither position nor sequence is assigned again, also if the log was reopened empty.
pub async fn numbering_continues_after_everything_was_removed(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for round in 0..3 {
        let count = round * 4;
        let added = probe.put_events(&[(1, 10), (2, 20), (1, 10), (1, 11)]).await;
        assert_eq!(positions(&added), [count + 1, count + 2, count + 3, count + 4]);
        assert_eq!(probe.all(0).await, added);
        probe.remove(1, round * 3 + 3).await;
        probe.remove(2, round + 1).await;
        for _ in 0..2 {
            assert_eq!(probe.tail(), Position(count + 4));
            assert_eq!(probe.all(0).await, []);
            assert_eq!(probe.topic(1, 0).await, trimmed(round * 3 + 4));
            assert_eq!(probe.topic(2, 0).await, trimmed(round + 2));
            assert_eq!(probe.find(RecordQuery::Time(None, i64::MIN)).await, None);
            let stale = probe.append(Position(count), vec![record(count + 1, 1, 1)]).await;
            assert_eq!(stale, Err(LogRefusal::TailMoved(Position(count + 4))));
            probe = probe.reopen().await;
        }
    }
}

/// Their reads, their earliest, their segments.
pub async fn removal_leaves_other_topics_alone(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut others = Vec::new();
    for _ in 0..30 {
        let batch = probe.put_events(&[(0, 1), (1, 10), (2, 20)]).await;
        others.extend([batch[0].clone(), batch[2].clone()]);
    }
    let before = (probe.topic(0, 0).await, probe.topic(2, 0).await, probe.aggregate(20, 0).await);
    probe.remove(1, 30).await;
    for _ in 0..2 {
        assert_eq!(probe.all(0).await, others);
        let after = (probe.topic(0, 0).await, probe.topic(2, 0).await, probe.aggregate(20, 0).await);
        assert_eq!(after, before);
        probe = probe.reopen().await;
    }
}

/// What was gone on `Ok` is gone for good, and what was appended around it is all there.
pub async fn removal_survives_reopening(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1, 2, 1, 2, 1]).await;
    probe.remove(1, 1).await;
    probe.remove(2, 1).await;
    probe.remove(1, 2).await;
    probe.put_entries(&[1, 2]).await;
    for _ in 0..3 {
        probe = probe.reopen().await;
        assert_eq!(probe.tail(), Position(7));
        assert_eq!(positions(&probe.all(0).await), [4, 5, 6, 7]);
        assert_eq!(probe.topic(1, 0).await, trimmed(3));
        assert_eq!(probe.topic(1, 1).await, trimmed(3));
        assert_eq!(probe.topic(2, 0).await, trimmed(2));
        assert_eq!(sequences(&probe.topic(1, 2).await.unwrap()), [3, 4]);
        assert_eq!(sequences(&probe.topic(2, 1).await.unwrap()), [2, 3]);
    }
}

/// The next time must not be earlier than the last one ever stored, whether its record is still there or not.
pub async fn time_does_not_fall_behind_what_was_removed(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_at(1, &[1000, 2000]).await;
    probe.remove(1, 2).await;
    for _ in 0..2 {
        let refused = probe.append(Position(2), vec![record(3, 1, 3).time(1999)]).await;
        assert_eq!(refused, Err(LogRefusal::Misnumbered));
        probe = probe.reopen().await;
    }
    probe.put_at(1, &[2000]).await;
    assert_eq!(probe.read(ReadRange::All(Position::ZERO), NO_LIMIT).await.unwrap().len(), 1);
}
