//! Tests of the fold of consumers and groups: what their definitions and filters count.

use super::*;

fn consumer(id: u128, cel: usize) -> Consumer {
    let text = format!(
        r#"{{"id":"{}","consumerGroup":"g","topic":"shop.orders","types":[],"subjectTypes":[],"CEL":"{}",
        "sessionTimeout":"PT30S","distribution":"broadcast","createdAt":"2025-12-03T12:00:00Z",
        "lastSeenAt":"2025-12-03T12:00:00Z","expiresAt":"2025-12-03T12:00:30Z"}}"#,
        Uuid::from_u128(id),
        "x".repeat(cel)
    );
    serde_json::from_str(&text).unwrap()
}

/// A hundred thousand consumers with 512 long patterns each would be 33 GB of memory.
#[test]
fn the_bytes_of_definitions_are_counted_from_creation_to_deletion() {
    let mut rows = ConsumerRows::default();
    for (id, cel) in [(1, 1000), (2, 50)] {
        ConsumersFold::apply(&mut rows, &Entry::ConsumerCreated { consumer: consumer(id, cel) }, 0);
    }
    let filter = ConsumerFilter::of(&consumer(2, 50)).bytes();
    let both = consumer_bytes(&consumer(1, 1000)) + consumer_bytes(&consumer(2, 50)) + filter;
    ConsumersFold::apply(&mut rows, &Entry::ConsumerSeen { id: Uuid::from_u128(1) }, 1000);
    assert_eq!(rows.bytes, both, "a poll changes nothing");
    assert_eq!(ConsumerRows::restore(rows.snapshot()).bytes, both);
    for id in [1, 2, 2] {
        ConsumersFold::apply(&mut rows, &Entry::ConsumerDeleted { id: Uuid::from_u128(id) }, 2000);
    }
    assert_eq!(rows.bytes, 0);
}

fn commit(topic: &str) -> Entry {
    Entry::OffsetCommitted { group: "g".to_owned(), topic: topic.parse().unwrap(), offset: Offset(1) }
}

/// Groups without consumers kept filters of hundreds of megabytes.
#[test]
fn a_filter_that_outlives_its_consumer_is_counted_until_its_group_is_deleted() {
    let mut rows = ConsumerRows::default();
    let deleted = Entry::ConsumerDeleted { id: Uuid::from_u128(1) };
    for entry in [Entry::ConsumerCreated { consumer: consumer(1, 1000) }, commit("shop.orders"), deleted] {
        ConsumersFold::apply(&mut rows, &entry, 0);
    }
    assert!(rows.bytes > 1000, "{} bytes are counted", rows.bytes);
    assert_eq!(ConsumerRows::restore(rows.snapshot()).bytes, rows.bytes);
    ConsumersFold::apply(&mut rows, &Entry::GroupDeleted { group: "g".to_owned(), topics: Vec::new() }, 0);
    assert_eq!(rows.bytes, 0);
}

#[test]
fn a_filter_goes_with_the_last_consumer_of_a_topic_without_an_offset() {
    let mut rows = ConsumerRows::default();
    for entry in [Entry::ConsumerCreated { consumer: consumer(1, 1000) }, commit("shop.returns")] {
        ConsumersFold::apply(&mut rows, &entry, 0);
    }
    let mut older = rows.snapshot();
    ConsumersFold::apply(&mut rows, &Entry::ConsumerDeleted { id: Uuid::from_u128(1) }, 0);
    assert!(rows.group("g").unwrap().filters.is_empty());
    older.consumers.clear();
    let restored = ConsumerRows::restore(older);
    assert!(restored.group("g").unwrap().filters.is_empty(), "a checkpoint of an earlier version may have it");
    assert_eq!((rows.bytes, restored.bytes), (0, 0));
}
