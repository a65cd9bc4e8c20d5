//! Appending: what is stored, in which order, and what is refused.

use crate::testing::{
    Engine, LogProbe, LogRefusal, NO_LIMIT, RecordNumbering, RecordSetters, SeededRandom, assert_dense, positions,
    record,
};
use crate::{EventFacets, ReadRange, Record, RecordQuery, TopicNumber};
use bytes::Bytes;
use contract::{AggregateSequence, Position, Sequence};

/// Nothing to read, find or remove; the tail is 0.
pub async fn an_empty_log_has_nothing_in_it(engine: &dyn Engine) {
    let probe = LogProbe::open(engine).await;
    for after in [0, 1, u64::MAX] {
        assert_eq!(probe.all(after).await, []);
        assert_eq!(probe.topic(0, after).await, Ok(vec![]));
        assert_eq!(probe.topic(1, after).await, Ok(vec![]));
        assert_eq!(probe.aggregate(1, after).await, []);
    }
    for what in [
        RecordQuery::Id(0),
        RecordQuery::Id(1),
        RecordQuery::Time(None, i64::MIN),
        RecordQuery::Time(Some(TopicNumber(1)), i64::MIN),
        RecordQuery::Aggregate(1),
    ] {
        assert_eq!(probe.find(what).await, None, "{what:?}");
    }
    assert_eq!(probe.segments(1).await, []);
    probe.remove(1, 1).await;
    assert_eq!(probe.reopen().await.tail(), Position::ZERO);
}

/// Every member of every header, and every body, by every way of reading, before and after reopening.
pub async fn what_was_appended_reads_back_the_same(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let stored = every_shape(&mut probe.numbering);
    for batch in stored.chunks(5) {
        let after = Position(batch[0].header.position.get() - 1);
        assert_eq!(probe.append(after, batch.to_vec()).await, Ok(()));
    }
    reads_back(&probe, &stored).await;
    reads_back(&probe.reopen().await, &stored).await;
}

/// Records with every combination of what may be absent, zero or largest, and bodies from nothing to 1 MiB.
fn every_shape(numbering: &mut RecordNumbering) -> Vec<Record> {
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut random = SeededRandom::new(1);
    let bodies = [Bytes::new(), Bytes::from_static(b"x"), Bytes::from(every_byte), random.bytes(1 << 20).into()];
    let mut shapes = Vec::new();
    for (index, facets) in every_facets().into_iter().enumerate() {
        let shape = record(0, [0, 1, u32::MAX][index % 3], 0)
            .time([-1, 0, 1_764_763_200_000, 253_402_300_799_999][index / 9])
            .id([0, u128::MAX, random.wide()][index % 3])
            .facets(facets)
            .body(bodies[index % 4].clone());
        shapes.push(numbering.number(shape));
    }
    shapes
}

fn every_facets() -> Vec<Option<EventFacets>> {
    let mut every = vec![None];
    for choice in 0_u8..32 {
        let is = |bit: u8| choice & (1 << bit) != 0;
        let empty = record(0, 0, 0).facet(|facets| {
            facets.type_tag = if is(0) { u64::MAX } else { 0 };
            facets.subject_type_tag = if is(1) { 1 << 63 } else { 0 };
            facets.tenant = if is(2) { u128::MAX } else { 0 };
        });
        let placed = if is(3) { empty.aggregate(u128::MAX - u128::from(choice & 1), 0) } else { empty };
        let keyed = if is(4) { placed.idempotency(1 << 127, u64::MAX) } else { placed };
        every.push(keyed.header.facets);
    }
    every
}

