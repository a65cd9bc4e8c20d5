//! Checks the document against the contract: its types and the schemas accept and produce the same JSON.

use super::{ApiDocument, expect_valid};
use crate::http::Server;
use contract::{
    Actor, ActorType, AggregateSequence, CleanupPolicy, Consumer, ConsumerGroup, Cursor, DeduplicateBy, Distribution,
    Event, EventCount, EventType, Generation, IdPattern, Identifier, IsoDuration, Kind, NewCheckpoint, NewConsumer,
    NewEvent, NewEventType, NewProjection, NewTopic, NewVersion, Offset, PayloadMismatch, Position, Projection,
    RegisteredVersion, RepublishRequest, SchemaTarget, SchemaType, SchemaVersion, SecretPolicy, Segment, Sequence,
    StreamingOptions, StreamingSetting, Timestamp, Topic, TopicChange, TrimRequest, VersionStatus,
};
use contract::{
    BulkResolveRequest, Claim, ClaimAttempt, ClaimCompletion, ClaimError, ClaimFailure, ClaimOrder, ClaimOutcome,
    Completion, DeadLetter, DeadLetterSource, DeadLetterSummary, FencingToken, Handler, NewClaim, NewHandler,
    RedriveOverride, RedriveRequest, SubjectNormalisation,
};
use proptest::prelude::*;
use proptest::string::string_regex;
use proptest::test_runner::{Config, TestRunner};
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

fn text<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn all_members_of_an_event() -> NewEvent {
    let label = || Some("label".to_owned());
    NewEvent {
        id: Some(Uuid::from_u128(1)),
        topic: Some(text("gts.hx.core.events.topic.v1~")),
        occurred_at: Some(Timestamp::from_millis(0)),
        subject: label(),
        subject_type: Some(text("gts.vendor.tenants.tenant.v1")),
        tenant: Some(Uuid::from_u128(2)),
        data_version: Some("1.0".to_owned()),
        sequence: Some(1),
        expected_aggregate_sequence: Some(AggregateSequence(0)),
        trace_parent: label(),
        correlation_id: label(),
        causation_id: label(),
        message_group: label(),
        deduplication_id: label(),
        request_id: label(),
        actor: Some(Actor { actor_type: ActorType::ServicePrincipal, id: "a".to_owned() }),
        context: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
        ..NewEvent::new(text("gts.a.b.v1"), "source", serde_json::from_str("{}").unwrap())
    }
}

fn stored(event: NewEvent) -> Event {
    Event {
        id: event.id.unwrap(),
        event_type: event.event_type,
        topic: event.topic.unwrap(),
        sequence: Sequence(1),
        aggregate_sequence: Some(AggregateSequence(1)),
        position: Position(1),
        occurred_at: Timestamp::from_millis(0),
        created_at: Timestamp::from_millis(0),
        source: event.source,
        subject: event.subject,
        subject_type: event.subject_type,
        tenant: event.tenant,
        data_version: event.data_version,
        trace_parent: event.trace_parent,
        correlation_id: event.correlation_id,
        causation_id: event.causation_id,
        message_group: event.message_group,
        deduplication_id: event.deduplication_id,
        request_id: event.request_id,
        actor: event.actor,
        republish_of: Some(Sequence(1)),
        cloud_event_id: Some("A234".to_owned()),
        data_content_type: Some("application/vnd.acme+json".into()),
        context: event.context,
        data: event.data,
    }
}

fn all_members_of_a_topic() -> NewTopic {
    let options = StreamingOptions {
        streaming_type: Some("file".to_owned()),
        location: Some("file://here".to_owned()),
        retention: Some(IsoDuration::hours(1)),
    };
    NewTopic {
        description: Some("x".to_owned()),
        streaming: StreamingSetting::Options(options),
        retention: Some(text("P30D")),
        idempotent_retention: Some(text("PT24H")),
        on_payload_mismatch: Some(PayloadMismatch::Reject),
        deduplicate_by: Some(DeduplicateBy::Id),
        secrets: Some(SecretPolicy::Reject),
        cleanup: Some(CleanupPolicy::Compact),
        aggregate_normalisation: vec![
            SubjectNormalisation::Trim,
            SubjectNormalisation::CaseFold,
            SubjectNormalisation::Nfc,
        ],
        internal: true,
        ..NewTopic::new(text("gts.a.b.v1~"))
    }
}

fn all_members_of_an_event_type() -> NewEventType {
    NewEventType {
        topic: Some(text("gts.a.b.v1~")),
        description: Some("x".to_owned()),
        allowed_subject_types: vec![text("gts.a.b.v1~")],
        subject_ref_template: Some("/x/{id}".to_owned()),
        data_schema: Some(json!({"type": "object"})),
        versions: vec![all_members_of_a_version()],
        schema_target: Some(SchemaTarget::Event),
        subject_optional: true,
        tombstone: true,
        ..NewEventType::new(text("gts.a.b.v1"))
    }
}

