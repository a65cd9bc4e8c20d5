//! How the tables write subscriptions, jobs and errors.

use super::{TOPIC, TYPE};
use contract::{DispatchJob, Error, NewSubscription, SubscriptionChange, TopicId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A signing secret of the caller's own.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn value(name: &str, text: &str) -> Value {
    match name {
        "retrySchedule" => text.split(',').collect(),
        _ if text == "null" => Value::Null,
        "signing" => json!({"secrets": [SECRET]}),
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

pub(super) fn name(job: &DispatchJob) -> String {
    match (&job.subscription, job.sequence) {
        (Some(code), Some(sequence)) => format!("{code}/{sequence}"),
        _ => format!("task:{}", job.code),
    }
}

pub(super) fn describe(error: &Error) -> String {
    error.kind().code().trim_start_matches("EVENT_BROKER_").to_owned()
}

/// The order of lanes with the same priority is arbitrary.
pub(super) fn sorted(heard: &str) -> String {
    let mut words: Vec<_> = heard.split(' ').collect();
    words.sort_unstable();
    words.join(" ")
}

pub(super) fn turns(heard: String) -> String {
    let codes: Vec<_> = heard.split(' ').map(|word| word.split_once('/').unwrap().0).collect();
    let turns = codes.windows(2).all(|pair| pair[0] != pair[1]);
    if turns { "taking turns".to_owned() } else { heard }
}
