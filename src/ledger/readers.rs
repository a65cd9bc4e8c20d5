//! Consumers and the offsets of groups, as the log tells them.
//!
//! - One fold ([`Rows::apply`]) for both the durable rows and the layer of what is not durable yet.
//! - A consumer's `seen_at` may lag behind its polls by up to [`ConsumerEntry::unrecorded_millis`]. So by the log alone it
//!   is surely gone only at its [`ConsumerEntry::deadline`], which allows for that.
//! - Group offsets outlive the consumers that committed them.
//!
//! When a consumer was really seen last is known to who serves its polls (`crate::consumers`), not here.

use super::entry::Entry;
use super::layer::Layer;
use contract::{Consumer, Error, Offset, Position, Result, Timestamp, TopicId, limits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLockReadGuard};
use uuid::Uuid;

/// Consumers and groups by name.
#[derive(Default)]
pub struct Readers {
    consumers: BTreeMap<Uuid, ConsumerEntry>,
    /// Consumers by the time they are gone, to find those that are.
    deadlines: BTreeSet<(i64, Uuid)>,
    groups: BTreeMap<String, Group>,
    /// How many offsets all groups have.
    offsets: usize,
}

/// A consumer as the log knows it.
#[derive(Debug, Clone)]
pub struct ConsumerEntry {
    /// As it was made.
    pub consumer: Arc<Consumer>,
    /// When it was last recorded as seen, in milliseconds.
    pub seen_at: i64,
}

/// Who belongs to a group, and how far it has come.
#[derive(Debug, Default)]
pub struct Group {
    /// By topic.
    pub offsets: BTreeMap<TopicId, Offset>,
    /// Its consumers, some of which may have expired.
    pub members: BTreeSet<Uuid>,
}

/// Whose offset: a group's, in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: TopicId,
}

impl ConsumerEntry {
    /// A consumer just made.
    fn new(consumer: Consumer) -> Self {
        Self { seen_at: consumer.last_seen_at.millis(), consumer: Arc::new(consumer) }
    }

    /// How long it lives without being seen, in milliseconds.
    #[must_use]
    pub fn session_millis(&self) -> i64 {
        self.consumer.session_timeout.millis()
    }

    /// The longest it may be seen without that being recorded, in milliseconds.
    #[must_use]
    pub fn unrecorded_millis(&self) -> i64 {
        self.session_millis() / 3
    }

    /// Whether being seen at `now` must be recorded.
    #[must_use]
    pub fn is_due(&self, now: i64) -> bool {
        now.saturating_sub(self.seen_at) >= self.unrecorded_millis()
    }

    /// When it is gone, whatever else was seen of it.
    #[must_use]
    pub fn deadline(&self) -> i64 {
        self.seen_at.saturating_add(self.session_millis()).saturating_add(self.unrecorded_millis())
    }
}

impl Readers {
    /// One consumer, perhaps expired.
    #[must_use]
    pub fn consumer(&self, id: Uuid) -> Option<&ConsumerEntry> {
        self.consumers.get(&id)
    }

    /// Consumers in order of their ids.
    pub fn consumers(&self) -> impl DoubleEndedIterator<Item = &ConsumerEntry> {
        self.consumers.values()
    }

    /// A group's consumers in order of their ids.
    pub fn members(&self, group: &str) -> impl DoubleEndedIterator<Item = &ConsumerEntry> {
        let members = self.groups.get(group).map(|group| group.members.iter());
        members.into_iter().flatten().filter_map(|id| self.consumers.get(id))
    }

    /// Groups in order of their names.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    /// One group.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Consumers whose deadline has passed, the longest gone first.
    pub fn overdue(&self, now: i64) -> impl Iterator<Item = Uuid> {
        self.deadlines.iter().take_while(move |(deadline, _)| *deadline <= now).map(|(_, id)| *id)
    }