fn all_members_of_a_version() -> NewVersion {
    // Only PROTO has a message, and its schema is text.
    let version = NewVersion::json_schema(text("1.1"), json!("message M {}"));
    let schema_type = SchemaType::Proto;
    NewVersion { schema_type, mime_type: Some("application/json".to_owned()), message: Some("M".to_owned()), ..version }
}

fn version() -> RegisteredVersion {
    let now = Timestamp::from_millis(0);
    RegisteredVersion {
        definition: all_members_of_a_version(),
        status: VersionStatus::Deprecated,
        created_at: now,
        finalised_at: Some(now),
        deprecated_at: Some(now),
    }
}

fn all_members_of_a_consumer() -> NewConsumer {
    NewConsumer {
        types: vec![text("gts.a.*")],
        subject_types: vec![text("gts.a.b.v1~")],
        cel: Some("true".to_owned()),
        session_timeout: Some(IsoDuration::seconds(30)),
        distribution: Some(Distribution::Shared),
        max_in_flight: Some(10),
        ..NewConsumer::new("group", text("gts.a.b.v1~"))
    }
}

fn consumer() -> Consumer {
    let NewConsumer { consumer_group, topic, types, subject_types, cel, .. } = all_members_of_a_consumer();
    let now = Timestamp::from_millis(0);
    Consumer {
        id: Uuid::from_u128(3),
        consumer_group,
        topic,
        types,
        subject_types,
        cel,
        session_timeout: IsoDuration::seconds(30),
        distribution: Distribution::Shared,
        max_in_flight: Some(10),
        created_at: now,
        last_seen_at: now,
        expires_at: now,
    }
}

fn change() -> TopicChange {
    TopicChange::into_definition(&all_members_of_a_topic())
}

#[tokio::test]
async fn schemas_know_every_member_of_the_contracts_types_and_no_other() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let created_at = Timestamp::from_millis(0);
    let check = SchemaChecker(&document);
    let to = NewCheckpoint::at(Offset(1));
    check.request("EventInput", &all_members_of_an_event());
    check.request("TopicInput", &all_members_of_a_topic());
    check.request("TopicChange", &change());
    let republish = RepublishRequest { dry_run: true, ..RepublishRequest::to_group("g", Sequence(1), Sequence(2)) };
    check.request("Republish", &republish);
    check.request("Trim", &TrimRequest { through: Some(Sequence(1)), before: Some(created_at), erase: true });
    check.request("Compact", &contract::CompactRequest { erase: true });
    check.answer("Counted", &EventCount { count: 1 });
    check.answer("Republished", &contract::RepublishOutcome { count: 1, damaged: vec![Sequence(1)] });
    check.request("EventTypeInput", &all_members_of_an_event_type());
    check.request("VersionInput", &all_members_of_a_version());
    check.answer("Version", &version());
    check.request("ConsumerInput", &all_members_of_a_consumer());
    check.answer("Event", &stored(all_members_of_an_event()));
    check.answer("Topic", &Topic { definition: all_members_of_a_topic(), created_at });
    // As in the registry: the versions are beside the definition, not in it.
    let definition = NewEventType { versions: Vec::new(), ..all_members_of_an_event_type() };
    check.answer("EventType", &EventType { definition, created_at, versions: vec![version()], archived: true });
    check.answer("Consumer", &consumer());
    let group: ConsumerGroup = serde_json::from_value(document.schema("ConsumerGroup")["examples"][0].clone()).unwrap();
    check.answer("ConsumerGroup", &group);
    check.answer("GroupTopic", &group.topics[0]);
    check.answer("Member", &group.topics[0].members[0]);
    check.request(
        "CheckpointInput",
        &NewCheckpoint { expected: Some(Offset(1)), generation: Some(Generation(1)), ..to },
    );
    let projection: Projection = serde_json::from_value(document.schema("Projection")["examples"][0].clone()).unwrap();
    let mut definition = projection.definition.clone();
    definition.log = true;
    check.answer("Lag", &projection.lag);
    check.answer("Projection", &Projection { definition, ..projection });
    let new_projection = document.validator(document.schema("ProjectionInput"));
    for asked in ["{}", r#"{"log": false}"#, r#"{"topic": "gts.a.b.v1~", "log": true}"#, r#"{"log": true, "x": 1}"#] {
        assert!(!new_projection.is_valid(&serde_json::from_str(asked).unwrap()), "{asked}");
    }
    for asked in [NewProjection::of_topic(text("gts.a.b.v1~")), NewProjection::of_log().filtered("true")] {
        expect_valid(&new_projection, &serde_json::to_value(asked).unwrap(), "ProjectionInput");
    }
    let segment: Segment = serde_json::from_value(document.schema("Segment")["examples"][0].clone()).unwrap();
    check.answer("Segment", &segment);
}

