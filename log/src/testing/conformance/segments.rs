//! Segments: the runs of a topic's records. The engine chooses how many there are.

use crate::testing::{Engine, LogProbe, assert_covers};

/// In order, without gap or overlap, with the times of the records at their ends.
pub async fn segments_hold_exactly_what_can_be_read(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for round in 0..40 {
        probe.put_entries(&[1, 2, 1, 1][..1 + round % 4]).await;
    }
    for _ in 0..2 {
        for topic in [1, 2] {
            assert_covers(&probe.segments(topic).await, &probe.topic(topic, 0).await.unwrap());
        }
        assert_eq!(probe.segments(3).await, []);
        probe = probe.reopen().await;
    }
}

/// Removed records are in no segment, at once; if all are gone there is none, until the next append.
pub async fn segments_end_where_removal_and_begin_where_appending_continues(engine: &dyn Engine) {
    let mut probe = LogProbe::open(engine).await;
    for _ in 0..20 {
        probe.put_entries(&[1, 2]).await;
    }
    for removed in [1, 7, 19] {
        probe.remove(1, removed).await;
        for _ in 0..2 {
            assert_covers(&probe.segments(1).await, &probe.topic(1, removed).await.unwrap());
            assert_covers(&probe.segments(2).await, &probe.topic(2, 0).await.unwrap());
            probe = probe.reopen().await;
        }
    }
    probe.remove(1, 20).await;
    assert_eq!(probe.segments(1).await, []);
    let mut probe = probe.reopen().await;
    assert_eq!(probe.segments(1).await, []);
    let added = probe.put_entries(&[2, 1]).await;
    assert_covers(&probe.segments(1).await, &added[1..]);
    assert_covers(&probe.segments(2).await, &probe.topic(2, 0).await.unwrap());
}
