//! Deleting a handler: all state about it is removed, and its name can be used again.
//!
//! - Its policy, its open claims and its finished events are removed, and its tokens become invalid. Its open dead letters are
//!   closed as discarded.
//! - If a shared group of its name distributes a topic, the group's offset there is removed, too. The request is refused while
//!   such a group has live members, because they would start again at once.
//! - The offsets of a group that is not shared stay; they are deleted with the group.

use super::Claims;
use crate::ledger::{Command, Decision, Entry, ReplyRecorder};
use contract::{Distribution, Error, Kind, Result};
use log::TopicNumber;

impl Claims<'_> {
    /// Deletes a handler, in every log that knows it.
    pub(crate) async fn delete_handler(&self, name: &str, recorder: &ReplyRecorder<()>) -> Result<()> {
        let mut ledgers = self.context.logs.ledgers();
        ledgers.retain(|ledger| ledger.claims().has_handler(name));
        let count = ledgers.len();
        if count == 0 {
            return Err(Error::not_found("handler"));
        }
        for (number, ledger) in ledgers.into_iter().enumerate() {
            let recorder = if number + 1 == count { recorder.clone() } else { ReplyRecorder::disabled() };
            ledger.submit_recording(DeleteHandler(name.to_owned()), recorder).await?;
        }
        self.stale.forget(name);
        Ok(())
    }
}

/// Deletes a handler from one log.
pub(super) struct DeleteHandler(pub(super) String);

impl Command for DeleteHandler {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let Self(name) = self;
        let (members, now) = (decision.consumers().members(name), decision.now());
        let is_shared = |distribution| distribution == Distribution::Shared;
        if members.iter().any(|it| is_shared(it.consumer.distribution) && it.deadline() > now) {
            let detail =
                "The shared group of this name has live members; delete them, or wait until their sessions end.";
            return Err(Error::new(Kind::InvalidState, detail));
        }
        let shared = decision.claims().shared_topics(name);
        let registry = decision.registry();
        let topic = |number: u32| Some(registry.topic_numbered(TopicNumber(number))?.topic.definition.id.clone());
        let topics = shared.into_iter().filter_map(topic).collect();
        decision.add_entry(Entry::HandlerDeleted { name: name.clone(), topics })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}
