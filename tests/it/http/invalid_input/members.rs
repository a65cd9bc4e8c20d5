//! Bodies: every JSON member of every request.

use super::{PopulatedServer, consumer};
use crate::http::{CREATED, TENANT, TOPIC};
use serde_json::{Value, json};

impl PopulatedServer {
    /// For each line `member = value -> status code [pointer]`, sends `base` with that value; `absent` removes the
    /// member.
    fn check_members(&self, request: &str, base: &Value, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (change, expected) = line.rsplit_once(" -> ").unwrap();
            let (member, value) = change.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
            let value = self.filled(value);
            let body = with(base, member, &value);
            let reply = self.send(&self.filled(&format!("{request} {body}")));
            self.check_line(&format!("{request} {change}"), &reply, expected);
        }
    }
}

/// The text of `base`, with another text as a member's value.
fn with(base: &Value, member: &str, value: &str) -> String {
    let mut members: Vec<_> = base.as_object().unwrap().iter().filter(|(name, _)| *name != member).collect();
    members.retain(|(_, value)| !value.is_null());
    let mut texts: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    match value {
        "absent" => (),
        "twice" => texts.extend([format!("\"{member}\":{}", base[member]), format!("\"{member}\":{}", base[member])]),
        value => texts.push(format!("\"{member}\":{value}")),
    }
    format!("{{{}}}", texts.join(","))
}

#[tokio::test]
async fn every_member_of_an_event_has_its_edges() {
    let stage = PopulatedServer::set().await;
    let event = json!({
        "id": "00000000-0000-4000-8000-000000000001", "type": CREATED, "source": "s", "subject": "s", "tenant": TENANT,
        "data": {"n": 1}, "occurredAt": "2025-12-03T12:00:00Z", "correlationId": "c", "sequence": null,
    });
    stage.check_members("POST /v1/events", &event, EVENT);
    let depth = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    stage.check_members("POST /v1/events", &event, &format!("data = {} -> 422 VALIDATION_ERROR", depth(65)));
    stage.check_members("POST /v1/events", &event, &format!("data = {} -> 422 VALIDATION_ERROR", depth(126)));
    stage.check_members("POST /v1/events", &event, &format!("data = {} -> 422 VALIDATION_ERROR", depth(100_000)));
    stage.check_members(
        "POST /v1/events",
        &event,
        &format!("surprise = {} -> 422 VALIDATION_ERROR /surprise", depth(90)),
    );
    let pairs: Vec<_> = (0..65).map(|number| format!("\"k{number}\":\"v\"")).collect();
    let line = format!("context = {{{}}} -> 422 VALIDATION_ERROR /context", pairs.join(","));
    stage.check_members("POST /v1/events", &event, &line);
    stage.end().await;
}