    pub(super) fn snapshot(&self) -> ReadersSnapshot {
        let as_recorded = |entry: &ConsumerEntry| {
            let last_seen_at = Timestamp::from_millis(entry.seen_at);
            Consumer { last_seen_at, ..Consumer::clone(&entry.consumer) }
        };
        let offsets = self.groups.iter().flat_map(|(group, Group { offsets, .. })| {
            offsets.iter().map(|(topic, offset)| (group.clone(), topic.clone(), *offset))
        });
        ReadersSnapshot { consumers: self.consumers.values().map(as_recorded).collect(), offsets: offsets.collect() }
    }
}

/// Consumers and offsets in a checkpoint.
#[derive(Serialize, Deserialize)]
pub(super) struct ReadersSnapshot {
    /// As they were last recorded.
    consumers: Vec<Consumer>,
    offsets: Vec<(String, TopicId, Offset)>,
}

impl From<ReadersSnapshot> for Readers {
    fn from(snapshot: ReadersSnapshot) -> Self {
        let mut readers = Self::default();
        for consumer in snapshot.consumers {
            readers.put_consumer(consumer.id, Some(ConsumerEntry::new(consumer)));
        }
        for (group, topic, offset) in snapshot.offsets {
            readers.put_offset(GroupKey { group, topic }, offset);
        }
        readers
    }
}

/// Where facts about consumers and groups are folded.
pub(super) trait Rows {
    fn known(&self, id: Uuid) -> Option<ConsumerEntry>;
    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerEntry>);
    fn put_offset(&mut self, key: GroupKey, offset: Offset);

    /// Takes in one fact stored at `time`. Total: a fact about an unknown consumer, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, time: i64) {
        match entry {
            Entry::ConsumerCreated { consumer } => {
                self.put_consumer(consumer.id, Some(ConsumerEntry::new(consumer.clone())));
            }
            Entry::ConsumerSeen { id } => {
                if let Some(known) = self.known(*id) {
                    self.put_consumer(*id, Some(ConsumerEntry { seen_at: time, ..known }));
                }
            }
            Entry::ConsumerDeleted { id } => self.put_consumer(*id, None),
            Entry::ConsumersExpired { ids } => ids.iter().for_each(|id| self.put_consumer(*id, None)),
            Entry::OffsetCommitted { group, topic, offset } | Entry::OffsetReset { group, topic, offset } => {
                self.put_offset(GroupKey { group: group.clone(), topic: topic.clone() }, *offset);
            }
            _ => (),
        }
    }
}

impl Rows for Readers {
    fn known(&self, id: Uuid) -> Option<ConsumerEntry> {
        self.consumers.get(&id).cloned()
    }

    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerEntry>) {
        if let Some(before) = self.consumers.remove(&id) {
            self.deadlines.remove(&(before.deadline(), id));
            if entry.is_none() {
                self.leave(&before.consumer.consumer_group, id);
            }
        }
        let Some(entry) = entry else { return };
        self.deadlines.insert((entry.deadline(), id));
        self.join(&entry.consumer.consumer_group, id);
        self.consumers.insert(id, entry);
    }

    fn put_offset(&mut self, GroupKey { group, topic }: GroupKey, offset: Offset) {
        let before = self.groups.entry(group).or_default().offsets.insert(topic, offset);
        self.offsets += usize::from(before.is_none());
    }
}

impl Readers {
    fn join(&mut self, group: &str, id: Uuid) {
        if let Some(known) = self.groups.get_mut(group) {
            known.members.insert(id);
            return;
        }
        self.groups.insert(group.to_owned(), Group { members: BTreeSet::from([id]), ..Group::default() });
    }

    /// A group without members and offsets is none.
    fn leave(&mut self, group: &str, id: Uuid) {
        let Some(known) = self.groups.get_mut(group) else { return };
        known.members.remove(&id);
        if known.members.is_empty() && known.offsets.is_empty() {
            self.groups.remove(group);
        }
    }

    fn offset(&self, key: &GroupKey) -> Option<Offset> {
        self.groups.get(&key.group)?.offsets.get(&key.topic).copied()
    }
}

/// Consumers and offsets decided but not durable yet.
#[derive(Default)]
pub(super) struct ReadersLayer {
    consumers: Layer<Uuid, ConsumerEntry>,
    offsets: Layer<GroupKey, Offset>,
}

