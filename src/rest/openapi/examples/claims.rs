//! Examples of claims, handlers and dead letters.

use super::{EVENT_ID, OCCURRED_AT, TOPIC, event, merged};
use crate::rest::openapi::problems::TYPE_BASE;
use contract::Kind;
use serde_json::{Value, json};

pub(in crate::rest::openapi) const HANDLER: &str = "billing";
/// Of the handler, the topic and sequence 12345.
pub(in crate::rest::openapi) const CLAIM_ID: &str = "YmlsbGluZwpndHMuaHguY29yZS5ldmVudHMudG9waWMudjF-CjEyMzQ1";
pub(in crate::rest::openapi) const LETTER_ID: &str = "5f0c9a4e-6b1d-8c2e-9a3f-0d1e2f3a4b5c";
pub(in crate::rest::openapi) const OWNER: &str = "tenant-service-7f9c";

/// `POST /v1/claims`.
pub(in crate::rest::openapi) fn new_claim() -> Value {
    json!({"handler": HANDLER, "eventId": EVENT_ID, "owner": OWNER, "lease": "PT900S", "order": "gapless"})
}

/// A claim.
pub(in crate::rest::openapi) fn claim() -> Value {
    json!({
        "id": CLAIM_ID,
        "handler": HANDLER,
        "topic": TOPIC,
        "sequence": 12_345,
        "eventId": EVENT_ID,
        "token": 20_072,
        "attempt": 1,
        "owner": OWNER,
        "status": "claimed",
        "lease": "PT900S",
        "heartbeat": "PT30S",
        "claimedAt": "2025-12-03T12:05:00.000Z",
        "leaseExpiresAt": "2025-12-03T12:20:00.000Z",
    })
}

/// A claim that is done.
pub(in crate::rest::openapi) fn done() -> Value {
    let mut claim = merged(claim(), json!({"status": "done"}));
    if let Some(members) = claim.as_object_mut() {
        members.remove("leaseExpiresAt");
    }
    claim
}

/// A claim that failed.
pub(in crate::rest::openapi) fn failed() -> Value {
    let more = json!({"status": "failed", "retryAt": "2025-12-03T12:05:04.000Z", "error": error()});
    merged(done(), more)
}

/// A claim that was released.
pub(in crate::rest::openapi) fn released() -> Value {
    merged(done(), json!({"status": "released", "attempt": 0}))
}

/// The result of a claim.
pub(in crate::rest::openapi) fn outcome() -> Value {
    json!({"outcome": "claimed", "claim": claim()})
}

/// The results of several claims.
pub(in crate::rest::openapi) fn outcomes() -> Value {
    json!({"results": [
        {"index": 0, "status": 200, "outcome": "claimed", "claim": claim()},
        {"index": 1, "status": 200, "outcome": "held", "retryAt": "2025-12-03T12:20:00.000Z"},
        {"index": 2, "status": 404, "error": refusal(Kind::NotFound, "No such event.")},
    ]})
}

/// The results of several completions.
pub(in crate::rest::openapi) fn completed() -> Value {
    let detail = "This token no longer holds the claim: the claim was ended, or another worker has claimed the event since. \
                  Stop working on the event.";
    json!({"results": [
        {"index": 0, "status": 200, "claim": done()},
        {"index": 1, "status": 409, "error": refusal(Kind::ClaimLost, detail)},
    ]})
}

fn refusal(kind: Kind, detail: &str) -> Value {
    json!({
        "type": format!("{TYPE_BASE}{}", kind.code()),
        "title": kind.title(),
        "status": kind.status(),
        "detail": detail,
    })
}

/// The cause of a failure.
pub(in crate::rest::openapi) fn error() -> Value {
    json!({"class": "TimeoutError", "message": "the payment provider did not answer within 10 s"})
}

/// `PUT /v1/handlers/{name}`.
pub(in crate::rest::openapi) fn new_handler() -> Value {
    json!({"lease": "PT900S", "maxAttempts": 5, "backoff": "PT1S", "order": "gapless"})
}

/// A handler.
pub(in crate::rest::openapi) fn handler() -> Value {
    let more = json!({
        "name": HANDLER,
        "inFlight": 3,
        "failed": 1,
        "deadLetters": 2,
        "oldestFailure": "2025-12-03T12:05:00.000Z",
        "lag": 45,
        "stale": 0,
        "topics": [handler_topic()],
    });
    merged(new_handler(), more)
}

/// How a handler stands in one topic.
pub(in crate::rest::openapi) fn handler_topic() -> Value {
    json!({"topic": TOPIC, "finished": 12_300, "lag": 45, "inFlight": 3, "failed": 1, "deadLetters": 2})
}

/// One try that failed.
pub(in crate::rest::openapi) fn attempt() -> Value {
    json!({
        "number": 1,
        "token": 20_072,
        "owner": OWNER,
        "startedAt": "2025-12-03T12:05:00.000Z",
        "failedAt": "2025-12-03T12:05:10.000Z",
        "error": error(),
    })
}

/// Who dealt with a dead letter.
pub(in crate::rest::openapi) fn resolution() -> Value {
    json!({"at": "2025-12-03T13:00:00.000Z", "by": "console", "reason": "the provider is back"})
}

/// A dead letter.
pub(in crate::rest::openapi) fn letter() -> Value {
    json!({
        "id": LETTER_ID,
        "source": "handler",
        "name": HANDLER,
        "service": HANDLER,
        "status": "redriven",
        "exc_class": "TimeoutError",
        "exc_msg": "the payment provider did not answer within 10 s",
        "original_topic": TOPIC,
        "sequence": 12_345,
        "event_id": EVENT_ID,
        "correlation_id": "signup-7f3a",
        "attempts": [attempt()],
        "createdAt": "2025-12-03T12:05:10.000Z",
        "resolution": resolution(),
        "event": event(),
    })
}

/// How many dead letters one handler has in one topic.
pub(in crate::rest::openapi) fn letter_count() -> Value {
    json!({
        "source": "handler",
        "name": HANDLER,
        "original_topic": TOPIC,
        "count": 2,
        "oldest": OCCURRED_AT,
        "newest": "2025-12-03T12:05:10.000Z",
    })
}

/// How many there are.
pub(in crate::rest::openapi) fn letter_summary() -> Value {
    json!({"count": 2, "items": [letter_count()]})
}

/// `POST /v1/dead-letters/{id}:redrive`.
pub(in crate::rest::openapi) fn redrive() -> Value {
    let data = json!({"userId": "user-12345", "email": "user@example.com"});
    json!({"override": {"data": data}, "reason": "the address was misspelt", "dryRun": true})
}

/// `POST /v1/dead-letters:redrive` and `:discard`.
pub(in crate::rest::openapi) fn letter_order() -> Value {
    json!({"source": "handler", "name": HANDLER, "reason": "the provider is back", "dryRun": true})
}
