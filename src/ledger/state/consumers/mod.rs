//! Consumers and the offsets of groups, as folded from the log.
//!
//! - One fold ([`ConsumersFold`]) serves both the durable rows and the overlay of rows that are not durable yet.
//! - A consumer's `seen_at` may lag behind its polls by up to [`ConsumerRow::unrecorded_millis`]. So by the log alone
//!   it has certainly expired only at its [`ConsumerRow::deadline`], which includes that lag.
//! - Group offsets outlive the consumers that committed them.
//!
//! When a consumer really polled last is known to `crate::consumers`, which serves the polls.

mod overlay;

pub(in crate::ledger) use overlay::ConsumersOverlay;
pub use overlay::DecidedConsumers;

use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{OverlayWriter, StateTable};
use contract::{Consumer, IdPattern, Offset, Timestamp, TopicId};
use log::RecordHeader;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// Consumers and groups by name.
#[derive(Default)]
pub struct ConsumerRows {
    consumers: BTreeMap<Uuid, ConsumerRow>,
    /// Consumers by their deadlines, to find the expired ones.
    deadlines: BTreeSet<(i64, Uuid)>,
    groups: BTreeMap<String, GroupRow>,
    /// The number of offsets of all groups.
    offsets: usize,
    /// Bytes of the definitions of all consumers, and of the filters of all groups.
    bytes: usize,
}

/// A consumer as the log knows it.
#[derive(Debug, Clone)]
pub struct ConsumerRow {
    /// The consumer as it was created.
    pub consumer: Arc<Consumer>,
    /// When a poll of it was last recorded, in milliseconds.
    pub seen_at: i64,
}

/// The members and offsets of a group.
#[derive(Debug, Default)]
pub struct GroupRow {
    /// The committed offsets by topic.
    pub offsets: BTreeMap<TopicId, Offset>,
    /// Its consumers, some of which may have expired.
    pub members: BTreeSet<Uuid>,
    /// The filter of its last consumer, by topic. It outlives the consumer if the group has an offset in the topic: the
    /// group's lag does not change when no consumer reads.
    pub filters: BTreeMap<TopicId, ConsumerFilter>,
    /// The time of the last fact about it, in milliseconds.
    pub active_at: i64,
}

/// The filter of a group in a topic, as its consumers define it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerFilter {
    /// Event types; empty: any.
    pub types: Vec<IdPattern>,
    /// Subject types; empty: any.
    pub subject_types: Vec<IdPattern>,
    /// A CEL expression.
    pub cel: Option<String>,
}

impl ConsumerFilter {
    /// The filter of a consumer.
    #[must_use]
    pub fn of(consumer: &Consumer) -> Self {
        let Consumer { types, subject_types, cel, .. } = consumer.clone();
        Self { types, subject_types, cel }
    }

    /// Whether it matches every event.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.types.is_empty() && self.subject_types.is_empty() && self.cel.is_none()
    }

    /// The bytes of its texts, and what a row has besides; none for a filter that matches every event.
    #[must_use]
    pub fn bytes(&self) -> usize {
        filter_bytes(&self.types, &self.subject_types, self.cel.as_ref())
    }
}

/// Identifies an offset: a group and a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: TopicId,
}

impl ConsumerRow {
    /// A consumer that was just created.
    fn new(consumer: Consumer) -> Self {
        Self { seen_at: consumer.last_seen_at.millis(), consumer: Arc::new(consumer) }
    }

    /// The bytes of its definition.
    #[must_use]
    pub fn bytes(&self) -> usize {
        consumer_bytes(&self.consumer)
    }

    /// The session timeout, in milliseconds.
    #[must_use]
    pub fn session_millis(&self) -> i64 {
        self.consumer.session_timeout.millis()
    }

    /// The longest time that polls may go unrecorded, in milliseconds.
    #[must_use]
    pub fn unrecorded_millis(&self) -> i64 {
        self.session_millis() / 3
    }

    /// Whether a poll at `now` must be recorded.
    #[must_use]
    pub fn is_due(&self, now: i64) -> bool {
        now.saturating_sub(self.seen_at) >= self.unrecorded_millis()
    }

