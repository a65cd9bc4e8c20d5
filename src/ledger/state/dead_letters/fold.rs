//! The fold of facts about dead letters, the same for durable rows and for rows that are not durable yet.

use super::index::DeadLetterRange;
use super::{DeadLetterRow, DeadLetterRows, StoredDeadLetter};
use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::facts::entry::Entry;
use contract::{
    DeadLetterFilter, DeadLetterResolution, DeadLetterSource, DeadLetterStatus, Sequence, Timestamp, limits,
};
use log::RecordHeader;
use std::sync::Arc;
use uuid::Uuid;

/// The name that resolves a letter when no operator does.
const BROKER: &str = "event-broker";
const HANDLER_DELETED: &str = "The handler was deleted.";
const GROUP_DELETED: &str = "The group was deleted.";
const TOPIC_DELETED: &str = "The topic was deleted.";
const SUBSCRIPTION_DELETED: &str = "The subscription was deleted.";

/// The fold of facts about dead letters.
pub(in crate::ledger) trait DeadLettersFold {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow>;
    fn put(&mut self, row: DeadLetterRow);
    /// The open letters of a handler.
    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow>;
    /// Marks the event of a letter, and its original if it is a copy, as replaced by a corrected one.
    fn replace(&mut self, dead_letter: Uuid, original: Option<Sequence>);
    /// Drops what refers to events of a topic up to `through`: they are removed.
    fn trim(&mut self, topic: u32, through: Sequence);

    /// Folds one fact. Total: a fact about an unknown letter, or about something else, changes nothing.
    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        let at = Timestamp::from_millis(header.time);
        match entry {
            Entry::DeadLettered { letter } => {
                let dead_letter = StoredDeadLetter::clone(letter);
                self.put(DeadLetterRow {
                    letter: dead_letter,
                    at: header.time,
                    status: DeadLetterStatus::Open,
                    resolution: None,
                });
            }
            Entry::Redriven { letter, by, reason, new_event, original, .. } => {
                let resolution =
                    DeadLetterResolution { at, by: by.clone(), reason: reason.clone(), new_event_id: *new_event };
                if new_event.is_some() {
                    self.replace(*letter, *original);
                }
                self.resolve(*letter, DeadLetterStatus::Redriven, resolution);
            }
            Entry::Discarded { letter, by, reason, .. } => {
                let resolution =
                    DeadLetterResolution { at, by: by.clone(), reason: Some(reason.clone()), new_event_id: None };
                self.resolve(*letter, DeadLetterStatus::Discarded, resolution);
            }
            Entry::Dispatch { what: DispatchFact::SubscriptionDeleted { code: Some(code), by, .. } } => {
                let (by, reason) = (by.clone().unwrap_or_default(), Some(SUBSCRIPTION_DELETED.to_owned()));
                self.close(code, &DeadLetterResolution { at, by, reason, new_event_id: None });
            }
            Entry::TopicTrimmed { number, through } => self.trim(*number, *through),
            Entry::TopicDeleted { number, .. } => {
                let (by, reason) = (BROKER.to_owned(), Some(TOPIC_DELETED.to_owned()));
                self.close_topic(*number, &DeadLetterResolution { at, by, reason, new_event_id: None });
            }
            Entry::HandlerDeleted { name, .. } => self.close_work(name, |_| true, at, HANDLER_DELETED),
            Entry::GroupDeleted { group, topics } => {
                self.close_work(group, |number| topics.contains(&number), at, GROUP_DELETED);
            }
            _ => (),
        }
    }

    /// Discards the open letters of a deleted handler, in some topics.
    fn close_work(&mut self, handler: &str, is_meant: impl Fn(u32) -> bool, at: Timestamp, reason: &str) {
        for row in self.open_of(handler).into_iter().filter(|row| is_meant(row.letter.number)) {
            let (by, reason) = (BROKER.to_owned(), Some(reason.to_owned()));
            let resolution = DeadLetterResolution { at, by, reason, new_event_id: None };
            self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution);
        }
    }

    /// Resolves a letter once: a later resolution changes nothing.
    fn resolve(&mut self, id: Uuid, status: DeadLetterStatus, resolution: DeadLetterResolution) {
        if let Some(known) = self.known(id).filter(|known| known.status == DeadLetterStatus::Open) {
            self.put(DeadLetterRow { status, resolution: Some(resolution), ..known });
        }
    }

    /// Discards every open letter of a subscription. Only durable rows do this: until the fact is durable, decisions
    /// see that the subscription's lane is deleted, and there may be too many letters to copy.
    fn close(&mut self, _subscription: &str, _resolution: &DeadLetterResolution) {}

    /// Discards every open letter of a topic. Only durable rows do this, as above.
    fn close_topic(&mut self, _topic: u32, _resolution: &DeadLetterResolution) {}
}