async fn reads_back(probe: &LogProbe<'_>, stored: &[Record]) {
    assert!(probe.all(0).await == stored, "the whole log differs");
    for record in stored {
        let header = record.header;
        let behind = ReadRange::Topic(header.topic, Sequence(header.sequence.get() - 1));
        let read = probe.read(behind, crate::ReadLimit { records: 1, bytes: 0 }).await.unwrap();
        assert!(read == std::slice::from_ref(record), "{header:?} differs in its topic");
        if let Some(mark) = header.facets.and_then(|facets| facets.aggregate) {
            let behind = ReadRange::Aggregate(mark.key, AggregateSequence(mark.sequence.get() - 1));
            let read = probe.read(behind, NO_LIMIT).await.unwrap();
            assert!(read.first() == Some(record), "{header:?} differs in its aggregate");
        }
    }
}

/// Batches of one and of a thousand, and everything in between, leave no gap.
pub async fn positions_stay_dense_over_batches_of_any_size(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut count = 0;
    for size in [1, 2, 255, 256, 257, 1000, 1, 3] {
        probe.put_entries(&vec![1; size]).await;
        count += size as u64;
        assert_eq!(probe.tail(), Position(count));
        assert_eq!(positions(&probe.all(0).await), (1..=count).collect::<Vec<_>>());
    }
}

/// The tail in the error is the true one, whether the caller's was behind it or ahead of it, and nothing was written.
pub async fn an_append_behind_another_tail_is_told_the_tail(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for after in [1, 7] {
        let refused = probe.append(Position(after), vec![record(after + 1, 1, 1)]).await;
        assert_eq!(refused, Err(LogRefusal::TailMoved(Position::ZERO)), "after {after} in an empty log");
    }
    let stored = probe.put_entries(&[1, 1, 2]).await;
    for after in [0, 1, 2, 4, 1000, u64::MAX - 1] {
        let batch = vec![record(after + 1, 1, 3).id(99).aggregate(99, 1)];
        let refused = probe.append(Position(after), batch).await;
        assert_eq!(refused, Err(LogRefusal::TailMoved(Position(3))), "after {after}");
    }
    nothing_came_in(probe, &stored).await;
}

/// Gaps, repetitions and steps back, at the beginning of a batch and in it.
pub async fn a_misnumbered_batch_writes_nothing(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for first in [0, 2] {
        let refused = probe.append(Position::ZERO, vec![record(first, 1, 1)]).await;
        assert_eq!(refused, Err(LogRefusal::Misnumbered), "position {first} as the first of all");
    }
    let stored = probe.put_entries(&[1, 2, 1]).await;
    for wrong in [
        &[5][..],
        &[3],
        &[0],
        &[u64::MAX],
        &[4, 6],
        &[4, 4],
        &[4, 5, 4],
        &[5, 4],
        &[4, 5, 6, 8],
        &[3, 4],
        &[4, u64::MAX],
    ] {
        let batch = wrong.iter().map(|position| record(*position, 1, 3).time(i64::MAX).id(99).aggregate(99, 1));
        let refused = probe.append(Position(3), batch.collect()).await;
        assert_eq!(refused, Err(LogRefusal::Misnumbered), "positions {wrong:?} behind 3");
    }
    nothing_came_in(probe, &stored).await;
}

/// After the tail and within a batch, before and after reopening.
pub async fn a_time_that_falls_is_refused(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let stored = probe.put_at(1, &[1000, 2000]).await;
    for round in ["", "after reopening"] {
        for times in [&[1999][..], &[0], &[i64::MIN], &[2000, 3000, 2999], &[1500, 2500]] {
            let timed = |(at, time): (usize, &i64)| record(at as u64 + 3, 1, at as u64 + 3).time(*time).id(99);
            let refused = probe.append(Position(2), times.iter().enumerate().map(timed).collect()).await;
            assert_eq!(refused, Err(LogRefusal::Misnumbered), "times {times:?} behind 2000 {round}");
        }
        probe = probe.reopen().await;
    }
    nothing_came_in(probe, &stored).await;
}

