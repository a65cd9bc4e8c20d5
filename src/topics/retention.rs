//! Retention: letting go of events past their topic's age, without losing what numbering and deduplication rest on.
//!
//! - The log is the truth, so what must outlive an event is written to the log before the event goes: the head of every
//!   aggregate that goes wholly, and every idempotency key that still lives.
//! - Trimming is idempotent. Cut short anywhere, it is simply done again.

use super::compaction::{Compacting, compact};
use crate::clock::Clock;
use crate::ledger::{Carried, Command, Decision, Entry, Ledger, Registry, TopicEntry, read_failed};
use crate::logs::{Logs, keep};
use contract::{Cleanup, Counted, Error, Kind, Result, Sequence, Span, Streaming, Trim};
use log::{Find, Limit, LogError, Range, Record};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How many events are looked at for one carrying entry.
const PAGE: Limit = Limit { records: 2048, bytes: 4 * 1024 * 1024 };

/// The chore: expires in every log now and then, until they are gone or close. A tick that fails is simply tried again.
pub(crate) async fn keep_expiring(logs: Weak<Logs>, clock: Arc<dyn Clock>, every: Duration, default: Option<i64>) {
    keep(logs, every, |ledgers| {
        let now = clock.now();
        async move {
            let tombstones = ledgers.first().map(|ledger| tombstones(&ledger.registry())).unwrap_or_default();
            for ledger in ledgers {
                let _ = expire(&ledger, now, default, &tombstones).await;
            }
        }
    })
    .await;
}

/// Removes what is past its age at `now` from every topic; answers how many sequences went. Topics that name no
/// retention keep their events for `default` milliseconds, or for ever.
pub(crate) async fn expire(ledger: &Ledger, now: i64, default: Option<i64>, tombstones: &HashSet<u64>) -> Result<u64> {
    let mut removed = 0;
    for topic in ledger.registry().topics() {
        let Some(age) = age_millis(topic).or(default) else { continue };
        let (before, ages) = (now.saturating_sub(age), Ages { before: Some(now.saturating_sub(age)) });
        let through = stored_before(ledger, topic, before).await?;
        removed += match is_compacted(topic) {
            true => compact(ledger, topic, &Compacting { through, ages, tombstones }).await?,
            false => trim(ledger, topic, through).await?,
        };
    }
    Ok(removed)
}

/// Compacts a topic now, whatever the age of what goes; a tombstone still stays for the topic's retention, if it has one.
pub(crate) async fn compact_now(
    ledger: &Ledger,
    topic: &Arc<TopicEntry>,
    (now, default): (i64, Option<i64>),
    tombstones: &HashSet<u64>,
) -> Result<Counted> {
    if !is_compacted(topic) {
        return Err(Error::new(Kind::InvalidState, "The topic does not keep the latest event per aggregate; trim it."));
    }
    let ages = Ages { before: age_millis(topic).or(default).map(|age| now.saturating_sub(age)) };
    let compacting = Compacting { through: topic.tail(), ages, tombstones };
    Ok(Counted { count: compact(ledger, topic, &compacting).await? })
}

/// What is old enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ages {
    /// What was stored before this, in milliseconds; anything, where nothing is said.
    before: Option<i64>,
}

impl Ages {
    pub(super) fn is_past(self, time: i64) -> bool {
        self.before.is_none_or(|before| time < before)
    }
}

/// The fingerprints of the event types that are tombstones.
pub(crate) fn tombstones(registry: &Registry) -> HashSet<u64> {
    let types = registry.event_types().filter(|known| known.event_type.definition.tombstone);
    types.map(|known| known.tag).collect()
}

fn is_compacted(topic: &TopicEntry) -> bool {
    topic.topic.definition.cleanup == Some(Cleanup::Compact)
}

/// Removes a topic's events up to and including `through`; answers how many sequences went.
pub(crate) async fn trim(ledger: &Ledger, topic: &Arc<TopicEntry>, through: Sequence) -> Result<u64> {
    let through = through.min(topic.tail());
    let Some(earliest) = earliest(ledger, topic).await?.filter(|earliest| *earliest <= through) else { return Ok(0) };
    let mut after = Sequence(earliest.0 - 1);
    while after < through {
        let page = ledger.log().read(Range::Topic(topic.number, after), PAGE).await.map_err(read_failed)?;
        let Some(last) = page.last().map(|record| record.header.sequence) else { break };
        ledger.submit(Carry::new(topic, through, &page)).await?;
        after = last;
    }
    ledger.submit(Trimmed { topic: Arc::clone(topic), through }).await?;
    ledger.log().remove(topic.number, through).await.map_err(read_failed)?;
    Ok(through.0 + 1 - earliest.0)
}

