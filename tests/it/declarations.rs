//! Topics and event types that the configuration declares, when the broker is opened on a log that knows them already.

use crate::scenario::{describe, topic_id, type_id};
use contract::api::*;
use contract::{
    CleanupPolicy, Error, EventType, EventTypeId, NewEvent, NewEventType, NewTopic, NewVersion, PublishOutcome,
    SchemaVersion, Topic, TopicChange, VersionStatus,
};
use event_broker::{Broker, Config, OpenError, StorageConfig, SystemClock, opener};
use log::{Log, MemoryLog};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

/// The members of a topic that can be changed.
const CHANGES: [(&str, &str); 5] = [
    ("description", "for people"),
    ("retention", "P90D"),
    ("idempotentRetention", "P2D"),
    ("onPayloadMismatch", "reject"),
    ("secrets", "reject"),
];

/// A declaration with these members.
fn declared(members: &Value) -> NewTopic {
    let mut topic = json!({"id": topic_id("orders"), "streaming": true});
    topic.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(topic).unwrap()
}

fn declaring(topic: NewTopic) -> Config {
    Config { topics: vec![topic], ..Config::default() }
}

async fn open_on(config: Config, log: &Arc<MemoryLog>) -> Result<Broker, OpenError> {
    Broker::on_log(config, Arc::clone(log) as Arc<dyn Log>, None, Arc::new(SystemClock)).await
}

async fn orders(broker: &Broker) -> Topic {
    broker.topic(&topic_id("orders")).await.unwrap()
}

async fn change(broker: &Broker, change: Value) -> Result<Topic, Error> {
    let change: TopicChange = serde_json::from_value(change).unwrap();
    broker.change_topic(&topic_id("orders"), change).await
}

#[tokio::test]
async fn a_declared_topic_that_a_request_changed_does_not_keep_the_broker_from_starting() {
    for (member, value) in CHANGES {
        let (log, topic) = (Arc::new(MemoryLog::new()), declared(&json!({"retention": "P30D"})));
        let broker = open_on(declaring(topic.clone()), &log).await.unwrap();
        assert_ne!(change(&broker, json!({ member: value })).await.unwrap().definition, topic);
        broker.close().await;
        let broker = open_on(declaring(topic.clone()), &log).await.unwrap_or_else(|error| panic!("{member}: {error}"));
        assert_eq!(orders(&broker).await.definition, topic, "{member}");
        broker.close().await;
    }
}

#[tokio::test]
async fn what_is_removed_from_a_declaration_is_removed_from_the_topic() {
    for (member, value) in CHANGES {
        let log = Arc::new(MemoryLog::new());
        let broker = open_on(declaring(declared(&json!({ member: value }))), &log).await.unwrap();
        broker.close().await;
        let bare = declared(&json!({}));
        let broker = open_on(declaring(bare.clone()), &log).await.unwrap_or_else(|error| panic!("{member}: {error}"));
        assert_eq!(orders(&broker).await.definition, bare, "{member}");
        broker.close().await;
        // The log says so: it is the same for a broker that declares nothing.
        let broker = open_on(Config::default(), &log).await.unwrap();
        assert_eq!(orders(&broker).await.definition, bare, "{member}");
        broker.close().await;
    }
}

#[tokio::test]
async fn a_declared_topic_with_a_log_of_its_own_is_changed_in_both_logs() {
    let folder = TempDir::new().unwrap();
    let topic = declared(&json!({"streaming": {"location": "orders"}, "retention": "P30D"}));
    let config = || Config { storage: StorageConfig::folder(folder.path()), ..declaring(topic.clone()) };
    let broker = Broker::open(config()).await.unwrap();
    change(&broker, json!({"description": "for people", "retention": "P90D"})).await.unwrap();
    broker.close().await;
    drop(broker);
    for _ in 0..2 {
        let broker = Broker::open(config()).await.unwrap();
        assert_eq!(orders(&broker).await.definition, topic);
        broker.close().await;
    }
}

#[tokio::test]
async fn a_default_that_is_spelt_out_in_a_declaration_is_no_other_definition() {
    let log = Arc::new(MemoryLog::new());
    let spelt = json!({"cleanup": "delete", "deduplicateBy": "submission", "onPayloadMismatch": "duplicate"});
    for members in [json!({}), spelt, json!({})] {
        let broker = open_on(declaring(declared(&members)), &log).await.unwrap();
        broker.close().await;
    }
}

#[tokio::test]
async fn a_member_that_cannot_change_is_refused_by_its_name() {
    let log = Arc::new(MemoryLog::new());
    let broker = open_on(declaring(declared(&json!({"description": "before"}))), &log).await.unwrap();
    broker.close().await;
    let other = declared(&json!({"description": "after", "cleanup": "compact"}));
    let refused = open_on(declaring(other), &log).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("`cleanup`") && !refused.contains("`description`"), "{refused}");
    // Nothing was changed.
    let broker = open_on(Config::default(), &log).await.unwrap();
    assert_eq!(orders(&broker).await.definition.description.as_deref(), Some("before"));
    broker.close().await;
}