const EVENT: &str = r#"
    id = "" -> 422 VALIDATION_ERROR /id
    id = "canary" -> 422 VALIDATION_ERROR /id
    id = 7 -> 422 VALIDATION_ERROR /id
    id = {} -> 422 VALIDATION_ERROR /id
    id = twice -> 422 VALIDATION_ERROR /id
    type = absent -> 422 VALIDATION_ERROR /type
    type = null -> 422 VALIDATION_ERROR /type
    type = 7 -> 422 VALIDATION_ERROR /type
    type = "" -> 400 INVALID_TYPE
    type = "canary" -> 400 INVALID_TYPE
    type = "gts.*" -> 400 INVALID_TYPE
    type = "gts.vendor.{600}.v1" -> 400 INVALID_TYPE
    type = "gts.vendor.canary.v1" -> 422 VALIDATION_ERROR /type
    type = twice -> 422 VALIDATION_ERROR /type
    topic = "" -> 400 INVALID_TYPE
    topic = 7 -> 422 VALIDATION_ERROR /topic
    topic = "gts.vendor.canary.v1~" -> 422 VALIDATION_ERROR /topic
    occurredAt = "" -> 422 VALIDATION_ERROR /occurredAt
    occurredAt = "canary" -> 422 VALIDATION_ERROR /occurredAt
    occurredAt = "2025-12-03" -> 422 VALIDATION_ERROR /occurredAt
    occurredAt = "2025-13-03T12:00:00Z" -> 422 VALIDATION_ERROR /occurredAt
    occurredAt = "2025-12-03T12:00:00" -> 422 VALIDATION_ERROR /occurredAt
    occurredAt = 1764763200 -> 422 VALIDATION_ERROR /occurredAt
    source = absent -> 422 VALIDATION_ERROR /source
    source = null -> 422 VALIDATION_ERROR /source
    source = "" -> 422 VALIDATION_ERROR /source
    source = 7 -> 422 VALIDATION_ERROR /source
    source = ["canary"] -> 422 VALIDATION_ERROR /source
    source = "{1100}" -> 422 VALIDATION_ERROR /source
    source = "canary\u0000" -> 422 VALIDATION_ERROR /source
    source = "canary\ud800" -> 400 MALFORMED
    source = twice -> 422 VALIDATION_ERROR /source
    subject = absent -> 422 VALIDATION_ERROR /subject
    subject = null -> 422 VALIDATION_ERROR /subject
    subject = "" -> 422 VALIDATION_ERROR /subject
    subject = 7 -> 422 VALIDATION_ERROR /subject
    subject = "{1100}" -> 422 VALIDATION_ERROR /subject
    subject = "\u0000" -> 422 VALIDATION_ERROR /subject
    subjectType = "" -> 400 INVALID_TYPE
    subjectType = "canary" -> 400 INVALID_TYPE
    subjectType = 7 -> 422 VALIDATION_ERROR /subjectType
    tenant = absent -> 422 VALIDATION_ERROR /tenant
    tenant = null -> 422 VALIDATION_ERROR /tenant
    tenant = "" -> 422 VALIDATION_ERROR /tenant
    tenant = "canary" -> 422 VALIDATION_ERROR /tenant
    tenant = 7 -> 422 VALIDATION_ERROR /tenant
    data = absent -> 422 VALIDATION_ERROR /data
    data = null -> 422 VALIDATION_ERROR /data
    data = "canary" -> 422 VALIDATION_ERROR /data
    data = [] -> 422 VALIDATION_ERROR /data
    data = 7 -> 422 VALIDATION_ERROR /data
    data = {"a":1,"a":2} -> 422 VALIDATION_ERROR
    data = {"a":"canary\u0000"} -> 422 VALIDATION_ERROR
    data = {"a":"\udc00"} -> 400 MALFORMED
    data = {"a":1e999} -> 422 VALIDATION_ERROR /data/a
    data = {"a":NaN} -> 400 MALFORMED
    data = twice -> 422 VALIDATION_ERROR /data
    dataVersion = "" -> 422 VALIDATION_ERROR /dataVersion
    dataVersion = "9.9" -> 422 VALIDATION_ERROR /dataVersion
    dataVersion = "canary" -> 422 VALIDATION_ERROR /dataVersion
    dataVersion = 1 -> 422 VALIDATION_ERROR /dataVersion
    sequence = 0 -> 400 INVALID_SEQUENCE
    sequence = -1 -> 400 INVALID_SEQUENCE
    sequence = 1.5 -> 400 INVALID_SEQUENCE
    sequence = "canary" -> 400 INVALID_SEQUENCE
    sequence = 3 -> 400 INVALID_SEQUENCE
    sequence = 9223372036854775807 -> 400 INVALID_SEQUENCE
    sequence = 18446744073709551616 -> 400 INVALID_SEQUENCE
    sequence = 1 -> 409 SEQUENCE_EXISTS
    expectedAggregateSequence = -1 -> 422 VALIDATION_ERROR /expectedAggregateSequence
    expectedAggregateSequence = "canary" -> 422 VALIDATION_ERROR /expectedAggregateSequence
    expectedAggregateSequence = 1.5 -> 422 VALIDATION_ERROR /expectedAggregateSequence
    expectedAggregateSequence = 18446744073709551616 -> 422 VALIDATION_ERROR /expectedAggregateSequence
    expectedAggregateSequence = 7 -> 409 EXPECTED_SEQUENCE
    traceParent = 7 -> 422 VALIDATION_ERROR /traceParent
    traceParent = "{600}" -> 422 VALIDATION_ERROR /traceParent
    correlationId = 7 -> 422 VALIDATION_ERROR /correlationId
    correlationId = "{600}" -> 422 VALIDATION_ERROR /correlationId
    causationId = "{600}" -> 422 VALIDATION_ERROR /causationId
    messageGroup = "{600}" -> 422 VALIDATION_ERROR /messageGroup
    deduplicationId = "{600}" -> 422 VALIDATION_ERROR /deduplicationId
    requestId = "\u0000" -> 422 VALIDATION_ERROR /requestId
    actor = "canary" -> 422 VALIDATION_ERROR /actor
    actor = ["user","x"] -> 422 VALIDATION_ERROR /actor
    actor = {} -> 422 VALIDATION_ERROR /actor/type
    actor = {"type":"user"} -> 422 VALIDATION_ERROR /actor/id
    actor = {"type":"canary","id":"x"} -> 422 VALIDATION_ERROR /actor/type
    actor = {"type":"user","id":"x","surprise":1} -> 422 VALIDATION_ERROR /actor/surprise
    actor = {"type":"user","id":"{600}"} -> 422 VALIDATION_ERROR /actor/id
    context = "canary" -> 422 VALIDATION_ERROR /context
    context = [] -> 422 VALIDATION_ERROR /context
    context = {"a":7} -> 422 VALIDATION_ERROR /context/a
    context = {"a":{}} -> 422 VALIDATION_ERROR /context/a
    context = {"a":"{1100}"} -> 422 VALIDATION_ERROR /context
    context = {"a":"\u0000"} -> 422 VALIDATION_ERROR /context
    createdAt = "2025-12-03T12:00:00Z" -> 422 VALIDATION_ERROR /createdAt
    surprise = "canary" -> 422 VALIDATION_ERROR /surprise
    a\u0000b = 1 -> 422 VALIDATION_ERROR /a�b
    a/b~c = 1 -> 422 VALIDATION_ERROR /a~1b~0c
