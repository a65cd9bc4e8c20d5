//! Query parameters, and the bodies that are no type of the contract.

use contract::{
    AggregateRead, Cursor, DeadLetterFilter, EventFilter, GroupReset, JobFilter, JobStatus, LogRead, ReadOffset,
    ResetTo, TopicRead,
};
use serde_json::{Value, json};
use std::fmt::Display;
use std::time::Duration;
use uuid::Uuid;

/// Parameters by name.
pub(crate) type QueryParams = Vec<(String, String)>;

/// A single parameter.
pub(crate) fn one(name: &str, value: impl Display) -> QueryParams {
    vec![(name.to_owned(), value.to_string())]
}

/// Adds a parameter if it has a value.
pub(crate) fn add(query: &mut QueryParams, name: &str, value: Option<impl Display>) {
    query.extend(value.map(|value| (name.to_owned(), value.to_string())));
}

/// The parameters of a page of a list.
pub(crate) fn page(cursor: Option<&Cursor>, limit: usize) -> QueryParams {
    let mut query = one("limit", limit);
    add(&mut query, "cursor", cursor);
    query
}

/// A read as a consumer.
pub(crate) fn of_consumer(consumer: Uuid, offset: ReadOffset, limit: usize, timeout: Option<Duration>) -> QueryParams {
    let mut query = one("consumer_id", consumer);
    add(&mut query, "offset", Some(offset));
    add(&mut query, "limit", Some(limit));
    query.extend(timeout.map(seconds));
    query
}

/// The subject type of an aggregate as a piece of a path.
pub(crate) fn subject_type(read: &AggregateRead) -> &str {
    read.subject_type.as_ref().map_or("-", |id| id.as_str())
}

/// A read of an aggregate.
pub(crate) fn of_aggregate(read: &AggregateRead) -> QueryParams {
    let mut query = one("topic", &read.topic);
    add(&mut query, "after", Some(read.after));
    add(&mut query, "limit", Some(read.limit));
    query
}

/// Dead letters.
pub(crate) fn of_letters(filter: &DeadLetterFilter, cursor: Option<&Cursor>, limit: usize) -> QueryParams {
    let mut query = page(cursor, limit);
    let source = filter.source.map(|source| match source {
        contract::DeadLetterSource::Handler => "handler",
        contract::DeadLetterSource::Subscription => "subscription",
    });
    add(&mut query, "source", source);
    add(&mut query, "name", filter.name.as_deref());
    add(&mut query, "topic", filter.topic.as_ref());
    add(&mut query, "status", filter.resolved_too.then_some("all"));
    query
}

/// Dispatch jobs.
pub(crate) fn of_jobs(filter: &JobFilter, cursor: Option<&Cursor>, limit: usize) -> QueryParams {
    let JobFilter { status, subscription, event, group } = filter;
    let mut query = page(cursor, limit);
    add(&mut query, "status", status.map(JobStatus::as_str));
    add(&mut query, "subscription", subscription.as_deref());
    add(&mut query, "event", event.as_ref());
    add(&mut query, "group", group.as_deref());
    query
}

/// The body of a reset of a group.
pub(crate) fn reset(reset: &GroupReset) -> Value {
    let topic = &reset.topic;
    match reset.to {
        ResetTo::Offset(offset) => json!({"topic": topic, "offset": offset}),
        ResetTo::Earliest => json!({"topic": topic, "offset": "earliest"}),
        ResetTo::Latest => json!({"topic": topic, "offset": "latest"}),
        ResetTo::Time(time) => json!({"topic": topic, "time": time}),
    }
}

/// A read of a topic; without a time-out it does not wait.
pub(crate) fn of_read(read: &TopicRead, timeout: Option<Duration>) -> QueryParams {
    let mut query = of_filter(&read.filter);
    query.push(("topic".to_owned(), read.topic.to_string()));
    query.push(("offset".to_owned(), read.offset.to_string()));
    query.push(("limit".to_owned(), read.limit.to_string()));
    query.extend(timeout.map(seconds));
    query
}

/// A read of the log.
pub(crate) fn of_log_read(read: &LogRead, timeout: Duration) -> QueryParams {
    let mut query = of_filter(&read.filter);
    query.push(("after".to_owned(), read.after.to_string()));
    query.push(("limit".to_owned(), read.limit.to_string()));
    query.push(seconds(timeout));
    query
}

/// `timeout` in whole seconds: less than a second is no wait.
pub(crate) fn seconds(timeout: Duration) -> (String, String) {
    ("timeout".to_owned(), timeout.as_secs().to_string())
}

fn of_filter(filter: &EventFilter) -> QueryParams {
    let EventFilter { types, subject_types, subjects, tenants, sources, correlation_ids, context, .. } = filter;
    let mut query = QueryParams::new();
    let mut add = |name: &str, value: String| query.push((name.to_owned(), value));
    types.iter().for_each(|it| add("type", it.to_string()));
    subject_types.iter().for_each(|it| add("subjectType", it.to_string()));
    subjects.iter().for_each(|it| add("subject", it.clone()));
    tenants.iter().for_each(|it| add("tenant", it.to_string()));
    sources.iter().for_each(|it| add("source", it.clone()));
    correlation_ids.iter().for_each(|it| add("correlationId", it.clone()));
    context.iter().for_each(|(key, value)| add(&format!("context.{key}"), value.clone()));
    filter.occurred_from.iter().for_each(|it| add("occurredFrom", it.to_string()));
    filter.occurred_to.iter().for_each(|it| add("occurredTo", it.to_string()));
    filter.cel.iter().for_each(|it| add("filter", it.clone()));
    query
}