    /// When it has expired, whether or not there were polls that are not recorded.
    #[must_use]
    pub fn deadline(&self) -> i64 {
        self.seen_at.saturating_add(self.session_millis()).saturating_add(self.unrecorded_millis())
    }
}

/// The bytes of a consumer's definition: its texts, and what a row has besides.
fn consumer_bytes(consumer: &Consumer) -> usize {
    let patterns = consumer.types.iter().chain(&consumer.subject_types).map(|pattern| pattern.as_str().len());
    let cel = consumer.cel.as_ref().map_or(0, String::len);
    size_of::<Consumer>() + consumer.consumer_group.len() + cel + patterns.sum::<usize>()
}

/// The bytes of a consumer's definition and of its group's filter, which is a copy and may outlive it.
#[must_use]
pub(in crate::ledger) fn consumer_and_filter_bytes(consumer: &Consumer) -> usize {
    consumer_bytes(consumer) + filter_bytes(&consumer.types, &consumer.subject_types, consumer.cel.as_ref())
}

fn filter_bytes(types: &[IdPattern], subject_types: &[IdPattern], cel: Option<&String>) -> usize {
    let texts = types.iter().chain(subject_types).map(|pattern| pattern.as_str().len()).chain(cel.map(String::len));
    match texts.sum() {
        0 => 0,
        bytes => size_of::<ConsumerFilter>() + bytes,
    }
}

impl ConsumerRows {
    /// One consumer, which may have expired.
    #[must_use]
    pub fn consumer(&self, id: Uuid) -> Option<&ConsumerRow> {
        self.consumers.get(&id)
    }

    /// Consumers in order of their ids.
    pub fn consumers(&self) -> impl DoubleEndedIterator<Item = &ConsumerRow> {
        self.consumers.values()
    }

    /// A group's consumers in order of their ids.
    pub fn members(&self, group: &str) -> impl DoubleEndedIterator<Item = &ConsumerRow> {
        let members = self.groups.get(group).map(|group| group.members.iter());
        members.into_iter().flatten().filter_map(|id| self.consumers.get(id))
    }

    /// Groups in order of their names.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = (&str, &GroupRow)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    /// One group.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&GroupRow> {
        self.groups.get(name)
    }

    /// The earliest deadline of any consumer, in milliseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Consumers whose deadline has passed, the earliest deadline first.
    pub fn overdue(&self, now: i64) -> impl Iterator<Item = Uuid> {
        self.deadlines.iter().take_while(move |(deadline, _)| *deadline <= now).map(|(_, id)| *id)
    }
}

/// Consumers and offsets in a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct ConsumersSnapshot {
    /// The consumers with the last recorded polls.
    consumers: Vec<Consumer>,
    offsets: Vec<(String, TopicId, Offset)>,
    groups: Vec<GroupSnapshot>,
}

/// The filters and activity of a group in a checkpoint.
#[derive(Serialize, Deserialize)]
struct GroupSnapshot {
    name: String,
    filters: Vec<(TopicId, ConsumerFilter)>,
    active_at: i64,
}

impl StateTable for ConsumerRows {
    type Overlay = ConsumersOverlay;
    type Snapshot = ConsumersSnapshot;

    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        ConsumersFold::apply(self, entry, header.time);
    }

    fn decide(&self, overlay: &mut ConsumersOverlay, entry: &Entry, header: &RecordHeader) {
        OverlayWriter { durable: self, overlay, at: header.position }.apply(entry, header.time);
    }

    fn snapshot(&self) -> ConsumersSnapshot {
        let as_recorded = |entry: &ConsumerRow| {
            let last_seen_at = Timestamp::from_millis(entry.seen_at);
            Consumer { last_seen_at, ..Consumer::clone(&entry.consumer) }
        };
        let offsets = self.groups.iter().flat_map(|(group, GroupRow { offsets, .. })| {
            offsets.iter().map(|(topic, offset)| (group.clone(), topic.clone(), *offset))
        });
        let groups = self.groups.iter().map(|(name, group)| GroupSnapshot {
            name: name.clone(),
            filters: group.filters.clone().into_iter().collect(),
            active_at: group.active_at,
        });
        ConsumersSnapshot {
            consumers: self.consumers.values().map(as_recorded).collect(),
            offsets: offsets.collect(),
            groups: groups.collect(),
        }
    }

    fn restore(snapshot: ConsumersSnapshot) -> Self {
        let mut readers = Self::default();
        for consumer in snapshot.consumers {
            readers.put_consumer(consumer.id, Some(ConsumerRow::new(consumer)));
        }
        for (group, topic, offset) in snapshot.offsets {
            readers.put_offset(GroupKey { group, topic }, Some(offset));
        }
        for GroupSnapshot { name, filters, active_at } in snapshot.groups {
            let Some(group) = readers.groups.get_mut(&name) else { continue };
            group.active_at = active_at;
            for (topic, filter) in filters {
                readers.put_filter(&name, &topic, Some(filter));
                // Earlier versions kept filters of topics that the group does not read any more.
                readers.drop_unused_filter(&name, &topic);
            }
        }
        readers
    }
}

