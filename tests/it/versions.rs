//! Schema versions of event types: their lifecycle, publishing under them, and what a minor version may change.
//!
//! A separate scenario language for one event type at a time; it runs on every engine, and `reopen` folds what is on
//! disk.
//!
//! ```text
//! type {"dataSchema": …}                register it; the JSON's `id` is ours
//! add 1.1 {"type": "object"}            a JSON Schema; `add 1.1 PROTO …` and `add 1.1 XSD …` take text
//! finalise 1.1      deprecate 1.1      archive      show
//! publish {"a": 1} version=1.1 id=7     `data`, and what else there is
//! ```

use crate::scenario::{describe, topic_id, type_id};
use contract::api::*;
use contract::{
    EventType, EventTypeId, Kind, NewEvent, NewEventType, NewTopic, NewVersion, PublishOutcome, RegisterOutcome,
    RegisteredVersion, Result, SchemaType, SchemaVersion, TopicId,
};
use event_broker::{Broker, Config, ManualClock, StorageConfig, TopicRoute};
use log::MemoryLog;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

fn check(text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for on_disk in [false, true] {
        runtime.block_on(async {
            let mut world = VersionsFixture::new(on_disk).await;
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let (command, expected) = line.split_once("->").unwrap_or((line, ""));
                let answer = world.run(command.trim()).await.unwrap_or_else(|error| describe(&error));
                assert_eq!(answer, expected.trim(), "on disk: {on_disk}, line {number}: {}", line.trim());
            }
        });
    }
}

struct VersionsFixture {
    memory: Arc<MemoryLog>,
    folder: Option<TempDir>,
    clock: Arc<ManualClock>,
    broker: Option<Broker>,
}

impl VersionsFixture {
    async fn new(on_disk: bool) -> Self {
        let folder = on_disk.then(|| TempDir::new().unwrap());
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        let mut world = Self { memory: Arc::new(MemoryLog::new()), folder, clock, broker: None };
        world.open().await;
        world
    }

