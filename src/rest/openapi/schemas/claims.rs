//! Claims and handlers.

use super::ids::{duration, topic_id};
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::claims::{self as examples, CLAIM_ID, HANDLER, LETTER_ID, OWNER};
use crate::rest::openapi::examples::{EVENT_ID, at_pointer, new_event, page_of};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_text, boolean, described_ref, enumeration, list, nullable_ref, number, object, patterned,
    schema_ref, text, time, uuid,
};
use contract::limits::{
    ATTEMPTS_MAX, BATCH_EVENTS_MAX, CLAIMS_BATCH_MAX, FAILURE_MESSAGE_BYTES_MAX, LABEL_BYTES_MAX, LEASE_SECONDS_MAX,
};
use serde_json::{Value, json};

const LAG: &str = "The number of events that it has not done yet, of those in the filter of the group with its name. \
    Open dead letters count; stale and discarded events do not.";
const OPEN_SEQUENCE: &str = "If it was finished with an `offset`: the first event up to that offset that the handler has \
    claimed but neither finished nor given up. The committed offset stays before it.";
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("ClaimInput", new_claim()),
        ("ClaimsInput", several("ClaimInput", "Several claims.", &examples::new_claim())),
        ("ClaimOutcome", outcome()),
        ("ClaimOutcomes", results(outcome_result(), "The results of several claims.", examples::outcomes())),
        ("Claim", claim()),
        ("Claims", list_page("Claim", "A page of claims.", page_of(&examples::failed()))),
        ("ClaimError", error()),
        ("Heartbeat", heartbeat()),
        ("Completion", completion(object("The completion of a claim."))),
        ("ClaimCompletion", claim_completion()),
        ("ClaimCompletions", several("ClaimCompletion", "Several completions.", &completed_claim())),
        (
            "CompletionResults",
            results(completion_result(), "The results of several completions.", examples::completed()),
        ),
        ("Failure", failure()),
        ("Attempt", attempt()),
        ("HandlerInput", new_handler()),
        ("Handler", handler()),
        ("HandlerTopic", handler_topic()),
        ("Handlers", list_page("Handler", "A page of handlers.", page_of(&examples::handler()))),
    ]
}