/// The fold of facts about consumers and groups.
pub(in crate::ledger) trait ConsumersFold {
    fn known(&self, id: Uuid) -> Option<ConsumerRow>;
    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerRow>);
    fn put_offset(&mut self, key: GroupKey, offset: Option<Offset>);
    /// The topics that a group has an offset in.
    fn offsets_of(&self, group: &str) -> Vec<TopicId>;
    /// Records that there is a fact about a group at `time`.
    fn touch(&mut self, group: &str, time: i64);

    /// Folds one fact stored at `time`. Total: a fact about an unknown consumer, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, time: i64) {
        match entry {
            Entry::ConsumerCreated { consumer } => {
                if self.known(consumer.id).is_some() {
                    // Not written by any version; the id may name another group or topic now.
                    self.put_consumer(consumer.id, None);
                }
                self.put_consumer(consumer.id, Some(ConsumerRow::new(consumer.clone())));
                self.touch(&consumer.consumer_group, time);
            }
            Entry::ConsumerSeen { id } => {
                if let Some(known) = self.known(*id) {
                    self.touch(&known.consumer.consumer_group, time);
                    self.put_consumer(*id, Some(ConsumerRow { seen_at: time, ..known }));
                }
            }
            Entry::ConsumerDeleted { id } => self.put_consumer(*id, None),
            Entry::ConsumersExpired { ids } => ids.iter().for_each(|id| self.put_consumer(*id, None)),
            Entry::OffsetCommitted { group, topic, offset } | Entry::OffsetReset { group, topic, offset } => {
                self.put_offset(GroupKey { group: group.clone(), topic: topic.clone() }, Some(*offset));
                self.touch(group, time);
            }
            Entry::HandlerDeleted { name, topics } => self.drop_offsets(name, topics.clone()),
            Entry::GroupDeleted { group, .. } => self.drop_offsets(group, self.offsets_of(group)),
            Entry::TopicDeleted { topic, .. } => self.drop_topic(topic),
            _ => (),
        }
    }

    /// Drops every group's offset in a topic. Only durable rows do this: no topic of this name can be found before the
    /// fact is durable.
    fn drop_topic(&mut self, _topic: &TopicId) {}

    fn drop_offsets(&mut self, group: &str, topics: Vec<TopicId>) {
        for topic in topics {
            self.put_offset(GroupKey { group: group.to_owned(), topic }, None);
        }
    }
}

impl ConsumerRows {
    /// Lets every session end so much later: no time has passed for them.
    pub(in crate::ledger) fn extend_sessions(&mut self, millis: i64) {
        for (id, mut entry) in self.consumers.clone() {
            entry.seen_at = entry.seen_at.saturating_add(millis);
            self.put_consumer(id, Some(entry));
        }
    }
}

