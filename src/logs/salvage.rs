//! The second step of a repair: records in the repaired log which numbers are used and what lost facts had led to.
//!
//! - What is known of lost events (the heads of their aggregates, their idempotency keys, their sequences) is appended
//!   as facts, so that folding the repaired log leads to the same state, and no number is assigned again.
//! - The checkpoint contains the effects of lost facts, if it is younger than they were: the topics and event types
//!   among them are registered again, and the tables that change row by row (offsets, claims, subscriptions, …) are
//!   appended as they are. So the checkpoint stays a cache. If the snapshot of reclaimed entries is lost, an older
//!   checkpoint still contains the state of its time; without any checkpoint, only the remaining events and entries are
//!   left.
//! - A topic whose registration is lost gets its name back from one of its events.

use super::data_folder::{open_repaired, state_of};
use crate::clock::{LogClock, SystemClock, TrustedClock};
use crate::ledger::{
    AggregateHead, CarriedKey, CarriedRows, Command, Decision, Entry, IdempotencyRow, Ledger, Registry, TopicPlacement,
    last_checkpoint, read_failed, renew_snapshot,
};
use contract::limits::{CHECKPOINT_ROWS_DEFAULT, CLOCK_JUMP_SECONDS_DEFAULT, KEY_HOURS_MAX};
use contract::{Error, EventType, NewTopic, Position, Result, Sequence, Timestamp, Topic};
use log::file::{FileLogOptions, RepairReport};
use log::{LogError, ReadLimit, ReadRange, RecordHeader, TopicNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The losses of a repair, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairLosses {
    carried: CarriedRows,
    /// Ranges of lost sequences by the topic's number.
    sequences: BTreeMap<u32, Vec<(Sequence, Sequence)>>,
    positions: Vec<(Position, Position)>,
    /// The highest number of a topic in the log.
    last_topic: u32,
}

/// What was restored of lost facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Topics and event types that were registered again.
    pub restored: Vec<String>,
    /// Topics that got their names back from their events; they have the default definition now.
    pub renamed: Vec<String>,
    /// The last reclaimed entry, if the snapshot of the reclaimed entries is lost. The state of an older
    /// checkpoint is kept.
    pub lost_facts_through: Option<Sequence>,
}

impl RepairLosses {
    /// The losses of a repair of the files.
    #[must_use]
    pub fn of(repair: &RepairReport) -> Self {
        let mut losses = Self { last_topic: repair.last_topic.0, ..Self::default() };
        losses.positions.clone_from(&repair.lost_positions);
        for (topic, first, last) in &repair.lost_sequences {
            // The sequences of the broker's own entries are used nowhere else.
            if *topic != TopicNumber::LEDGER {
                losses.sequences.entry(topic.0).or_default().push((*first, *last));
            }
        }
        repair.lost.iter().for_each(|header| losses.carry(header));
        losses
    }

    fn carry(&mut self, header: &RecordHeader) {
        let Some(facets) = header.facets else { return };
        if let Some(aggregate) = facets.aggregate {
            let head = AggregateHead { aggregate_sequence: aggregate.sequence, sequence: header.sequence };
            self.carried.heads.push((aggregate.key, head));
        }
        if let Some(mark) = facets.idempotency {
            let remembered = IdempotencyRow { position: header.position, time: header.time, digest: mark.digest };
            self.carried.keys.push(CarriedKey { key: mark.key, row: remembered, topic: Some(header.topic) });
        }
    }

    /// Adds the losses of an earlier repair that was interrupted before it recorded them.
    pub fn add(&mut self, earlier: Self) {
        self.carried.heads.extend(earlier.carried.heads);
        self.carried.keys.extend(earlier.carried.keys);
        self.positions.extend(earlier.positions);
        for (topic, runs) in earlier.sequences {
            self.sequences.entry(topic).or_default().extend(runs);
        }
        self.last_topic = self.last_topic.max(earlier.last_topic);
    }