/// A handler's name.
pub(in crate::rest::openapi) fn handler_name(description: &str) -> SchemaSpec {
    let description = format!("{description} At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().max_length(LABEL_BYTES_MAX).example(HANDLER)
}

/// A claim's id.
pub(in crate::rest::openapi) fn claim_id() -> SchemaSpec {
    patterned("^[A-Za-z0-9_-]+$", "Opaque; it identifies handler, topic and sequence.").example(CLAIM_ID)
}

fn owner() -> SchemaSpec {
    let description = format!("The worker, for operators. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().max_length(LABEL_BYTES_MAX).example(OWNER)
}

fn order() -> SchemaSpec {
    let description = "`latest`: if a later event of the same aggregate is already done, this event is skipped (`stale`). \
        `gapless`: an event waits until the one before it is done.";
    enumeration(&["latest", "gapless"], description).example("latest")
}

fn lease() -> SchemaSpec {
    let description = format!("How long the claim is valid without a heartbeat: at most {LEASE_SECONDS_MAX} seconds.");
    duration(&description).example("PT900S")
}

fn token() -> SchemaSpec {
    number(0..=u64::MAX, "The fencing token: it grows with every claim of the event.").example(20_072)
}

fn count(description: &str, example: u64) -> SchemaSpec {
    number(0..=NUMBER_MAX, description).example(example)
}

fn new_claim() -> SchemaSpec {
    let by_place = rule().with("topic").with("sequence").without("eventId");
    object("A claim of an event, by its id or by its topic and sequence.")
        .required("handler", handler_name("The handler."))
        .optional_nullable("eventId", uuid("The event. Alternative: `topic` and `sequence`.").example(EVENT_ID))
        .optional_nullable("topic", topic_id("The event's topic, together with `sequence`."))
        .optional_nullable("sequence", number(1..=u64::MAX, "The event's sequence, from 1.").example(12_345))
        .optional_nullable("owner", owner())
        .optional_nullable("lease", lease())
        .optional_nullable("order", order())
        .closed()
        .with_rules([rule().with("eventId").without("topic").without("sequence"), by_place])
        .example(examples::new_claim())
}

fn several(item: &str, description: &str, example: &Value) -> SchemaSpec {
    let items = list(schema_ref(item), description).items(1, CLAIMS_BATCH_MAX).example(json!([example]));
    object(description).required("claims", items).closed().example(json!({"claims": [example]}))
}

fn answer() -> SchemaSpec {
    let description = "`claimed`: the caller has the claim. `done`: the event is finished, or was discarded. `stale`: a \
        later event of the aggregate is finished. `held`: the event cannot be claimed now.";
    enumeration(&["claimed", "done", "stale", "held"], description).example("claimed")
}

fn outcome() -> SchemaSpec {
    object("The result of a claim.")
        .required("outcome", answer())
        .optional("claim", described_ref("Claim", "The claim, with `claimed`."))
        .optional("retryAt", retry_at("When to retry, with `held`, if it is known."))
        .example(examples::outcome())
}

fn retry_at(description: &str) -> SchemaSpec {
    time(description).example("2025-12-03T12:20:00.000Z")
}

fn result(description: &str, example: Value) -> SchemaSpec {
    object(description)
        .required("index", count("Its index in the request, from 0.", 0))
        .required(
            "status",
            number(200..=599, "The HTTP status that it would have in a request of its own.").example(200),
        )
        .optional("error", described_ref("Problem", "The refusal."))
        .optional("claim", schema_ref("Claim"))
        .example(example)
}

fn outcome_result() -> SchemaSpec {
    result("The result of one claim.", at_pointer(&examples::outcomes(), "/results/0"))
        .optional("outcome", answer())
        .optional("retryAt", retry_at("When to retry, if it is known."))
}

fn completion_result() -> SchemaSpec {
    result("The result of one completion.", at_pointer(&examples::completed(), "/results/0"))
}

fn results(item: SchemaSpec, description: &str, example: Value) -> SchemaSpec {
    let items = list(item, "In the order of the request.").example(at_pointer(&example, "/results"));
    object(description).required("results", items).example(example)
}

fn claim() -> SchemaSpec {
    let status = "`claimed`: a worker has it. `failed`: it can be claimed again after its back-off. `dead`: it is a dead \
        letter. `redriven`: it can be claimed again. `released`: its worker returned it, and it can be claimed at once. \
        `done`: it is finished.";
    object("A claim.")
        .required("id", claim_id())
        .required("handler", handler_name("The handler."))
        .required("topic", topic_id("The event's topic."))
        .required(
            "sequence",
            number(1..=NUMBER_MAX, "The event's sequence; of a republished event the sequence of the original.")
                .example(12_345),
        )
        .required("eventId", uuid("The event.").example(EVENT_ID))
        .required("token", token())
        .required(
            "attempt",
            count("The number of the attempt; a claim taken over after its lease expired counts too.", 1),
        )
        .required("owner", owner())
        .required(
            "status",
            enumeration(&["claimed", "failed", "dead", "redriven", "released", "done"], status).example("claimed"),
        )
        .required("lease", lease())
        .required("heartbeat", duration("The interval of heartbeats; at most a third of the lease.").example("PT30S"))
        .required("claimedAt", time("When it was claimed."))
        .optional("leaseExpiresAt", time("When the lease expires, while it is claimed."))
        .optional("retryAt", retry_at("When it can be claimed again, after a failure."))
        .optional("deadLetter", uuid("The dead letter of the event.").example(LETTER_ID))
        .optional(
            "committedOffset",
            count("If it was finished with an `offset`: the committed offset of the group.", 12_345),
        )
        .optional("openSequence", count(OPEN_SEQUENCE, 12_340))
        .optional("error", described_ref("ClaimError", "Why the last attempt failed."))
        .example(examples::claim())
}

fn error() -> SchemaSpec {
    let class =
        format!("The class of the failure, such as the name of the exception. At most {LABEL_BYTES_MAX} bytes.");
    let message = format!("The message; cut off after {FAILURE_MESSAGE_BYTES_MAX} bytes.");
    object("The cause of a failure.")
        .required("class", any_text(&class).not_empty().max_length(LABEL_BYTES_MAX).example("TimeoutError"))
        .required("message", any_text(&message))
        .closed()
        .example(examples::error())
}

fn heartbeat() -> SchemaSpec {
    object("The holder of a claim.").required("token", token()).closed().example(json!({"token": 20_072}))
}

fn completion(shape: SchemaSpec) -> SchemaSpec {
    let events = "Events that the work has produced. They are stored together with the completion, or not at all. \
        Without a `causationId` they get the id of the claimed event.";
    let produced = list(schema_ref("EventInput"), events).items(0, BATCH_EVENTS_MAX).example(json!([new_event()]));
    let offset = "The offset to commit for the group with the handler's name in the event's topic. It never moves back, \
        and never past an event that the handler has claimed but neither finished nor given up.";
    shape
        .required("token", token())
        .optional("events", produced)
        .optional_nullable("offset", number(0..=u64::MAX, offset).example(12_345))
        .closed()
        .example(json!({"token": 20_072, "offset": 12_345}))
}

fn completed_claim() -> Value {
    json!({"id": CLAIM_ID, "token": 20_072, "offset": 12_345})
}

fn claim_completion() -> SchemaSpec {
    completion(
        object("The completion of one of several claims.").required("id", any_text("The claim.").example(CLAIM_ID)),
    )
    .example(completed_claim())
}

fn failure() -> SchemaSpec {
    object("The failure of an attempt.")
        .required("token", token())
        .required("error", schema_ref("ClaimError"))
        .optional_nullable(
            "retryable",
            boolean("Whether another attempt may succeed. `false`: the event becomes a dead letter at once.")
                .example(true),
        )
        .closed()
        .example(json!({"token": 20_072, "error": examples::error(), "retryable": true}))
}

fn attempt() -> SchemaSpec {
    object("A failed attempt.")
        .required("number", number(0..=NUMBER_MAX, "The number of the attempt, from 1.").example(1))
        .required("token", token())
        .required("owner", owner())
        .required("startedAt", time("When it started."))
        .required("failedAt", time("When the failure was reported, or the lease expired."))
        .required("error", schema_ref("ClaimError"))
        .example(examples::attempt())
}

fn max_attempts() -> SchemaSpec {
    let most = u64::from(ATTEMPTS_MAX);
    number(1..=most, "After this many failed attempts an event becomes a dead letter.").example(5)
}

fn backoff() -> SchemaSpec {
    duration("The back-off after the first failure. It doubles with every further one, up to an hour.").example("PT1S")
}

fn new_handler() -> SchemaSpec {
    object("The policy of a handler. Absent members have the broker's defaults.")
        .optional_nullable("lease", lease())
        .optional_nullable("maxAttempts", max_attempts())
        .optional_nullable("backoff", backoff())
        .optional_nullable("order", order())
        .closed()
        .example(examples::new_handler())
}

fn handler() -> SchemaSpec {
    let oldest = "The first failure of the oldest event that failed and is not finished.";
    object("A handler: its policy and its progress.")
        .required("name", handler_name("Its name."))
        .required("lease", lease())
        .required("maxAttempts", max_attempts())
        .required("backoff", backoff())
        .required("order", order())
        .required("inFlight", count("Events in flight.", 3))
        .required("failed", count("Events that failed, or whose lease expired, and wait to be claimed again.", 1))
        .required("deadLetters", count("Open dead letters.", 2))
        .optional("oldestFailure", time(oldest))
        .required("lag", count(LAG, 45))
        .required("stale", count("Events skipped as `stale` since the broker was started, each counted once.", 0))
        .required("topics", list(schema_ref("HandlerTopic"), "The topics of which it has claimed events."))
        .example(examples::handler())
}

fn handler_topic() -> SchemaSpec {
    let finished = "The highest sequence that it has finished, or the offset of the group with its name if that is \
        higher.";
    object("A handler's progress in one topic.")
        .required("topic", topic_id("The topic."))
        .required("finished", count(finished, 12_300))
        .required("lag", count("The number of events of the topic that it has not done yet.", 45))
        .required("inFlight", count("Events in flight.", 3))
        .required("failed", count("Events that wait to be claimed again.", 1))
        .required("deadLetters", count("Open dead letters.", 2))
        .example(examples::handler_topic())
}

/// Text for people, of a length.
pub(super) fn reason(bytes_max: usize) -> SchemaSpec {
    text(&format!("The reason. At most {bytes_max} bytes as UTF-8."))
        .max_length(bytes_max)
        .example("the provider is back")
}

/// A schema by its name, or null, with an example.
pub(super) fn optional(name: &str, description: &str, example: Value) -> SchemaSpec {
    nullable_ref(name, description).example(example)
}
