//! Definitions of subscriptions, as the tables spell them.

use super::{TOPIC, TYPE};
use contract::{NewSubscription, SubscriptionChange, TopicId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn value(name: &str, text: &str) -> Value {
    match name {
        "retrySchedule" => text.split(',').collect(),
        "eventTypes" => json!([{"type": format!("{TYPE}.{text}.v1")}]),
        "startFrom" => text.parse::<u64>().map_or_else(|_| json!(text), |offset| json!({"offset": offset})),
        _ => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
    }
}

/// Short names for long members.
fn member(name: &str) -> &str {
    match name {
        "retry" => "retrySchedule",
        "attempts" => "maxAttempts",
        "age" => "maxAgeSeconds",
        "delay" => "delaySeconds",
        "types" => "eventTypes",
        "from" => "startFrom",
        other => other,
    }
}

pub(super) fn subscription(code: &str, named: &BTreeMap<&str, &str>) -> NewSubscription {
    let topic: TopicId = TOPIC.parse().unwrap();
    let mut new = json!({"code": code, "topic": topic, "target": format!("http://127.0.0.1:9/{code}")});
    for (name, text) in named {
        let name = member(name);
        new[name] = value(name, text);
    }
    serde_json::from_value(new).unwrap()
}

pub(super) fn changed(named: &BTreeMap<&str, &str>) -> SubscriptionChange {
    let members: serde_json::Map<_, _> =
        named.iter().map(|(name, text)| (member(name).to_owned(), value(member(name), text))).collect();
    serde_json::from_value(members.into()).unwrap()
}
