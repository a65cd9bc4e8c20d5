//! Examples of requests and responses, with every member that a response has.
//!
//! A test validates every example against its schema.

pub(super) mod claims;
pub(super) mod subscriptions;

use super::problems::TYPE_BASE;
use contract::Kind;
use serde_json::{Value, json};

pub(super) const TOPIC: &str = "gts.hx.core.events.topic.v1~";
pub(super) const USERS_TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.users.v1";
pub(super) const CREATED: &str = "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1";
pub(super) const UPDATED: &str = "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_updated.v1";
pub(super) const SUBJECT_TYPE: &str = "gts.vendor.tenants.tenant.v1";
pub(super) const SUBJECT: &str = "1053828c-57b1-4c2b-97dc-ccff6225651e";
pub(super) const TENANT: &str = "a1b2c3d4-e5f6-7890-abcd-ef1234567890";
pub(super) const EVENT_ID: &str = "550e8400-e29b-41d4-a716-446655440000";
pub(super) const CONSUMER_ID: &str = "cdb75c04-19e7-42ad-9999-d23f9d7c3392";
pub(super) const PROJECTION: &str = "tenant-view";
pub(super) const TRACE_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
pub(super) const OCCURRED_AT: &str = "2025-12-03T12:01:59.829Z";
pub(super) const REGISTERED_AT: &str = "2025-12-03T12:00:00.000Z";
pub(super) const CEL: &str = "has(data) && data.userId == 'user-12345'";
pub(super) const CURSOR: &str = "n6774732e612e622e7631";
const LOCATION: &str = "hyperspot/events";
const SEGMENTS: &str = "file:///var/lib/hyperspot/events";

/// `POST /v1/events`.
pub(super) fn new_event() -> Value {
    json!({
        "id": EVENT_ID,
        "type": CREATED,
        "occurredAt": OCCURRED_AT,
        "source": "example-service",
        "subject": SUBJECT,
        "subjectType": SUBJECT_TYPE,
        "tenant": TENANT,
        "traceParent": TRACE_PARENT,
        "data": {"userId": "user-12345", "email": "user@example.com"},
    })
}

/// The stored event, as every response shows it.
pub(super) fn event() -> Value {
    json!({
        "id": EVENT_ID,
        "type": CREATED,
        "topic": TOPIC,
        "sequence": 12_345,
        "aggregateSequence": 1,
        "position": 20_071,
        "createdAt": OCCURRED_AT,
        "occurredAt": OCCURRED_AT,
        "source": "example-service",
        "subject": SUBJECT,
        "subjectType": SUBJECT_TYPE,
        "tenant": TENANT,
        "dataVersion": "1.0",
        "traceParent": TRACE_PARENT,
        "data": {"userId": "user-12345", "email": "user@example.com"},
    })
}

/// `POST /v1/events:batch`.
pub(super) fn new_batch() -> Value {
    let event = |id: &str, event_type: &str, occurred_at: &str, email: &str| {
        json!({
            "id": id,
            "type": event_type,
            "occurredAt": occurred_at,
            "source": "tenant-service",
            "subject": SUBJECT,
            "subjectType": SUBJECT_TYPE,
            "tenant": TENANT,
            "data": {"userId": "user-12345", "email": email},
        })
    };
    json!({"events": [
        event("829501ea-99dd-484f-a227-3e958747b8ea", CREATED, OCCURRED_AT, "user@example.com"),
        event("78d4c214-f688-43d7-9b1c-164ea146cda0", UPDATED, "2025-12-03T12:02:00.000Z", "newemail@example.com"),
    ]})
}

/// The response to a batch.
pub(super) fn batch_outcome() -> Value {
    let refusal = Kind::Validation;
    json!({
        "data": {"results": [
            {"index": 0, "status": 201, "event": event()},
            {"index": 1, "status": 422, "error": {
                "type": format!("{TYPE_BASE}{}", refusal.code()),
                "title": refusal.title(),
                "status": 422,
                "detail": "The event does not match its type's schema; see `errors`.",
                "errors": [{"pointer": "/data/email", "detail": "must have the format 'email'"}],
            }},
        ]},
        "meta": {"total": 2, "succeeded": 1, "failed": 1},
    })
}

