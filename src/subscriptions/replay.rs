//! Replays: a range of a topic is delivered again, after it was counted.
//!
//! Counting reads a bounded part of the topic; a longer replay is started all the same, and the response says that the
//! count is a lower bound.
//!
//! A damaged event is named in the response and does not stop the replay; its delivery fails, as a dead letter.
//!
//! A replay is a lane of its own, apart from live traffic: it keeps ids and the order of message groups, and uses only
//! a share of the pool.

use super::decide::{StartReplay, StartReplays};
use super::{CompiledSubscription, Subscriptions, millis_from};
use crate::events::{TopicScanPage, original_of, read_page, type_by_header};
use crate::filters::FilterStats;
use crate::ledger::{Ledger, RegisteredTopic, Registry, ReplyRecorder, SubscriptionRow, read_failed};
use crate::logs::LocatedTopic;
use contract::{
    Error, NewReplay, ReplayBound, ReplayOutcome, RepublishOutcome, RepublishRequest, Result, Sequence, Timestamp,
    limits,
};
use log::{ReadLimit, Record, RecordHeader, RecordQuery, TopicNumber};
use std::collections::BTreeSet;
use uuid::Uuid;

/// A page of events.
const PAGE: ReadLimit = ReadLimit { records: 1024, bytes: 1024 * 1024 };

impl Subscriptions<'_> {
    /// Starts a replay, or only counts; returns the number of events.
    pub(crate) async fn replay(
        &self,
        id: &str,
        order: NewReplay,
        recorder: ReplyRecorder<ReplayOutcome>,
    ) -> Result<ReplayOutcome> {
        let (ledger, row) = self.find(id)?;
        let registry = ledger.registry();
        let topic = registry.topic_numbered(TopicNumber(row.number)).cloned();
        let topic = topic.ok_or_else(|| Error::not_found("topic"))?;
        let (from, to) = replay_range(&ledger, &topic, order).await?;
        let subscription = CompiledSubscription::without_secrets(&row)?;
        let types = self.context.logs.default_ledger().registry();
        let counted = count((&ledger, &types), &topic, (from, to), &subscription, self.counted_max).await?;
        let (is_all, is_empty) = (counted.is_all, counted.count == 0 && counted.damaged.is_empty());
        let CountedEvents { count, damaged, .. } = counted;
        let mut replayed = ReplayOutcome { count, count_is_lower_bound: !is_all, replay: None, damaged };
        if order.dry_run || (is_empty && is_all) {
            return Ok(replayed);
        }
        let replay = Uuid::new_v4();
        replayed.replay = Some(replay);
        let answer = replayed.clone();
        let recorder = recorder.map_answer(move |()| Some(Ok(answer.clone())));
        ledger.submit_recording(StartReplay { id: replay, subscription: row.id, from, to }, recorder).await?;
        Ok(replayed)
    }
}

impl Subscriptions<'_> {
    /// Delivers events of a topic again: to the named subscription, or to all of the topic, each the events that it
    /// matches. Returns the number of deliveries. All replays are started, or none.
    pub(crate) async fn republish(
        &self,
        LocatedTopic { log: place, topic }: &LocatedTopic,
        order: &RepublishRequest,
        recorder: &ReplyRecorder<RepublishOutcome>,
    ) -> Result<RepublishOutcome> {
        let ledger = self.context.logs.ledger(place);
        let is_meant = |row: &&SubscriptionRow| {
            let name = order.name.as_deref();
            row.number == topic.number.0 && name.is_none_or(|it| row.definition.code == it || row.id.to_string() == it)
        };
        let rows: Vec<_> = ledger.dispatch().subscriptions().filter(is_meant).cloned().collect();
        if rows.is_empty() && order.name.is_some() {
            return Err(Error::invalid("/name", "is no subscription of this topic"));
        }
        let (from, to) = (order.from, order.to.min(topic.tail()));
        let types = self.context.logs.default_ledger().registry();
        let (mut replays, mut all, mut damaged) = (Vec::new(), 0, BTreeSet::new());
        for row in rows {
            // The range of a request is bounded, so all of it can be counted.
            let subscription = CompiledSubscription::without_secrets(&row)?;
            let wanted = count((ledger, &types), topic, (from, to), &subscription, u64::MAX).await?;
            all += wanted.count;
            if wanted.count > 0 || !wanted.damaged.is_empty() {
                replays.push(StartReplay { id: Uuid::new_v4(), subscription: row.id, from, to });
            }
            damaged.extend(wanted.damaged);
        }
        let damaged = damaged.into_iter().take(limits::DAMAGED_NAMED_MAX).collect();
        let counted = RepublishOutcome { count: all, damaged };
        if !order.dry_run && !replays.is_empty() {
            let answer = counted.clone();
            let recorder = recorder.map_answer(move |()| Some(Ok(answer.clone())));
            ledger.submit_recording(StartReplays(replays), recorder).await?;
        }
        Ok(counted)
    }

    /// The replays of a subscription that are not finished, the oldest first.
    pub(crate) fn replays(&self, id: &str) -> Result<Vec<contract::Replay>> {
        let (ledger, row) = self.find(id)?;
        let rows = ledger.dispatch();
        let running = rows.replays().filter(|(_, replay)| replay.subscription == row.id);
        let mut shown: Vec<_> = running
            .filter_map(|(id, replay)| {
                let lane = rows.lane(id)?;
                Some(contract::Replay {
                    id,
                    from: lane.start.next(),
                    to: replay.to,
                    settled_through: lane.recorded_through().into(),
                    open_jobs: lane.open_count() as u64,
                    dead_jobs: lane.dead_count() as u64,
                    ordered_at: Timestamp::from_millis(replay.at),
                })
            })
            .collect();
        shown.sort_unstable_by_key(|it| (it.ordered_at.millis(), it.id));
        Ok(shown)
    }
}

