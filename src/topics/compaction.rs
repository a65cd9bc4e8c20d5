//! Compaction: a topic that keeps the latest event of each aggregate.
//!
//! - The latest event of an aggregate never goes, but for a tombstone past the topic's retention, which takes its aggregate
//!   with it. Nor does what speaks of no aggregate, nor the topic's last event.
//! - An engine lets go of a beginning, and of nothing in the middle. So what goes is what lies in front of the first event
//!   that stays; numbers never change, and readers find more than the latest, never less.

use super::retention::{Ages, trim_allowed};
use crate::ledger::{Head, Ledger, TopicEntry, read_failed};
use contract::{Result, Sequence};
use log::{Header, Limit, LogError, Range};
use std::collections::HashSet;
use std::sync::Arc;

/// How many events are looked at at a time.
const PAGE: Limit = Limit { records: 512, bytes: 1024 * 1024 };

/// What may go from a topic.
pub(super) struct Compacting<'a> {
    /// Nothing behind this.
    pub(super) through: Sequence,
    /// Tombstones stored before this, in milliseconds; none where there is no time.
    pub(super) ages: Ages,
    /// Fingerprints of the event types that are tombstones.
    pub(super) tombstones: &'a HashSet<u64>,
}

/// Removes what may go; answers how many sequences went.
pub(super) async fn compact(ledger: &Ledger, topic: &Arc<TopicEntry>, compacting: &Compacting<'_>) -> Result<u64> {
    let through = last_to_go(ledger, topic, compacting).await?;
    trim_allowed(ledger, topic, through).await
}

/// The last sequence in front of the first event that stays.
async fn last_to_go(ledger: &Ledger, topic: &TopicEntry, compacting: &Compacting<'_>) -> Result<Sequence> {
    let tail = topic.tail();
    let most = compacting.through.min(Sequence(tail.get().saturating_sub(1)));
    let mut after = Sequence::ZERO;
    while after < most {
        let page = match ledger.log().headers(Range::Topic(topic.number, after), PAGE).await {
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

/// Of each event, where its aggregate stands.
pub(super) async fn heads_of(ledger: &Ledger, page: impl Iterator<Item = &Header>) -> Result<Vec<Option<Head>>> {
    let keys: Vec<_> = page.map(|header| header.facets.and_then(|facets| Some(facets.aggregate?.key))).collect();
    let heads = ledger.ask(move |state| {
        let head = |key: Option<u128>| key.map_or(Ok(None), |key| state.head(key));
        keys.into_iter().map(head).collect::<Result<Vec<Option<Head>>>>()
    });
    heads.await?
}

impl Compacting<'_> {
    fn stays(&self, header: &Header, head: Option<Head>) -> bool {
        let is_latest = head.is_none_or(|head| head.sequence <= header.sequence);
        is_latest && !self.is_over(header)
    }

    /// Whether an event is a tombstone past its time.
    fn is_over(&self, header: &Header) -> bool {
        let is_tombstone = header.facets.is_some_and(|facets| self.tombstones.contains(&facets.type_tag));
        is_tombstone && self.ages.is_past(header.time)
    }
}