"#;

#[tokio::test]
async fn every_member_of_a_definition_has_its_edges() {
    let stage = PopulatedServer::set().await;
    let topic = json!({"id": "gts.hx.core.events.topic.v1~vendor.new.v1", "streaming": true, "description": null});
    stage.check_members("POST /v1/topics", &topic, TOPIC_TABLE);
    if !crate::http::is_on_databases() {
        stage.check_members("POST /v1/topics", &topic, PLACES_TABLE);
    }
    stage.check_members("PATCH /v1/topics/{T}", &json!({}), CHANGE_TABLE);
    let event_type = json!({"id": "gts.vendor.new.v1", "topic": TOPIC});
    stage.check_members("POST /v1/event-types", &event_type, TYPE_TABLE);
    stage.check_members("POST /v1/consumers", &consumer(), CONSUMER_TABLE);
    stage.check_members("POST /v1/consumers/{consumer}:commit", &json!({}), COMMIT_TABLE);
    stage.check_members("POST /v1/consumer-groups/g:reset", &json!({"topic": TOPIC, "offset": 0}), RESET_TABLE);
    stage.end().await;
}

/// The places where a topic cannot be stored, unless it must be stored in the database.
const PLACES_TABLE: &str = r#"
    streaming = {"type":"database"} -> 422 VALIDATION_ERROR /streaming/type
    streaming = {"type":"file","location":"/etc/canary"} -> 422 VALIDATION_ERROR /streaming/location
"#;

