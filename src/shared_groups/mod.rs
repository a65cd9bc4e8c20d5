//! Shared groups: members that share a topic; each event is assigned to one of them, as a claim by the handler with the group's
//! name.
//!
//! - An assignment is decided in the log's order, like any claim; so an event goes to one member, on any engine, whichever
//!   process the members poll.
//! - Of one aggregate, among the events that the group's filter matches, the next one is handed out when the one before is
//!   finished. The next events are found on the caller's task; the decision refuses events of another generation.
//! - A republished event and its original are one event, handed out once.
//! - A process keeps what it has scanned ([`backlog`]), so that the cost of a poll depends on what it returns.
//! - Work is fair: a poll takes its share of the events that are ready, and the poll that has waited longest goes first.
//!
//! ```text
//!   log ──scan──▶ backlog: pending ──first of its aggregate──▶ ready ──offer──▶ decided: claimed ──▶ the poll's response
//!                    ▲                                                             │
//!                    └──────────── feed: done, failed, dead letter, redriven ◀─────┘
//! ```
//!
//! Claims are in `claims`, sessions in `consumers`.

mod backlog;
mod decide;
mod group;
mod poll;
mod poll_queue;
mod scan;

pub(crate) use poll::SharedPoll;

use crate::ledger::{Ledger, RegisteredTopic};
use contract::{BoxFuture, Consumer, TopicId};
use group::SharedGroup;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// The members of a group, by their sessions.
pub(crate) trait PeerSource: Send + Sync {
    /// How many consumers the group has in the log, expired ones included; cheap.
    fn count(&self) -> usize;
    /// The members that share the work now.
    fn present(&self) -> Vec<Uuid>;
    /// When the next session in the log may expire, in milliseconds.
    fn next_deadline(&self) -> Option<i64>;
    /// Removes expired consumers, so that their claims are released.
    fn expire(&self) -> BoxFuture<'_, ()>;
}

/// The shared groups that this process serves.
#[derive(Default)]
pub(crate) struct SharedGroups {
    open: Mutex<HashMap<(String, TopicId), Arc<SharedGroup>>>,
}

impl SharedGroups {
    /// Drops the groups that have no members any more.
    pub(crate) fn retain(&self, has_members: impl Fn(&str, &TopicId) -> bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(group, topic), _| has_members(group, topic));
    }

    /// The group of a member. If its members had another filter before, or the topic was deleted and created again, its
    /// backlog starts again.
    fn of(&self, consumer: &Consumer, ledger: &Ledger, topic: &Arc<RegisteredTopic>) -> Arc<SharedGroup> {
        let key = (consumer.consumer_group.clone(), consumer.topic.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get(&key) {
            Some(known) if known.is_of(consumer, topic) => Arc::clone(known),
            _ => {
                let group = Arc::new(SharedGroup::new(consumer, ledger, topic));
                open.insert(key, Arc::clone(&group));
                group
            }
        }
    }
}
