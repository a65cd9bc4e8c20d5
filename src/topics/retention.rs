//! Retention: removes events by age, without losing what numbering and deduplication depend on.
//!
//! - The state is folded from the log, so what must outlive an event is written to the log before the event is removed:
//!   the head of every aggregate that is removed as a whole, and every idempotency key that is still remembered.
//! - Nothing is written before it is known that the engine may remove, and nothing is written twice: a failed removal
//!   is resumed where it stopped.
//! - Only headers are read: an event whose body is damaged is removed like any other.
//! - Trimming is idempotent: if it is interrupted, it is done again. A long beginning is removed in steps, each
//!   completed before the next one begins: on a full disk the space of one pays for the next.
//!
//! [`super::retention_chore`] runs it and keeps track of its failures.

use super::compaction::{CompactionRules, compact};
use super::deletion::remove_deleted;
use super::retention_chore::{RetentionFailures, RetentionWork};
use crate::ledger::{
    CarriedKey, CarriedRows, Command, Decision, Entry, Ledger, LogLocation, RegisteredTopic, Registry, read_failed,
};
use contract::{CleanupPolicy, Error, EventCount, IsoDuration, Kind, Result, Sequence, StreamingSetting, TrimRequest};
use log::{LogError, ReadLimit, ReadRange, RecordHeader, RecordQuery, TopicNumber};
use std::collections::HashSet;
use std::sync::Arc;

/// Most events that are removed in one step: what must outlive them is written before their space is free, and a full
/// disk has little room for it.
const STEP_EVENTS: u64 = 8 * PAGE.records as u64;
/// How many events one `HistoryCarried` entry covers.
const PAGE: ReadLimit = ReadLimit { records: 2048, bytes: 4 * 1024 * 1024 };

/// The settings of one run.
pub(crate) struct RetentionRun<'a> {
    /// How long topics without a retention of their own keep their events, in milliseconds; `None`: for ever.
    pub(crate) default_age: Option<i64>,
    /// The fingerprints of the event types that are tombstones.
    pub(crate) tombstones: &'a HashSet<u64>,
    /// What failed before, and waits for its next try.
    pub(crate) failures: &'a RetentionFailures,
}

/// Removes the events of every topic that are past their age by the log's time, and the remaining events of deleted
/// topics; returns the number of sequences. A topic that fails does not affect the others; returns the first failure.
/// `home` is the location of the log.
pub(crate) async fn expire(ledger: &Ledger, home: Option<&LogLocation>, expiring: &RetentionRun<'_>) -> Result<u64> {
    let deleted = RetentionWork::DeletedTopics(home.cloned());
    let removed = match ledger.query_state(crate::ledger::LedgerState::unremoved).await {
        Ok(none) if none.is_empty() => Ok(()),
        Ok(_) if !expiring.failures.is_due(&deleted) => return expire_aged(ledger, home, expiring).await,
        Ok(_) => remove_deleted(ledger).await,
        Err(error) => Err(error),
    };
    expiring.failures.note(&deleted, &removed);
    let aged = expire_aged(ledger, home, expiring).await;
    removed.and(aged)
}

async fn expire_aged(ledger: &Ledger, home: Option<&LogLocation>, expiring: &RetentionRun<'_>) -> Result<u64> {
    let registry = ledger.registry();
    let aged: Vec<_> =
        registry.topics().filter_map(|topic| Some((topic, age_millis(topic).or(expiring.default_age)?))).collect();
    let failures = expiring.failures;
    let log = RetentionWork::Log(home.cloned());
    if aged.is_empty() || !failures.is_due(&log) {
        return Ok(0);
    }
    let allowed = may_remove(ledger).await;
    failures.note(&log, &allowed);
    let (server_time, mut removed) = (allowed?, Ok(0));
    for (topic, age) in aged {
        let work = RetentionWork::Topic(topic.topic.definition.id.clone());
        if !failures.is_due(&work) {
            continue;
        }
        let here = expire_topic(ledger, topic, (age, server_time), expiring.tombstones).await;
        failures.note(&work, &here);
        removed = removed.and_then(|before| Ok(before + here?));
    }
    removed
}

