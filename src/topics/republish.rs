//! Republishing: past events of a topic are appended again for all readers, or handed out again to one shared group.
//! Republishing to a subscription is a replay, in `subscriptions`.
//!
//! - To the topic: copies are appended in order, a page at a time. An interrupted request has appended the first pages.
//! - To a group: one entry makes the events that it has finished available again.
//! - Removed events cannot be republished and are not counted. Neither are damaged ones, which the response names: the
//!   others are republished, so that a person need not repeat the request and get their copies twice.

use super::compaction::heads_of;
use crate::events::{RepublishAs, RepublishEvents, TopicScanPage, original_of, read_page};
use crate::ledger::{AggregateHead, ClaimKey, Command, Decision, Entry, Ledger, RegisteredTopic, ReplyRecorder};
use crate::logs::{LocatedTopic, Logs};
use contract::{CleanupPolicy, Error, RepublishOutcome, RepublishRequest, RepublishTarget, Result, Sequence, limits};
use log::{ReadLimit, Record, RecordHeader, TopicNumber};
use std::collections::BTreeMap;

/// How many events are appended at once.
const PAGE: ReadLimit = ReadLimit { records: 256, bytes: 1024 * 1024 };
/// Most copies in one entry.
const COPIES_PER_ENTRY: usize = 4096;

/// Refuses an inconsistent or too large request.
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

/// Makes the events that a group has finished available to it again, or only counts them.
pub(crate) async fn republish_to_group(
    logs: &Logs,
    LocatedTopic { log: place, topic }: &LocatedTopic,
    order: &RepublishRequest,
    recorder: &ReplyRecorder<RepublishOutcome>,
) -> Result<RepublishOutcome> {
    let (group, number) = (order.name.clone().unwrap_or_default(), topic.number);
    let (from, to, dry_run) = (order.from, order.to, order.dry_run);
    let recorder = recorder.map_answer(|outcome: &RepublishOutcome| Some(Ok(outcome.clone())));
    let ledger = logs.ledger(place);
    let GroupRange { copies, damaged } = read_range(ledger, topic, from, to).await?;
    ledger.submit_recording(RepeatEvents { group, number, from, to, copies, damaged, dry_run }, recorder).await
}

/// What the log says about the events of a range.
#[derive(Default)]
struct GroupRange {
    /// The copies: the sequence that identifies each, and where it is stored.
    copies: Vec<(Sequence, Sequence)>,
    /// The damaged events, which count as originals.
    damaged: Vec<Sequence>,
}

async fn read_range(ledger: &Ledger, topic: &RegisteredTopic, from: Sequence, to: Sequence) -> Result<GroupRange> {
    let (mut after, mut copies) = (Sequence(from.get().saturating_sub(1)), BTreeMap::new());
    let mut damaged = Vec::new();
    while after < to {
        match read_page(ledger, topic.number, &mut after, PAGE).await? {
            TopicScanPage::Intact(page) => {
                let Some(last) = page.last() else { break };
                for record in page.iter().filter(|record| record.header.sequence <= to) {
                    if let Some(key) = original_of(record) {
                        copies.entry(key).or_insert(record.header.sequence);
                    }
                }
                after = last.header.sequence;
            }
            TopicScanPage::Damaged(header) => {
                after = header.sequence;
                damaged.extend((header.sequence <= to).then_some(header.sequence));
            }
        }
    }
    Ok(GroupRange { copies: copies.into_iter().collect(), damaged })
}

/// Appends copies of the events, or only counts them; returns their number, and which events are damaged. The reply is
/// recorded with the last page.
pub(crate) async fn republish_to_topic(
    logs: &Logs,
    LocatedTopic { log: place, topic }: &LocatedTopic,
    order: &RepublishRequest,
    recorder: &ReplyRecorder<RepublishOutcome>,
) -> Result<RepublishOutcome> {
    let ledger = logs.ledger(place);
    // The copies that are appended here are not part of the range.
    let mut range = RangeReader {
        ledger,
        topic,
        after: Sequence(order.from.get().saturating_sub(1)),
        to: order.to.min(topic.tail()),
        how: match topic.topic.definition.cleanup {
            Some(CleanupPolicy::Compact) => RepublishAs::State,
            Some(CleanupPolicy::Delete) | None => RepublishAs::Same,
        },
        damaged: Vec::new(),
    };
    let mut count = 0;
    let mut page = range.next_page().await?;
    loop {
        // Which page is the last one is known when there is no other: the next ones may be all damaged.
        let next = if page.is_some() { range.next_page().await? } else { None };
        let is_last = next.is_none();
        let events = page.unwrap_or_default();
        if order.dry_run {
            count += events.len() as u64;
        } else if !events.is_empty() || is_last {
            let recorder = if is_last { recorder.clone() } else { ReplyRecorder::disabled() };
            let damaged = range.damaged.clone();
            let recorder = recorder.map_answer(move |here: &u64| {
                Some(Ok(RepublishOutcome { count: count + here, damaged: damaged.clone() }))
            });
            let copies = RepublishEvents::of(topic, &events, range.how)?;
            count += ledger.submit_recording(copies, recorder).await?;
        }
        if is_last {
            return Ok(RepublishOutcome { count, damaged: range.damaged });
        }
        page = next;
    }
}

