//! Clearing away expired consumers, so that neither the state nor this process remembers them for ever.
//!
//! - A consumer is cleared away by a fact, at its deadline by the log's time, so every process forgets the same ones.
//! - Nobody sees the difference: an expired consumer is not found before that either.

use super::{EXPIRED_PER_ENTRY_MAX, Sessions};
use crate::groups::Groups;
use crate::ledger::{Command, Decision, Entry, Ledger};
use crate::logs::{Logs, keep};
use contract::Result;
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// The chore: clears away now and then until the logs are gone or close.
pub(crate) async fn keep_expiring(logs: Weak<Logs>, sessions: Arc<Sessions>, groups: Arc<Groups>, every: Duration) {
    keep(logs, every, |ledgers| {
        let (sessions, groups) = (Arc::clone(&sessions), Arc::clone(&groups));
        async move {
            for ledger in &ledgers {
                let _ = expire(ledger, &sessions).await;
            }
            sessions.retain(|id| ledgers.iter().any(|ledger| ledger.readers().consumer(id).is_some()));
            groups.retain(|group, topic| {
                let is_there = |ledger: &Arc<Ledger>| {
                    ledger.readers().members(group).any(|member| member.consumer.topic == *topic)
                };
                ledgers.iter().any(is_there)
            });
        }
    })
    .await;
}

/// Clears away every consumer that is gone by the log's time.
async fn expire(ledger: &Ledger, sessions: &Sessions) -> Result<()> {
    loop {
        let ids = overdue(ledger, sessions, ledger.now());
        if ids.is_empty() || ledger.submit(Expire(ids)).await? == 0 {
            return Ok(());
        }
    }
}

/// Consumers past their deadline that do not wait in this process.
fn overdue(ledger: &Ledger, sessions: &Sessions, now: i64) -> Vec<Uuid> {
    let readers = ledger.readers();
    let is_over = |id: &Uuid| readers.consumer(*id).is_some_and(|entry| !sessions.is_live(entry, now));
    readers.overdue(now).filter(is_over).take(EXPIRED_PER_ENTRY_MAX).collect()
}

/// Clears away those of these consumers that are past their deadline; answers how many.
struct Expire(Vec<Uuid>);

impl Command for Expire {
    type Answer = usize;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<usize> {
        let readers = decision.readers();
        let is_overdue = |id: &&Uuid| readers.known(**id).is_ok() && readers.live(**id).is_err();
        let ids: Vec<_> = self.0.iter().filter(is_overdue).copied().collect();
        drop(readers);
        let count = ids.len();
        if count > 0 {
            decision.add_entry(Entry::ConsumersExpired { ids })?;
        }
        Ok(count)
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Uuid>()
    }
}
