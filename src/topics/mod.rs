//! Topics: named streams with their own order and retention.
//!
//! - A topic is registered once; registering the same definition again changes nothing, another one is refused.
//! - Only settings that readers and numbering do not depend on may change later.
//! - A topic may live in a log of its own; see [`placing`].

mod compaction;
mod deletion;
mod placing;
mod republish;
mod retention;
mod retention_chore;
mod unused_logs;

#[cfg(test)]
pub(crate) use deletion::remove_deleted;
pub(crate) use deletion::{delete, dry_run, finish_removals};
pub(crate) use placing::reopen_side_logs;
pub(crate) use republish::{check_republish, republish_to_group, republish_to_topic};
pub(crate) use retention::{RetentionRun, compact_now, erase, expire, may_erase, tombstones, trim, trim_on_request};
pub(crate) use retention_chore::{RetentionFailures, run_retention};
pub(crate) use unused_logs::close_unused_logs;

use crate::ledger::{
    Command, Decision, Entry, Ledger, LogLocation, Registry, ReplyRecorder, TopicPlacement, read_failed,
};
use crate::logs::Logs;
use crate::types::differing_members;
use contract::{
    Cursor, DeduplicateBy, Error, IdPattern, Kind, NewTopic, Page, RegisterOutcome, Result, Timestamp, Topic,
    TopicChange, TopicId, TopicSegments, Violation, limits,
};
use std::sync::Arc;

/// Registers a topic in the log that it names. If it is written to two logs, no reply is recorded: the request can be
/// repeated.
pub(crate) async fn register(
    logs: &Arc<Logs>,
    topic: NewTopic,
    recorder: ReplyRecorder<RegisterOutcome<Topic>>,
) -> Result<RegisterOutcome<Topic>> {
    let home = check(&topic, logs)?;
    if logs.default_ledger().registry().placed(&topic.id).is_some_and(|known| known.placed.deleting) {
        deletion::finish_deletions(logs).await?;
    }
    match home {
        None => logs.default_ledger().submit_recording(RegisterTopic(topic), recorder).await,
        Some(home) => placing::register(Arc::clone(logs), topic, home).await,
    }
}

/// Registers a topic that the configuration declares. One that exists is changed to its declaration: members that may change
/// and are not declared get their defaults.
pub(crate) async fn declare(logs: &Arc<Logs>, declared: NewTopic) -> Result<()> {
    let refused = match register(logs, declared.clone(), ReplyRecorder::disabled()).await {
        Err(error) if error.kind() == Kind::AlreadyExists => error,
        registered => return registered.map(drop),
    };
    let known = logs.default_ledger().registry().definition(&declared.id).map(|known| fixed_members(&known.definition));
    let known = known.ok_or(refused)?;
    if known != fixed_members(&declared) {
        let members = differing_members(&known, &fixed_members(&declared));
        let detail = format!(
            "The topic is registered with another {members}, which cannot change. Declare it as it is registered, or declare \
            another name."
        );
        return Err(Error::new(Kind::AlreadyExists, detail));
    }
    let to_declared = TopicChange::into_definition(&declared);
    change(logs, &declared.id, to_declared, ReplyRecorder::disabled()).await.map(drop)
}

/// Registers one of the broker's own topics in this log.
pub(crate) async fn register_here(ledger: &Ledger, topic: NewTopic) -> Result<()> {
    ledger.submit(RegisterTopic(topic)).await.map(drop)
}

/// Changes a topic's settings. If it is written to two logs, no reply is recorded: the request can be repeated.
pub(crate) async fn change(
    logs: &Arc<Logs>,
    id: &TopicId,
    change: TopicChange,
    recorder: ReplyRecorder<Topic>,
) -> Result<Topic> {
    id.check_unreserved("/id")?;
    let change = ChangeTopic { id: id.clone(), change };
    match logs.default_ledger().registry().topic(id) {
        Some(_) => logs.default_ledger().submit_recording(change, recorder).await,
        None => placing::change(Arc::clone(logs), change).await,
    }
}

/// Looks up a topic.
pub(crate) fn get(registry: &Registry, id: &TopicId) -> Result<Topic> {
    registry.definition(id).cloned().ok_or_else(|| Error::not_found("topic"))
}

