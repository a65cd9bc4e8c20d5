//! Finding one record by its header.

use crate::testing::{Engine, LogProbe, RecordSetters};
use crate::{RecordQuery, TopicNumber};

/// The header is complete, and no other id finds it.
pub async fn an_id_finds_its_record(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let ids = [1, 5, 1 << 64, u128::MAX];
    let batch = ids.map(|id| probe.numbering.event(1, 10).id(id).idempotency(id, 4));
    let stored = probe.put(batch.to_vec()).await;
    for _ in 0..2 {
        for record in &stored {
            assert_eq!(probe.find(RecordQuery::Id(record.header.id)).await, Some(record.header));
        }
        for unknown in [2, 6, (1 << 64) + 1, u128::MAX - 1] {
            assert_eq!(probe.find(RecordQuery::Id(unknown)).await, None, "{unknown}");
        }
        probe = probe.reopen().await;
    }
}

/// In the same batch, in a later one, in another topic, and after reopening.
pub async fn an_id_stored_twice_finds_the_first(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    let batch = [(1, 7), (1, 8), (1, 7)].map(|(topic, id)| probe.numbering.entry(topic).id(id));
    probe.put(batch.to_vec()).await;
    for _ in 0..2 {
        let batch = [(2, 8), (1, 7)].map(|(topic, id)| probe.numbering.entry(topic).id(id));
        probe.put(batch.to_vec()).await;
        assert_eq!(probe.position_of(RecordQuery::Id(7)).await, Some(1));
        assert_eq!(probe.position_of(RecordQuery::Id(8)).await, Some(2));
        probe = probe.reopen().await;
    }
}

/// 0 stands for no id.
pub async fn an_entry_has_no_id_to_be_found_by(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[0, 1]).await;
    assert_eq!(probe.find(RecordQuery::Id(0)).await, None);
    assert_eq!(probe.reopen().await.find(RecordQuery::Id(0)).await, None);
}

/// Before all, between two, on one, on several that share it, and after all.
pub async fn a_time_finds_the_first_record_at_or_after_it(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_at(1, &[100, 200]).await;
    probe.put_at(2, &[200, 200, 300]).await;
    probe.put_at(1, &[300]).await;
    for (time, expected) in [
        (i64::MIN, Some(1)),
        (0, Some(1)),
        (99, Some(1)),
        (100, Some(1)),
        (101, Some(2)),
        (200, Some(2)),
        (201, Some(5)),
        (300, Some(5)),
        (301, None),
        (i64::MAX, None),
    ] {
        assert_eq!(probe.position_of(RecordQuery::Time(None, time)).await, expected, "at {time}");
    }
}

/// The same, among one topic's records only.
pub async fn a_time_finds_the_first_record_of_a_topic(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_at(1, &[100, 200]).await;
    probe.put_at(2, &[200, 200, 300]).await;
    probe.put_at(1, &[300, 400]).await;
    let probe = probe.reopen().await;
    for (topic, time, expected) in [
        (1, i64::MIN, Some(1)),
        (1, 100, Some(1)),
        (1, 101, Some(2)),
        (1, 201, Some(6)),
        (1, 300, Some(6)),
        (1, 400, Some(7)),
        (1, 401, None),
        (2, i64::MIN, Some(3)),
        (2, 200, Some(3)),
        (2, 201, Some(5)),
        (2, 301, None),
        (2, i64::MAX, None),
        (3, i64::MIN, None),
    ] {
        let what = RecordQuery::Time(Some(TopicNumber(topic)), time);
        assert_eq!(probe.position_of(what).await, expected, "topic {topic} at {time}");
    }
}

/// The head of the aggregate, as it moves; records of no aggregate are in none.
pub async fn an_aggregate_finds_its_last_record(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    probe.put_entries(&[1]).await;
    let stored = probe.put_events(&[(1, 10), (1, 11), (1, 10), (2, 20)]).await;
    assert_eq!(probe.find(RecordQuery::Aggregate(10)).await, Some(stored[2].header));
    assert_eq!(probe.find(RecordQuery::Aggregate(11)).await, Some(stored[1].header));
    assert_eq!(probe.find(RecordQuery::Aggregate(20)).await, Some(stored[3].header));
    for unknown in [0, 1, 12, u128::MAX] {
        assert_eq!(probe.find(RecordQuery::Aggregate(unknown)).await, None, "{unknown}");
    }
    let later = probe.put_events(&[(1, 11)]).await;
    assert_eq!(probe.find(RecordQuery::Aggregate(11)).await, Some(later[0].header));
    assert_eq!(probe.reopen().await.find(RecordQuery::Aggregate(11)).await, Some(later[0].header));
}