const TOPIC_TABLE: &str = r#"
    id = absent -> 422 VALIDATION_ERROR /id
    id = null -> 422 VALIDATION_ERROR /id
    id = 7 -> 422 VALIDATION_ERROR /id
    id = "" -> 400 INVALID_TYPE
    id = "canary" -> 400 INVALID_TYPE
    id = "gts.*" -> 400 INVALID_TYPE
    id = "gts.vendor.{600}.v1~" -> 400 INVALID_TYPE
    streaming = absent -> 422 VALIDATION_ERROR /streaming
    streaming = null -> 422 VALIDATION_ERROR /streaming
    streaming = false -> 422 VALIDATION_ERROR /streaming
    streaming = "canary" -> 422 VALIDATION_ERROR /streaming
    streaming = ["file"] -> 422 VALIDATION_ERROR /streaming
    streaming = {"type":"canary"} -> 422 VALIDATION_ERROR /streaming/type
    streaming = {"type":7} -> 422 VALIDATION_ERROR /streaming
    streaming = {"surprise":1} -> 422 VALIDATION_ERROR /streaming
    streaming = {"retention":"canary"} -> 422 VALIDATION_ERROR /streaming
    streaming = {"type":"file","location":""} -> 422 VALIDATION_ERROR /streaming/location
    streaming = {"type":"file","location":"../canary"} -> 422 VALIDATION_ERROR /streaming/location
    streaming = {"type":"file","location":"{1100}"} -> 422 VALIDATION_ERROR /streaming/location
    description = 7 -> 422 VALIDATION_ERROR /description
    description = "{1100}{1100}" -> 422 VALIDATION_ERROR /description
    description = "canary\ud800" -> 400 MALFORMED
    retention = "" -> 422 VALIDATION_ERROR /retention
    retention = "canary" -> 422 VALIDATION_ERROR /retention
    retention = 30 -> 422 VALIDATION_ERROR /retention
    retention = "-P1D" -> 422 VALIDATION_ERROR /retention
    retention = "P1Y" -> 422 VALIDATION_ERROR /retention
    retention = "P99999999999D" -> 422 VALIDATION_ERROR /retention
    idempotentRetention = "P91D" -> 422 VALIDATION_ERROR /idempotentRetention
    onPayloadMismatch = "canary" -> 422 VALIDATION_ERROR /onPayloadMismatch
    onPayloadMismatch = 7 -> 422 VALIDATION_ERROR /onPayloadMismatch
    cleanup = "canary" -> 422 VALIDATION_ERROR /cleanup
    internal = "yes" -> 422 VALIDATION_ERROR /internal
    createdAt = "2025-12-03T12:00:00Z" -> 422 VALIDATION_ERROR /createdAt
    surprise = "canary" -> 422 VALIDATION_ERROR /surprise
"#;

const CHANGE_TABLE: &str = r#"
    description = 7 -> 422 VALIDATION_ERROR /description
    description = "{1100}{1100}" -> 422 VALIDATION_ERROR /description
    retention = "canary" -> 422 VALIDATION_ERROR /retention
    idempotentRetention = "P91D" -> 422 VALIDATION_ERROR /idempotentRetention
    onPayloadMismatch = "canary" -> 422 VALIDATION_ERROR /onPayloadMismatch
    id = "gts.vendor.other.v1~" -> 422 VALIDATION_ERROR /id
    streaming = true -> 422 VALIDATION_ERROR /streaming
    surprise = "canary" -> 422 VALIDATION_ERROR /surprise
"#;