    /// Whether nothing was lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.carried == CarriedRows::default() && self.sequences.is_empty() && self.positions.is_empty()
    }

    fn has(&self, position: Position) -> bool {
        self.positions.iter().any(|(first, last)| (*first..=*last).contains(&position))
    }
}

/// Opens the repaired log of a data folder, records what was lost, and writes a checkpoint.
pub async fn salvage(folder: &Path, losses: &RepairLosses) -> std::result::Result<SalvageReport, LogError> {
    let log = Arc::new(open_repaired(folder, FileLogOptions::default().segment_bytes)?);
    let state = state_of(folder);
    // The lifetime of stored replies is a setting of the broker: the last one is used, so that the checkpoint is valid;
    // without a checkpoint none expires.
    let known = last_checkpoint(&state).unwrap_or_default().answers_millis;
    let answers = if known > 0 { known } else { i64::from(KEY_HOURS_MAX) * 3_600_000 };
    let clock = TrustedClock::new(Arc::new(SystemClock), Duration::from_secs(CLOCK_JUMP_SECONDS_DEFAULT));
    let clock = LogClock::new(Arc::new(clock));
    let ledger = Ledger::open_for_repair(log, clock, state, CHECKPOINT_ROWS_DEFAULT, answers).await?;
    let outcome = match without_snapshot(&ledger, losses).await {
        Ok(None) => record_losses(&ledger, losses).await,
        Ok(Some((through, losses))) => {
            let saved = record_losses(&ledger, &losses).await;
            saved.map(|saved| SalvageReport { lost_facts_through: Some(through), ..saved })
        }
        Err(error) => Err(error),
    };
    ledger.close().await;
    outcome.map_err(|error| std::io::Error::other(error.to_string()).into())
}

/// The losses in addition to `losses` if the snapshot of reclaimed entries is lost: all facts up to the last reclaimed
/// entry, which is returned, too. `None` if it is not lost.
///
/// The state of the checkpoint, however old it is, is written again. So is the last sequence of each topic whose events
/// are all removed: the trim marks still hold it, and it must not be assigned again.
async fn without_snapshot(ledger: &Ledger, losses: &RepairLosses) -> Result<Option<(Sequence, RepairLosses)>> {
    let (through, tails) = ledger.query_state(|state| (state.lost_facts_through(), state.tails().to_vec())).await?;
    if through == Sequence::ZERO {
        return Ok(None);
    }
    let mut losses = losses.clone();
    let first = ledger.log().headers(ReadRange::Topic(TopicNumber::LEDGER, through), ONE).await.map_err(read_failed)?;
    let end = first.first().map_or_else(|| *ledger.log().tail().borrow(), |first| first.position);
    losses.positions.push((Position(1), Position(end.get().saturating_sub(1).max(1))));
    losses.last_topic = losses.last_topic.max(ledger.registry().next_topic_number().saturating_sub(1));
    for number in 1..=losses.last_topic {
        let known = tails.get(number as usize).copied().unwrap_or_default();
        if let Err(LogError::Trimmed(earliest)) =
            ledger.log().headers(ReadRange::Topic(TopicNumber(number), Sequence::ZERO), ONE).await
        {
            let removed = Sequence(earliest.get().saturating_sub(1));
            if removed > known {
                losses.sequences.entry(number).or_default().push((removed, removed));
            }
        }
    }
    Ok(Some((through, losses)))
}

async fn record_losses(ledger: &Ledger, losses: &RepairLosses) -> Result<SalvageReport> {
    let renamed = rename(ledger, losses).await?;
    let again = LostDefinitions::of(&ledger.registry(), losses);
    let saved = SalvageReport {
        restored: again.names(),
        renamed: renamed.iter().map(|(_, topic)| topic.definition.id.to_string()).collect(),
        lost_facts_through: None,
    };
    if !losses.is_empty() || !renamed.is_empty() {
        ledger.submit(RecordLosses { losses: losses.clone(), again, renamed }).await?;
        // Parts of the snapshot of reclaimed entries may be among the losses.
        renew_snapshot(ledger).await?;
    }
    Ok(saved)
}

