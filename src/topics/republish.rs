//! Republishing: events of a topic once more, for everybody who reads it or for one shared group. Who is pushed to is the
//! business of `subscriptions`.
//!
//! - Everybody: the events are appended again, in their order, a page at a time. A request that is cut short has appended
//!   the first of them.
//! - A group: what it has finished of them is handed out again, by one fact.
//! - What retention has removed is not there to be published again, and does not count.

use super::compaction::heads_of;
use crate::events::{RepublishAs, RepublishEvents};
use crate::ledger::{AggregateHead, Command, Decision, Entry, Ledger, RegisteredTopic, ReplyRecorder, read_failed};
use crate::logs::{LocatedTopic, Logs};
use contract::{CleanupPolicy, Error, EventCount, RepublishRequest, RepublishTarget, Result, Sequence, limits};
use log::{LogError, ReadLimit, ReadRange, Record, TopicNumber};

/// How many events are appended at once.
const PAGE: ReadLimit = ReadLimit { records: 256, bytes: 1024 * 1024 };

/// Refuses an order that makes no sense, or is too large.
pub(crate) fn check_republish(order: &RepublishRequest) -> Result<()> {
    let RepublishRequest { from, to, target, name, .. } = order;
    match (target, name) {
        (RepublishTarget::Topic, Some(_)) => return Err(Error::invalid("/name", "is for a group or a subscription")),
        (RepublishTarget::Group, None) => return Err(Error::invalid("/name", "is missing: say which group")),
        _ => (),
    }
    if *from == Sequence::ZERO {
        return Err(Error::invalid("/from", "must be 1 or more"));
    }
    if to < from {
        return Err(Error::invalid("/to", "must not be less than `from`"));
    }
    if to.get() - from.get() >= limits::REPUBLISH_EVENTS_MAX {
        let most = limits::REPUBLISH_EVENTS_MAX;
        return Err(Error::invalid("/to", format!("is too far from `from`: a request may have {most} events")));
    }
    Ok(())
}

/// Hands a group again what it has finished of the events, or only counts them.
pub(crate) async fn republish_to_group(
    logs: &Logs,
    LocatedTopic { log: place, topic }: &LocatedTopic,
    order: &RepublishRequest,
    recorder: &ReplyRecorder<EventCount>,
) -> Result<EventCount> {
    let (group, number) = (order.name.clone().unwrap_or_default(), topic.number);
    let (from, to, dry_run) = (order.from, order.to, order.dry_run);
    let recorder = recorder.map_answer(|count| Some(Ok(EventCount { count: *count })));
    let handed = logs.ledger(place).submit_recording(RepeatEvents { group, number, from, to, dry_run }, recorder).await;
    Ok(EventCount { count: handed? })
}

/// Appends the events again, or only counts them; says how many. The answer is kept with the last of them.
pub(crate) async fn republish_to_topic(
    logs: &Logs,
    LocatedTopic { log: place, topic }: &LocatedTopic,
    order: &RepublishRequest,
    recorder: &ReplyRecorder<EventCount>,
) -> Result<EventCount> {
    let ledger = logs.ledger(place);
    // What is appended here is not meant.
    let to = order.to.min(topic.tail());
    let how = match topic.topic.definition.cleanup {
        Some(CleanupPolicy::Compact) => RepublishAs::State,
        Some(CleanupPolicy::Delete) | None => RepublishAs::Same,
    };
    let (mut after, mut count) = (Sequence(order.from.get().saturating_sub(1)), 0);
    while after < to {
        let mut page = page_behind(ledger, topic, after).await?;
        let Some(reached) = page.last().map(|record| record.header.sequence) else { break };
        after = reached;
        page.retain(|record| record.header.sequence <= to);
        if how == RepublishAs::State {
            page = latest_of_aggregates(ledger, page).await?;
        }
        count += match order.dry_run {
            true => page.len() as u64,
            false => {
                let recorder = if reached >= to { recorder.clone() } else { ReplyRecorder::disabled() };
                let recorder = recorder.map_answer(move |here: &u64| Some(Ok(EventCount { count: count + here })));
                ledger.submit_recording(RepublishEvents::of(topic, &page, how)?, recorder).await?
            }
        };
    }
    Ok(EventCount { count })
}

/// The next events that are there.
async fn page_behind(ledger: &Ledger, topic: &RegisteredTopic, after: Sequence) -> Result<Vec<Record>> {
    let read = |after| ledger.log().read(ReadRange::Topic(topic.number, after), PAGE);
    match read(after).await {
        Err(LogError::Trimmed(earliest)) => read(Sequence(earliest.get().saturating_sub(1))).await.map_err(read_failed),
        page => page.map_err(read_failed),
    }
}

/// Those that are the last of their aggregates.
async fn latest_of_aggregates(ledger: &Ledger, page: Vec<Record>) -> Result<Vec<Record>> {
    let heads = heads_of(ledger, page.iter().map(|record| &record.header)).await?;
    let is_last = |(record, head): &(Record, Option<AggregateHead>)| {
        head.is_some_and(|head| head.sequence == record.header.sequence)
    };
    Ok(page.into_iter().zip(heads).filter(is_last).map(|(record, _)| record).collect())
}

/// Hands a group again what it has finished of a run of events.
struct RepeatEvents {
    group: String,
    number: TopicNumber,
    from: Sequence,
    to: Sequence,
    dry_run: bool,
}

impl Command for RepeatEvents {
    /// How many that is.
    type Answer = u64;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<u64> {
        let Self { group, number, from, to, dry_run } = self;
        if decision.claims().generation(group, number.0).is_none() {
            return Err(Error::invalid("/name", "There is no shared group of this name that divides the topic."));
        }
        let count = decision.claims().finished_count(group, number.0, *from, *to);
        if count > 0 && !dry_run {
            let group = group.clone();
            decision.add_entry(Entry::EventsRepeated { group, topic: number.0, from: *from, to: *to })?;
        }
        Ok(count)
    }

    fn bytes(&self) -> usize {
        self.group.len()
    }
}
