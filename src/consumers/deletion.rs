//! Deleting a group: its offsets, and in topics that its members divided, what was done there.
//!
//! - Refused while a consumer of the group lives. Those whose sessions are over are cleared away with the group.
//! - A group that divides a topic is the handler of its name there. So the handler's open claims and finished events of
//!   that topic go, and its open dead letters are closed. What the handler has done in other topics stays.

use super::Consumers;
use super::expiry::end_sessions;
use crate::ledger::{Command, Decision, Entry, Ledger, ReplyRecorder};
use contract::{Error, Kind, Result, TopicId};
use uuid::Uuid;

impl Consumers<'_> {
    /// Deletes a group, in every log that knows it.
    pub(crate) async fn delete_group(&self, name: &str, recorder: &ReplyRecorder<()>) -> Result<()> {
        let mut ledgers = self.logs.ledgers();
        ledgers.retain(|ledger| ledger.consumers().group(name).is_some());
        let parts: Vec<_> = ledgers.iter().map(|ledger| (ledger, self.presence(ledger, name))).collect();
        if parts.iter().any(|(_, presence)| presence.lives) {
            return Err(lives());
        }
        // A group of expired consumers alone is not there.
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

    /// The consumers of a topic in a log: those that live, and those whose sessions are over.
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

/// Who is left of a group in one log.
struct GroupPresence {
    /// Whether a consumer lives.
    lives: bool,
    /// Consumers whose sessions are over.
    over: Vec<Uuid>,
}

fn lives() -> Error {
    let detail = "Consumers of this group live; delete them, or wait until their sessions end.";
    Error::new(Kind::InvalidState, detail)
}

/// Deletes a group from one log.
struct DeleteGroup {
    group: String,
    /// Consumers that this process knows to be over, perhaps before their deadlines.
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
