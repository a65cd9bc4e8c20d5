//! Questions as query parameters.

use contract::{Filter, LogRead, Read};
use std::time::Duration;

/// Parameters by name.
pub(crate) type Query = Vec<(String, String)>;

/// A read of a topic; without a time it does not wait.
pub(crate) fn of_read(read: &Read, timeout: Option<Duration>) -> Query {
    let mut query = of_filter(&read.filter);
    query.push(("topic".to_owned(), read.topic.to_string()));
    query.push(("offset".to_owned(), read.offset.to_string()));
    query.push(("limit".to_owned(), read.limit.to_string()));
    query.extend(timeout.map(seconds));
    query
}

/// A read of the log.
pub(crate) fn of_log_read(read: &LogRead, timeout: Duration) -> Query {
    let mut query = of_filter(&read.filter);
    query.push(("after".to_owned(), read.after.to_string()));
    query.push(("limit".to_owned(), read.limit.to_string()));
    query.push(seconds(timeout));
    query
}

/// `timeout`, which counts whole seconds: a shorter wait than one is none.
pub(crate) fn seconds(timeout: Duration) -> (String, String) {
    ("timeout".to_owned(), timeout.as_secs().to_string())
}

fn of_filter(filter: &Filter) -> Query {
    let Filter { types, subject_types, subjects, tenants, sources, correlation_ids, context, .. } = filter;
    let mut query = Query::new();
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