const TYPE_TABLE: &str = r#"
    id = absent -> 422 VALIDATION_ERROR /id
    id = "" -> 400 INVALID_TYPE
    id = "canary" -> 400 INVALID_TYPE
    id = "gts.*" -> 400 INVALID_TYPE
    topic = "canary" -> 400 INVALID_TYPE
    topic = "gts.vendor.canary.v1~" -> 422 VALIDATION_ERROR /topic
    description = 7 -> 422 VALIDATION_ERROR /description
    description = "{1100}{1100}" -> 422 VALIDATION_ERROR /description
    allowedSubjectTypes = "canary" -> 422 VALIDATION_ERROR /allowedSubjectTypes
    allowedSubjectTypes = ["canary"] -> 400 INVALID_TYPE
    allowedSubjectTypes = [7] -> 422 VALIDATION_ERROR /allowedSubjectTypes/0
    subjectRefTemplate = 7 -> 422 VALIDATION_ERROR /subjectRefTemplate
    dataSchema = "canary" -> 422 VALIDATION_ERROR
    dataSchema = 7 -> 422 VALIDATION_ERROR
    dataSchema = {"type":"canary"} -> 422 VALIDATION_ERROR
    dataSchema = {"type":7} -> 422 VALIDATION_ERROR
    dataSchema = {"$ref":"https://canary.example/x"} -> 422 VALIDATION_ERROR
    dataSchema = {"$ref":"file:///etc/canary"} -> 422 VALIDATION_ERROR
    dataSchema = {"pattern":"canary("} -> 422 VALIDATION_ERROR
    dataSchema = {"$schema":"https://canary.example/"} -> 422 VALIDATION_ERROR
    schemaTarget = "canary" -> 422 VALIDATION_ERROR /schemaTarget
    surprise = "canary" -> 422 VALIDATION_ERROR /surprise
"#;

const CONSUMER_TABLE: &str = r#"
    consumerGroup = absent -> 422 VALIDATION_ERROR /consumerGroup
    consumerGroup = null -> 422 VALIDATION_ERROR /consumerGroup
    consumerGroup = "" -> 422 VALIDATION_ERROR /consumerGroup
    consumerGroup = 7 -> 422 VALIDATION_ERROR /consumerGroup
    consumerGroup = "{600}" -> 422 VALIDATION_ERROR /consumerGroup
    consumerGroup = "\u0000" -> 422 VALIDATION_ERROR /consumerGroup
    topic = absent -> 422 VALIDATION_ERROR /topic
    topic = "canary" -> 400 INVALID_TYPE
    topic = "gts.*" -> 400 INVALID_TYPE
    topic = "gts.vendor.canary.v1~" -> 422 VALIDATION_ERROR /topic
    types = "canary" -> 422 VALIDATION_ERROR /types
    types = ["canary"] -> 400 INVALID_TYPE
    types = [""] -> 400 INVALID_TYPE
    types = [7] -> 422 VALIDATION_ERROR /types/0
    types = null -> 422 VALIDATION_ERROR /types
    subjectTypes = ["gts.*.canary"] -> 400 INVALID_TYPE
    CEL = 7 -> 422 VALIDATION_ERROR /CEL
    CEL = "" -> 422 VALIDATION_ERROR /CEL
    CEL = "canary(" -> 422 VALIDATION_ERROR /CEL
    CEL = "canary(data)" -> 422 VALIDATION_ERROR /CEL
    cel = "true" -> 422 VALIDATION_ERROR /cel
    sessionTimeout = "" -> 422 VALIDATION_ERROR /sessionTimeout
    sessionTimeout = "canary" -> 422 VALIDATION_ERROR /sessionTimeout
    sessionTimeout = "PT0S" -> 422 VALIDATION_ERROR /sessionTimeout
    sessionTimeout = "P365D" -> 422 VALIDATION_ERROR /sessionTimeout
    sessionTimeout = 30 -> 422 VALIDATION_ERROR /sessionTimeout
    distribution = "canary" -> 422 VALIDATION_ERROR /distribution
    id = "00000000-0000-4000-8000-000000000001" -> 422 VALIDATION_ERROR /id
"#;

const COMMIT_TABLE: &str = r#"
    offset = absent -> 422 VALIDATION_ERROR /offset
    offset = null -> 400 INVALID_OFFSET
    offset = -1 -> 400 INVALID_OFFSET
    offset = 1.5 -> 400 INVALID_OFFSET
    offset = "1" -> 400 INVALID_OFFSET
    offset = 18446744073709551616 -> 400 INVALID_OFFSET
    offset = 99 -> 422 VALIDATION_ERROR /offset
    offset = twice -> 422 VALIDATION_ERROR /offset
    surprise = 1 -> 422 VALIDATION_ERROR /surprise