async fn expire_topic(
    ledger: &Ledger,
    topic: &Arc<RegisteredTopic>,
    (age, server_time): (i64, Option<i64>),
    tombstones: &HashSet<u64>,
) -> Result<u64> {
    let before = old_before(ledger, topic, age, server_time).await?;
    let through = stored_before(ledger, topic, before).await?;
    match is_compacted(topic) {
        true => {
            let ages = AgeLimit { before: Some(before) };
            compact(ledger, topic, &CompactionRules { through, ages, tombstones }).await
        }
        false => trim_allowed(ledger, topic, through).await,
    }
}

/// Compacts a topic now, whatever the age of its events; a tombstone is still kept for the topic's retention, if it has
/// one.
pub(crate) async fn compact_now(
    ledger: &Ledger,
    topic: &Arc<RegisteredTopic>,
    default: Option<i64>,
    tombstones: &HashSet<u64>,
) -> Result<EventCount> {
    if !is_compacted(topic) {
        return Err(Error::new(Kind::InvalidState, "The topic does not keep the latest event per aggregate; trim it."));
    }
    let server_time = may_remove(ledger).await?;
    let before = match age_millis(topic).or(default) {
        Some(age) => Some(old_before(ledger, topic, age, server_time).await?),
        None => None,
    };
    let compacting = CompactionRules { through: topic.tail(), ages: AgeLimit { before }, tombstones };
    Ok(EventCount { count: compact(ledger, topic, &compacting).await? })
}

/// The age from which an event may be removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeLimit {
    /// The time before which events are old enough, in milliseconds; `None`: all are.
    before: Option<i64>,
}

impl AgeLimit {
    pub(super) fn is_past(self, time: i64) -> bool {
        self.before.is_none_or(|before| time < before)
    }
}

/// The fingerprints of the event types that are tombstones.
pub(crate) fn tombstones(registry: &Registry) -> HashSet<u64> {
    let types = registry.event_types().filter(|known| known.event_type.definition.tombstone);
    types.map(|known| known.tag).collect()
}

fn is_compacted(topic: &RegisteredTopic) -> bool {
    topic.topic.definition.cleanup == Some(CleanupPolicy::Compact)
}

/// Removes a topic's events up to and including `through`; returns the number of sequences.
pub(crate) async fn trim(ledger: &Ledger, topic: &Arc<RegisteredTopic>, through: Sequence) -> Result<u64> {
    may_remove(ledger).await?;
    trim_allowed(ledger, topic, through).await
}

/// Removes events after it was checked that the engine may remove.
pub(super) async fn trim_allowed(ledger: &Ledger, topic: &Arc<RegisteredTopic>, through: Sequence) -> Result<u64> {
    let through = through.min(topic.tail());
    let Some(earliest) = earliest(ledger, topic).await?.filter(|earliest| *earliest <= through) else { return Ok(0) };
    let mut removed = Sequence(earliest.0 - 1);
    while removed < through {
        removed = trim_step(ledger, topic, removed, through).await?;
        if ledger.log().is_full() {
            // This makes room for the next step.
            ledger.log().give_space_back().await;
        }
    }
    Ok(through.0 + 1 - earliest.0)
}

/// Removes one step of events after `after`, up to `through`; returns the last removed sequence.
async fn trim_step(
    ledger: &Ledger,
    topic: &Arc<RegisteredTopic>,
    after: Sequence,
    through: Sequence,
) -> Result<Sequence> {
    let number = topic.number;
    let trimmed = ledger.query_state(move |state| state.trimmed(number)).await?;
    let first = after.max(trimmed);
    let through = through.min(Sequence(first.0.saturating_add(STEP_EVENTS)));
    debug_assert!(through > after || trimmed >= through, "a step removes something, or completes a removal");
    let mut after = first;
    while after < through {
        let page = ledger.log().headers(ReadRange::Topic(number, after), PAGE).await.map_err(read_failed)?;
        let Some(last) = page.last().map(|header| header.sequence) else { break };
        ledger.submit(CarryHistory::new(topic, through, &page)).await?;
        after = last;
    }
    if trimmed < through {
        ledger.submit(RecordTrim { number, through, is_removed: false }).await?;
    }
    ledger.log().remove(number, through).await.map_err(not_removed)?;
    Ok(through)
}