/// An event that is published as a CloudEvent.
pub(super) fn cloud_event() -> Value {
    json!({
        "specversion": "1.0",
        "id": EVENT_ID,
        "source": "example-service",
        "type": CREATED,
        "subject": SUBJECT,
        "time": OCCURRED_AT,
        "dataschema": format!("gts://{CREATED}#1.0"),
        "subjecttype": SUBJECT_TYPE,
        "tenant": TENANT,
        "appid": "console",
        "data": {"userId": "user-12345", "email": "user@example.com"},
    })
}

/// A stored event as a CloudEvent.
pub(super) fn stored_cloud_event() -> Value {
    json!({
        "specversion": "1.0",
        "id": EVENT_ID,
        "source": "example-service",
        "type": CREATED,
        "time": OCCURRED_AT,
        "datacontenttype": "application/json",
        "dataschema": format!("gts://{CREATED}#1.0"),
        "topic": TOPIC,
        "sequence": "12345",
        "position": "20071",
        "createdat": OCCURRED_AT,
        "subject": SUBJECT,
        "subjecttype": SUBJECT_TYPE,
        "aggregatesequence": "1",
        "tenant": TENANT,
        "traceparent": TRACE_PARENT,
        "data": {"userId": "user-12345", "email": "user@example.com"},
    })
}

/// Two lines of history.
pub(super) fn import_lines() -> Value {
    Value::String(format!("{}\n{}\n", new_event(), event()))
}

/// The response to an import.
pub(super) fn import_report() -> Value {
    let error = json!({
        "type": format!("{TYPE_BASE}{}", Kind::Validation.code()),
        "title": Kind::Validation.title(),
        "status": 422,
        "detail": "The event type is not registered; register it before publishing.",
        "errors": [
            {"pointer": "/type", "detail": "The event type is not registered; register it before publishing."},
        ],
    });
    let refused = json!({"line": 2, "error": error});
    let counted = json!({"lines": 2, "imported": 1, "duplicates": 0, "failed": 1, "done": true});
    Value::String(format!("{refused}\n{counted}\n"))
}

/// `GET /v1/events` and `:poll`.
pub(super) fn event_page() -> Value {
    json!({"items": [event()], "nextOffset": 12_345, "tail": 12_345})
}

/// `GET /v1/events:stream`.
pub(super) fn event_stream() -> Value {
    Value::String(format!(": from 12344\nretry: 1000\n\nid: 12345\ndata: {}\n\n: idle\n\n", event()))
}

/// `GET /v1/log`.
pub(super) fn log_page() -> Value {
    json!({"items": [event()], "nextPosition": 20_071, "tail": 20_071})
}

/// An aggregate.
pub(super) fn aggregate() -> Value {
    json!({"aggregateSequence": 1, "sequence": 12_345, "lastEvent": event()})
}

/// An aggregate's events.
pub(super) fn aggregate_events() -> Value {
    json!({"items": [event()], "nextAfter": 1, "aggregateSequence": 1})
}

/// A topic as it is registered.
pub(super) fn new_topic() -> Value {
    json!({
        "id": USERS_TOPIC,
        "description": "User-related events",
        "streaming": {"type": "file", "location": LOCATION, "retention": "P30D"},
        "idempotentRetention": "PT24H",
        "cleanup": "compact",
    })
}

/// A registered topic.
pub(super) fn topic() -> Value {
    merged(new_topic(), json!({"createdAt": REGISTERED_AT}))
}

/// `GET /v1/topics`.
pub(super) fn topics() -> Value {
    json!({"topics": [topic()], "page_info": page_info()})
}

/// The cursors of the neighbouring pages.
pub(super) fn page_info() -> Value {
    json!({"next_cursor": CURSOR, "prev_cursor": null, "limit": 20})
}

/// A segment.
pub(super) fn segment() -> Value {
    json!({
        "location": format!("{SEGMENTS}/vendor.users.v1/segment-00002"),
        "startSequence": 100_001,
        "startTime": "2025-12-04T00:00:00.000Z",
        "endSequence": 200_000,
        "endTime": "2025-12-05T00:00:00.000Z",
        "amount": 100_000,
        "createdAt": "2025-12-04T00:00:00.000Z",
    })
}