#[tokio::test]
async fn schemas_of_claims_and_dead_letters_know_every_member_and_no_other() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let check = SchemaChecker(&document);
    let (token, offset, events) = (FencingToken(1), Some(Offset(1)), vec![all_members_of_an_event()]);
    let error = ClaimError::new("X", "y");
    check.request(
        "ClaimInput",
        &NewClaim {
            event_id: Some(Uuid::from_u128(1)),
            owner: Some("w".to_owned()),
            lease: Some(IsoDuration::seconds(1)),
            order: Some(ClaimOrder::Gapless),
            ..NewClaim::at("h", text("gts.a.b.v1~"), Sequence(1))
        },
    );
    check.request("ClaimError", &error);
    check.request("Completion", &Completion { token, events: events.clone(), offset });
    check.request("ClaimCompletion", &ClaimCompletion { id: "x".to_owned(), token, events, offset });
    check.request("Failure", &ClaimFailure { token, error, retryable: Some(true) });
    check.request(
        "HandlerInput",
        &NewHandler {
            lease: Some(IsoDuration::seconds(1)),
            max_attempts: Some(1),
            backoff: Some(IsoDuration::seconds(1)),
            order: Some(ClaimOrder::Latest),
        },
    );
    let data = Some(serde_json::from_str("{}").unwrap());
    let changes = RedriveOverride { data, new_event_id: true };
    check.request("RedriveOverride", &changes);
    check.request("Redrive", &RedriveRequest { changes: Some(changes), reason: Some("r".to_owned()), dry_run: true });
    check.request(
        "LetterOrder",
        &BulkResolveRequest {
            source: Some(DeadLetterSource::Subscription),
            name: Some("h".to_owned()),
            topic: Some(text("gts.a.b.v1~")),
            reason: Some("r".to_owned()),
            dry_run: true,
        },
    );
    fn example<T: DeserializeOwned>(document: &ApiDocument, name: &str) -> T {
        serde_json::from_value(document.schema(name)["examples"][0].clone()).unwrap()
    }
    let claim: Claim = example(&document, "Claim");
    let claim = Claim {
        retry_at: Some(claim.claimed_at),
        dead_letter: Some(Uuid::from_u128(1)),
        error: Some(ClaimError::new("X", "y")),
        committed_offset: Some(Offset(1)),
        open_sequence: Some(Sequence(2)),
        ..claim
    };
    check.answer("Claim", &claim);
    let outcome: ClaimOutcome = example(&document, "ClaimOutcome");
    check.answer("ClaimOutcome", &ClaimOutcome { retry_at: Some(claim.claimed_at), ..outcome });
    check.answer("Attempt", &example::<ClaimAttempt>(&document, "Attempt"));
    let handler: Handler = example(&document, "Handler");
    check.answer("Handler", &handler);
    check.answer("HandlerTopic", &handler.topics[0]);
    let letter: DeadLetter = example(&document, "DeadLetter");
    let mut resolution = letter.resolution.clone().unwrap();
    resolution.new_event_id = Some(Uuid::from_u128(2));
    check.answer("Resolution", &resolution);
    // An event that cannot be read: the example has one.
    let unreadable = Some("The event was removed from the topic.".to_owned());
    check.answer("DeadLetter", &DeadLetter { event_error: unreadable, ..letter });
    let summary: DeadLetterSummary = example(&document, "LetterSummary");
    check.answer("LetterSummary", &summary);
    check.answer("LetterCount", &summary.items[0]);
}

struct SchemaChecker<'a>(&'a ApiDocument);