/// Removes the beginning of a topic on request; returns the number of sequences.
pub(crate) async fn trim_on_request(
    ledger: &Ledger,
    topic: &Arc<RegisteredTopic>,
    request: &TrimRequest,
) -> Result<EventCount> {
    let through = match (request.through, request.before) {
        (Some(through), None) => through,
        (None, Some(before)) => {
            // Events have whole milliseconds; the first event that is not before the time has the next whole one.
            let millis = i64::try_from((before.nanos() + 999_999).div_euclid(1_000_000)).unwrap_or(i64::MAX);
            stored_before(ledger, topic, millis).await?
        }
        (None, None) => return Err(Error::invalid("/through", "is missing: say `through` or `before`")),
        (Some(_), Some(_)) => {
            return Err(Error::invalid("/before", "is sent together with `through`; send only one of them"));
        }
    };
    Ok(EventCount { count: trim(ledger, topic, through).await? })
}

/// Refuses `erase` before anything is removed, if the engine cannot say when the bytes are gone.
pub(crate) fn may_erase(ledger: &Ledger, erase: bool) -> Result<()> {
    if !erase || ledger.log().erases() {
        return Ok(());
    }
    let detail = "The topic's log is in a database, which frees the space of deleted rows by itself (vacuum), at a time the \
                  broker does not know. Trim without `erase`.";
    Err(Error::new(Kind::InvalidState, detail))
}

/// Erases everything that was removed from the topic's log, if requested; returns when the bytes are gone.
pub(crate) async fn erase(ledger: &Ledger, erase: bool) -> Result<()> {
    if erase {
        ledger.log().erase().await.map_err(not_removed)?;
        // The checkpoint may contain data of the removed events.
        ledger.checkpoint().await?;
    }
    Ok(())
}

/// Refuses if the engine may not remove; returns the time of its server, if it has one.
pub(super) async fn may_remove(ledger: &Ledger) -> Result<Option<i64>> {
    ledger.log().may_remove().await.map_err(not_removed)
}

/// A removal that is not permitted is not retryable: an operator must grant the permission.
pub(super) fn not_removed(error: LogError) -> Error {
    match error {
        LogError::Forbidden(what) => Error::new(Kind::InvalidState, format!("Events cannot be removed: {what}")),
        other => read_failed(other),
    }
}

/// The time in milliseconds before which events are older than `age`.
///
/// The log's time decides, unless the machine's clock or that of the engine's server contradicts it. The log's time is
/// ahead of them if a clock was ahead once, or is: then events that have just been stored would be removed. Events that
/// carry such a time themselves are in the future of those clocks, which cannot tell their age. Once the first of these
/// is old by the log's time, so is everything before it.
///
/// While the clock is in doubt since the start, no event counts as aged.
async fn old_before(ledger: &Ledger, topic: &RegisteredTopic, age: i64, server_time: Option<i64>) -> Result<i64> {
    let (before, hold) = (old_by_clocks(ledger, topic, age, server_time).await?, ledger.clock().hold());
    let held = hold.time_for(i64::MIN, ledger.now()).saturating_sub(age);
    Ok(if held > hold.before { before } else { before.min(held) })
}

async fn old_by_clocks(ledger: &Ledger, topic: &RegisteredTopic, age: i64, server_time: Option<i64>) -> Result<i64> {
    let (now, wall) = (ledger.now(), ledger.clock().wall());
    let wall = server_time.map_or(wall, |server_time| wall.min(server_time));
    let before = now.saturating_sub(age);
    if now <= wall {
        return Ok(before);
    }
    let ahead = RecordQuery::Time(Some(topic.number), wall.saturating_add(1));
    let first_ahead = ledger.log().find(ahead).await.map_err(read_failed)?;
    let is_old = first_ahead.is_some_and(|header| header.time < before);
    Ok(if is_old { before } else { wall.saturating_sub(age) })
}