async fn replay_range(ledger: &Ledger, topic: &RegisteredTopic, order: NewReplay) -> Result<(Sequence, Sequence)> {
    let tail = topic.tail();
    let from = match order.from {
        ReplayBound::Sequence(sequence) => sequence.max(Sequence(1)),
        ReplayBound::Time(time) => first_from(ledger, topic, millis_from(time)).await?.unwrap_or(tail.next()),
    };
    let to = match order.to {
        None => tail,
        Some(ReplayBound::Sequence(sequence)) => sequence.min(tail),
        Some(ReplayBound::Time(time)) => {
            let behind = i64::try_from(time.nanos().div_euclid(1_000_000)).unwrap_or(i64::MAX).saturating_add(1);
            first_from(ledger, topic, behind).await?.map_or(tail, |next| Sequence(next.0.saturating_sub(1)))
        }
    };
    let is_ordered = match (order.from, order.to) {
        (ReplayBound::Sequence(from), Some(ReplayBound::Sequence(to))) => from <= to,
        (ReplayBound::Time(from), Some(ReplayBound::Time(to))) => from <= to,
        _ => true,
    };
    match is_ordered {
        true => Ok((from, to)),
        false => Err(Error::invalid("/to", "lies before `from`")),
    }
}

async fn first_from(ledger: &Ledger, topic: &RegisteredTopic, millis: i64) -> Result<Option<Sequence>> {
    let found = ledger.log().find(RecordQuery::Time(Some(topic.number), millis)).await.map_err(read_failed)?;
    Ok(found.map(|header| header.sequence))
}

/// Whether a correction replaced this event, or the event that it is a copy of: then it is not delivered to the
/// subscription again, neither by a replay nor because it was republished.
pub(crate) fn is_replaced(ledger: &Ledger, subscription: &str, record: &Record, is_replay: bool) -> bool {
    let is_final_original = |sequence| is_final(ledger, subscription, &RecordHeader { sequence, ..record.header });
    (is_replay && is_final(ledger, subscription, &record.header)) || original_of(record).is_some_and(is_final_original)
}

/// Whether a correction replaced the event with this header.
pub(crate) fn is_final(ledger: &Ledger, subscription: &str, header: &RecordHeader) -> bool {
    ledger.dead_letters().is_replaced(subscription, header.topic.0, header.sequence)
}

/// The events of a range that a subscription matches.
#[derive(Default)]
struct CountedEvents {
    /// The intact ones.
    count: u64,
    /// The damaged ones, which may match; of very many, the first ones.
    damaged: Vec<Sequence>,
    /// Whether all of the range was read.
    is_all: bool,
}

/// Counts those of the first `most` events of a range that a subscription matches.
async fn count(
    (ledger, types): (&Ledger, &Registry),
    topic: &RegisteredTopic,
    (from, to): (Sequence, Sequence),
    subscription: &CompiledSubscription,
    most: u64,
) -> Result<CountedEvents> {
    let (mut failures, mut counted) = (FilterStats::default(), CountedEvents::default());
    let (mut after, mut left) = (Sequence(from.0.saturating_sub(1)), most);
    while after < to {
        if left == 0 {
            return Ok(counted);
        }
        let page = match read_page(ledger, topic.number, &mut after, PAGE).await? {
            TopicScanPage::Intact(page) => page,
            TopicScanPage::Damaged(header) => {
                let is_wanted = subscription.may_match(&header, type_by_header(types, &header).as_deref())
                    && !is_final(ledger, &subscription.code, &header);
                if is_wanted && header.sequence <= to && counted.damaged.len() < limits::DAMAGED_NAMED_MAX {
                    counted.damaged.push(header.sequence);
                }
                (after, left) = (header.sequence, left - 1);
                continue;
            }
        };
        let Some(last) = page.last().map(|record| record.header.sequence) else { break };
        let wanted = page.iter().filter(|it| it.header.sequence <= to && subscription.matches(it, &mut failures));
        let wanted = wanted.filter(|it| !is_replaced(ledger, &subscription.code, it, true));
        counted.count += wanted.count() as u64;
        (after, left) = (last, left.saturating_sub(page.len() as u64));
        tokio::task::yield_now().await;
    }
    Ok(CountedEvents { is_all: true, ..counted })
}