/// The page of topics at `cursor`, in the order of their ids, without internal ones.
pub(crate) fn list(
    registry: &Registry,
    pattern: Option<&IdPattern>,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Page<Topic> {
    let matching = registry.definitions().filter(|topic| {
        let NewTopic { id, internal, .. } = &topic.definition;
        !internal && pattern.is_none_or(|pattern| is_selected(pattern, id))
    });
    Page::of(matching.cloned(), cursor, limit, |last| last.definition.id.to_string())
}

/// Whether a pattern in a list selects a topic: the topic itself, or those that match a pattern with a star.
pub(crate) fn is_selected(pattern: &IdPattern, id: &TopicId) -> bool {
    match pattern.is_exact() {
        true => pattern.as_str() == id.as_str(),
        false => pattern.matches(id.as_identifier()),
    }
}

/// Lists the segments with a topic's events.
pub(crate) async fn segments(logs: &Logs, id: &TopicId) -> Result<TopicSegments> {
    let found = logs.find(id)?;
    let segments = logs.ledger(&found.log).log().segments(found.topic.number).await.map_err(read_failed)?;
    Ok(TopicSegments { topic: id.clone(), segments })
}

/// Checks a topic's definition; returns the log that it names.
pub(crate) fn check(topic: &NewTopic, logs: &Logs) -> Result<Option<LogLocation>> {
    let mut violations = Vec::new();
    let home = logs.location_of(&topic.streaming).unwrap_or_else(|violation| {
        violations.push(violation);
        None
    });
    if let Err(error) = topic.id.check_unreserved("/id") {
        violations.extend(error.violations().iter().cloned());
    }
    check_words(topic.description.as_deref(), topic.idempotent_retention.as_ref(), &mut violations);
    let rules = &topic.aggregate_normalisation;
    if rules.iter().enumerate().any(|(index, rule)| rules.iter().take(index).any(|earlier| earlier == rule)) {
        violations.push(Violation::new("/aggregateNormalisation", "names a rule twice"));
    }
    refuse(violations)?;
    Ok(home)
}

/// A definition without the members that may change, and with the defaults of the others: two that are equal differ in nothing
/// that cannot change.
fn fixed_members(topic: &NewTopic) -> NewTopic {
    let bare = TopicChange::into_definition(&NewTopic::new(topic.id.clone())).applied_to(topic.clone());
    NewTopic { deduplicate_by: Some(rule_of(topic)), cleanup: Some(topic.cleanup.unwrap_or_default()), ..bare }
}

/// The rule by which a topic recognises duplicates.
fn rule_of(topic: &NewTopic) -> DeduplicateBy {
    topic.deduplicate_by.unwrap_or_default()
}

/// The topic with this name; refuses another definition.
fn existing_topic<'a>(registry: &'a Registry, topic: &NewTopic) -> Result<Option<&'a Topic>> {
    match registry.definition(&topic.id) {
        Some(known) if rule_of(&known.definition) != rule_of(topic) => {
            let detail = "The topic is registered with another `deduplicateBy`. It is fixed when a topic is registered: \
                the events of the idempotency window are known by the keys of one rule.";
            Err(Error::new(Kind::AlreadyExists, detail))
        }
        Some(known) if known.definition != *topic => {
            let members = differing_members(&known.definition, topic);
            let detail = format!(
                "A topic of this name is registered with another {members}. Change what may change with PATCH \
                /v1/topics/{{id}}, or register another name."
            );
            Err(Error::new(Kind::AlreadyExists, detail))
        }
        None if registry.topic_count() >= limits::TOPICS_MAX => {
            Err(Error::new(Kind::Overloaded, "This broker has the largest permitted number of topics."))
        }
        known => Ok(known),
    }
}

fn check_words(description: Option<&str>, window: Option<&contract::IsoDuration>, violations: &mut Vec<Violation>) {
    if description.is_some_and(|text| text.chars().count() > limits::DESCRIPTION_CHARS_MAX) {
        let detail = format!("may have at most {} characters", limits::DESCRIPTION_CHARS_MAX);
        violations.push(Violation::new("/description", detail));
    }
    if window.is_some_and(|window| window.millis() > limits::IDEMPOTENT_DAYS_MAX * 86_400_000) {
        let detail = format!("may be at most {} days", limits::IDEMPOTENT_DAYS_MAX);
        violations.push(Violation::new("/idempotentRetention", detail));
    }
}

fn refuse(violations: Vec<Violation>) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Validation, "The topic breaks the rules; see `errors`.").with_violations(violations))
}

struct RegisterTopic(NewTopic);

impl Command for RegisterTopic {
    type Answer = RegisterOutcome<Topic>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let registry = decision.registry();
        if let Some(known) = existing_topic(registry, &self.0)? {
            return Ok(RegisterOutcome::Unchanged(known.clone()));
        }
        let number = registry.next_topic_number();
        let topic = Topic { definition: self.0.clone(), created_at: Timestamp::from_millis(decision.now()) };
        decision.add_entry(Entry::TopicRegistered { number, topic: topic.clone() })?;
        Ok(RegisterOutcome::Created(topic))
    }

    fn bytes(&self) -> usize {
        self.0.description.as_ref().map_or(0, String::len)
    }
}

struct ChangeTopic {
    id: TopicId,
    change: TopicChange,
}

impl Command for ChangeTopic {
    type Answer = Topic;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Topic> {
        let registry = decision.registry();
        let known = registry.definition(&self.id).ok_or_else(|| Error::not_found("topic"))?;
        let definition = self.change.clone().applied_to(known.definition.clone());
        let mut violations = Vec::new();
        check_words(definition.description.as_deref(), definition.idempotent_retention.as_ref(), &mut violations);
        refuse(violations)?;
        let topic = Topic { definition, ..known.clone() };
        if topic != *known {
            let entry = match registry.placed(&self.id) {
                Some(known) => {
                    Entry::TopicPlaced { placed: TopicPlacement { topic: topic.clone(), ..known.placed.clone() } }
                }
                None => Entry::TopicChanged { topic: topic.clone() },
            };
            decision.add_entry(entry)?;
        }
        Ok(topic)
    }

    fn bytes(&self) -> usize {
        self.change.description.iter().flatten().map(String::len).sum()
    }
}
