//! Consumer groups: the consumers of one name, and their committed offset in each topic.
//!
//! - A group exists while it has a live consumer or an offset; offsets outlive consumers.
//! - A commit never moves an offset back: a late commit of a slow member changes nothing. Only a reset does.
//! - An offset is between 0 and the topic's tail.
//! - A shared group's offset moves by itself: every event up to it is finished or passed. A commit changes nothing there; after
//!   a reset, all later events are handed out again.

use super::{Consumers, LiveConsumer};
use crate::events::before_earliest;
use crate::lag::{LagQuery, RemainingWork, ScanBudget};
use crate::ledger::{
    Command, ConsumerRow, ConsumerRows, Decision, Entry, GroupKey, GroupRow, Ledger, RegisteredTopic, Registry,
    ReplyRecorder, read_failed,
};
use contract::{
    Consumer, ConsumerGroup, Cursor, Distribution, Error, GroupMember, GroupReset, GroupTopic, Kind, NewConsumer,
    Offset, Page, ResetTo, Result, Timestamp, TopicId, Violation, limits,
};
use log::{RecordQuery, TopicNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

impl Consumers<'_> {
    /// Commits the offset of a consumer's group; returns the group.
    pub(crate) async fn commit(
        &self,
        id: Uuid,
        offset: Offset,
        recorder: ReplyRecorder<GroupTopic>,
    ) -> Result<GroupTopic> {
        let LiveConsumer { ledger, entry } = self.find(id)?;
        let now = ledger.now();
        let session = self.sessions.of(&entry.consumer, now)?;
        let Consumer { consumer_group, topic, .. } = &*entry.consumer;
        let remaining = self.remaining_work(&ledger, consumer_group, topic, None).await?;
        let mut members = self.members(&ledger, consumer_group, topic);
        if let Some(member) = members.iter_mut().find(|member| member.consumer_id == id) {
            member.last_seen_at = Timestamp::from_millis(now);
        }
        let standing =
            ledger.submit_recording(CommitOffset { id, offset, members, outlook: remaining }, recorder).await?;
        session.touch(now);
        Ok(standing)
    }

    /// Groups in order of their names, the page at `cursor`.
    pub(crate) async fn groups(&self, cursor: Option<&Cursor>, limit: usize) -> Result<Page<ConsumerGroup>> {
        self.context.reader.check_limit(limit)?;
        let mut names = BTreeSet::new();
        for ledger in self.context.logs.ledgers() {
            let (now, readers) = (ledger.now(), ledger.consumers());
            let is_there = |name: &str, group: &GroupRow| {
                !group.offsets.is_empty() || readers.members(name).any(|entry| self.sessions.is_live(entry, now))
            };
            names.extend(readers.groups().filter(|(name, it)| is_there(name, it)).map(|(name, _)| name.to_owned()));
        }
        let Page { items, next, prev } = Page::of(names.into_iter(), cursor, limit, Clone::clone);
        let (mut groups, mut budget) = (Vec::with_capacity(items.len()), ScanBudget::default());
        for name in &items {
            groups.extend(self.known_group(name, &mut budget).await?);
        }
        Ok(Page { items: groups, next, prev })
    }

    /// One group.
    pub(crate) async fn group(&self, name: &str) -> Result<ConsumerGroup> {
        let group = self.known_group(name, &mut ScanBudget::default()).await?;
        group.ok_or_else(|| Error::not_found("consumer group"))
    }

    async fn known_group(&self, name: &str, budget: &mut ScanBudget) -> Result<Option<ConsumerGroup>> {
        let mut topics = Vec::new();
        for ledger in self.context.logs.ledgers() {
            let standings = {
                let readers = ledger.consumers();
                readers.group(name).map(|group| self.standings(&readers, &ledger, name, group)).unwrap_or_default()
            };
            for standing in standings {
                let topic = ledger.registry().topic(&standing.topic).cloned();
                let lag = match &topic {
                    Some(topic) => self.lag.lag(&self.lag_query(&ledger, name, topic), budget).await?,
                    None => 0,
                };
                topics.push(GroupTopic { lag, ..standing });
            }
        }
        topics.sort_by(|one, other| one.topic.cmp(&other.topic));
        Ok((!topics.is_empty()).then(|| ConsumerGroup { consumer_group: name.to_owned(), topics }))
    }

    fn lag_query<'a>(&self, ledger: &'a Ledger, name: &'a str, topic: &'a Arc<RegisteredTopic>) -> LagQuery<'a> {
        let policy_order = self.context.logs.default_ledger().claims().policy(name).and_then(|policy| policy.order);
        LagQuery { ledger, name, topic, order: policy_order.unwrap_or(self.terms.order) }
    }

    /// The events that a group has to do in a topic; after this offset, if it is to be moved there.
    async fn remaining_work(
        &self,
        ledger: &Ledger,
        name: &str,
        topic: &TopicId,
        to: Option<Offset>,
    ) -> Result<RemainingWork> {
        let topic = ledger.registry().topic(topic).cloned().ok_or_else(not_registered)?;
        let question = self.lag_query(ledger, name, &topic);
        match to {
            Some(to) => self.lag.remaining_work_from(&question, to.into()).await,
            None => self.lag.remaining_work(&question, &mut ScanBudget::default()).await,
        }
    }

    /// Moves a group's offset; returns the group.
    pub(crate) async fn reset(
        &self,
        name: &str,
        reset: GroupReset,
        recorder: ReplyRecorder<ConsumerGroup>,
    ) -> Result<ConsumerGroup> {
        if let Some(violation) = check_name(name) {
            return Err(Error::invalid(violation.pointer, violation.detail));
        }
        let found = self.context.logs.find(&reset.topic).map_err(|_| not_registered())?;
        let ledger = self.context.logs.ledger(&found.log);
        let target = target(ledger, &reset).await?;
        let to = match target {
            ResetTarget::Offset(offset) => offset,
            ResetTarget::Tail => found.topic.tail().into(),
        };
        let remaining = self.remaining_work(ledger, name, &reset.topic, Some(to)).await?;
        let key = GroupKey { group: name.to_owned(), topic: reset.topic };
        let before = self.known_group(name, &mut ScanBudget::default()).await?;
        let before = before.map(|group| group.topics).unwrap_or_default();
        ledger.submit_recording(ResetGroup { key, target, before, outlook: remaining }, recorder).await
    }

    /// The live consumers of a group in one topic.
    fn members(&self, ledger: &Ledger, group: &str, topic: &TopicId) -> Vec<GroupMember> {
        let (now, readers) = (ledger.now(), ledger.consumers());
        let there = readers.members(group).filter(|entry| entry.consumer.topic == *topic);
        let live = there.filter(|entry| self.sessions.is_live(entry, now));
        live.map(|entry| self.member(ledger, entry, now)).collect()
    }

    fn member(&self, ledger: &Ledger, entry: &ConsumerRow, now: i64) -> GroupMember {
        let last_seen_at = Timestamp::from_millis(self.sessions.seen_at(entry, now));
        let Consumer { id, consumer_group, topic, .. } = &*entry.consumer;
        let number = ledger.registry().topic(topic).map_or(0, |topic| topic.number.0);
        let in_flight = ledger.claims().held_by(consumer_group, number, &id.to_string(), now) as u64;
        GroupMember { consumer_id: *id, last_seen_at, in_flight }
    }

    /// A group's progress in the topics of one log in which it has a live consumer or an offset.
    fn standings(&self, readers: &ConsumerRows, ledger: &Ledger, name: &str, group: &GroupRow) -> Vec<GroupTopic> {
        let (now, registry) = (ledger.now(), &ledger.registry());
        let mut topics = BTreeMap::new();
        for (topic, offset) in &group.offsets {
            let number = registry.topic(topic).map_or(0, |topic| topic.number.0);
            let watermark = ledger.claims().group_progress(name, number).map(|progress| progress.watermark().into());
            topics.insert(topic, standing(registry, topic, watermark.unwrap_or(*offset)));
        }
        for entry in readers.members(name).filter(|entry| self.sessions.is_live(entry, now)) {
            let topic = &entry.consumer.topic;
            let standing = topics.entry(topic).or_insert_with(|| standing(registry, topic, Offset::ZERO));
            standing.members.push(self.member(ledger, entry, now));
        }
        topics.into_values().collect()
    }
}