impl ReadersLayer {
    pub(super) fn undo(&mut self, after: Position) {
        self.consumers.undo(after);
        self.offsets.undo(after);
    }

    pub(super) fn settle(&mut self, through: Position) {
        self.consumers.settle(through);
        self.offsets.settle(through);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.consumers.is_empty() && self.offsets.is_empty()
    }

    fn consumer(&self, durable: &Readers, id: Uuid) -> Option<ConsumerEntry> {
        self.consumers.get(&id).unwrap_or_else(|| durable.consumer(id)).cloned()
    }
}

/// The layer with what it lies on, ready to take in the entry at `at`.
pub(super) struct Layered<'a> {
    pub(super) durable: &'a Readers,
    pub(super) layer: &'a mut ReadersLayer,
    pub(super) at: Position,
}

impl Rows for Layered<'_> {
    fn known(&self, id: Uuid) -> Option<ConsumerEntry> {
        self.layer.consumer(self.durable, id)
    }

    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerEntry>) {
        self.layer.consumers.set(self.at, id, entry);
    }

    fn put_offset(&mut self, key: GroupKey, offset: Offset) {
        self.layer.offsets.set(self.at, key, Some(offset));
    }
}

/// Consumers and offsets as a decision sees them: durable or decided, at one time.
pub struct Decided<'a> {
    pub(super) durable: RwLockReadGuard<'a, Readers>,
    pub(super) layer: &'a ReadersLayer,
    pub(super) now: i64,
}

impl Decided<'_> {
    /// A consumer that was neither deleted nor found expired, whatever its deadline.
    pub fn known(&self, id: Uuid) -> Result<ConsumerEntry> {
        self.layer.consumer(&self.durable, id).ok_or_else(|| Error::not_found("consumer"))
    }

    /// A consumer before its deadline.
    pub fn live(&self, id: Uuid) -> Result<ConsumerEntry> {
        let known = self.known(id)?;
        if known.deadline() <= self.now { Err(Error::not_found("consumer")) } else { Ok(known) }
    }

    /// A group's offset in a topic.
    #[must_use]
    pub fn offset(&self, key: &GroupKey) -> Option<Offset> {
        match self.layer.offsets.get(key) {
            Some(decided) => decided.copied(),
            None => self.durable.offset(key),
        }
    }

    /// The consumers of a group in a topic that are before their deadlines.
    #[must_use]
    pub fn peers(&self, group: &str, topic: &TopicId) -> Vec<Arc<Consumer>> {
        let durable = self.durable.members(group).map(|entry| entry.consumer.id);
        let decided = self.layer.consumers.iter().map(|(id, _)| *id);
        let ids: BTreeSet<_> = durable.chain(decided).collect();
        let live = ids.into_iter().filter_map(|id| self.live(id).ok()).map(|entry| entry.consumer);
        live.filter(|consumer| consumer.consumer_group == group && consumer.topic == *topic).collect()
    }

    /// Consumers past their deadline and still there, at most `max`, the longest gone first.
    #[must_use]
    pub fn overdue(&self, max: usize) -> Vec<Uuid> {
        let still = |id: &Uuid| self.known(*id).is_ok_and(|known| known.deadline() <= self.now);
        self.durable.overdue(self.now).filter(still).take(max).collect()
    }

    /// Whether there may be one more consumer.
    #[must_use]
    pub fn has_room_for_consumer(&self) -> bool {
        let Readers { consumers, .. } = &*self.durable;
        let is_durable = |id: &Uuid| consumers.contains_key(id);
        self.layer.consumers.has_room(consumers.len(), is_durable, limits::CONSUMERS_MAX)
    }

    /// Whether there may be one more offset of a group.
    #[must_use]
    pub fn has_room_for_offset(&self) -> bool {
        let is_durable = |key: &GroupKey| self.durable.offset(key).is_some();
        self.layer.offsets.has_room(self.durable.offsets, is_durable, limits::GROUP_OFFSETS_MAX)
    }
}