/// `GET /v1/topics/segments`. Sequences begin at 1.
pub(super) fn segments() -> Value {
    let first = json!({
        "location": format!("{SEGMENTS}/vendor.users.v1/segment-00001"),
        "startSequence": 1,
        "startTime": "2025-12-03T00:00:00.000Z",
        "endSequence": 100_000,
        "endTime": "2025-12-04T00:00:00.000Z",
        "amount": 100_000,
        "createdAt": "2025-12-03T00:00:00.000Z",
    });
    json!({
        "topic": USERS_TOPIC,
        "start": 1,
        "startTime": "2025-12-03T00:00:00.000Z",
        "end": 200_000,
        "endTime": "2025-12-05T00:00:00.000Z",
        "segments": [first, segment()],
        "page_info": page_info(),
    })
}

/// The schema of the example event type.
pub(super) fn data_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "subject": {"type": "string", "format": "uuid"},
            "data": {
                "type": "object",
                "properties": {"userId": {"type": "string"}, "email": {"type": "string", "format": "email"}},
                "required": ["userId", "email"],
            },
        },
        "required": ["subject", "data"],
    })
}

/// An event type as it is registered.
pub(super) fn new_event_type() -> Value {
    json!({
        "id": CREATED,
        "description": "Event emitted when a new tenant is created",
        "allowedSubjectTypes": ["gts.vendor.tenants.tenant.v1~"],
        "subjectRefTemplate": "/tenants/{tenantId}",
        "dataSchema": data_schema(),
    })
}

/// A registered event type.
pub(super) fn event_type() -> Value {
    merged(new_event_type(), json!({"createdAt": REGISTERED_AT, "versions": [version()]}))
}

/// A schema version as it is registered.
pub(super) fn new_version() -> Value {
    json!({"version": "1.1", "schemaType": "JSON_SCHEMA", "schema": data_schema(), "mimeType": "application/json"})
}

/// A registered schema version.
pub(super) fn version() -> Value {
    merged(new_version(), json!({"status": "CURRENT", "createdAt": REGISTERED_AT, "finalisedAt": OCCURRED_AT}))
}

/// `POST /v1/consumers`.
pub(super) fn new_consumer() -> Value {
    json!({
        "consumerGroup": "tenant-service-instances",
        "topic": TOPIC,
        "types": [CREATED, UPDATED],
        "subjectTypes": ["gts.vendor.tenants.tenant.v1~"],
        "CEL": CEL,
        "sessionTimeout": "PT30S",
    })
}

/// A consumer.
pub(super) fn consumer() -> Value {
    let more = json!({
        "id": CONSUMER_ID,
        "distribution": "broadcast",
        "createdAt": "2025-12-03T12:05:00.000Z",
        "lastSeenAt": "2025-12-03T12:05:00.000Z",
        "expiresAt": "2025-12-03T12:05:30.000Z",
    });
    merged(new_consumer(), more)
}

/// A live consumer of a group.
pub(super) fn member() -> Value {
    json!({"consumerId": CONSUMER_ID, "lastSeenAt": "2025-12-03T12:05:00.000Z", "inFlight": 0})
}

/// A group's offset in one topic.
pub(super) fn group_topic() -> Value {
    json!({"topic": TOPIC, "committedOffset": 12_300, "tail": 12_345, "lag": 45, "members": [member()]})
}

/// A group.
pub(super) fn group() -> Value {
    json!({"consumerGroup": "tenant-service-instances", "topics": [group_topic()]})
}

/// `PUT /v1/projections/{name}`.
pub(super) fn new_projection() -> Value {
    json!({"topic": TOPIC, "filter": CEL})
}

/// A projection.
pub(super) fn projection() -> Value {
    let more = json!({
        "name": PROJECTION,
        "checkpoint": 12_300,
        "generation": 2,
        "start": 0,
        "lag": {"events": 45, "seconds": 3},
        "createdAt": "2025-12-03T12:05:00.000Z",
        "updatedAt": "2025-12-03T12:06:00.000Z",
    });
    merged(new_projection(), more)
}

/// `POST /v1/projections/{name}:checkpoint`.
pub(super) fn new_checkpoint() -> Value {
    json!({"offset": 1, "expected": 0})
}

/// One page of rows.
pub(super) fn page_of(row: &Value) -> Value {
    json!({"items": [row], "page_info": page_info()})
}

/// A part of an example.
pub(super) fn at_pointer(example: &Value, pointer: &str) -> Value {
    example.pointer(pointer).cloned().unwrap_or_default()
}

/// An example with more members.
pub(super) fn merged(mut example: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut example, more) {
        members.extend(more);
    }
    example
}