#[tokio::test]
async fn a_broker_that_is_opened_again_after_an_incident_does_not_end_because_of_a_declaration() {
    let folder = TempDir::new().unwrap();
    let config = Config { storage: StorageConfig::folder(folder.path()), ..declaring(declared(&json!({}))) };
    let open = opener(config.clone());
    let broker = open().await.unwrap();
    // As after an older state of the log is back: the topic is another one than the declared one.
    broker.delete_topic(&topic_id("orders"), false).await.unwrap();
    let other = NewTopic { cleanup: Some(CleanupPolicy::Compact), ..declared(&json!({})) };
    broker.register_topic(other.clone()).await.unwrap();
    broker.close().await;
    drop(broker);
    let broker = open().await.unwrap();
    assert_eq!(orders(&broker).await.definition, other);
    broker.close().await;
    drop(broker);
    // A broker that is started says what is wrong.
    assert!(Broker::open(config).await.is_err_and(|error| error.to_string().contains("`cleanup`")));
}

fn placed() -> EventTypeId {
    type_id("placed").parse().unwrap()
}

fn version(text: &str, schema: Value) -> NewVersion {
    NewVersion::json_schema(text.parse().unwrap(), schema)
}

/// A configuration with an event type of these versions.
fn with_versions(versions: &[NewVersion]) -> Config {
    let event_type = NewEventType { versions: versions.to_vec(), ..NewEventType::new(placed()) };
    let mut config = Config { event_types: vec![event_type], ..Config::default() };
    config.tenant.required = false;
    config
}

fn versions() -> [NewVersion; 3] {
    [
        version("1.0", json!({"minimum": 5})),
        version("1.1", json!({"minimum": 4})),
        version("1.2", json!({"minimum": 3})),
    ]
}

/// Every version with its status.
async fn statuses(broker: &Broker) -> Vec<(String, VersionStatus)> {
    let EventType { versions, .. } = broker.event_type(&placed()).await.unwrap();
    versions.iter().map(|version| (version.definition.version.to_string(), version.status)).collect()
}

fn expected(statuses: &[VersionStatus]) -> Vec<(String, VersionStatus)> {
    statuses.iter().enumerate().map(|(minor, status)| (format!("1.{minor}"), *status)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_started_together_with_one_more_declared_version_all_start() {
    use VersionStatus::{Current, Deprecated};
    let [first, second, third] = versions();
    for _ in 0..20 {
        let log = Arc::new(MemoryLog::new());
        open_on(with_versions(std::slice::from_ref(&first)), &log).await.unwrap().close().await;
        let config = with_versions(&[first.clone(), second.clone(), third.clone()]);
        let started = (0..3).map(|_| {
            let (config, log) = (config.clone(), Arc::clone(&log));
            tokio::spawn(async move { open_on(config, &log).await })
        });
        for broker in started.collect::<Vec<_>>() {
            let broker = broker.await.unwrap().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(statuses(&broker).await, expected(&[Deprecated, Deprecated, Current]));
            broker.close().await;
        }
    }
}

#[tokio::test]
async fn a_declared_version_that_was_being_finalised_is_current_after_the_start() {
    use VersionStatus::{Current, Deprecated};
    let [first, second, _] = versions();
    for draft in [second.clone(), version("1.1", json!({"minimum": 1}))] {
        let log = Arc::new(MemoryLog::new());
        let broker = open_on(with_versions(std::slice::from_ref(&first)), &log).await.unwrap();
        broker.add_version(&placed(), draft).await.unwrap();
        broker.close().await;
        let broker = open_on(with_versions(&[first.clone(), second.clone()]), &log).await.unwrap();
        assert_eq!(statuses(&broker).await, expected(&[Deprecated, Current]));
        let known = broker.event_type(&placed()).await.unwrap();
        assert_eq!(known.versions[1].definition, second);
        let mut event = NewEvent::new(placed(), "test", RawValue::from_string("{}".to_owned()).unwrap());
        event.subject = Some("a".to_owned());
        event.data_version = Some(SchemaVersion { major: 1, minor: 1 }.to_string());
        let published = broker.publish(event, None).await.unwrap_or_else(|error| panic!("{}", describe(&error)));
        assert_eq!(published.outcome, PublishOutcome::Created);
        broker.close().await;
    }
}

#[tokio::test]
async fn a_declared_version_that_was_deprecated_stays_so() {
    let [first, second, _] = versions();
    let log = Arc::new(MemoryLog::new());
    let config = with_versions(&[first, second]);
    let broker = open_on(config.clone(), &log).await.unwrap();
    broker.deprecate_version(&placed(), SchemaVersion { major: 1, minor: 1 }).await.unwrap();
    broker.close().await;
    let broker = open_on(config, &log).await.unwrap();
    assert_eq!(statuses(&broker).await, expected(&[VersionStatus::Deprecated; 2]));
    broker.close().await;
}