/// Removes a topic's beginning as somebody says; answers how many sequences went.
pub(crate) async fn trim_as_told(ledger: &Ledger, topic: &Arc<TopicEntry>, told: &Trim) -> Result<Counted> {
    let through = match (told.through, told.before) {
        (Some(through), None) => through,
        (None, Some(before)) => {
            // Events carry whole milliseconds; the first that is not before it is the next whole one.
            let millis = i64::try_from((before.nanos() + 999_999).div_euclid(1_000_000)).unwrap_or(i64::MAX);
            stored_before(ledger, topic, millis).await?
        }
        (None, None) => return Err(Error::invalid("/through", "is missing: say `through` or `before`")),
        (Some(_), Some(_)) => return Err(Error::invalid("/before", "stands beside `through`; give one of them")),
    };
    Ok(Counted { count: trim(ledger, topic, through).await? })
}

/// The last sequence that was stored before a time.
async fn stored_before(ledger: &Ledger, topic: &TopicEntry, millis: i64) -> Result<Sequence> {
    // Looked at first: what is stored while the log is searched is younger.
    let tail = topic.tail();
    let first_kept = ledger.log().find(Find::Time(Some(topic.number), millis)).await.map_err(read_failed)?;
    Ok(first_kept.map_or(tail, |header| Sequence(header.sequence.0 - 1)))
}

/// The first sequence still there; `None` where nothing is.
async fn earliest(ledger: &Ledger, topic: &TopicEntry) -> Result<Option<Sequence>> {
    match ledger.log().read(Range::Topic(topic.number, Sequence::ZERO), Limit { records: 1, bytes: 0 }).await {
        Ok(page) => Ok(page.first().map(|record| record.header.sequence)),
        Err(LogError::Trimmed(earliest)) if earliest <= topic.tail() => Ok(Some(earliest)),
        Err(LogError::Trimmed(_)) => Ok(None),
        Err(error) => Err(read_failed(error)),
    }
}

/// Seed 000 spells retention inside `streaming`; the topic's own member wins.
fn age_millis(topic: &TopicEntry) -> Option<i64> {
    let definition = &topic.topic.definition;
    let inner = match &definition.streaming {
        Streaming::Options(options) => options.retention.as_ref(),
        Streaming::Enabled(_) => None,
    };
    definition.retention.as_ref().or(inner).map(Span::millis)
}

/// Writes down what must outlive a page of events.
struct Carry {
    topic: Arc<TopicEntry>,
    through: Sequence,
    aggregates: HashSet<u128>,
    keys: Vec<u128>,
}

impl Carry {
    fn new(topic: &Arc<TopicEntry>, through: Sequence, page: &[Record]) -> Self {
        let going = page.iter().filter(|record| record.header.sequence <= through);
        let facets: Vec<_> = going.filter_map(|record| record.header.facets).collect();
        Self {
            topic: Arc::clone(topic),
            through,
            aggregates: facets.iter().filter_map(|facets| Some(facets.aggregate?.key)).collect(),
            keys: facets.iter().filter_map(|facets| Some(facets.idempotency?.key)).collect(),
        }
    }
}

impl Command for Carry {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let mut carried = Carried::default();
        for &key in &self.aggregates {
            if let Some(head) = decision.head(key)?
                && head.sequence <= self.through
            {
                carried.heads.push((key, head));
            }
        }
        for &key in &self.keys {
            if let Some(remembered) = decision.remembered(key)?
                && decision.now() - remembered.time < self.topic.idempotent_millis()
            {
                carried.keys.push((key, remembered));
            }
        }
        // Sets have no order of their own; entries are the same for the same decision.
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

/// Writes down that a topic's beginning goes.
struct Trimmed {
    topic: Arc<TopicEntry>,
    through: Sequence,
}

impl Command for Trimmed {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.add_entry(Entry::TopicTrimmed { number: self.topic.number.0, through: self.through })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