    async fn open(&mut self) {
        let mut config = Config::default();
        config.tenant.required = false;
        self.broker = Some(match &self.folder {
            None => Broker::on_log(config, self.memory.clone(), None, self.clock.clone()).await.unwrap(),
            Some(folder) => {
                let storage = StorageConfig { segment_bytes: 2000, ..StorageConfig::folder(folder.path()) };
                Broker::open_at(Config { storage, ..config }, self.clock.clone()).await.unwrap()
            }
        });
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    async fn run(&mut self, command: &str) -> Result<String> {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let (first, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        let version = || first.parse::<SchemaVersion>();
        let id = placed();
        match verb {
            "reopen" | "rebuild" => {
                let before = self.broker.take().unwrap();
                before.close().await;
                drop(before);
                if let Some(folder) = self.folder.as_ref().filter(|_| verb == "rebuild") {
                    std::fs::remove_dir_all(folder.path().join("state")).unwrap();
                }
                self.open().await;
                Ok(String::new())
            }
            "type" => registered(self.broker().register_event_type(new_type(rest)).await?, |it| shown(&it)),
            "add" => {
                let version = new_version(version()?, behind);
                registered(self.broker().add_version(&id, version).await?, |it| one(&it))
            }
            "finalise" => Ok(one(&self.broker().finalise_version(&id, version()?).await?)),
            "deprecate" => Ok(one(&self.broker().deprecate_version(&id, version()?).await?)),
            "archive" => Ok(shown(&self.broker().archive_event_type(&id).await?)),
            "show" => Ok(shown(&self.broker().event_type(&id).await?)),
            "publish" => self.publish(rest).await,
            _ => panic!("unknown verb {verb}"),
        }
    }

    async fn publish(&self, rest: &str) -> Result<String> {
        let (data, more) = rest.rsplit_once('}').unwrap();
        let mut event = NewEvent::new(placed(), "test", RawValue::from_string(format!("{data}}}")).unwrap());
        event.subject = Some("a".to_owned());
        for word in more.split_whitespace() {
            match word.split_once('=').unwrap() {
                ("version", version) => event.data_version = Some(version.to_owned()),
                ("id", id) => event.id = Some(Uuid::from_u128(id.parse().unwrap())),
                _ => panic!("{word}"),
            }
        }
        let published = self.broker().publish(event, None).await?;
        let outcome = match published.outcome {
            PublishOutcome::Created => "created",
            PublishOutcome::Duplicate { .. } => "duplicate",
        };
        let version = published.event.event()?.data_version.unwrap();
        Ok(format!("{outcome} under {version}{}", if published.deprecated { " deprecated" } else { "" }))
    }
}

fn placed() -> EventTypeId {
    type_id("placed").parse().unwrap()
}

fn new_type(text: &str) -> NewEventType {
    let mut definition: Value = serde_json::from_str(text).unwrap();
    definition["id"] = json!(type_id("placed"));
    serde_json::from_value(definition).unwrap()
}

fn new_version(version: SchemaVersion, text: &str) -> NewVersion {
    let (schema_type, schema) = match text.split_once(' ') {
        Some(("PROTO", file)) => (SchemaType::Proto, json!(format!("syntax = \"proto3\"; {file}"))),
        Some(("XSD", body)) => (SchemaType::Xsd, json!(xsd(body))),
        Some(("TEXT", schema)) => (SchemaType::JsonSchema, json!(schema)),
        _ => (SchemaType::JsonSchema, serde_json::from_str(text).unwrap()),
    };
    NewVersion { schema_type, ..NewVersion::json_schema(version, schema) }
}

fn xsd(body: &str) -> String {
    format!(r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{body}</xs:schema>"#)
}

fn registered<T>(outcome: RegisterOutcome<T>, show: impl Fn(T) -> String) -> Result<String> {
    Ok(match outcome {
        RegisterOutcome::Created(thing) => format!("created {}", show(thing)).trim().to_owned(),
        RegisterOutcome::Unchanged(thing) => format!("unchanged {}", show(thing)).trim().to_owned(),
    })
}

fn one(version: &RegisteredVersion) -> String {
    let status = serde_json::to_value(version.status).unwrap();
    let times = (version.finalised_at.is_some(), version.deprecated_at.is_some());
    let expected = match status.as_str().unwrap() {
        "FINALISING" => (false, false),
        "CURRENT" => (true, false),
        _ => (true, true),
    };
    assert_eq!(times, expected, "{version:?}");
    format!("{} {}", version.definition.version, status.as_str().unwrap())
}

fn shown(event_type: &EventType) -> String {
    assert!(event_type.definition.versions.is_empty());
    let mut words: Vec<_> = event_type.versions.iter().map(one).collect();
    words.extend(event_type.archived.then(|| "archived".to_owned()));
    words.join(", ")
}

#[test]
fn a_bare_data_schema_is_version_1_0() {
    check(
        r#"
        type {"dataSchema": {"type": "object", "required": ["a"]}} -> created 1.0 CURRENT
        type {"dataSchema": {"type": "object", "required": ["a"]}} -> unchanged 1.0 CURRENT
        type {"dataSchema": {"type": "object"}}   -> ALREADY_EXISTS
        publish {"a": 1}                          -> created under 1.0
        publish {"a": 1} version=1.0              -> created under 1.0
        publish {} version=1.0                    -> VALIDATION_ERROR /data
        publish {"a": 1} version=1.1              -> VALIDATION_ERROR /dataVersion
        publish {"a": 1} version=one              -> VALIDATION_ERROR /dataVersion
        publish {"a": 1} version=01.0             -> VALIDATION_ERROR /dataVersion
        reopen
        show                                      -> 1.0 CURRENT
        rebuild
        show                                      -> 1.0 CURRENT
    "#,
    );
}

#[test]
fn a_type_without_a_schema_takes_any_object_as_1_0() {
    check(
        r#"
        type {}                                   -> created
        publish {"a": 1}                          -> created under 1.0
        publish {"a": 1} version=1.0              -> created under 1.0
        publish {"a": 1} version=2.0              -> VALIDATION_ERROR /dataVersion
    "#,
    );
}

#[test]
fn a_version_is_finalised_then_current_then_deprecated() {
    check(
        r#"
        add 1.0 {}                                -> NOT_FOUND
        type {}                                   -> created
        add 1.0 {"properties": {"a": {"type": "string"}}}          -> created 1.0 FINALISING
        add 1.0 {"properties": {"a": {"type": "string"}}}          -> unchanged 1.0 FINALISING
        add 1.0 TEXT {"properties": {"a": {"type": "string"}}}     -> unchanged 1.0 FINALISING
        add 1.0 {"properties": {"a": {"type": "integer"}}}         -> created 1.0 FINALISING
        deprecate 1.0                             -> INVALID_STATE
        publish {"a": 1}                          -> VALIDATION_ERROR /dataVersion
        publish {"a": 1} version=1.0              -> VALIDATION_ERROR /dataVersion
        add 1.0 {"properties": {"a": {"type": "string"}}}          -> created 1.0 FINALISING
        publish {"a": "x"} version=1.0            -> VALIDATION_ERROR /dataVersion
        add 1.0 {"properties": {"a": {"type": "integer"}}}         -> created 1.0 FINALISING
        reopen
        finalise 1.1                              -> NOT_FOUND
        finalise 1.0                              -> 1.0 CURRENT
        finalise 1.0                              -> INVALID_STATE
        add 1.0 {"properties": {"a": {"type": "integer"}}}         -> unchanged 1.0 CURRENT
        add 1.0 {}                                -> INVALID_STATE
        publish {"a": 1}                          -> created under 1.0
        add 1.1 {"properties": {"a": {"type": "number"}}}          -> created 1.1 FINALISING
        publish {"a": 1} version=1.1              -> VALIDATION_ERROR /dataVersion
        publish {"a": 1.5}                        -> VALIDATION_ERROR /data/a
        finalise 1.1                              -> 1.1 CURRENT
        show                                      -> 1.0 DEPRECATED, 1.1 CURRENT
        publish {"a": 1.5}                        -> created under 1.1
        publish {"a": 1} version=1.0              -> created under 1.0 deprecated
        publish {"a": 1.5} version=1.0            -> VALIDATION_ERROR /data/a
        rebuild
        show                                      -> 1.0 DEPRECATED, 1.1 CURRENT
        deprecate 1.0                             -> INVALID_STATE
        deprecate 1.1                             -> 1.1 DEPRECATED
        deprecate 1.2                             -> NOT_FOUND
        publish {"a": 1}                          -> VALIDATION_ERROR /dataVersion
        publish {"a": 1} version=1.1              -> created under 1.1 deprecated
        type {}                                   -> unchanged 1.0 DEPRECATED, 1.1 DEPRECATED
    "#,
    );
}

#[test]
fn the_default_is_the_current_version_of_the_highest_major() {
    check(
        r#"
        type {"dataSchema": {"required": ["a"]}}  -> created 1.0 CURRENT
        add 2.0 {"required": ["b"]}               -> created 2.0 FINALISING
        publish {"a": 1}                          -> created under 1.0
        finalise 2.0                              -> 2.0 CURRENT
        show                                      -> 1.0 CURRENT, 2.0 CURRENT
        publish {"b": 1}                          -> created under 2.0
        publish {"a": 1}                          -> VALIDATION_ERROR /data
        publish {"a": 1} version=1.0              -> created under 1.0
        deprecate 2.0                             -> 2.0 DEPRECATED
        publish {"a": 1}                          -> created under 1.0
        add 10.0 {}                               -> created 10.0 FINALISING
        finalise 10.0                             -> 10.0 CURRENT
        publish {}                                -> created under 10.0
        reopen
        publish {}                                -> created under 10.0
    "#,
    );
}

#[test]
fn a_minor_version_takes_what_the_one_before_takes() {
    check(
        r#"
        type {"dataSchema": {"properties": {"a": {"enum": [1, 2]}}}}  -> created 1.0 CURRENT
        add 1.1 {"properties": {"a": {"enum": [1]}}, "required": ["a"]} -> VALIDATION_ERROR /schema/properties/a/enum /schema/required
        add 1.1 PROTO message A {}                -> VALIDATION_ERROR /schemaType
        add 2.0 {"properties": {"a": {"enum": [1]}}}                  -> created 2.0 FINALISING
        add 1.1 {"properties": {"a": {"enum": [1, 2, 3]}}}            -> created 1.1 FINALISING
        add 1.2 {"properties": {"a": {"enum": [1, 2]}}}               -> created 1.2 FINALISING
        finalise 1.1                              -> 1.1 CURRENT
        finalise 1.2                              -> VALIDATION_ERROR /schema/properties/a/enum
        add 1.3 {"properties": {"a": {"enum": [1, 2, 3, 4]}}}         -> created 1.3 FINALISING
        finalise 1.3                              -> 1.3 CURRENT
        finalise 1.2                              -> INVALID_STATE
        add 1.2 {}                                -> VALIDATION_ERROR /version
        add 0.9 {"type": "null"}                  -> created 0.9 FINALISING
        show                                      -> 0.9 FINALISING, 1.0 DEPRECATED, 1.1 DEPRECATED, 1.2 FINALISING, 1.3 CURRENT, 2.0 FINALISING
    "#,
    );
}

#[test]
fn declared_versions_are_finalised_at_once_and_held_to_the_same_rules() {
    let version = |version: &str, schema: &str| {
        format!(r#"{{"version": "{version}", "schemaType": "JSON_SCHEMA", "schema": {schema}}}"#)
    };
    let of = |versions: &[String]| format!(r#"type {{"versions": [{}]}}"#, versions.join(", "));
    let (one, two) = (version("1.0", r#"{"minimum": 5}"#), version("2.0", "{}"));
    let wider = version("1.1", r#"{"minimum": 4}"#);
    let narrower = version("1.1", r#"{"minimum": 6}"#);
    check(&format!(
        r#"
        {}      -> VALIDATION_ERROR /versions/0/schema/minimum
        {}      -> VALIDATION_ERROR /versions/1/version
        {}      -> VALIDATION_ERROR /versions/0/schema/type
        type {{"dataSchema": {{}}, "versions": [{one}]}} -> VALIDATION_ERROR /versions
        {}      -> created 1.0 DEPRECATED, 1.1 CURRENT, 2.0 CURRENT
        {}      -> unchanged 1.0 DEPRECATED, 1.1 CURRENT, 2.0 CURRENT
        {}      -> unchanged 1.0 DEPRECATED, 1.1 CURRENT, 2.0 CURRENT
        {}      -> ALREADY_EXISTS
        add 1.2 {{"minimum": 3}} -> created 1.2 FINALISING
        reopen
        {}      -> unchanged 1.0 DEPRECATED, 1.1 CURRENT, 1.2 FINALISING, 2.0 CURRENT
        publish {{}} version=1.0 -> created under 1.0 deprecated
    "#,
        of(&[narrower, one.clone()]),
        of(&[one.clone(), one.clone()]),
        of(&[version("1.0", r#"{"type": "nonsense"}"#)]),
        of(&[wider.clone(), two.clone(), one.clone()]),
        of(&[one.clone(), wider.clone(), two.clone()]),
        of(std::slice::from_ref(&two)),
        of(&[version("1.0", "{}")]),
        of(&[wider, two, one.clone()]),
    ));
}

#[test]
fn an_archived_type_takes_no_more_events_and_no_versions() {
    check(
        r#"
        archive                                   -> NOT_FOUND
        type {"dataSchema": {}}                   -> created 1.0 CURRENT
        publish {"a": 1} id=1                     -> created under 1.0
        archive                                   -> 1.0 CURRENT, archived
        archive                                   -> INVALID_STATE
        publish {"a": 1}                          -> VALIDATION_ERROR /type
        publish {"a": 1} id=2                     -> VALIDATION_ERROR /type
        publish {"a": 1} id=1                     -> duplicate under 1.0
        add 1.1 {}                                -> INVALID_STATE
        deprecate 1.0                             -> INVALID_STATE
        type {"dataSchema": {}}                   -> unchanged 1.0 CURRENT, archived
        reopen
        publish {"a": 1}                          -> VALIDATION_ERROR /type
        show                                      -> 1.0 CURRENT, archived
    "#,
    );
}

#[test]
fn a_retry_gets_its_first_answer_whatever_became_of_the_schema() {
    check(
        r#"
        type {"dataSchema": {"required": ["a"]}}  -> created 1.0 CURRENT
        publish {"a": 1} id=1                     -> created under 1.0
        publish {"b": 1} id=2                     -> VALIDATION_ERROR /data
        add 2.0 {"required": ["b"]}               -> created 2.0 FINALISING
        finalise 2.0                              -> 2.0 CURRENT
        publish {"a": 1} id=1                     -> duplicate under 1.0
        publish {"a": 1} id=3                     -> VALIDATION_ERROR /data
        publish {"a": 1}                          -> VALIDATION_ERROR /data
        publish {"b": 1} id=2                     -> created under 2.0
        reopen
        publish {"a": 1} id=1                     -> duplicate under 1.0
    "#,
    );
}

#[test]
fn proto_files_are_schemas_too() {
    check(
        r#"
        type {}                                   -> created
        add 1.0 PROTO nonsense                    -> VALIDATION_ERROR /schema
        add 1.0 {"schema": 1}                     -> created 1.0 FINALISING
        add 1.0 PROTO message Order { string order_id = 1; int32 total = 2; } -> created 1.0 FINALISING
        finalise 1.0                              -> 1.0 CURRENT
        publish {"orderId": "a", "total": 5}      -> created under 1.0
        publish {"orderId": 5, "more": 1}         -> VALIDATION_ERROR /data/more /data/orderId
        add 1.1 PROTO message Order { string order_id = 1; }                  -> VALIDATION_ERROR /schema
        add 1.1 PROTO message Order { string order_id = 1; int64 total = 2; bool more = 3; } -> created 1.1 FINALISING
        finalise 1.1                              -> 1.1 CURRENT
        reopen
        publish {"orderId": "a", "more": true}    -> created under 1.1
        publish {"more": true} version=1.0        -> VALIDATION_ERROR /data/more
    "#,
    );
}

#[test]
fn xml_schemas_are_schemas_too() {
    check(
        r#"
        type {}                                   -> created
        add 1.0 XSD <nonsense/>                   -> VALIDATION_ERROR /schema
        add 1.0 XSD <xs:include schemaLocation="a.xsd"/> -> VALIDATION_ERROR /schema
        add 1.0 XSD <xs:element name="a" type="xs:int"/> -> created 1.0 FINALISING
        finalise 1.0                              -> 1.0 CURRENT
        publish {"xml": "<a>5</a>"}               -> created under 1.0
        publish {"xml": "<a>x</a>"}               -> VALIDATION_ERROR /data/xml
        publish {"a": 5}                          -> VALIDATION_ERROR /data
        add 1.1 XSD <xs:element name="a" type="xs:string"/> -> VALIDATION_ERROR /schema
        add 1.1 XSD <xs:element name="b" type="xs:int"/><xs:element name="a" type="xs:int"/> -> created 1.1 FINALISING
        finalise 1.1                              -> 1.1 CURRENT
        rebuild
        publish {"xml": "<b>5</b>"}               -> created under 1.1
        publish {"xml": "<b>5</b>"} version=1.0   -> VALIDATION_ERROR /data/xml
    "#,
    );
}

#[test]
fn a_schema_of_the_event_is_json_schema() {
    check(
        r#"
        type {"schemaTarget": "event"}            -> created
        add 1.0 PROTO message A {}                -> VALIDATION_ERROR /schemaType
        add 1.0 {"properties": {"subject": {"maxLength": 1}}} -> created 1.0 FINALISING
        finalise 1.0                              -> 1.0 CURRENT
        publish {}                                -> created under 1.0
    "#,
    );
}

#[tokio::test]
async fn event_types_are_listed_by_the_topic_their_events_go_to() {
    let topic = |name: &str| NewTopic::new(topic_id(name));
    let routes = vec![TopicRoute { pattern: type_id("routed").parse().unwrap(), topic: topic_id("others") }];
    let config = Config { topics: vec![topic("orders"), topic("others")], routes, ..Config::default() };
    let broker = Broker::open(config).await.unwrap();
    for (name, topic) in [("placed", Some("orders")), ("routed", None), ("plain", None)] {
        let mut event_type = NewEventType::new(type_id(name).parse().unwrap());
        event_type.topic = topic.map(topic_id);
        broker.register_event_type(event_type).await.unwrap();
    }
    let listed = async |topic: Option<&TopicId>| {
        let topic = topic.map(|topic| topic.as_str().parse().unwrap());
        let page = broker.event_types(None, topic.as_ref(), None, 10).await.unwrap();
        page.items.into_iter().map(|known| known.definition.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(None).await.len(), 3);
    assert_eq!(listed(Some(&topic_id("orders"))).await, [type_id("placed")]);
    assert_eq!(listed(Some(&topic_id("others"))).await, [type_id("routed")]);
    assert_eq!(listed(Some(&topic_id("default"))).await, [type_id("plain")]);
    assert!(listed(Some(&topic_id("nowhere"))).await.is_empty());
}

#[tokio::test]
async fn of_versions_finalised_at_once_each_major_has_one_current() {
    let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
    broker.register_event_type(NewEventType::new(placed())).await.unwrap();
    let versions: Vec<_> = (1..=2).flat_map(|major| (0..10).map(move |minor| SchemaVersion { major, minor })).collect();
    let tasks: Vec<_> = versions
        .iter()
        .map(|&version| {
            let broker = Arc::clone(&broker);
            tokio::spawn(async move {
                // A caller that is refused because the type keeps changing retries, as the response says.
                loop {
                    match bring_in(&broker, version).await {
                        Err(error) if error.kind() == Kind::Overloaded => tokio::task::yield_now().await,
                        outcome => return outcome,
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        // Some are refused because a higher minor version is already finalised. No other request is lost.
        if let Err(error) = task.await.unwrap() {
            assert!(matches!(error.kind().status(), 409 | 422), "{error}");
        }
    }
    let known = broker.event_type(&placed()).await.unwrap();
    for major in 1..=2 {
        let current: Vec<_> = known
            .versions
            .iter()
            .map(one)
            .filter(|it| it.starts_with(&format!("{major}.")) && it.ends_with("CURRENT"))
            .collect();
        assert_eq!(current.len(), 1, "{current:?}");
    }
}

async fn bring_in(broker: &Broker, version: SchemaVersion) -> Result<RegisteredVersion> {
    let schema = json!({"properties": {"a": {"maximum": version.minor}}});
    broker.add_version(&placed(), NewVersion::json_schema(version, schema)).await?;
    broker.finalise_version(&placed(), version).await
}

/// Both requests read the same state; the one that is decided second must read it again. The order is not known, so a
/// pair that was decided in the other order proves nothing.
#[tokio::test]
async fn a_version_is_compared_with_what_is_finalised_in_the_meantime() {
    let broker = Broker::open(Config::default()).await.unwrap();
    let version = |minor| SchemaVersion { major: 1, minor };
    let incompatible = "VALIDATION_ERROR /schema/properties/a/maximum";
    let (mut is_finalised_anew, mut is_added_anew) = (false, false);
    for number in 0..100 {
        let id: EventTypeId = format!("order.placed.{number}").parse().unwrap();
        broker.register_event_type(NewEventType::new(id.clone())).await.unwrap();
        let up_to = |minor, maximum: i32| {
            let schema = json!({"properties": {"a": {"maximum": maximum}}});
            broker.add_version(&id, NewVersion::json_schema(version(minor), schema))
        };
        for (minor, maximum) in [(0, 10), (1, 5), (2, 20)] {
            up_to(minor, maximum).await.unwrap();
        }
        match tokio::join!(broker.finalise_version(&id, version(0)), broker.finalise_version(&id, version(1))) {
            (Ok(_), second) => {
                assert_eq!(describe(&second.unwrap_err()), incompatible);
                is_finalised_anew = true;
            }
            (first, second) => {
                assert_eq!(describe(&first.unwrap_err()), "INVALID_STATE");
                second.unwrap();
            }
        }
        let (first, second) = tokio::join!(broker.finalise_version(&id, version(2)), up_to(3, 15));
        first.unwrap();
        if let Err(error) = second {
            assert_eq!(describe(&error), incompatible);
            is_added_anew = true;
        }
        if is_finalised_anew && is_added_anew {
            return;
        }
    }
    panic!("finalised again: {is_finalised_anew}, added again: {is_added_anew}");
}

#[tokio::test]
async fn limits_of_versions_are_kept() {
    let broker = Broker::open(Config::default()).await.unwrap();
    broker.register_event_type(NewEventType::new(placed())).await.unwrap();
    let add = async |major: u32, schema: Value| {
        let version = NewVersion::json_schema(SchemaVersion { major, minor: 0 }, schema);
        broker.add_version(&placed(), version).await.map_err(|error| describe(&error))
    };
    let large = json!({"description": "a".repeat(300 * 1024)});
    assert_eq!(add(1, large.clone()).await.unwrap_err(), "VALIDATION_ERROR /schema");
    assert_eq!(add(1, large.to_string().into()).await.unwrap_err(), "VALIDATION_ERROR /schema");
    assert_eq!(add(1, json!(5)).await.unwrap_err(), "VALIDATION_ERROR /schema");
    let long =
        NewVersion { mime_type: Some("a".repeat(600)), ..NewVersion::json_schema(SchemaVersion::FIRST, json!({})) };
    assert_eq!(describe(&broker.add_version(&placed(), long).await.unwrap_err()), "VALIDATION_ERROR /mimeType");
    let named =
        NewVersion { message: Some("A".to_owned()), ..NewVersion::json_schema(SchemaVersion::FIRST, json!({})) };
    assert_eq!(describe(&broker.add_version(&placed(), named).await.unwrap_err()), "VALIDATION_ERROR /message");
    let half = json!({"description": "a".repeat(250 * 1024)});
    for major in 1..=16 {
        add(major, half.clone()).await.unwrap();
    }
    assert_eq!(add(17, half.clone()).await.unwrap_err(), "OVERLOADED");
    // The same definition again and a smaller one in its place are still accepted.
    assert!(matches!(add(16, half).await, Ok(RegisterOutcome::Unchanged(_))));
    assert!(matches!(add(16, json!({})).await, Ok(RegisterOutcome::Created(_))));
}

#[tokio::test]
async fn a_version_added_to_a_declared_type_is_registered_at_the_next_start() {
    let folder = TempDir::new().unwrap();
    let id: EventTypeId = type_id("placed").parse().unwrap();
    let minimum = |version: SchemaVersion, least: u32| NewVersion::json_schema(version, json!({"minimum": least}));
    for (versions, expected) in
        [(1, "1.0 CURRENT"), (2, "1.0 DEPRECATED, 1.1 CURRENT"), (1, "1.0 DEPRECATED, 1.1 CURRENT")]
    {
        let declared = (0..versions).map(|minor| minimum(SchemaVersion { major: 1, minor }, 5 - minor)).collect();
        let mut config = Config::folder(folder.path());
        config.event_types = vec![NewEventType { versions: declared, ..NewEventType::new(id.clone()) }];
        let broker = Broker::open(config).await.unwrap();
        assert_eq!(shown(&broker.event_type(&id).await.unwrap()), expected);
        broker.close().await;
    }
}
