//! Claims, and the handlers whose work they are.

use super::ids::{duration, topic_id};
use super::{NUMBER_MAX, rows};
use crate::rest::openapi::examples::claims::{self as examples, CLAIM_ID, HANDLER, LETTER_ID, OWNER};
use crate::rest::openapi::examples::{EVENT_ID, new_event, page_of, part};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{
    Shape, any_text, flag, list, named, named_as, named_or_null, number, object, patterned, text, time, uuid, word,
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

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("ClaimInput", new_claim()),
        ("ClaimsInput", several("ClaimInput", "Several claims.", &examples::new_claim())),
        ("ClaimOutcome", outcome()),
        ("ClaimOutcomes", results(outcome_result(), "What became of several claims.", examples::outcomes())),
        ("Claim", claim()),
        ("Claims", rows("Claim", "A page of claims.", page_of(&examples::failed()))),
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
        ("Handlers", rows("Handler", "A page of handlers.", page_of(&examples::handler()))),
    ]
}

/// A handler's name.
pub(in crate::rest::openapi) fn handler_name(description: &str) -> Shape {
    let description = format!("{description} At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().up_to(LABEL_BYTES_MAX).like(HANDLER)
}

/// A claim's id.
pub(in crate::rest::openapi) fn claim_id() -> Shape {
    patterned("^[A-Za-z0-9_-]+$", "Opaque; stands for handler, topic and sequence.").like(CLAIM_ID)
}

fn owner() -> Shape {
    let description = format!("Who does the work, for people. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().up_to(LABEL_BYTES_MAX).like(OWNER)
}

fn order() -> Shape {
    let description = "`latest`: if a later event of the same aggregate is already done, this event is skipped (`stale`). \
        `gapless`: an event waits until the one before it is done.";
    word(&["latest", "gapless"], description).like("latest")
}

fn lease() -> Shape {
    let description = format!("How long it holds without a heartbeat: at most {LEASE_SECONDS_MAX} seconds.");
    duration(&description).like("PT900S")
}

fn token() -> Shape {
    number(0..=u64::MAX, "What fences: it grows with every claim.").like(20_072)
}

fn count(description: &str, example: u64) -> Shape {
    number(0..=NUMBER_MAX, description).like(example)
}

fn new_claim() -> Shape {
    let by_place = rule().with("topic").with("sequence").without("eventId");
    object("A claim as one asks for it: of an event by its id, or by its topic and sequence.")
        .must("handler", handler_name("Whose work it is."))
        .or_null("eventId", uuid("Which event; or `topic` and `sequence`.").like(EVENT_ID))
        .or_null("topic", topic_id("The event's topic, beside `sequence`."))
        .or_null("sequence", number(1..=u64::MAX, "The event's number there, from 1.").like(12_345))
        .or_null("owner", owner())
        .or_null("lease", lease())
        .or_null("order", order())
        .closed()
        .ruled([rule().with("eventId").without("topic").without("sequence"), by_place])
        .like(examples::new_claim())
}

fn several(item: &str, description: &str, example: &Value) -> Shape {
    let items = list(named(item), description).items(1, CLAIMS_BATCH_MAX).like(json!([example]));
    object(description).must("claims", items).closed().like(json!({"claims": [example]}))
}

fn answer() -> Shape {
    let description = "`claimed`: do the work. `done`: it is done, or need not be. `stale`: a later event is finished. \
        `held`: not now.";
    word(&["claimed", "done", "stale", "held"], description).like("claimed")
}

fn outcome() -> Shape {
    object("What became of the wish to claim.")
        .must("outcome", answer())
        .may("claim", named_as("Claim", "The claim, where it was given."))
        .may("retryAt", retry_at("When to come back, where the event is held and that is known."))
        .like(examples::outcome())
}

fn retry_at(description: &str) -> Shape {
    time(description).like("2025-12-03T12:20:00.000Z")
}

fn result(description: &str, example: Value) -> Shape {
    object(description)
        .must("index", count("Its place in the request, from 0.", 0))
        .must("status", number(200..=599, "The HTTP status it would have alone.").like(200))
        .may("error", named_as("Problem", "Why it was refused."))
        .may("claim", named("Claim"))
        .like(example)
}

fn outcome_result() -> Shape {
    result("What became of one claim.", part(&examples::outcomes(), "/results/0"))
        .may("outcome", answer())
        .may("retryAt", retry_at("When to come back, where that is known."))
}

fn completion_result() -> Shape {
    result("What became of one completion.", part(&examples::completed(), "/results/0"))
}

fn results(item: Shape, description: &str, example: Value) -> Shape {
    let items = list(item, "In the order they were sent.").like(part(&example, "/results"));
    object(description).must("results", items).like(example)
}

fn claim() -> Shape {
    let status = "`claimed`: somebody has it. `failed`: it waits to be claimed again. `dead`: it is a dead letter. \
        `redriven`: it may be claimed anew. `released`: its worker gave it back, and it may be claimed at once. `done`.";
    let example = examples::claim();
    object("A claim as it stands.")
        .must("id", claim_id())
        .must("handler", handler_name("Whose work it is."))
        .must("topic", topic_id("The event's topic."))
        .must("sequence", number(1..=NUMBER_MAX, "The event's number there.").like(12_345))
        .must("eventId", uuid("The event.").like(EVENT_ID))
        .must("token", token())
        .must("attempt", count("Which attempt it is, take-overs counted.", 1))
        .must("owner", owner())
        .must("status", word(&["claimed", "failed", "dead", "redriven", "released", "done"], status).like("claimed"))
        .must("lease", lease())
        .must("heartbeat", duration("How often to send a heartbeat; at most a third of the lease.").like("PT30S"))
        .must("claimedAt", time("When it was claimed.").like(part(&example, "/claimedAt")))
        .may(
            "leaseExpiresAt",
            time("Until when it holds, while it is claimed.").like(part(&example, "/leaseExpiresAt")),
        )
        .may("retryAt", retry_at("When it may be claimed again, once it failed."))
        .may("deadLetter", uuid("The dead letter it became.").like(LETTER_ID))
        .may("committedOffset", count("Where it was finished with an offset: how far the group has come.", 12_345))
        .may("openSequence", count(OPEN_SEQUENCE, 12_340))
        .may("error", named_as("ClaimError", "Why the last attempt failed."))
        .like(example)
}

fn error() -> Shape {
    let class = format!("What kind of failure, as the worker's language names it. At most {LABEL_BYTES_MAX} bytes.");
    let message = format!("What it says; cut off behind {FAILURE_MESSAGE_BYTES_MAX} bytes.");
    object("Why work failed.")
        .must("class", any_text(&class).not_empty().up_to(LABEL_BYTES_MAX).like("TimeoutError"))
        .must("message", any_text(&message).like(part(&examples::error(), "/message")))
        .closed()
        .like(examples::error())
}

fn heartbeat() -> Shape {
    object("Who is still at it.").must("token", token()).closed().like(json!({"token": 20_072}))
}

fn completion(shape: Shape) -> Shape {
    let events = "Events the work has produced: stored with the completion, or neither is. They get the claimed event's \
        id as `causationId` where they have none.";
    let produced = list(named("EventInput"), events).items(0, BATCH_EVENTS_MAX).like(json!([new_event()]));
    let offset = "How far the group named like the handler has come in the event's topic; never backwards, and never over \
        an event that the handler has begun and neither finished nor given up.";
    shape
        .must("token", token())
        .may("events", produced)
        .or_null("offset", number(0..=u64::MAX, offset).like(12_345))
        .closed()
        .like(json!({"token": 20_072, "offset": 12_345}))
}

fn completed_claim() -> Value {
    json!({"id": CLAIM_ID, "token": 20_072, "offset": 12_345})
}

fn claim_completion() -> Shape {
    completion(object("That one of several claims is done.").must("id", any_text("The claim.").like(CLAIM_ID)))
        .like(completed_claim())
}

fn failure() -> Shape {
    object("That work failed.")
        .must("token", token())
        .must("error", named("ClaimError"))
        .or_null("retryable", flag("Whether another attempt makes sense; false: a dead letter at once.").like(true))
        .closed()
        .like(json!({"token": 20_072, "error": examples::error(), "retryable": true}))
}

fn attempt() -> Shape {
    let example = examples::attempt();
    object("One try that failed.")
        .must("number", number(0..=NUMBER_MAX, "Which one, from 1.").like(1))
        .must("token", token())
        .must("owner", owner())
        .must("startedAt", time("When it began.").like(part(&example, "/startedAt")))
        .must("failedAt", time("When it was known to have failed.").like(part(&example, "/failedAt")))
        .must("error", named("ClaimError"))
        .like(example)
}

fn max_attempts() -> Shape {
    let most = u64::from(ATTEMPTS_MAX);
    number(1..=most, "After this many failed attempts an event is a dead letter.").like(5)
}

fn backoff() -> Shape {
    duration("The wait after a first failure; it doubles with every further one, up to an hour.").like("PT1S")
}

fn new_handler() -> Shape {
    object("How a handler's work is to be tried; what is absent is the broker's default.")
        .or_null("lease", lease())
        .or_null("maxAttempts", max_attempts())
        .or_null("backoff", backoff())
        .or_null("order", order())
        .closed()
        .like(examples::new_handler())
}

fn handler() -> Shape {
    let example = examples::handler();
    let oldest = "When the oldest of the failed and the given up first failed.";
    object("A handler: what holds for it, and how it stands.")
        .must("name", handler_name("Its name."))
        .must("lease", lease())
        .must("maxAttempts", max_attempts())
        .must("backoff", backoff())
        .must("order", order())
        .must("inFlight", count("Events somebody is at.", 3))
        .must("failed", count("Events that failed, or whose worker fell silent, and wait to be claimed again.", 1))
        .must("deadLetters", count("Events given up.", 2))
        .may("oldestFailure", time(oldest).like(part(&example, "/oldestFailure")))
        .must("lag", count(LAG, 45))
        .must("stale", count("Events answered `stale` since the broker was started, each once.", 0))
        .must("topics", list(named("HandlerTopic"), "Those it has claimed events of.").like(part(&example, "/topics")))
        .like(example)
}

fn handler_topic() -> Shape {
    let finished = "The highest sequence it has finished, or the offset of the group named like it if that is higher.";
    object("How a handler stands in one topic.")
        .must("topic", topic_id("The topic."))
        .must("finished", count(finished, 12_300))
        .must("lag", count("Events it still has to do there.", 45))
        .must("inFlight", count("Events somebody is at.", 3))
        .must("failed", count("Events that wait to be claimed again.", 1))
        .must("deadLetters", count("Events given up.", 2))
        .like(examples::handler_topic())
}

/// Text for people, of a length.
pub(super) fn reason(bytes_max: usize) -> Shape {
    text(&format!("Why. At most {bytes_max} bytes as UTF-8.")).up_to(bytes_max).like("the provider is back")
}

/// A schema by its name, or null, with an example.
pub(super) fn optional(name: &str, description: &str, example: Value) -> Shape {
    named_or_null(name, description).like(example)
}
