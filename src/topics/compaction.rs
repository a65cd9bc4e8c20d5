//! Compaction: a topic that keeps the latest event of each aggregate.
//!
//! - The latest event of an aggregate is kept, unless it is a tombstone older than the topic's retention, which removes
//!   the whole aggregate. Events without an aggregate and the topic's last event are kept, too.
//! - An engine removes only the beginning of a topic, nothing in the middle. So the events before the first one that is
//!   kept are removed; numbers never change, and readers find more than the latest events, never fewer.

use super::retention::{AgeLimit, trim_allowed};
use crate::ledger::{AggregateHead, Ledger, RegisteredTopic, read_failed};
use contract::{Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, RecordHeader};
use std::collections::HashSet;
use std::sync::Arc;

/// How many headers are read at a time.
const PAGE: ReadLimit = ReadLimit { records: 512, bytes: 1024 * 1024 };

/// What may be removed from a topic.
pub(super) struct CompactionRules<'a> {
    /// The last sequence that may be removed.
    pub(super) through: Sequence,
    /// Tombstones stored before this time, in milliseconds, may be removed; none if there is no time.
    pub(super) ages: AgeLimit,
    /// The tags of the event types that are tombstones.
    pub(super) tombstones: &'a HashSet<u64>,
}

/// Removes what may be removed; returns the number of sequences.
pub(super) async fn compact(
    ledger: &Ledger,
    topic: &Arc<RegisteredTopic>,
    compacting: &CompactionRules<'_>,
) -> Result<u64> {
    let through = last_removable(ledger, topic, compacting).await?;
    trim_allowed(ledger, topic, through).await
}

/// The last sequence before the first event that is kept.
async fn last_removable(
    ledger: &Ledger,
    topic: &RegisteredTopic,
    compacting: &CompactionRules<'_>,
) -> Result<Sequence> {
    let tail = topic.tail();
    let most = compacting.through.min(Sequence(tail.get().saturating_sub(1)));
    let mut after = Sequence::ZERO;
    while after < most {
        let page = match ledger.log().headers(ReadRange::Topic(topic.number, after), PAGE).await {
            Err(LogError::Trimmed(earliest)) => {
                after = Sequence(earliest.get().saturating_sub(1));
                continue;
            }
            page => page.map_err(read_failed)?,
        };
        if page.is_empty() {
            break;
        }
        for (header, head) in page.iter().zip(heads_of(ledger, page.iter()).await?) {
            if header.sequence > most || compacting.stays(header, head) {
                return Ok(after);
            }
            after = header.sequence;
        }
    }
    Ok(after.min(most))
}

/// The head of each event's aggregate.
pub(super) async fn heads_of(
    ledger: &Ledger,
    page: impl Iterator<Item = &RecordHeader>,
) -> Result<Vec<Option<AggregateHead>>> {
    let keys: Vec<_> = page.map(|header| header.facets.and_then(|facets| Some(facets.aggregate?.key))).collect();
    let heads = ledger.query_state(move |state| {
        let head = |key: Option<u128>| key.map_or(Ok(None), |key| state.head(key));
        keys.into_iter().map(head).collect::<Result<Vec<Option<AggregateHead>>>>()
    });
    heads.await?
}

impl CompactionRules<'_> {
    fn stays(&self, header: &RecordHeader, head: Option<AggregateHead>) -> bool {
        let is_latest = head.is_none_or(|head| head.sequence <= header.sequence);
        is_latest && !self.is_expired_tombstone(header)
    }

    /// Whether an event is a tombstone older than the retention.
    fn is_expired_tombstone(&self, header: &RecordHeader) -> bool {
        let is_tombstone = header.facets.is_some_and(|facets| self.tombstones.contains(&facets.type_tag));
        is_tombstone && self.ages.is_past(header.time)
    }
}