/// A group's progress in a topic, without its members.
fn standing(registry: &Registry, topic: &TopicId, committed_offset: Offset) -> GroupTopic {
    // A commit may be visible just before the tail that it depends on.
    let tail = registry.topic(topic).map_or(Offset::ZERO, |known| known.tail().into()).max(committed_offset);
    standing_at(topic, committed_offset, tail, 0, Vec::new())
}

fn standing_at(
    topic: &TopicId,
    committed_offset: Offset,
    tail: Offset,
    lag: u64,
    members: Vec<GroupMember>,
) -> GroupTopic {
    GroupTopic { topic: topic.clone(), committed_offset, tail, lag, members }
}

/// What is wrong with a group's name, if anything.
pub(super) fn check_name(name: &str) -> Option<Violation> {
    let detail = match name {
        "" => "must not be empty".to_owned(),
        _ if name.len() > limits::LABEL_BYTES_MAX => format!("may have at most {} bytes", limits::LABEL_BYTES_MAX),
        _ if name.chars().any(char::is_control) => "must not hold control characters".to_owned(),
        _ => return None,
    };
    Some(Violation::new("/consumerGroup", detail))
}

/// The target of a reset, as far as it is known before the decision.
#[derive(Clone, Copy)]
enum ResetTarget {
    Offset(Offset),
    Tail,
}

