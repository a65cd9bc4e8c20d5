//! Shared groups: members that divide a topic, each event to one of them, as a claim by the handler named like the group.
//!
//! - Who gets an event is decided in the log's order, by the decision that gives any claim; so it is one member, on any
//!   engine, whichever process it asks.
//! - Of one aggregate, among the events the group's filter takes, the next one is handed out when the one before is
//!   finished. What comes next is found on the caller's task; the decision refuses what rests on another generation.
//! - A process remembers how far it has looked ([`backlog`]), so that a poll costs what it brings.
//! - Work is fair: a poll takes its share of what is ready, and who has waited longest goes first.
//!
//! ```text
//!   log ──scan──▶ backlog: pending ──first of its aggregate──▶ ready ──offer──▶ decided: claimed ──▶ the poll's answer
//!                    ▲                                                             │
//!                    └──────────── feed: done, failed, given up, redriven ◀────────┘
//! ```
//!
//! What a claim is, and how it ends, is `claims`' business; sessions are `consumers`'.

mod backlog;
mod decide;
mod group;
mod poll;
mod poll_queue;
mod scan;

pub(crate) use poll::SharedPoll;

use crate::ledger::Ledger;
use contract::{BoxFuture, Consumer, TopicId};
use group::SharedGroup;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// The members of a group, as whoever keeps their sessions knows them.
pub(crate) trait PeerSource: Send + Sync {
    /// How many consumers the group has in the log, live or not; cheap.
    fn count(&self) -> usize;
    /// Those that share the group's work now.
    fn present(&self) -> Vec<Uuid>;
    /// When the next session in the log may be over, in milliseconds.
    fn next_deadline(&self) -> Option<i64>;
    /// Clears away consumers whose sessions are over, so that what they held is free.
    fn expire(&self) -> BoxFuture<'_, ()>;
}

/// The shared groups that this process serves.
#[derive(Default)]
pub(crate) struct SharedGroups {
    open: Mutex<HashMap<(String, TopicId), Arc<SharedGroup>>>,
}

impl SharedGroups {
    /// Lets go of what is known of groups nobody belongs to any more.
    pub(crate) fn retain(&self, has_members: impl Fn(&str, &TopicId) -> bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(group, topic), _| has_members(group, topic));
    }

    /// The group of a member. Where all of its members were others before, with another filter, it begins anew.
    fn of(&self, consumer: &Consumer, ledger: &Ledger, number: u32) -> Arc<SharedGroup> {
        let key = (consumer.consumer_group.clone(), consumer.topic.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get(&key) {
            Some(known) if known.is_of(consumer) => Arc::clone(known),
            _ => {
                let group = Arc::new(SharedGroup::new(consumer, ledger, number));
                open.insert(key, Arc::clone(&group));
                group
            }
        }
    }
}
