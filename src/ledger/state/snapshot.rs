//! The small state as of one position: a checkpoint stores it beside the on-disk tables, and a snapshot in the log
//! contains it ([`crate::ledger::reclaim::log_snapshot`]).
//!
//! A checkpoint that cannot be read is replaced by folding the log. A snapshot in the log replaces entries that are
//! removed, so every member that is added here needs a default that is right for a text without it.

use super::registry::Registry;
use super::tables::StateTablesSnapshot;
use crate::ledger::disk::table::DiskTables;
use crate::ledger::facts::entry::DICTIONARY;
use crate::ledger::facts::placement::{LogLocation, TopicPlacement};
use crate::ledger::reclaim::usage::EntryUsage;
use crate::ledger::state::{LastBody, LastRecord, LedgerState};
use contract::{EventType, Position, Sequence, Topic};
use log::TopicNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The small part of the state, without the on-disk tables.
#[derive(Serialize, Deserialize)]
pub(in crate::ledger) struct StateSnapshot {
    pub(in crate::ledger) position: Position,
    /// CRC32C of the record at `position`: distinguishes this log from another one.
    pub(in crate::ledger) record_crc: u32,
    record_time: i64,
    record_topic: u32,
    record_sequence: Sequence,
    /// The version of the dictionary it was written with. Without it the checkpoint is from a version that skipped
    /// facts it did not know, and is not used.
    pub(in crate::ledger) dictionary: u32,
    /// The version of the dictionary that the log needs.
    #[serde(default)]
    pub(in crate::ledger) needs_dictionary: u32,
    /// Facts of a newer version were skipped.
    #[serde(default)]
    pub(in crate::ledger) has_skipped: bool,
    time: i64,
    /// The lifetime of stored replies when it was written. With a longer one, rows may be missing that the log still
    /// has.
    pub(in crate::ledger) answers_millis: i64,
    pub(in crate::ledger) tails: Vec<Sequence>,
    trimmed: Vec<Sequence>,
    /// In the order of their numbers, with the position of the entry that defined each.
    topics: Vec<(Position, Topic)>,
    /// For each topic, in the same order: idempotency keys stored up to then are forgotten for good.
    forgotten_through: Vec<i64>,
    /// Numbers of deleted topics; the other topics have the numbers between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deleted: Vec<u32>,
    /// Topics in side logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "placed")]
    placement: Vec<(Position, TopicPlacement)>,
    /// Side logs in files without topics, whose files may still hold bytes of deleted events.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unerased_logs: BTreeSet<LogLocation>,
    event_types: Vec<(Position, EventType)>,
    /// Without it the checkpoint is from a version without these tables, and is not used.
    #[serde(rename = "parts")]
    tables: StateTablesSnapshot,
    /// The space that entries use in the log.
    #[serde(default)]
    usage: EntryUsage,
    /// Set while the small state is ahead of `position`: it was taken from a snapshot in the log, and the on-disk
    /// tables are still behind it. Zero otherwise.
    #[serde(default, skip_serializing_if = "is_zero")]
    facts_through: Position,
}

fn is_zero(position: &Position) -> bool {
    *position == Position::ZERO
}

impl StateSnapshot {
    pub(in crate::ledger) fn of(state: &LedgerState) -> Self {
        let registry = &state.registry;
        let numbers = 1..registry.next_topic_number();
        let numbered = numbers.filter_map(|number| registry.topic_numbered(TopicNumber(number)));
        Self {
            position: state.position,
            record_crc: state.last.body.crc(),
            record_time: state.last.time,
            record_topic: state.last.topic.0,
            record_sequence: state.last.sequence,
            dictionary: DICTIONARY,
            needs_dictionary: registry.dictionary(),
            has_skipped: state.has_skipped,
            time: state.time,
            answers_millis: state.answers_millis,
            tails: state.tails.clone(),
            trimmed: state.trimmed.clone(),
            topics: numbered.clone().map(|topic| (topic.defined_at, topic.topic.clone())).collect(),
            forgotten_through: numbered.map(|topic| topic.forgotten_through).collect(),
            deleted: registry.deleted_numbers().collect(),
            placement: registry.placed_topics().map(|known| (known.defined_at, known.placed.clone())).collect(),
            unerased_logs: registry.unerased_logs().clone(),
            event_types: registry.event_types().map(|known| (known.defined_at, known.event_type.clone())).collect(),
            tables: state.tables.snapshot(),
            usage: state.usage,
            facts_through: state.facts_through,
        }
    }

    /// Whether facts were skipped when it was written that this version may know.
    pub(in crate::ledger) const fn lacks_facts(&self) -> bool {
        self.has_skipped && self.dictionary != DICTIONARY
    }

    /// Whether every topic has all its members.
    pub(in crate::ledger) const fn is_whole(&self) -> bool {
        self.topics.len() == self.forgotten_through.len()
    }

    /// The last sequence of the ledger's own topic.
    pub(in crate::ledger) fn through(&self) -> Sequence {
        self.tails.first().copied().unwrap_or_default()
    }

    pub(in crate::ledger) fn restore(self, tables: DiskTables) -> LedgerState {
        let mut registry = Registry::default();
        let Self { position, time, tails, trimmed, has_skipped, usage, facts_through, .. } = self;
        let last = LastRecord {
            time: self.record_time,
            topic: TopicNumber(self.record_topic),
            sequence: self.record_sequence,
            body: LastBody::Crc(self.record_crc),
        };
        registry.set_dictionary(self.needs_dictionary);
        for ((defined_at, topic), forgotten_through) in self.topics.into_iter().zip(self.forgotten_through) {
            while self.deleted.binary_search(&registry.next_topic_number()).is_ok() {
                registry.push_deleted();
            }
            let number = registry.next_topic_number();
            let tail = tails.get(number as usize).copied().unwrap_or_default();
            registry.add_topic(number, topic, defined_at, (tail, forgotten_through));
        }
        while self.deleted.binary_search(&registry.next_topic_number()).is_ok() {
            registry.push_deleted();
        }
        for (defined_at, placed) in self.placement {
            registry.place(placed, defined_at);
        }
        registry.set_unerased_logs(self.unerased_logs);
        for (defined_at, event_type) in self.event_types {
            registry.add_type(event_type, defined_at);
        }
        let parts = Arc::new(self.tables.into());
        let registry = Arc::new(registry);
        let small = LedgerState {
            position,
            time,
            registry,
            tails,
            trimmed,
            tables: parts,
            last,
            has_skipped,
            ..LedgerState::new(tables)
        };
        LedgerState { usage, facts_through, ..small }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_skipped_facts_is_not_believed_by_a_version_that_may_know_them() {
        let state = LedgerState::new(DiskTables::in_memory(|_| 0));
        for (has_skipped, dictionary, is_believed) in [
            (false, DICTIONARY, true),
            (true, DICTIONARY, true),
            (false, DICTIONARY - 1, true),
            (true, DICTIONARY - 1, false),
        ] {
            let snapshot = StateSnapshot { has_skipped, dictionary, ..StateSnapshot::of(&state) };
            assert_eq!(!snapshot.lacks_facts(), is_believed, "{has_skipped} {dictionary}");
        }
        // A checkpoint of a version that did not record what it skipped is not even parsed.
        let mut older = serde_json::to_value(StateSnapshot::of(&state)).unwrap();
        older.as_object_mut().unwrap().remove("dictionary").unwrap();
        assert!(serde_json::from_value::<StateSnapshot>(older).is_err());
    }
}