async fn target(ledger: &Ledger, reset: &GroupReset) -> Result<ResetTarget> {
    let registry = ledger.registry();
    let topic = registry.topic(&reset.topic).ok_or_else(not_registered)?;
    Ok(match reset.to {
        ResetTo::Offset(offset) => ResetTarget::Offset(offset),
        ResetTo::Latest => ResetTarget::Tail,
        ResetTo::Earliest => ResetTarget::Offset(before_earliest(ledger, topic.number).await?),
        ResetTo::Time(time) => ResetTarget::Offset(before_time(ledger, topic, time).await?),
    })
}

/// The offset before the topic's first event created at `time` or later; the tail if all are older.
async fn before_time(ledger: &Ledger, topic: &RegisteredTopic, time: Timestamp) -> Result<Offset> {
    // The tail is loaded first: events that are stored while the log is searched are after it and are not skipped.
    let tail = topic.tail();
    // Events have whole milliseconds: the first one that is not before `time` is in the next whole millisecond.
    let millis = (time.nanos() + 999_999).div_euclid(1_000_000);
    let millis = i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX });
    let found = ledger.log().find(RecordQuery::Time(Some(topic.number), millis)).await.map_err(read_failed)?;
    Ok(found.map_or(tail.into(), |header| Offset(header.sequence.0.saturating_sub(1))))
}

fn not_registered() -> Error {
    Error::invalid("/topic", "is not registered")
}

fn number_of(decision: &Decision<'_>, topic: &TopicId) -> Result<TopicNumber> {
    Ok(decision.registry().topic(topic).ok_or_else(not_registered)?.number)
}

/// A topic's last sequence, decided or durable.
fn tail_of(decision: &Decision<'_>, topic: &TopicId) -> Result<Offset> {
    Ok(decision.tail(number_of(decision, topic)?).into())
}

/// The watermark of a shared group; `None` if the group does not share the topic.
fn divided(decision: &Decision<'_>, GroupKey { group, topic }: &GroupKey) -> Option<Offset> {
    let number = decision.registry().topic(topic)?.number.0;
    let claims = decision.claims();
    claims.generation(group, number)?;
    Some(claims.watermark(group, number).unwrap_or_default().into())
}

/// All members of a group read a topic in the same way: each of them all events, or shared, with one filter.
pub(super) fn check_peers(consumer: &NewConsumer, decision: &Decision<'_>) -> Result<()> {
    let NewConsumer { consumer_group: group, topic, .. } = consumer;
    let is_shared = consumer.distribution == Some(Distribution::Shared);
    let peers = decision.consumers().peers(group, topic);
    let key = GroupKey { group: group.clone(), topic: topic.clone() };
    let detail = if is_shared && peers.iter().any(|peer| peer.distribution != Distribution::Shared) {
        "The consumers of this group each read all events of this topic; use another group, or wait until they are gone."
    } else if !is_shared && (divided(decision, &key).is_some() || !peers.iter().all(|peer| is_broadcast(peer))) {
        "The members of this group share this topic; join with `distribution` `shared`, or use another group."
    } else if is_shared && peers.iter().any(|peer| !is_like(consumer, peer)) {
        "The members of this group have another filter; all of them need the same `types`, `subjectTypes` and `CEL`."
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::InvalidState, detail))
}

