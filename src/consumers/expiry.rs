//! Removing expired consumers, so that neither the state nor this process keeps them for ever.
//!
//! - A consumer is removed by an entry, at its deadline by the log's time, so every process removes the same ones.
//! - Callers see no difference: an expired consumer is not found before that either.
//! - The claims of an expired member of a shared group are released with it. So a poll of another member removes expired
//!   members first.

use super::unused_names::forget_unused_in;
use super::{ConsumerSessions, EXPIRED_PER_ENTRY_MAX};
use crate::claims::{MemberDeparture, release_all};
use crate::ledger::{Command, Decision, Entry, Ledger};
use crate::logs::{Logs, run_periodically};
use crate::shared_groups::SharedGroups;
use contract::{Consumer, Distribution, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// The background task: removes expired consumers and unused names at intervals, until the logs are dropped or close.
pub(crate) async fn run_consumer_expiry(
    logs: Weak<Logs>,
    sessions: Arc<ConsumerSessions>,
    groups: Arc<SharedGroups>,
    every: Duration,
    unused_millis: Option<i64>,
) {
    run_periodically(logs, every, |ledgers| {
        let (sessions, groups) = (Arc::clone(&sessions), Arc::clone(&groups));
        async move {
            for ledger in &ledgers {
                let expired = expire(ledger, &sessions).await;
                let forgotten = match unused_millis {
                    Some(unused) => forget_unused_in(ledger, ledger.now().saturating_sub(unused)).await,
                    None => Ok(()),
                };
                if let Err(error) = expired.and(forgotten) {
                    tracing::warn!(%error, "removing expired consumers and unused names failed; the next tick tries again");
                }
            }
            sessions.retain(|id| ledgers.iter().any(|ledger| ledger.consumers().consumer(id).is_some()));
            groups.retain(|group, topic| {
                let is_there = |ledger: &Arc<Ledger>| {
                    ledger.consumers().members(group).any(|member| member.consumer.topic == *topic)
                };
                ledgers.iter().any(is_there)
            });
        }
    })
    .await;
}

/// Removes every consumer that has expired by the log's time.
pub(super) async fn expire(ledger: &Ledger, sessions: &ConsumerSessions) -> Result<()> {
    loop {
        let ids = overdue(ledger, sessions, ledger.now());
        if ids.is_empty() || ledger.submit(ExpireConsumers(ids)).await? == 0 {
            return Ok(());
        }
    }
}

/// Consumers past their deadline that do not wait in a poll of this process.
fn overdue(ledger: &Ledger, sessions: &ConsumerSessions, now: i64) -> Vec<Uuid> {
    let readers = ledger.consumers();
    let is_over = |id: &Uuid| readers.consumer(*id).is_some_and(|entry| !sessions.is_live(entry, now));
    readers.overdue(now).filter(is_over).take(EXPIRED_PER_ENTRY_MAX).collect()
}

/// Removes these consumers, and releases their claims in shared groups, in one append.
pub(super) fn end_sessions(ids: Vec<Uuid>, decision: &mut Decision<'_>) -> Result<()> {
    for id in &ids {
        let known = decision.consumers().get(*id);
        if let Ok(entry) = known {
            release_held(&entry.consumer, MemberDeparture::Expired, decision)?;
        }
    }
    if !ids.is_empty() {
        decision.add_entry(Entry::ConsumersExpired { ids })?;
    }
    Ok(())
}

/// Releases the claims of a member of a shared group.
pub(super) fn release_held(consumer: &Consumer, why: MemberDeparture, decision: &mut Decision<'_>) -> Result<()> {
    if consumer.distribution != Distribution::Shared {
        return Ok(());
    }
    let Some(number) = decision.registry().topic(&consumer.topic).map(|topic| topic.number.0) else { return Ok(()) };
    release_all(&consumer.consumer_group, number, &consumer.id.to_string(), why, decision)
}

/// Removes those of these consumers that are past their deadline; returns how many.
struct ExpireConsumers(Vec<Uuid>);

impl Command for ExpireConsumers {
    type Answer = usize;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<usize> {
        let readers = decision.consumers();
        let is_overdue = |id: &&Uuid| readers.get(**id).is_ok() && readers.live(**id).is_err();
        let ids: Vec<_> = self.0.iter().filter(is_overdue).copied().collect();
        drop(readers);
        let count = ids.len();
        end_sessions(ids, decision)?;
        Ok(count)
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Uuid>()
    }
}