"#;

const RESET_TABLE: &str = r#"
    topic = absent -> 422 VALIDATION_ERROR /topic
    topic = "canary" -> 400 INVALID_TYPE
    topic = "gts.vendor.canary.v1~" -> 422 VALIDATION_ERROR /topic
    offset = absent -> 422 VALIDATION_ERROR /offset
    offset = "canary" -> 400 INVALID_OFFSET
    offset = -1 -> 400 INVALID_OFFSET
    offset = 99 -> 422 VALIDATION_ERROR /offset
    time = "2025-12-03T12:00:00Z" -> 422 VALIDATION_ERROR /time
    surprise = 1 -> 422 VALIDATION_ERROR /surprise
"#;

#[tokio::test]
async fn bodies_that_are_not_what_is_asked_for_are_refused() {
    let stage = PopulatedServer::set().await;
    let deep = "[".repeat(60_000);
    for (path, method) in [
        ("/v1/events", "POST"),
        ("/v1/events:batch", "POST"),
        ("/v1/topics", "POST"),
        ("/v1/topics/{T}", "PATCH"),
        ("/v1/event-types", "POST"),
        ("/v1/consumers", "POST"),
        ("/v1/consumers/{consumer}:commit", "POST"),
        ("/v1/consumer-groups/g:reset", "POST"),
    ] {
        stage.check(&BODY.replace("{path}", path).replace("{method}", method));
        let line = format!("{method} {path} {{\"a\":");
        let reply = stage.send(&stage.filled(&format!("{line}{deep}")));
        assert!(matches!(reply.status, 400 | 422), "{path}: {}", reply.status);
        let path = stage.filled(path);
        for (bytes, status) in [(&b"\xff\xfe{\x00"[..], 400), (b"\xef\xbb\xbf{}", 400), (b"{\"a\":\"\xc3\x28\"}", 400)]
        {
            let reply = super::ask(&stage.server, method, &path, &[("content-type", "application/json")], bytes);
            assert_eq!(
                (reply.status, reply.header("content-type")),
                (status, Some("application/problem+json")),
                "{path}"
            );
        }
    }
    stage.check(BATCH);
    stage.end().await;
}

const BODY: &str = r#"
    {method} {path} -> 400 MALFORMED
    {method} {path} canary -> 400 MALFORMED
    {method} {path} {"a": -> 400 MALFORMED
    {method} {path} {"a":1} {} -> 400 MALFORMED
    {method} {path} {'a':1} -> 400 MALFORMED
    {method} {path} [] -> 422 VALIDATION_ERROR
    {method} {path} [{}, -> 400 MALFORMED
    {method} {path} [[]] -> 422 VALIDATION_ERROR
    {method} {path} null -> 422 VALIDATION_ERROR
    {method} {path} "canary" -> 422 VALIDATION_ERROR
    {method} {path} 7 -> 422 VALIDATION_ERROR
    {method} {path} {"surprise":"canary"} -> 422 VALIDATION_ERROR /surprise
"#;

const BATCH: &str = r#"
    POST /v1/events:batch {} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":null} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":{}} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":[]} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":"canary"} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":[],"events":[]} -> 422 VALIDATION_ERROR /events
    POST /v1/events:batch {"events":[],"surprise":1} -> 422 VALIDATION_ERROR /surprise
    POST /v1/events:batch {"events":[null]} -> 207
    POST /v1/events:batch {"events":[[null,"{E}",null,null,"s","s",null,"{tenant}",null,null,null,null,null,null,null,null,null,null,{},{}]]} -> 207
    POST /v1/events [null,"{E}",null,null,"s","s",null,"{tenant}",null,null,null,null,null,null,null,null,null,null,{},{}] -> 422 VALIDATION_ERROR
    POST /v1/events:batch {"events":[7,"canary",[],{}]} -> 207
"#;