/// Reads the events of a range that are to be published again.
struct RangeReader<'a> {
    ledger: &'a Ledger,
    topic: &'a RegisteredTopic,
    after: Sequence,
    to: Sequence,
    how: RepublishAs,
    /// Damaged events found so far; of very many, the first ones.
    damaged: Vec<Sequence>,
}

impl RangeReader<'_> {
    /// The next page, which may be empty; `None` behind the end of the range.
    async fn next_page(&mut self) -> Result<Option<Vec<Record>>> {
        while self.after < self.to {
            match read_page(self.ledger, self.topic.number, &mut self.after, PAGE).await? {
                TopicScanPage::Intact(mut page) => {
                    let Some(reached) = page.last().map(|record| record.header.sequence) else { return Ok(None) };
                    self.after = reached;
                    page.retain(|record| record.header.sequence <= self.to);
                    return Ok(Some(match self.how {
                        RepublishAs::State => latest_of_aggregates(self.ledger, page).await?,
                        RepublishAs::Same => page,
                    }));
                }
                TopicScanPage::Damaged(header) => {
                    self.after = header.sequence;
                    self.note_damaged(&header).await?;
                }
            }
        }
        Ok(None)
    }

    /// Notes a damaged event of the range, if it would have been published again.
    async fn note_damaged(&mut self, header: &RecordHeader) -> Result<()> {
        let is_wanted = header.sequence <= self.to
            && match self.how {
                RepublishAs::Same => true,
                RepublishAs::State => {
                    let head = heads_of(self.ledger, std::iter::once(header)).await?.into_iter().next().flatten();
                    head.is_some_and(|head| head.sequence == header.sequence)
                }
            };
        if is_wanted && self.damaged.len() < limits::DAMAGED_NAMED_MAX {
            self.damaged.push(header.sequence);
        }
        Ok(())
    }
}

/// Keeps the events that are the last of their aggregates.
async fn latest_of_aggregates(ledger: &Ledger, page: Vec<Record>) -> Result<Vec<Record>> {
    let heads = heads_of(ledger, page.iter().map(|record| &record.header)).await?;
    let is_last = |(record, head): &(Record, Option<AggregateHead>)| {
        head.is_some_and(|head| head.sequence == record.header.sequence)
    };
    Ok(page.into_iter().zip(heads).filter(is_last).map(|(record, _)| record).collect())
}

/// Makes the events of a range that a group has finished available to it again.
struct RepeatEvents {
    group: String,
    number: TopicNumber,
    from: Sequence,
    to: Sequence,
    /// The first copy of each event that has copies in the range: the sequence that identifies it, and the copy's
    /// sequence.
    copies: Vec<(Sequence, Sequence)>,
    /// The damaged events of the range.
    damaged: Vec<Sequence>,
    dry_run: bool,
}

impl RepeatEvents {
    /// The copies of events whose original is not in the range, or is removed; the group must have finished them.
    fn finished_copies(&self, decision: &Decision<'_>) -> Vec<(Sequence, Sequence)> {
        let (claims, trimmed) = (decision.claims(), decision.durable().trimmed(self.number));
        let is_meant = |key: Sequence| {
            let key = ClaimKey { handler: self.group.clone(), topic: self.number.0, sequence: key };
            (!(self.from..=self.to).contains(&key.sequence) || key.sequence <= trimmed) && claims.is_repeatable(&key)
        };
        self.copies.iter().filter(|(key, _)| is_meant(*key)).copied().collect()
    }

    /// The damaged events that the group has finished.
    fn finished_damaged(&self, decision: &Decision<'_>) -> Vec<Sequence> {
        let key = |sequence| ClaimKey { handler: self.group.clone(), topic: self.number.0, sequence };
        let claims = decision.claims();
        self.damaged.iter().filter(|sequence| claims.is_repeatable(&key(**sequence))).copied().collect()
    }
}

impl Command for RepeatEvents {
    /// The number of these events, and which of them are damaged: they are given up when it is their turn.
    type Answer = RepublishOutcome;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<RepublishOutcome> {
        let Self { group, number, from, to, dry_run, .. } = self;
        if decision.claims().generation(group, number.0).is_none() {
            return Err(Error::invalid("/name", "There is no shared group of this name that divides the topic."));
        }
        let copies = self.finished_copies(decision);
        let mut damaged = self.finished_damaged(decision);
        let damaged_count = damaged.len() as u64;
        let count = decision.claims().finished_count(group, number.0, *from, *to) + copies.len() as u64;
        if count > 0 && !dry_run {
            let mut parts = copies.chunks(COPIES_PER_ENTRY);
            let first = parts.next().unwrap_or_default();
            for copies in [first].into_iter().chain(parts) {
                let (group, topic, copies) = (group.clone(), number.0, copies.to_vec());
                decision.add_entry(Entry::EventsRepeated { group, topic, from: *from, to: *to, copies })?;
            }
        }
        damaged.truncate(limits::DAMAGED_NAMED_MAX);
        Ok(RepublishOutcome { count: count.saturating_sub(damaged_count), damaged })
    }

    fn bytes(&self) -> usize {
        self.group.len()
            + self.copies.len() * size_of::<(Sequence, Sequence)>()
            + self.damaged.len() * size_of::<Sequence>()
    }
}