/// Topics and event types whose last definition was in a lost fact.
#[derive(Debug, Clone, Default)]
struct LostDefinitions {
    topics: Vec<(u32, Topic)>,
    types: Vec<EventType>,
    located: Vec<TopicPlacement>,
}

impl LostDefinitions {
    fn of(registry: &Registry, losses: &RepairLosses) -> Self {
        let topics = registry.topics().filter(|topic| losses.has(topic.defined_at));
        let types = registry.event_types().filter(|known| losses.has(known.defined_at));
        // The effect of a lost fact on all topics of memory logs cannot be seen in any of them.
        let located = registry.placed_topics().filter(|_| !losses.positions.is_empty());
        Self {
            topics: topics.map(|topic| (topic.number.0, topic.topic.clone())).collect(),
            types: types.map(|known| known.event_type.clone()).collect(),
            located: located.map(|known| known.placed.clone()).collect(),
        }
    }

    fn names(&self) -> Vec<String> {
        let topics = self.topics.iter().map(|(_, topic)| topic.definition.id.to_string());
        let types = self.types.iter().map(|known| known.definition.id.to_string());
        topics.chain(types).collect()
    }
}

/// Topics that have events and no registration, with the names in their events.
async fn rename(ledger: &Ledger, losses: &RepairLosses) -> Result<Vec<(u32, Topic)>> {
    let registry = ledger.registry();
    let mut renamed = Vec::new();
    for number in 1..=losses.last_topic {
        let known = registry.topic_numbered(TopicNumber(number)).map(|topic| topic.topic.definition.id.to_string());
        if known.is_some_and(|id| !id.contains("~hx.broker.lost_")) {
            continue;
        }
        let range = ReadRange::Topic(TopicNumber(number), Sequence::ZERO);
        let earliest = match ledger.log().read(range, ONE).await {
            Err(LogError::Trimmed(earliest)) => {
                let behind = ReadRange::Topic(TopicNumber(number), Sequence(earliest.get().saturating_sub(1)));
                ledger.log().read(behind, ONE).await
            }
            read => read,
        };
        let first = earliest.unwrap_or_default().into_iter().next();
        let id = first.and_then(|record| serde_json::from_slice::<TopicField>(&record.body).ok()?.topic.parse().ok());
        if let Some(id) = id {
            renamed.push((number, Topic { definition: NewTopic::new(id), created_at: Timestamp::from_millis(0) }));
        }
    }
    Ok(renamed)
}

const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };

/// The member of an event that names its topic.
#[derive(Deserialize)]
struct TopicField {
    topic: String,
}

/// Records what was lost.
struct RecordLosses {
    losses: RepairLosses,
    again: LostDefinitions,
    renamed: Vec<(u32, Topic)>,
}

impl Command for RecordLosses {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<(), Error> {
        let topics = self.again.topics.iter().chain(&self.renamed);
        for (number, topic) in topics {
            decision.add_due_entry(Entry::TopicRegistered { number: *number, topic: topic.clone() })?;
        }
        for event_type in &self.again.types {
            decision.add_due_entry(Entry::EventTypeRegistered { event_type: event_type.clone() })?;
        }
        for located in &self.again.located {
            decision.add_due_entry(Entry::TopicPlaced { placed: located.clone() })?;
        }
        if !self.losses.positions.is_empty() {
            // This comes first: the following facts are folded on top of it.
            decision.carry_state()?;
        }
        if self.losses.carried != CarriedRows::default() {
            decision.add_entry(Entry::HistoryCarried { carried: self.losses.carried.clone() })?;
        }
        for (number, runs) in &self.losses.sequences {
            decision.add_entry(Entry::EventsLost { number: *number, runs: runs.clone() })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        (self.losses.carried.heads.len() + self.losses.carried.keys.len()) * 128
    }
}