impl DeadLettersFold for DeadLetterRows {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow> {
        self.rows.get(&id).map(|row| DeadLetterRow::clone(row))
    }

    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow> {
        let (source, name) = (Some(DeadLetterSource::Handler), Some(handler.to_owned()));
        let filter = DeadLetterFilter { source, name, ..DeadLetterFilter::default() };
        let open = self.in_range(&filter, DeadLetterRange::After(None), usize::MAX);
        open.iter().map(|row| DeadLetterRow::clone(row)).collect()
    }

    fn replace(&mut self, dead_letter: Uuid, original: Option<Sequence>) {
        let is_meant = |row: &&Arc<DeadLetterRow>| {
            row.status == DeadLetterStatus::Open && row.letter.source == DeadLetterSource::Subscription
        };
        let Some(row) = self.rows.get(&dead_letter).filter(is_meant) else { return };
        let StoredDeadLetter { name, number, sequence, .. } = &row.letter;
        let replaced = self.replaced.entry((name.clone(), *number)).or_default();
        replaced.extend([*sequence].into_iter().chain(original).map(Sequence::get));
    }

    fn trim(&mut self, topic: u32, through: Sequence) {
        let is_of_removed = |row: &Arc<DeadLetterRow>| topic > 0 && row.letter.is_of_removed(topic, through);
        let removed = self.rows.values_mut().filter(|row| is_of_removed(row));
        // What was replaced stays known: copies of it may be stored further on.
        removed.for_each(|row| Arc::make_mut(row).letter.forget_messages());
    }

    fn put(&mut self, row: DeadLetterRow) {
        let (id, status) = (row.letter.id, row.status);
        self.all.insert(&row);
        match status {
            DeadLetterStatus::Open => self.open.insert(&row),
            DeadLetterStatus::Redriven | DeadLetterStatus::Discarded => {
                self.open.remove(&row);
                self.resolved.push_back(id);
            }
        }
        self.rows.insert(id, Arc::new(row));
        if self.resolved.len() > limits::RESOLVED_LETTERS_KEPT
            && let Some(oldest) = self.resolved.pop_front()
            && let Some(row) = self.rows.remove(&oldest)
        {
            self.all.remove(&row);
        }
    }

    fn close(&mut self, subscription: &str, resolution: &DeadLetterResolution) {
        let filter = DeadLetterFilter {
            source: Some(DeadLetterSource::Subscription),
            name: Some(subscription.to_owned()),
            ..DeadLetterFilter::default()
        };
        for row in self.in_range(&filter, DeadLetterRange::After(None), usize::MAX) {
            self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution.clone());
        }
        self.replaced.retain(|(name, _), _| name != subscription);
    }

    fn close_topic(&mut self, topic: u32, resolution: &DeadLetterResolution) {
        for row in self.in_range(&DeadLetterFilter::default(), DeadLetterRange::After(None), usize::MAX) {
            // A task belongs to no topic.
            if topic > 0 && row.letter.number == topic {
                self.resolve(row.letter.id, DeadLetterStatus::Discarded, resolution.clone());
            }
        }
        self.replaced.retain(|(_, number), _| *number != topic);
    }
}
