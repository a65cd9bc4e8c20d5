//! Operations events: what operators need to know about dispatch, as events on an internal topic of the broker.
//!
//! - An operations event and the fact that it reports are one append.
//! - The topic is internal, in the default log, and exists from the first subscription on. Changes in other logs are
//!   not reported, because one append cannot span two logs.
//! - There are no operations events about subscriptions to this topic: they would never end.

use crate::events::draft_of;
use crate::ledger::{Command, Decision, JobKey, Ledger, SubscriptionRow, uuid_from_hash};
use contract::{AttemptError, Error, EventTypeId, Kind, NewEvent, NewTopic, Result, SubjectTypeId, TopicId};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

/// The topic of operations events.
const TOPIC: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
/// The prefix of their types.
const TYPES: &str = "gts.hyperspot.core.events.type.v1~hx.broker.dispatch";
/// The prefix of their subject types.
const SUBJECTS: &str = "gts.hx.core.events.subject.v1~hx.broker.dispatch";
/// Their retention.
const KEPT: &str = "P30D";

/// An operations event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationalEvent<'a> {
    /// A subscription was paused.
    Paused { row: &'a SubscriptionRow, by: &'a str, reason: Option<&'a str> },
    /// A job was given up.
    JobDead {
        row: Option<&'a SubscriptionRow>,
        job: JobKey,
        event: Uuid,
        dead_letter: Option<Uuid>,
        error: AttemptError,
    },
    /// The circuit breaker of a target opened.
    TargetFailing { target: &'a str },
    /// The circuit breaker of a target closed.
    TargetRecovered { target: &'a str },
}

impl OperationalEvent<'_> {
    const fn about(&self) -> Option<&SubscriptionRow> {
        match self {
            Self::Paused { row, .. } => Some(row),
            Self::JobDead { row, .. } => *row,
            Self::TargetFailing { .. } | Self::TargetRecovered { .. } => None,
        }
    }

    /// The last part of the type, of the subject type, the subject, and the data.
    fn parts(&self) -> (&'static str, &'static str, String, Value) {
        let code = |row: &SubscriptionRow| row.definition.code.clone();
        match self {
            Self::Paused { row, by, reason } => {
                let data = json!({"subscription": code(row), "subscriptionId": row.id, "by": by, "reason": reason});
                ("subscription_paused", "subscription", code(row), data)
            }
            Self::JobDead { row, job, event, dead_letter: letter, error } => {
                let id = match row {
                    Some(_) => format!("{}-{}", job.lane.simple(), job.sequence),
                    // A task has an id of its own.
                    None => event.to_string(),
                };
                let mut data = json!({"job": id, "error": error});
                if let (Some(row), Some(members)) = (row, data.as_object_mut()) {
                    members.insert("subscription".to_owned(), json!(code(row)));
                    members.insert("topic".to_owned(), json!(row.definition.topic));
                    members.insert("sequence".to_owned(), json!(job.sequence));
                    members.insert("event".to_owned(), json!(event));
                    members.insert("deadLetter".to_owned(), json!(letter));
                }
                ("job_dead", "job", id, data)
            }
            Self::TargetFailing { target } => {
                ("target_failing", "target", (*target).to_owned(), json!({"target": target}))
            }
            Self::TargetRecovered { target } => {
                ("target_recovered", "target", (*target).to_owned(), json!({"target": target}))
            }
        }
    }

    fn event(&self) -> Result<NewEvent> {
        let (kind, of, subject, data) = self.parts();
        let event_type: EventTypeId = format!("{TYPES}.{kind}.v1").parse()?;
        let subject_type: SubjectTypeId = format!("{SUBJECTS}.{of}.v1").parse()?;
        let data = RawValue::from_string(data.to_string())
            .map_err(|error| Error::new(Kind::Malformed, "News cannot be written.").with_source(error))?;
        let subject =
            subject.get(..subject.floor_char_boundary(contract::limits::SUBJECT_BYTES_MAX)).unwrap_or_default();
        let mut event = NewEvent::new(event_type, "event-broker", data).about(subject_type, subject);
        event.tenant = self.about().and_then(|row| row.definition.tenant);
        Ok(event)
    }
}

/// Adds an operations event to a decision.
pub(crate) fn announce(news: &OperationalEvent<'_>, decision: &mut Decision<'_>) -> Result<()> {
    let topic = topic()?;
    if news.about().is_some_and(|row| row.definition.topic == topic) {
        return Ok(());
    }
    let Some(entry) = decision.registry().topic(&topic).cloned() else { return Ok(()) };
    let event = news.event()?;
    let id = event_id(event.event_type.as_str(), decision.position().get());
    decision.add_event(&draft_of(&event, id, &entry, decision.now())?)?;
    Ok(())
}

/// Derived from the position, so that deciding again gives the same id.
fn event_id(event_type: &str, position: u64) -> Uuid {
    uuid_from_hash(&format!("news\n{event_type}\n{position}"))
}

/// Registers the topic of operations events, if it does not exist.
pub(crate) async fn prepare(ledger: &Ledger) -> Result<()> {
    let id = topic()?;
    if ledger.registry().definition(&id).is_some() {
        return Ok(());
    }
    let topic = NewTopic {
        description: Some("What happens to subscriptions, their jobs and targets.".to_owned()),
        retention: Some(KEPT.parse()?),
        internal: true,
        ..NewTopic::new(id)
    };
    crate::topics::register_here(ledger, topic).await
}

fn topic() -> Result<TopicId> {
    TopicId::parse(TOPIC)
}

/// Publishes an operations event about a target, as an append of its own.
pub(crate) struct AnnounceTarget {
    pub(crate) target: String,
    pub(crate) is_failing: bool,
}

impl Command for AnnounceTarget {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let target = &self.target;
        match self.is_failing {
            true => announce(&OperationalEvent::TargetFailing { target }, decision),
            false => announce(&OperationalEvent::TargetRecovered { target }, decision),
        }
    }

    fn bytes(&self) -> usize {
        512 + self.target.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_operational_event_never_changes() {
        let id = event_id("gts.hx.core.events.type.v1~hx.broker.subscription_paused.v1", 12);
        assert_eq!(id.to_string(), "c85b14d3-d5f5-8c4e-aa5e-c1b00ce6628c");
    }
}
