//! Topics: named streams with their own order and retention.
//!
//! - A topic is registered once; the same again changes nothing, another definition is refused.
//! - What may change later is what readers and numbering do not rest on.

mod retention;

pub(crate) use retention::{expire, keep_expiring, trim};

use crate::ledger::{Command, Decision, Entry, Ledger, Registry, read_failed};
use contract::{
    Cleanup, Cursor, Error, GtsPattern, Kind, NewTopic, Page, Registered, Result, Segments, Streaming, Timestamp,
    Topic, TopicChange, TopicId, Violation, limits,
};

/// Registers a topic in a log of this kind (`memory`, `file`, …).
pub(crate) async fn register(ledger: &Ledger, log_kind: &'static str, topic: NewTopic) -> Result<Registered<Topic>> {
    check(&topic, log_kind)?;
    ledger.submit(Register(topic)).await
}

/// Changes what may change about a topic.
pub(crate) async fn change(ledger: &Ledger, id: &TopicId, change: TopicChange) -> Result<Topic> {
    ledger.submit(Change { id: id.clone(), change }).await
}

/// One topic.
pub(crate) fn get(registry: &Registry, id: &TopicId) -> Result<Topic> {
    let known = registry.topic(id).ok_or_else(|| Error::not_found("topic"))?;
    Ok(known.topic.clone())
}

/// Topics in order of their ids, the page at `cursor`; internal ones are left out.
pub(crate) fn list(
    registry: &Registry,
    pattern: Option<&GtsPattern>,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Page<Topic> {
    let matching = registry.topics().filter(|known| {
        let NewTopic { id, internal, .. } = &known.topic.definition;
        let fits = |pattern: &GtsPattern| match pattern.is_exact() {
            true => pattern.as_str() == id.as_str(),
            false => pattern.matches(id.as_gts()),
        };
        !internal && pattern.is_none_or(fits)
    });
    Page::of(matching.map(|known| known.topic.clone()), cursor, limit, |last| last.definition.id.to_string())
}

/// The segments that hold a topic's events.
pub(crate) async fn segments(ledger: &Ledger, id: &TopicId) -> Result<Segments> {
    let number = ledger.registry().topic(id).ok_or_else(|| Error::not_found("topic"))?.number;
    let segments = ledger.log().segments(number).await.map_err(read_failed)?;
    Ok(Segments { topic: id.clone(), segments })
}

fn check(topic: &NewTopic, log_kind: &str) -> Result<()> {
    let mut violations = Vec::new();
    check_streaming(&topic.streaming, log_kind, &mut violations);
    check_words(topic.description.as_deref(), topic.idempotent_retention.as_ref(), &mut violations);
    if topic.cleanup == Some(Cleanup::Compact) {
        violations.push(Violation::new("/cleanup", "compaction is not available yet"));
    }
    refuse(violations)
}

fn check_streaming(streaming: &Streaming, log_kind: &str, violations: &mut Vec<Violation>) {
    match streaming {
        Streaming::Enabled(true) => (),
        Streaming::Enabled(false) => violations.push(Violation::new("/streaming", "must be true or an object")),
        Streaming::Options(options) => {
            if options.location.is_some() {
                violations.push(Violation::new("/streaming/location", "a log of its own is not available yet"));
            }
            if options.streaming_type.as_deref().is_some_and(|kind| kind != log_kind) {
                violations.push(Violation::new("/streaming/type", format!("this broker's log is of type {log_kind}")));
            }
        }
    }
}

fn check_words(description: Option<&str>, window: Option<&contract::Span>, violations: &mut Vec<Violation>) {
    if description.is_some_and(|text| text.len() > limits::DESCRIPTION_BYTES_MAX) {
        violations.push(Violation::new("/description", "is too long"));
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

struct Register(NewTopic);

impl Command for Register {
    type Answer = Registered<Topic>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let registry = decision.registry();
        if let Some(known) = registry.topic(&self.0.id) {
            if known.topic.definition == self.0 {
                return Ok(Registered::Unchanged(known.topic.clone()));
            }
            return Err(Error::new(Kind::AlreadyExists, "A topic of this name has another definition."));
        }
        if registry.topic_count() >= limits::TOPICS_MAX {
            return Err(Error::new(Kind::Overloaded, "This broker holds as many topics as it may."));
        }
        let number = registry.next_topic_number();
        let topic = Topic { definition: self.0.clone(), created_at: Timestamp::from_millis(decision.now()) };
        decision.add_entry(Entry::TopicRegistered { number, topic: topic.clone() })?;
        Ok(Registered::Created(topic))
    }

    fn bytes(&self) -> usize {
        self.0.description.as_ref().map_or(0, String::len)
    }
}

struct Change {
    id: TopicId,
    change: TopicChange,
}

impl Command for Change {
    type Answer = Topic;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Topic> {
        let known = decision.registry().topic(&self.id).ok_or_else(|| Error::not_found("topic"))?;
        let mut topic = known.topic.clone();
        let TopicChange { description, retention, idempotent_retention, on_payload_mismatch } = self.change.clone();
        let definition = &mut topic.definition;
        definition.description = description.or(definition.description.take());
        definition.retention = retention.or(definition.retention.take());
        definition.idempotent_retention = idempotent_retention.or(definition.idempotent_retention.take());
        definition.on_payload_mismatch = on_payload_mismatch.or(definition.on_payload_mismatch);
        let mut violations = Vec::new();
        check_words(definition.description.as_deref(), definition.idempotent_retention.as_ref(), &mut violations);
        refuse(violations)?;
        if topic != known.topic {
            decision.add_entry(Entry::TopicChanged { topic: topic.clone() })?;
        }
        Ok(topic)
    }

    fn bytes(&self) -> usize {
        self.change.description.as_ref().map_or(0, String::len)
    }
}
