//! Claims, and the handlers whose work they are.

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

const LAG: &str = "Events it still has to do, of those that the group of its name takes: dead letters that are open count, \
    stale and discarded events do not.";
const OPEN_SEQUENCE: &str = "Where it was finished with an offset: the first event at or below it that the handler has \
    begun and neither finished nor given up. The offset was committed only up to the one before.";
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("ClaimInput", new_claim()),
        ("ClaimsInput", several("ClaimInput", "Several claims.", &examples::new_claim())),
        ("ClaimOutcome", outcome()),
        ("ClaimOutcomes", results(outcome_result(), "What became of several claims.", examples::outcomes())),
        ("Claim", claim()),
        ("Claims", list_page("Claim", "A page of claims.", page_of(&examples::failed()))),
        ("ClaimError", error()),
        ("Heartbeat", heartbeat()),
        ("Completion", completion(object("That work is done, and what came of it."))),
        ("ClaimCompletion", claim_completion()),
        ("ClaimCompletions", several("ClaimCompletion", "Several completions.", &completed_claim())),
        (
            "CompletionResults",
            results(completion_result(), "What became of several completions.", examples::completed()),
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
    patterned("^[A-Za-z0-9_-]+$", "Opaque; stands for handler, topic and sequence.").example(CLAIM_ID)
}