/// Many records may share a millisecond.
pub async fn a_time_that_stays_is_taken(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut stored = probe.put_at(1, &[7, 7]).await;
    stored.extend(probe.put_at(2, &[7, 7, 8]).await);
    assert_eq!(probe.all(0).await, stored);
}

/// It is Ok after the tail and refused elsewhere, and the log stays as it is.
pub async fn an_empty_batch_only_compares(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    assert_eq!(probe.append(Position::ZERO, vec![]).await, Ok(()));
    assert_eq!(probe.append(Position(1), vec![]).await, Err(LogRefusal::TailMoved(Position::ZERO)));
    let stored = probe.put_entries(&[1, 2]).await;
    assert_eq!(probe.append(Position(2), vec![]).await, Ok(()));
    for after in [0, 1, 3, u64::MAX] {
        let refused = probe.append(Position(after), vec![]).await;
        assert_eq!(refused, Err(LogRefusal::TailMoved(Position(2))), "after {after}");
    }
    nothing_came_in(probe, &stored).await;
}

/// `probe` holds `stored` and no more, now and after reopening, and appending goes on where it was. A refused batch had
/// id and aggregate 99.
async fn nothing_came_in(mut probe: LogProbe<'_>, stored: &[Record]) {
    for _ in 0..2 {
        assert_eq!(probe.all(0).await, stored);
        assert_eq!(probe.tail(), Position(stored.len() as u64));
        let (first, _): (Vec<_>, Vec<_>) = stored.iter().cloned().partition(|record| record.header.topic.0 == 1);
        assert_eq!(probe.topic(1, 0).await, Ok(first));
        assert_eq!(probe.aggregate(99, 0).await, []);
        assert_eq!(probe.find(RecordQuery::Id(99)).await, None);
        assert_eq!(probe.find(RecordQuery::Aggregate(99)).await, None);
        probe = probe.reopen().await;
    }
    let added = probe.put_entries(&[1]).await;
    assert_eq!(probe.all(0).await, [stored, &added].concat());
}

/// Records, tail and all three numberings are there again, each time.
pub async fn what_was_appended_survives_reopening(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut stored = Vec::new();
    for _ in 0..5 {
        stored.extend(probe.put_events(&[(1, 10), (2, 20), (1, 10), (1, 11)]).await);
        probe = probe.reopen().await;
        assert_eq!(probe.tail(), Position(stored.len() as u64));
        assert_eq!(probe.all(0).await, stored);
        let ours = |record: &&Record| record.header.facets.unwrap().aggregate.unwrap().key == 10;
        assert_eq!(probe.aggregate(10, 0).await, stored.iter().filter(ours).cloned().collect::<Vec<_>>());
    }
    assert_dense(&stored);
}

/// Twelve hundred events of three topics and nine aggregates, in batches of any size, read by every number.
pub async fn three_topics_interleaved_stay_dense_in_all_numberings(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let mut random = SeededRandom::new(3);
    let mut stored = Vec::new();
    while stored.len() < 1200 {
        let size = random.through(15) + 1;
        let mut about = || (random.through(2) as u32 + 1, u128::from(random.through(2)));
        let about: Vec<_> =
            (0..size).map(|_| about()).map(|(topic, of)| (topic, u128::from(topic) * 10 + of)).collect();
        stored.extend(probe.put_events(&about).await);
    }
    let probe = probe.reopen().await;
    assert_eq!(probe.all(0).await, stored);
    assert_dense(&stored);
    for topic in 1..=3 {
        let own = |record: &&Record| record.header.topic == TopicNumber(topic);
        assert_eq!(probe.topic(topic, 0).await, Ok(stored.iter().filter(own).cloned().collect()));
        for key in (0..3).map(|of| u128::from(topic) * 10 + of) {
            let own = |record: &&Record| record.header.facets.unwrap().aggregate.unwrap().key == key;
            assert_eq!(probe.aggregate(key, 0).await, stored.iter().filter(own).cloned().collect::<Vec<_>>());
        }
    }
}
