//! Examples of subscriptions, jobs and pools.

use crate::rest::openapi::examples::{EVENT_ID, TOPIC, merged};
use serde_json::{Value, json};

pub(in crate::rest::openapi) const CODE: &str = "order-mailer";
pub(in crate::rest::openapi) const SUBSCRIPTION_ID: &str = "0b2f4c1e-5a77-4f0e-9d4c-2f6f3a1b7c90";
pub(in crate::rest::openapi) const JOB_ID: &str = "0b2f4c1e5a774f0e9d4c2f6f3a1b7c90-12345";
pub(in crate::rest::openapi) const POOL: &str = "partners";
const AT: &str = "2025-12-03T12:00:00.000Z";
/// No name of this kind is ever anybody's.
const TARGET: &str = "https://hooks.invalid/orders";

pub(in crate::rest::openapi) fn new_subscription() -> Value {
    json!({
        "code": CODE,
        "topic": TOPIC,
        "eventTypes": [binding()],
        "filter": "has(data)",
        "target": TARGET,
        "mode": "BLOCK_ON_ERROR",
        "retrySchedule": ["PT5S", "PT30S"],
        "maxAttempts": 5,
        "headers": {"x-team": "orders"},
    })
}

pub(in crate::rest::openapi) fn binding() -> Value {
    json!({"type": "gts.hyperspot.core.events.type.v1~vendor.users.*"})
}

pub(in crate::rest::openapi) fn subscription() -> Value {
    merged(
        json!({
            "code": CODE,
            "topic": TOPIC,
            "eventTypes": [],
            "target": TARGET,
            "mode": "BLOCK_ON_ERROR",
            "pool": "default",
            "timeoutSeconds": 30,
            "maxAgeSeconds": 86_400,
            "delaySeconds": 0,
            "sequence": 99,
            "maxAttempts": 3,
            "retrySchedule": ["PT5S", "PT30S"],
            "dataOnly": false,
            "format": "event",
            "headers": {},
            "handshake": false,
            "customConfig": {},
            "startFrom": "latest",
        }),
        json!({
            "id": SUBSCRIPTION_ID,
            "status": "ACTIVE",
            "settledThrough": 12_344,
            "openJobs": 1,
            "replays": 0,
            "breaker": {"state": "CLOSED", "failures": 0},
            "createdAt": AT,
            "updatedAt": AT,
        }),
    )
}

pub(in crate::rest::openapi) fn deferral() -> Value {
    json!({"count": 1, "reason": "The receiver responded with 503 and Retry-After.", "at": AT, "until": "2025-12-03T12:01:00.000Z"})
}

pub(in crate::rest::openapi) fn breaker() -> Value {
    json!({"state": "OPEN", "failures": 10, "since": AT, "nextTryAt": "2025-12-03T12:00:30.000Z"})
}

pub(in crate::rest::openapi) fn made() -> Value {
    merged(subscription(), secret())
}

pub(in crate::rest::openapi) fn secret() -> Value {
    json!({"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
}

pub(in crate::rest::openapi) fn change() -> Value {
    json!({"mode": "NEXT_ON_ERROR", "filter": null})
}

pub(in crate::rest::openapi) fn pause() -> Value {
    json!({"since": AT, "by": "broker", "reason": "The receiver responded with 410 Gone."})
}

pub(in crate::rest::openapi) fn group() -> Value {
    json!({
        "messageGroup": "order-mailer:gts.vendor.tenants.tenant.v1/7",
        "blockedBy": JOB_ID,
        "since": AT,
        "waiting": 3,
        "verbs": {
            "retry": "It is tried again now, with all its attempts before it; the 3 behind it wait until it is delivered.",
            "cancel": "It is cancelled and never delivered; the 3 behind it go on in order.",
            "complete": "It counts as delivered without being sent again; the 3 behind it go on in order.",
        },
    })
}

pub(in crate::rest::openapi) fn replay() -> Value {
    let id = "78d4c214-f688-43d7-9b1c-164ea146cda0";
    json!({"id": id, "from": 1, "to": 100, "settledThrough": 12, "openJobs": 0, "deadJobs": 0, "orderedAt": AT})
}

pub(in crate::rest::openapi) fn attempt() -> Value {
    json!({
        "number": 1,
        "at": AT,
        "durationMs": 31,
        "status": 500,
        "error": {"class": "http_5xx", "message": "The receiver responded with 500."},
        "response": "oops",
        "token": 20_072,
    })
}

pub(in crate::rest::openapi) fn job() -> Value {
    json!({
        "id": JOB_ID,
        "kind": "EVENT",
        "code": "gts.hyperspot.core.events.type.v1~vendor.users.user_registered.v1",
        "subscription": CODE,
        "event": EVENT_ID,
        "topic": TOPIC,
        "sequence": 12_345,
        "subject": "7",
        "target": TARGET,
        "status": "PENDING",
        "messageGroup": "order-mailer:gts.vendor.tenants.tenant.v1/7",
        "attempts": [attempt()],
        "scheduledFor": "2025-12-03T12:00:05.000Z",
        "expiresAt": "2025-12-04T12:00:00.000Z",
        "createdAt": AT,
    })
}

pub(in crate::rest::openapi) fn new_task() -> Value {
    json!({"code": "nightly-report", "target": TARGET, "payload": {"day": 3}, "scheduledFor": "2099-12-03T12:00:00Z"})
}

pub(in crate::rest::openapi) fn pool() -> Value {
    json!({"code": POOL, "concurrency": 20, "ratePerMinute": 600})
}