fn owner() -> SchemaSpec {
    let description = format!("Who does the work, for people. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().max_length(LABEL_BYTES_MAX).example(OWNER)
}

fn order() -> SchemaSpec {
    let description = "`latest`: if a later event of the same aggregate is already done, this event is skipped (`stale`). \
        `gapless`: an event waits until the one before it is done.";
    enumeration(&["latest", "gapless"], description).example("latest")
}

fn lease() -> SchemaSpec {
    let description = format!("How long it holds without a heartbeat: at most {LEASE_SECONDS_MAX} seconds.");
    duration(&description).example("PT900S")
}

fn token() -> SchemaSpec {
    number(0..=u64::MAX, "What fences: it grows with every claim.").example(20_072)
}

fn count(description: &str, example: u64) -> SchemaSpec {
    number(0..=NUMBER_MAX, description).example(example)
}

fn new_claim() -> SchemaSpec {
    let by_place = rule().with("topic").with("sequence").without("eventId");
    object("A claim as one asks for it: of an event by its id, or by its topic and sequence.")
        .required("handler", handler_name("Whose work it is."))
        .optional_nullable("eventId", uuid("Which event; or `topic` and `sequence`.").example(EVENT_ID))
        .optional_nullable("topic", topic_id("The event's topic, beside `sequence`."))
        .optional_nullable("sequence", number(1..=u64::MAX, "The event's number there, from 1.").example(12_345))
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
    let description = "`claimed`: do the work. `done`: it is done, or need not be. `stale`: a later event is finished. \
        `held`: not now.";
    enumeration(&["claimed", "done", "stale", "held"], description).example("claimed")
}

fn outcome() -> SchemaSpec {
    object("What became of the wish to claim.")
        .required("outcome", answer())
        .optional("claim", described_ref("Claim", "The claim, where it was given."))
        .optional("retryAt", retry_at("When to come back, where the event is held and that is known."))
        .example(examples::outcome())
}

fn retry_at(description: &str) -> SchemaSpec {
    time(description).example("2025-12-03T12:20:00.000Z")
}

fn result(description: &str, example: Value) -> SchemaSpec {
    object(description)
        .required("index", count("Its place in the request, from 0.", 0))
        .required("status", number(200..=599, "The HTTP status it would have alone.").example(200))
        .optional("error", described_ref("Problem", "Why it was refused."))
        .optional("claim", schema_ref("Claim"))
        .example(example)
}

fn outcome_result() -> SchemaSpec {
    result("What became of one claim.", at_pointer(&examples::outcomes(), "/results/0"))
        .optional("outcome", answer())
        .optional("retryAt", retry_at("When to come back, where that is known."))
}

fn completion_result() -> SchemaSpec {
    result("What became of one completion.", at_pointer(&examples::completed(), "/results/0"))
}

fn results(item: SchemaSpec, description: &str, example: Value) -> SchemaSpec {
    let items = list(item, "In the order they were sent.").example(at_pointer(&example, "/results"));
    object(description).required("results", items).example(example)
}

fn claim() -> SchemaSpec {
    let status = "`claimed`: somebody has it. `failed`: it waits to be claimed again. `dead`: it is a dead letter. \
        `redriven`: it may be claimed anew. `released`: its worker gave it back, and it may be claimed at once. `done`.";
    let example = examples::claim();
    object("A claim as it stands.")
        .required("id", claim_id())
        .required("handler", handler_name("Whose work it is."))
        .required("topic", topic_id("The event's topic."))
        .required(
            "sequence",
            number(1..=NUMBER_MAX, "The event's number there; of a republished event the number of the first one.")
                .example(12_345),
        )
        .required("eventId", uuid("The event.").example(EVENT_ID))
        .required("token", token())
        .required("attempt", count("Which attempt it is, take-overs counted.", 1))
        .required("owner", owner())
        .required(
            "status",
            enumeration(&["claimed", "failed", "dead", "redriven", "released", "done"], status).example("claimed"),
        )
        .required("lease", lease())
        .required(
            "heartbeat",
            duration("How often to send a heartbeat; at most a third of the lease.").example("PT30S"),
        )
        .required("claimedAt", time("When it was claimed.").example(at_pointer(&example, "/claimedAt")))
        .optional(
            "leaseExpiresAt",
            time("Until when it holds, while it is claimed.").example(at_pointer(&example, "/leaseExpiresAt")),
        )
        .optional("retryAt", retry_at("When it may be claimed again, once it failed."))
        .optional("deadLetter", uuid("The dead letter it became.").example(LETTER_ID))
        .optional("committedOffset", count("Where it was finished with an offset: how far the group has come.", 12_345))
        .optional("openSequence", count(OPEN_SEQUENCE, 12_340))
        .optional("error", described_ref("ClaimError", "Why the last attempt failed."))
        .example(example)
}

fn error() -> SchemaSpec {
    let class = format!("What kind of failure, as the worker's language names it. At most {LABEL_BYTES_MAX} bytes.");
    let message = format!("What it says; cut off behind {FAILURE_MESSAGE_BYTES_MAX} bytes.");
    object("Why work failed.")
        .required("class", any_text(&class).not_empty().max_length(LABEL_BYTES_MAX).example("TimeoutError"))
        .required("message", any_text(&message).example(at_pointer(&examples::error(), "/message")))
        .closed()
        .example(examples::error())
}

fn heartbeat() -> SchemaSpec {
    object("Who is still at it.").required("token", token()).closed().example(json!({"token": 20_072}))
}

fn completion(shape: SchemaSpec) -> SchemaSpec {
    let events = "Events the work has produced: stored with the completion, or neither is. They get the claimed event's \
        id as `causationId` where they have none.";
    let produced = list(schema_ref("EventInput"), events).items(0, BATCH_EVENTS_MAX).example(json!([new_event()]));
    let offset = "How far the group named like the handler has come in the event's topic; never backwards, and never over \
        an event that the handler has begun and neither finished nor given up.";
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
    completion(object("That one of several claims is done.").required("id", any_text("The claim.").example(CLAIM_ID)))
        .example(completed_claim())
}

fn failure() -> SchemaSpec {
    object("That work failed.")
        .required("token", token())
        .required("error", schema_ref("ClaimError"))
        .optional_nullable(
            "retryable",
            boolean("Whether another attempt makes sense; false: a dead letter at once.").example(true),
        )
        .closed()
        .example(json!({"token": 20_072, "error": examples::error(), "retryable": true}))
}

fn attempt() -> SchemaSpec {
    let example = examples::attempt();
    object("One try that failed.")
        .required("number", number(0..=NUMBER_MAX, "Which one, from 1.").example(1))
        .required("token", token())
        .required("owner", owner())
        .required("startedAt", time("When it began.").example(at_pointer(&example, "/startedAt")))
        .required("failedAt", time("When it was known to have failed.").example(at_pointer(&example, "/failedAt")))
        .required("error", schema_ref("ClaimError"))
        .example(example)
}

fn max_attempts() -> SchemaSpec {
    let most = u64::from(ATTEMPTS_MAX);
    number(1..=most, "After this many failed attempts an event is a dead letter.").example(5)
}

fn backoff() -> SchemaSpec {
    duration("The wait after a first failure; it doubles with every further one, up to an hour.").example("PT1S")
}

fn new_handler() -> SchemaSpec {
    object("How a handler's work is to be tried; what is absent is the broker's default.")
        .optional_nullable("lease", lease())
        .optional_nullable("maxAttempts", max_attempts())
        .optional_nullable("backoff", backoff())
        .optional_nullable("order", order())
        .closed()
        .example(examples::new_handler())
}

fn handler() -> SchemaSpec {
    let example = examples::handler();
    let oldest = "When the oldest of the failed and the given up first failed.";
    object("A handler: what holds for it, and how it stands.")
        .required("name", handler_name("Its name."))
        .required("lease", lease())
        .required("maxAttempts", max_attempts())
        .required("backoff", backoff())
        .required("order", order())
        .required("inFlight", count("Events somebody is at.", 3))
        .required("failed", count("Events that failed, or whose worker fell silent, and wait to be claimed again.", 1))
        .required("deadLetters", count("Events given up.", 2))
        .optional("oldestFailure", time(oldest).example(at_pointer(&example, "/oldestFailure")))
        .required("lag", count(LAG, 45))
        .required("stale", count("Events answered `stale` since the broker was started, each once.", 0))
        .required(
            "topics",
            list(schema_ref("HandlerTopic"), "Those it has claimed events of.")
                .example(at_pointer(&example, "/topics")),
        )
        .example(example)
}

fn handler_topic() -> SchemaSpec {
    let finished = "The highest sequence it has finished, or the offset of the group named like it if that is higher.";
    object("How a handler stands in one topic.")
        .required("topic", topic_id("The topic."))
        .required("finished", count(finished, 12_300))
        .required("lag", count("Events it still has to do there.", 45))
        .required("inFlight", count("Events somebody is at.", 3))
        .required("failed", count("Events that wait to be claimed again.", 1))
        .required("deadLetters", count("Events given up.", 2))
        .example(examples::handler_topic())
}

/// Text for people, of a length.
pub(super) fn reason(bytes_max: usize) -> SchemaSpec {
    text(&format!("Why. At most {bytes_max} bytes as UTF-8.")).max_length(bytes_max).example("the provider is back")
}

/// A schema by its name, or null, with an example.
pub(super) fn optional(name: &str, description: &str, example: Value) -> SchemaSpec {
    nullable_ref(name, description).example(example)
}