impl ConsumersFold for ConsumerRows {
    fn known(&self, id: Uuid) -> Option<ConsumerRow> {
        self.consumers.get(&id).cloned()
    }

    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerRow>) {
        if let Some(before) = self.consumers.remove(&id) {
            self.deadlines.remove(&(before.deadline(), id));
            match &entry {
                // The same definition, seen later.
                Some(entry) => debug_assert_eq!(entry.bytes(), before.bytes(), "a definition never changes"),
                None => {
                    self.leave(&before.consumer);
                    debug_assert!(self.bytes >= before.bytes(), "every consumer was counted");
                    self.bytes = self.bytes.saturating_sub(before.bytes());
                }
            }
        } else if let Some(entry) = &entry {
            self.bytes += entry.bytes();
        }
        let Some(entry) = entry else { return };
        self.deadlines.insert((entry.deadline(), id));
        self.join(&entry.consumer, id);
        self.consumers.insert(id, entry);
    }

    fn put_offset(&mut self, GroupKey { group, topic }: GroupKey, offset: Option<Offset>) {
        match offset {
            Some(offset) => {
                let before = self.groups.entry(group).or_default().offsets.insert(topic, offset);
                self.offsets += usize::from(before.is_none());
            }
            None => {
                let Some(known) = self.groups.get_mut(&group) else { return };
                self.offsets -= usize::from(known.offsets.remove(&topic).is_some());
                self.drop_unused_filter(&group, &topic);
                self.drop_if_empty(&group);
            }
        }
    }

    fn offsets_of(&self, group: &str) -> Vec<TopicId> {
        self.groups.get(group).map(|known| known.offsets.keys().cloned().collect()).unwrap_or_default()
    }

    fn drop_topic(&mut self, topic: &TopicId) {
        let knows = |group: &GroupRow| group.offsets.contains_key(topic) || group.filters.contains_key(topic);
        let groups: Vec<_> = self.groups().filter(|(_, group)| knows(group)).map(|(name, _)| name.to_owned()).collect();
        for group in groups {
            self.put_offset(GroupKey { group, topic: topic.clone() }, None);
        }
    }

    fn touch(&mut self, group: &str, time: i64) {
        if let Some(known) = self.groups.get_mut(group) {
            known.active_at = known.active_at.max(time);
        }
    }
}

impl ConsumerRows {
    fn join(&mut self, consumer: &Consumer, id: Uuid) {
        let known = match self.groups.get_mut(&consumer.consumer_group) {
            Some(known) => known,
            None => self.groups.entry(consumer.consumer_group.clone()).or_default(),
        };
        if known.members.insert(id) {
            self.put_filter(&consumer.consumer_group, &consumer.topic, Some(ConsumerFilter::of(consumer)));
        }
    }

    fn leave(&mut self, consumer: &Consumer) {
        let group = &consumer.consumer_group;
        if let Some(known) = self.groups.get_mut(group) {
            known.members.remove(&consumer.id);
        }
        self.drop_unused_filter(group, &consumer.topic);
        self.drop_if_empty(group);
    }

    fn put_filter(&mut self, group: &str, topic: &TopicId, filter: Option<ConsumerFilter>) {
        let Some(known) = self.groups.get_mut(group) else { return };
        let before = match filter {
            Some(filter) => {
                self.bytes += filter.bytes();
                known.filters.insert(topic.clone(), filter)
            }
            None => known.filters.remove(topic),
        };
        self.bytes -= before.map_or(0, |filter| filter.bytes());
    }

    /// Drops a group's filter in a topic in which it has neither a member nor an offset.
    fn drop_unused_filter(&mut self, group: &str, topic: &TopicId) {
        let Some(known) = self.groups.get(group) else { return };
        let reads = |id: &Uuid| self.consumers.get(id).is_some_and(|it| it.consumer.topic == *topic);
        if !known.offsets.contains_key(topic) && !known.members.iter().any(reads) {
            self.put_filter(group, topic, None);
        }
    }

    /// Removes a group that has neither members nor offsets.
    fn drop_if_empty(&mut self, group: &str) {
        if self.groups.get(group).is_some_and(|known| known.members.is_empty() && known.offsets.is_empty()) {
            self.groups.remove(group);
        }
    }

    fn offset(&self, key: &GroupKey) -> Option<Offset> {
        self.groups.get(&key.group)?.offsets.get(&key.topic).copied()
    }
}

#[cfg(test)]
mod tests {
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
}