impl SchemaChecker<'_> {
    /// A type of requests: everything it can write matches the schema, and it can read everything that the schema
    /// allows.
    fn request<T: Serialize + DeserializeOwned>(&self, name: &str, full: &T) {
        let full = self.answer(name, full);
        let schema = self.0.schema(name);
        assert_eq!(schema["additionalProperties"], false, "{name}");
        let needed = names(&schema["required"]);
        let least: serde_json::Map<_, _> =
            full.as_object().unwrap().iter().filter(|(name, _)| needed.contains(name)).map(clone).collect();
        serde_json::from_value::<T>(Value::Object(least.clone())).unwrap_or_else(|error| panic!("{name}: {error}"));
        for missing in &needed {
            let mut less = least.clone();
            less.remove(missing);
            assert!(serde_json::from_value::<T>(Value::Object(less)).is_err(), "{name} can do without {missing}");
        }
        for (member, specified) in schema["properties"].as_object().unwrap() {
            let validator = self.0.validator(specified);
            // A null for a required member is refused later; for an optional member it is read, or refused here.
            let nothing = (!needed.contains(member)).then_some(Value::Null);
            for value in [full[member].clone()].into_iter().chain(nothing) {
                let mut with = least.clone();
                with.insert(member.clone(), value.clone());
                let read = serde_json::from_value::<T>(Value::Object(with)).is_ok();
                assert_eq!(read, validator.is_valid(&value), "{name}: {member} = {value}");
            }
        }
    }

    /// A type of responses: everything it can write matches the schema, and the schema allows no more than that.
    fn answer<T: Serialize>(&self, name: &str, full: &T) -> Value {
        let full = serde_json::to_value(full).unwrap();
        let schema = self.0.schema(name);
        // All members at once may break the rules between them.
        let mut without_rules = schema.clone();
        without_rules.as_object_mut().unwrap().retain(|word, _| word != "if" && word != "then");
        expect_valid(&self.0.strict_validator(&without_rules), &full, name);
        // `contextData` is read and never written: it is converted to `context`.
        for member in schema["properties"].as_object().unwrap().keys().filter(|member| *member != "contextData") {
            assert!(full.get(member).is_some(), "{name} has no {member}");
        }
        full
    }
}

fn clone((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// The parser accepts every text that the pattern generates. Of similar texts, the pattern matches each one that the
/// parser accepts, unless it has numbers of more than `digits_max` digits.
fn expect_same(pattern: &str, digits_max: usize, taken: impl Fn(&str) -> bool) {
    let absurd = Regex::new(&format!("[0-9]{{{}}}", digits_max + 1)).unwrap();
    let regex = Regex::new(pattern).unwrap();
    // The generator rejects anchors, and must not repeat without end.
    let bare = pattern.trim_start_matches('^').trim_end_matches('$').replace("]*", "]{0,3}").replace(")*", "){0,2}");
    let bare = bare.replace("]+", "]{1,5}").replace("{4,}", "{4,9}");
    let made = string_regex(&bare).unwrap();
    let altered = (made, any::<prop::sample::Index>(), "[a-z0-9_.:~*PTDHMSWnpv-]{0,2}", any::<bool>());
    let mut runner = TestRunner::new(Config { cases: 2000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&altered, |(text, at, put, cut)| {
        prop_assert!(taken(&text), "made by the pattern, not taken: {}", text);
        let at = at.index(text.len() + 1);
        let rest = if cut { text.get(at + 1..).unwrap_or_default() } else { &text[at..] };
        let other = format!("{}{put}{rest}", &text[..at]);
        let (taken, matched) = (taken(&other), regex.is_match(&other));
        prop_assert!(taken == matched || taken && absurd.is_match(&other), "taken: {}, matched: {}", taken, other);
        Ok(())
    });
    outcome.unwrap();
}

#[tokio::test]
async fn patterns_match_what_the_contract_parses() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let pattern = |schema: &Value| schema["pattern"].as_str().unwrap().to_owned();
    let member = |name: &str, member: &str| pattern(&document.schema(name)["properties"][member]);
    expect_same(&member("EventInput", "type"), 9, |text| Identifier::parse(text).is_ok());
    let types = &document.schema("ConsumerInput")["properties"]["types"]["items"];
    expect_same(&pattern(types), 9, |text| IdPattern::parse(text).is_ok());
    expect_same(&member("VersionInput", "version"), 9, |text| text.parse::<SchemaVersion>().is_ok());
    expect_same(&member("TopicInput", "retention"), 3, |text| text.parse::<IsoDuration>().is_ok());
    let cursor = &document.0["components"]["parameters"]["cursor"]["schema"];
    expect_same(&pattern(cursor), 99, |text| text.parse::<Cursor>().is_ok());
}

#[tokio::test]
async fn the_table_of_codes_is_the_contracts() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let table = document.0["info"]["description"].as_str().unwrap();
    for kind in Kind::ALL {
        assert!(table.contains(&format!("| `{}` | {} |", kind.code(), kind.status())), "{kind:?}");
    }
    let types = document.schema("Problem")["properties"]["type"]["enum"].as_array().unwrap();
    assert_eq!(types.len(), Kind::ALL.len());
    // Refusals in the document have the status of their code.
    for (name, response) in document.0["components"]["responses"].as_object().unwrap() {
        for (code, example) in response["content"]["application/problem+json"]["examples"].as_object().unwrap() {
            let kind = Kind::ALL.iter().find(|kind| kind.code() == code).unwrap_or_else(|| panic!("{name}: {code}"));
            let status = example["value"]["status"].as_u64().unwrap();
            assert_eq!(status, u64::from(kind.status()), "{name}: {code}");
            assert!(response["description"].as_str().unwrap().contains(&format!("`{code}`")), "{name}: {code}");
        }
    }
}