fn is_broadcast(peer: &Consumer) -> bool {
    peer.distribution == Distribution::Broadcast
}

fn is_like(consumer: &NewConsumer, peer: &Consumer) -> bool {
    let NewConsumer { types, subject_types, cel, .. } = consumer;
    (types, subject_types, cel) == (&peer.types, &peer.subject_types, &peer.cel)
}

fn check_offset(offset: Offset, tail: Offset) -> Result<()> {
    match offset <= tail {
        true => Ok(()),
        false => Err(Error::invalid("/offset", "is greater than the topic's tail")),
    }
}

/// A new offset is refused at the limit.
fn check_room(decision: &Decision<'_>, known: Option<Offset>) -> Result<()> {
    if known.is_some() { Ok(()) } else { decision.consumers().check_room_for_offset() }
}

struct CommitOffset {
    id: Uuid,
    offset: Offset,
    /// The members, for the response.
    members: Vec<GroupMember>,
    /// The remaining work, for the response.
    outlook: RemainingWork,
}

impl CommitOffset {
    fn standing(&self, topic: &TopicId, offset: Offset, decision: &Decision<'_>) -> Result<GroupTopic> {
        let tail = tail_of(decision, topic)?;
        let lag = self.outlook.lag(decision.claims().durable(), offset.into(), tail.into());
        Ok(standing_at(topic, offset, tail, lag, self.members.clone()))
    }
}

impl Command for CommitOffset {
    type Answer = GroupTopic;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<GroupTopic> {
        let entry = decision.consumers().live(self.id)?;
        let (group, topic) = (entry.consumer.consumer_group.clone(), entry.consumer.topic.clone());
        let key = GroupKey { group, topic };
        let tail = tail_of(decision, &key.topic)?;
        check_offset(self.offset, tail)?;
        if entry.is_due(decision.now()) {
            decision.add_entry(Entry::ConsumerSeen { id: self.id })?;
        }
        if let Some(watermark) = divided(decision, &key) {
            return self.standing(&key.topic, watermark, decision);
        }
        let known = decision.consumers().offset(&key);
        let GroupKey { group, topic } = key;
        let standing = self.standing(&topic, known.unwrap_or_default().max(self.offset), decision)?;
        if known.is_none_or(|known| known < self.offset) {
            check_room(decision, known)?;
            decision.add_entry(Entry::OffsetCommitted { group, topic, offset: self.offset })?;
        }
        Ok(standing)
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct ResetGroup {
    key: GroupKey,
    target: ResetTarget,
    /// The group before, for the response: all topics but one stay the same.
    before: Vec<GroupTopic>,
    /// The remaining work, for the response.
    outlook: RemainingWork,
}

impl ResetGroup {
    fn group_at(&self, offset: Offset, tail: Offset, decision: &Decision<'_>) -> ConsumerGroup {
        let lag = self.outlook.lag(decision.claims().durable(), offset.into(), tail.into());
        let GroupKey { group, topic } = &self.key;
        let mut topics: BTreeMap<_, _> = self.before.iter().map(|row| (&row.topic, row.clone())).collect();
        let members = topics.remove(topic).map_or_else(Vec::new, |row| row.members);
        topics.insert(topic, standing_at(topic, offset, tail, lag, members));
        ConsumerGroup { consumer_group: group.clone(), topics: topics.into_values().collect() }
    }
}

impl Command for ResetGroup {
    type Answer = ConsumerGroup;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ConsumerGroup> {
        let tail = tail_of(decision, &self.key.topic)?;
        let offset = match self.target {
            ResetTarget::Offset(offset) => offset,
            ResetTarget::Tail => tail,
        };
        check_offset(offset, tail)?;
        let known = decision.consumers().offset(&self.key);
        if divided(decision, &self.key).is_some() {
            let topic = number_of(decision, &self.key.topic)?.0;
            decision.add_entry(Entry::GroupMoved { group: self.key.group.clone(), topic, offset })?;
        } else if known != Some(offset) {
            check_room(decision, known)?;
            let GroupKey { group, topic } = self.key.clone();
            decision.add_entry(Entry::OffsetReset { group, topic, offset })?;
        }
        Ok(self.group_at(offset, tail, decision))
    }

    fn bytes(&self) -> usize {
        self.key.group.len()
    }
}
