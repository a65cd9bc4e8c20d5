//! Removing unused names: handlers and groups that were not used for a long time and whose state has no effect any more.
//!
//! - A handler is removed only if it has no policy, no open claim and no dead letter, and retention has removed every event that
//!   it has finished: otherwise an effect could happen twice. A group is removed only if it has no consumer, and every event
//!   up to its offsets is removed: it would start at the same event anyway.
//! - So in a topic that keeps its events for ever nothing is removed; there an operator deletes what is no longer used.
//! - Each removal is an entry, decided in the log's order: every process removes the same names.

use crate::ledger::{ClaimRows, Command, Decision, Entry, GroupRow, Ledger, RegisteredTopic, read_failed};
use crate::logs::Logs;
use contract::{Result, Sequence, TopicId};
use log::{LogError, ReadLimit, ReadRange};
use std::collections::{BTreeSet, HashMap};

/// Most names removed by one decision.
const NAMES_MAX: usize = 1000;

/// After which time unused names are removed, in milliseconds; `None`: never.
pub(crate) fn unused_millis(days: u64) -> Option<i64> {
    let millis = days.saturating_mul(24 * 60 * 60 * 1000);
    (millis > 0).then(|| i64::try_from(millis).unwrap_or(i64::MAX))
}

/// Removes the names of all logs that were not used for this time, in milliseconds.
pub(crate) async fn forget_unused(logs: &Logs, unused_millis: Option<i64>) -> Result<()> {
    let Some(unused) = unused_millis else { return Ok(()) };
    for ledger in logs.ledgers() {
        forget_unused_in(&ledger, ledger.now().saturating_sub(unused)).await?;
    }
    Ok(())
}

/// Removes the names of a log that were not used since `before`, in milliseconds.
pub(super) async fn forget_unused_in(ledger: &Ledger, before: i64) -> Result<()> {
    let handlers = unused_handlers(ledger, before);
    if !handlers.is_empty() {
        ledger.submit(ForgetHandlers { names: handlers, before }).await?;
    }
    let groups = unused_groups(ledger, before).await?;
    if !groups.is_empty() {
        ledger.submit(ForgetGroups { names: groups, before }).await?;
    }
    Ok(())
}

fn unused_handlers(ledger: &Ledger, before: i64) -> Vec<String> {
    let (claims, readers) = (ledger.claims(), ledger.consumers());
    let is_unused = |name: &&str| claims.unused_since(name).is_some_and(|at| at <= before);
    let is_alone = |name: &&str| readers.group(name).is_none_or(|group| group.members.is_empty());
    claims.handlers().filter(is_unused).filter(is_alone).take(NAMES_MAX).map(str::to_owned).collect()
}

/// Groups that were not used for a long time, and up to whose offsets all events are removed. All candidates are examined: those
/// that must stay, however many, do not keep the others.
async fn unused_groups(ledger: &Ledger, before: i64) -> Result<Vec<String>> {
    let topics: BTreeSet<TopicId> = {
        let readers = ledger.consumers();
        let silent = readers.groups().filter(|(_, group)| is_silent(group, before));
        silent.flat_map(|(_, group)| group.offsets.keys().cloned()).collect()
    };
    let mut removed = HashMap::new();
    for id in topics {
        let topic = ledger.registry().topic(&id).cloned();
        if let Some(topic) = topic {
            removed.insert(id, (topic.number.0, removed_through(ledger, &topic).await?));
        }
    }
    let (claims, readers) = (ledger.claims(), ledger.consumers());
    let is_unused = |name: &str, group: &GroupRow| {
        group.offsets.iter().all(|(topic, offset)| match removed.get(topic) {
            Some((number, through)) => is_behind(&claims, name, *number, (*offset).into(), *through),
            // The topic is deleted, or the group has just used it.
            None => ledger.registry().topic(topic).is_none(),
        })
    };
    let silent = readers.groups().filter(|(_, group)| is_silent(group, before));
    let unused = silent.filter(|(name, group)| is_unused(name, group)).take(NAMES_MAX);
    Ok(unused.map(|(name, _)| name.to_owned()).collect())
}

fn is_silent(group: &GroupRow, before: i64) -> bool {
    group.members.is_empty() && group.active_at <= before
}

/// Whether every event of a topic up to a group's offset is removed, if all events up to `through` are.
fn is_behind(claims: &ClaimRows, name: &str, topic: u32, offset: Sequence, through: Sequence) -> bool {
    match claims.group_progress(name, topic) {
        Some(division) => division.watermark() <= through && claims.is_blank(name, topic),
        None => offset <= through,
    }
}

/// The last sequence of a topic that retention has removed.
async fn removed_through(ledger: &Ledger, topic: &RegisteredTopic) -> Result<Sequence> {
    let range = ReadRange::Topic(topic.number, Sequence::ZERO);
    match ledger.log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
        Ok(_) => Ok(Sequence::ZERO),
        Err(LogError::Trimmed(earliest)) => Ok(Sequence(earliest.get().saturating_sub(1))),
        Err(error) => Err(read_failed(error)),
    }
}

/// Removes those of these handlers that are still unused.
struct ForgetHandlers {
    names: Vec<String>,
    before: i64,
}

impl Command for ForgetHandlers {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for name in &self.names {
            let is_unused = decision.claims().unused_since(name).is_some_and(|at| at <= self.before);
            if is_unused && decision.consumers().members(name).is_empty() {
                decision.add_entry(Entry::HandlerDeleted { name: name.clone(), topics: Vec::new() })?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.names.iter().map(String::len).sum()
    }
}

/// Removes those of these groups that are still unused. Removed events do not come back, so that was checked before.
struct ForgetGroups {
    names: Vec<String>,
    before: i64,
}

impl Command for ForgetGroups {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        for name in &self.names {
            if !decision.consumers().is_unused(name, self.before) {
                continue;
            }
            let topics = decision.claims().shared_topics(name);
            if topics.iter().all(|topic| decision.claims().durable().is_blank(name, *topic)) {
                decision.add_entry(Entry::GroupDeleted { group: name.clone(), topics })?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.names.iter().map(String::len).sum()
    }
}
