//! News: what an operator wants to hear about dispatch, as events on a topic of the broker's own.
//!
//! - An event of the news and the fact it tells of are one append: neither is without the other.
//! - The topic is internal and lives in the default log; it is there from the first subscription on. What happens in
//!   another log is not told, since one append cannot span both.
//! - Nothing is told about subscriptions to the news themselves: news of news would never end.

use crate::events::draft_of;
use crate::ledger::{Command, Decision, JobKey, Ledger, SubscriptionRow};
use contract::{AttemptError, Error, EventTypeId, Kind, NewEvent, NewTopic, Result, SubjectTypeId, TopicId};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

/// The topic of the news.
const TOPIC: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
/// What the types of the news begin with.
const TYPES: &str = "gts.hyperspot.core.events.type.v1~hx.broker.dispatch";
/// And their subjects' types.
const SUBJECTS: &str = "gts.hx.core.events.subject.v1~hx.broker.dispatch";
/// How long news are kept.
const KEPT: &str = "P30D";

/// Something an operator wants to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationalEvent<'a> {
    /// A subscription does not deliver any more.
    Paused { row: &'a SubscriptionRow, by: &'a str, reason: Option<&'a str> },
    /// A job was given up.
    JobDead {
        row: Option<&'a SubscriptionRow>,
        job: JobKey,
        event: Uuid,
        dead_letter: Option<Uuid>,
        error: AttemptError,
    },
    /// A target is left alone for a while.
    TargetFailing { target: &'a str },
    /// It can be reached again.
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

    /// The type's last name, the subject's, the subject, and what there is to say.
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
                    // A task goes by its own id.
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

/// Makes news part of a decision.
pub(crate) fn announce(news: &OperationalEvent<'_>, decision: &mut Decision<'_>) -> Result<()> {
    let topic = topic()?;
    if news.about().is_some_and(|row| row.definition.topic == topic) {
        return Ok(());
    }
    let Some(entry) = decision.registry().topic(&topic).cloned() else { return Ok(()) };
    let event = news.event()?;
    // Made of where it stands, so that deciding the same again makes the same.
    let hash = blake3::hash(format!("news\n{}\n{}", event.event_type, decision.position()).as_bytes());
    let half = hash.as_bytes().as_chunks::<16>().0.first().copied().unwrap_or_default();
    let id = uuid::Builder::from_custom_bytes(half).into_uuid();
    decision.add_event(&draft_of(&event, id, &entry, decision.now())?)?;
    Ok(())
}

/// Sees to it that there is a topic for the news.
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

/// News of a target, which come with nothing else.
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
