//! An open claim becomes a dead letter.

use crate::ledger::{ClaimKey, ClaimSlot, Decision, Entry, StoredDeadLetter, uuid_from_hash};
use contract::{ClaimError, DeadLetterSource, Result, TopicId};
use uuid::Uuid;

/// Turns an open claim into a dead letter, with its failed attempts.
pub(super) fn give_up(
    key: &ClaimKey,
    topic: &TopicId,
    event: Uuid,
    error: ClaimError,
    superseded: bool,
    decision: &mut Decision<'_>,
) -> Result<()> {
    let attempts = match decision.claims().slot(key) {
        Some(ClaimSlot::Open(row)) => row.attempts,
        _ => Vec::new(),
    };
    let dead_letter = StoredDeadLetter {
        id: letter_id(key, topic, decision.position().next().get()),
        source: DeadLetterSource::Handler,
        name: key.handler.clone(),
        topic: topic.clone(),
        number: key.topic,
        sequence: key.sequence,
        event,
        error,
        attempts,
        superseded,
        job: None,
    };
    decision.add_entry(Entry::DeadLettered { letter: Box::new(dead_letter) })?;
    Ok(())
}

/// An id computed from the letter's content, so that the same decision gives the same id; no two letters share one.
fn letter_id(key: &ClaimKey, topic: &TopicId, position: u64) -> Uuid {
    uuid_from_hash(&format!("dead letter\n{}\n{topic}\n{}\n{position}", key.handler, key.sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Sequence;

    #[test]
    fn the_id_of_a_dead_letter_never_changes() {
        let key = ClaimKey { handler: "billing".to_owned(), topic: 1, sequence: Sequence(3) };
        let topic = TopicId::parse("gts.hx.core.events.topic.v1~vendor.bank.v1").unwrap();
        assert_eq!(letter_id(&key, &topic, 41).to_string(), "d57dd251-788d-8edb-8f46-3bd22a0f0c48");
    }
}
