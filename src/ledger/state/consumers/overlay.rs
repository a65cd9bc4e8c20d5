//! Consumers and offsets as a decision sees them: durable rows, and over them the rows that were decided since.

use super::{ConsumerRow, ConsumerRows, ConsumersFold, GroupKey, consumer_and_filter_bytes};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::state::table::{DecidedTable, OverlayWriter, overlay_of};
use contract::{Consumer, Error, Kind, Offset, Result, TopicId, limits};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Consumers and offsets decided but not durable yet.
#[derive(Default)]
pub struct ConsumersOverlay {
    consumers: OverlayMap<Uuid, ConsumerRow>,
    offsets: OverlayMap<GroupKey, Offset>,
}

overlay_of!(ConsumersOverlay { consumers, offsets });

impl ConsumersOverlay {
    fn consumer(&self, durable: &ConsumerRows, id: Uuid) -> Option<ConsumerRow> {
        self.consumers.get(&id).unwrap_or_else(|| durable.consumer(id)).cloned()
    }
}

impl ConsumersFold for OverlayWriter<'_, ConsumerRows> {
    fn known(&self, id: Uuid) -> Option<ConsumerRow> {
        self.overlay.consumer(self.durable, id)
    }

    fn put_consumer(&mut self, id: Uuid, entry: Option<ConsumerRow>) {
        self.overlay.consumers.set(self.at, id, entry);
    }

    fn put_offset(&mut self, key: GroupKey, offset: Option<Offset>) {
        self.overlay.offsets.set(self.at, key, offset);
    }

    fn offsets_of(&self, group: &str) -> Vec<TopicId> {
        let decided = self.overlay.offsets.iter().map(|(key, _)| key).filter(|key| key.group == group);
        let mut topics = ConsumersFold::offsets_of(self.durable, group);
        topics.extend(decided.map(|key| key.topic.clone()));
        topics
    }

    /// Whether a group is unused is judged by the durable rows alone.
    fn touch(&mut self, _: &str, _: i64) {}
}

/// Consumers and offsets as a decision sees them: durable or decided, at one time.
pub type DecidedConsumers<'a> = DecidedTable<'a, ConsumerRows>;

impl DecidedConsumers<'_> {
    /// A consumer whose row was not deleted, whatever its deadline.
    pub fn get(&self, id: Uuid) -> Result<ConsumerRow> {
        self.overlay.consumer(&self.durable, id).ok_or_else(|| Error::not_found("consumer"))
    }

    /// A consumer before its deadline.
    pub fn live(&self, id: Uuid) -> Result<ConsumerRow> {
        let known = self.get(id)?;
        if known.deadline() <= self.now { Err(Error::not_found("consumer")) } else { Ok(known) }
    }

    /// A group's offset in a topic.
    #[must_use]
    pub fn offset(&self, key: &GroupKey) -> Option<Offset> {
        match self.overlay.offsets.get(key) {
            Some(decided) => decided.copied(),
            None => self.durable.offset(key),
        }
    }

    /// The consumers of a group in a topic that are before their deadlines.
    #[must_use]
    pub fn peers(&self, group: &str, topic: &TopicId) -> Vec<Arc<Consumer>> {
        let durable = self.durable.members(group).map(|entry| entry.consumer.id);
        let decided = self.overlay.consumers.iter().map(|(id, _)| *id);
        let ids: BTreeSet<_> = durable.chain(decided).collect();
        let live = ids.into_iter().filter_map(|id| self.live(id).ok()).map(|entry| entry.consumer);
        live.filter(|consumer| consumer.consumer_group == group && consumer.topic == *topic).collect()
    }

    /// The consumers of a group whose rows were not deleted, whatever their deadlines.
    #[must_use]
    pub fn members(&self, group: &str) -> Vec<ConsumerRow> {
        let durable = self.durable.members(group).map(|entry| entry.consumer.id);
        let decided = self.overlay.consumers.iter().map(|(id, _)| *id);
        let ids: BTreeSet<_> = durable.chain(decided).collect();
        let known = ids.into_iter().filter_map(|id| self.get(id).ok());
        known.filter(|entry| entry.consumer.consumer_group == group).collect()
    }

    /// The consumers of a topic whose rows were not deleted, whatever their deadlines.
    #[must_use]
    pub fn of_topic(&self, topic: &TopicId) -> Vec<ConsumerRow> {
        let durable = self.durable.consumers().map(|entry| entry.consumer.id);
        let decided = self.overlay.consumers.iter().map(|(id, _)| *id);
        let ids: BTreeSet<_> = durable.chain(decided).collect();
        let known = ids.into_iter().filter_map(|id| self.get(id).ok());
        known.filter(|entry| entry.consumer.topic == *topic).collect()
    }

    /// Whether a group has been inactive since `before`, in milliseconds: it has no consumer, and no fact about it is
    /// being decided.
    #[must_use]
    pub fn is_unused(&self, group: &str, before: i64) -> bool {
        let is_busy = self.overlay.offsets.iter().any(|(key, _)| key.group == group);
        let known = self.durable.group(group).filter(|known| known.active_at <= before);
        known.is_some() && !is_busy && self.members(group).is_empty()
    }

    /// Consumers past their deadlines whose rows were not deleted, at most `max`, the earliest deadline first.
    #[must_use]
    pub fn overdue(&self, max: usize) -> Vec<Uuid> {
        let still = |id: &Uuid| self.get(*id).is_ok_and(|known| known.deadline() <= self.now);
        self.durable.overdue(self.now).filter(still).take(max).collect()
    }

    /// Whether the limits allow one more consumer, with its group's filter.
    #[must_use]
    pub fn has_room_for_consumer(&self, consumer: &Consumer) -> bool {
        let more = consumer_and_filter_bytes(consumer);
        let ConsumerRows { consumers, bytes, .. } = &*self.durable;
        let is_durable = |id: &Uuid| consumers.contains_key(id);
        let pending = self
            .overlay
            .consumers
            .iter()
            .filter(|(id, _)| !is_durable(id))
            .map(|(_, row)| consumer_and_filter_bytes(&row.consumer));
        bytes + pending.sum::<usize>() + more <= limits::CONSUMERS_BYTES_MAX
            && self.overlay.consumers.has_room(consumers.len(), is_durable, limits::CONSUMERS_MAX)
    }

    /// Refuses one more offset of a group beyond the limit.
    pub fn check_room_for_offset(&self) -> Result<()> {
        let is_durable = |key: &GroupKey| self.durable.offset(key).is_some();
        if self.overlay.offsets.has_room(self.durable.offsets, is_durable, limits::GROUP_OFFSETS_MAX) {
            return Ok(());
        }
        let detail = format!(
            "This broker has {} offsets of groups, as many as it may have. Delete groups that are no longer used \
             (`DELETE /v1/consumer-groups/{{name}}`).",
            limits::GROUP_OFFSETS_MAX
        );
        Err(Error::new(Kind::Overloaded, detail).with_retry_after(60))
    }
}