/// The last sequence that was stored before this time.
async fn stored_before(ledger: &Ledger, topic: &RegisteredTopic, millis: i64) -> Result<Sequence> {
    // Read first: events that are stored while the log is searched are younger.
    let tail = topic.tail();
    let first_kept = ledger.log().find(RecordQuery::Time(Some(topic.number), millis)).await.map_err(read_failed)?;
    Ok(first_kept.map_or(tail, |header| Sequence(header.sequence.0 - 1)))
}

/// The first sequence that is left; `None` if none is.
async fn earliest(ledger: &Ledger, topic: &RegisteredTopic) -> Result<Option<Sequence>> {
    match ledger.log().headers(ReadRange::Topic(topic.number, Sequence::ZERO), ReadLimit { records: 1, bytes: 0 }).await
    {
        Ok(page) => Ok(page.first().map(|header| header.sequence)),
        Err(LogError::Trimmed(earliest)) if earliest <= topic.tail() => Ok(Some(earliest)),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(read_failed(error)),
    }
}

/// Retention may also be set inside `streaming`; the topic's own member takes precedence.
fn age_millis(topic: &RegisteredTopic) -> Option<i64> {
    let definition = &topic.topic.definition;
    let inner = match &definition.streaming {
        StreamingSetting::Options(options) => options.retention.as_ref(),
        StreamingSetting::Enabled(_) => None,
    };
    definition.retention.as_ref().or(inner).map(IsoDuration::millis)
}

/// Records what must outlive a page of events.
struct CarryHistory {
    topic: Arc<RegisteredTopic>,
    through: Sequence,
    aggregates: HashSet<u128>,
    keys: Vec<u128>,
}

impl CarryHistory {
    fn new(topic: &Arc<RegisteredTopic>, through: Sequence, page: &[RecordHeader]) -> Self {
        let expiring = page.iter().filter(|header| header.sequence <= through);
        let facets: Vec<_> = expiring.filter_map(|header| header.facets).collect();
        Self {
            topic: Arc::clone(topic),
            through,
            aggregates: facets.iter().filter_map(|facets| Some(facets.aggregate?.key)).collect(),
            keys: facets.iter().filter_map(|facets| Some(facets.idempotency?.key)).collect(),
        }
    }
}

impl Command for CarryHistory {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let mut carried = CarriedRows::default();
        for &key in &self.aggregates {
            if let Some(head) = decision.head(key)?
                && head.sequence <= self.through
            {
                carried.heads.push((key, head));
            }
        }
        // The current definition counts: the window may have been raised since this was requested.
        let topic = Arc::clone(decision.registry().topic_numbered(self.topic.number).unwrap_or(&self.topic));
        for &key in &self.keys {
            if let Some(remembered) = decision.stored_key(key)?
                && topic.remembers(remembered.time, decision.time_for(remembered.time))
            {
                carried.keys.push(CarriedKey { key, row: remembered, topic: Some(topic.number) });
            }
        }
        // Sets are unordered; the same decision must write the same entry.
        carried.heads.sort_unstable_by_key(|(key, _)| *key);
        if !carried.heads.is_empty() || !carried.keys.is_empty() {
            decision.add_entry(Entry::HistoryCarried { carried })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        (self.aggregates.len() + self.keys.len()) * 128
    }
}

/// Records that the beginning of a topic is removed.
pub(super) struct RecordTrim {
    pub(super) number: TopicNumber,
    pub(super) through: Sequence,
    /// The engine has removed the events. For a deleted topic no later run looks again after this entry, so it must not
    /// come first.
    pub(super) is_removed: bool,
}

impl Command for RecordTrim {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        if !self.is_removed && decision.registry().topic_numbered(self.number).is_none() {
            return Err(Error::not_found("topic"));
        }
        decision.add_entry(Entry::TopicTrimmed { number: self.number.0, through: self.through })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
