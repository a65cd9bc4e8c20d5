//! Deleting a group: its offsets, and for topics that it shares, the state of its work there.
//!
//! - Refused while the group has a live consumer. Expired consumers are removed with the group.
//! - A shared group is the handler of its name in its topic. So the handler's open claims and finished events of that topic are
//!   removed, and its open dead letters are closed. What the handler has done in other topics stays.

use super::Consumers;
use super::expiry::end_sessions;
use crate::ledger::{Command, Decision, Entry, Ledger, ReplyRecorder};
use contract::{Error, Kind, Result, TopicId};
use uuid::Uuid;

impl Consumers<'_> {
    /// Deletes a group from every log that has it.
    pub(crate) async fn delete_group(&self, name: &str, recorder: &ReplyRecorder<()>) -> Result<()> {
        let mut ledgers = self.context.logs.ledgers();
        ledgers.retain(|ledger| ledger.consumers().group(name).is_some());
        let parts: Vec<_> = ledgers.iter().map(|ledger| (ledger, self.presence(ledger, name))).collect();
        if parts.iter().any(|(_, presence)| presence.lives) {
            return Err(lives());
        }
        // A group that has only expired consumers does not exist.
        let is_there = |ledger: &Ledger| ledger.consumers().group(name).is_some_and(|group| !group.offsets.is_empty());
        if !parts.iter().any(|(ledger, _)| is_there(ledger)) {
            return Err(Error::not_found("consumer group"));
        }
        let count = parts.len();
        for (number, (ledger, presence)) in parts.into_iter().enumerate() {
            let recorder = if number + 1 == count { recorder.clone() } else { ReplyRecorder::disabled() };
            let delete = DeleteGroup { group: name.to_owned(), over: presence.over };
            ledger.submit_recording(delete, recorder).await?;
        }
        Ok(())
    }

    /// The consumers of a topic in a log: live ones, and expired ones.
    pub(crate) fn members_of_topic(&self, ledger: &Ledger, topic: &TopicId) -> (Vec<Uuid>, Vec<Uuid>) {
        let now = ledger.now();
        let readers = ledger.consumers();
        let members = readers.consumers().filter(|entry| entry.consumer.topic == *topic);
        let (live, over): (Vec<_>, Vec<_>) = members.partition(|entry| self.sessions.is_live(entry, now));
        let ids = |entries: Vec<&crate::ledger::ConsumerRow>| entries.iter().map(|it| it.consumer.id).collect();
        (ids(live), ids(over))
    }

    fn presence(&self, ledger: &Ledger, group: &str) -> GroupPresence {
        let now = ledger.now();
        let readers = ledger.consumers();
        let is_over = |entry: &&crate::ledger::ConsumerRow| !self.sessions.is_live(entry, now);
        let over: Vec<_> = readers.members(group).filter(is_over).map(|entry| entry.consumer.id).collect();
        GroupPresence { lives: over.len() < readers.members(group).count(), over }
    }
}

/// The consumers that a group has in one log.
struct GroupPresence {
    /// Whether one of them is live.
    lives: bool,
    /// Those whose sessions have expired.
    over: Vec<Uuid>,
}

fn lives() -> Error {
    let detail = "This group has live consumers; delete them, or wait until their sessions end.";
    Error::new(Kind::InvalidState, detail)
}

/// Deletes a group from one log.
struct DeleteGroup {
    group: String,
    /// Consumers that have expired as far as this process knows, perhaps before the deadlines in the log.
    over: Vec<Uuid>,
}

impl Command for DeleteGroup {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let Self { group, over } = self;
        let (members, now) = (decision.consumers().members(group), decision.now());
        if members.iter().any(|it| it.deadline() > now && !over.contains(&it.consumer.id)) {
            return Err(lives());
        }
        end_sessions(members.iter().map(|it| it.consumer.id).collect(), decision)?;
        let topics = decision.claims().shared_topics(group);
        decision.add_entry(Entry::GroupDeleted { group: group.clone(), topics })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.group.len() + self.over.len() * size_of::<Uuid>()
    }
}
