//! Topics, and the segments they lie in.

use super::ids::{duration, topic_id};
use super::{NUMBER_MAX, for_people};
use crate::rest::openapi::examples::{self, REGISTERED_AT, USERS_TOPIC, part};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{
    Shape, any_text, either, flag, list, named, named_as, number, object, text, text_up_to, time, word,
};
use contract::limits::{IDEMPOTENT_DAYS_MAX, IDEMPOTENT_HOURS_DEFAULT, LOCATION_BYTES_MAX};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("TopicInput", new_topic()),
        ("StreamingInput", new_streaming()),
        ("TopicChange", topic_change()),
        ("Topic", topic()),
        ("Streaming", streaming()),
        ("Topics", topics()),
        ("Republish", republish()),
        ("Trim", trim()),
        ("Compact", compact()),
        ("Counted", counted()),
        ("DryRun", dry_run()),
        ("Segment", segment()),
        ("Segments", segments()),
    ]
}

fn retention() -> Shape {
    duration("How long events are kept; absent: for ever, or as the server is told.").like("P30D")
}

fn idempotent_retention() -> Shape {
    let description = format!(
        "How long idempotency keys are remembered: at most {IDEMPOTENT_DAYS_MAX} days, {IDEMPOTENT_HOURS_DEFAULT} hours \
        when absent."
    );
    duration(&description)
}

fn on_payload_mismatch() -> Shape {
    let description = "What a repeated idempotency key with other `data` is: a duplicate like any other, one that the \
        answer flags, or refused (409).";
    word(&["duplicate", "flag", "reject"], description).like("duplicate")
}

fn deduplicate_by() -> Shape {
    let description = "Which submissions are one. `submission` (default): those with the same `id`, topic, type, tenant, \
        subject, `occurredAt` and `Producer-Id`, or with the same `deduplicationId`, topic and tenant. `id`: those with the \
        same `id`, topic and tenant, whatever else they say. Fixed when the topic is registered.";
    word(&["submission", "id"], description).like("id")
}

fn normalisation() -> Shape {
    let rule = word(&["trim", "caseFold", "nfc"], "White space at either end; upper and lower case; Unicode form C.");
    let description = "Which differences between two subjects do not make them two aggregates; none when absent: their \
        bytes are compared. An event keeps its own spelling. Said once, when the topic is registered.";
    list(rule.like("trim"), description).items(0, 3).once_each().like(json!(["trim", "caseFold"]))
}

fn cleanup() -> Shape {
    let description = "What retention lets go. `delete`: events past their age. `compact`: those of them that are not the \
        latest of their aggregates.";
    word(&["delete", "compact"], description).like("compact")
}

fn internal() -> Shape {
    flag("Hidden from lists.").like(false)
}

fn new_topic() -> Shape {
    object("A topic as one asks for it.")
        .must("id", topic_id("Its name.").like(USERS_TOPIC))
        .or_null("description", for_people())
        .must("streaming", named_as("StreamingInput", "How it is stored."))
        .or_null("retention", retention())
        .or_null("idempotentRetention", idempotent_retention())
        .or_null("onPayloadMismatch", on_payload_mismatch())
        .or_null("deduplicateBy", deduplicate_by())
        .or_null("cleanup", cleanup())
        .may("aggregateNormalisation", normalisation())
        .may("internal", internal())
        .closed()
        .like(examples::new_topic())
}

fn enabled() -> Shape {
    flag("In the default log.").exactly([Value::Bool(true)]).like(true)
}

fn options_example() -> Value {
    part(&examples::new_topic(), "/streaming")
}

fn streaming_type() -> Shape {
    let description = "What keeps the log; the default log's own when absent. `database` only where the broker's default log is in a database (422 otherwise).";
    word(&["memory", "file", "database"], description).like("file")
}

const AT: &str = "Where a log of its own lies: inside the data folder, or in a folder the configuration lists.";

fn new_streaming() -> Shape {
    let options = object("With options of its own.")
        .or_null("type", streaming_type())
        .or_null("location", text_up_to(LOCATION_BYTES_MAX, AT).like(part(&options_example(), "/location")))
        .or_null("retention", retention().like("P30D"))
        .closed()
        .like(options_example());
    either([enabled(), options], "How a topic is stored: `true`, or an object.").like(options_example())
}

fn streaming() -> Shape {
    let options = object("With options of its own.")
        .may("type", streaming_type())
        .may("location", any_text(AT).like(part(&options_example(), "/location")))
        .may("retention", retention().like("P30D"))
        .like(options_example());
    either([enabled(), options], "How a topic is stored: `true`, or an object.").like(options_example())
}

fn topic_change() -> Shape {
    object("What may change about a topic. Absent members, and those that are null, stay as they are.")
        .or_null("description", for_people())
        .or_null("retention", retention())
        .or_null("idempotentRetention", idempotent_retention())
        .or_null("onPayloadMismatch", on_payload_mismatch())
        .closed()
        .like(json!({"retention": "P90D"}))
}

fn topic() -> Shape {
    object("A registered topic.")
        .must("id", topic_id("Its name.").like(USERS_TOPIC))
        .may("description", for_people())
        .must("streaming", named_as("Streaming", "How it is stored."))
        .may("retention", retention())
        .may("idempotentRetention", idempotent_retention())
        .may("onPayloadMismatch", on_payload_mismatch())
        .may("deduplicateBy", deduplicate_by())
        .may("cleanup", cleanup())
        .may("aggregateNormalisation", normalisation())
        .may("internal", internal())
        .must("createdAt", time("When it was registered.").like(REGISTERED_AT))
        .like(examples::topic())
}

fn topics() -> Shape {
    object("A page of topics.")
        .must("topics", list(named("Topic"), "The topics, in order of their ids.").like(json!([examples::topic()])))
        .must("page_info", named("PageInfo"))
        .like(examples::topics())
}

fn republish() -> Shape {
    let target = "For whom: everybody who reads the topic, one shared group, or those who are pushed to.";
    let example = json!({"from": 1, "to": 100, "target": "topic", "dryRun": true});
    object("Which events are published again, and for whom.")
        .must("from", number(1..=u64::MAX, "The first sequence.").like(1))
        .must("to", number(1..=u64::MAX, "The last sequence; not less than `from`.").like(100))
        .must("target", word(&["topic", "group", "subscriptions"], target).like("topic"))
        .or_null("name", text("Which group, or which subscription (all of the topic's where it is absent); not beside the target `topic`.").not_empty().like("billing"))
        .may("dryRun", flag("Only count them.").like(true))
        .closed()
        .ruled([
            rule().with_word("target", &["topic"]).without("name"),
            rule().with_word("target", &["group"]).with("name"),
            rule().with_word("target", &["subscriptions"]),
        ])
        .like(example)
}

fn trim() -> Shape {
    object("What is removed of a topic's beginning: `through` or `before`.")
        .or_null("through", number(0..=u64::MAX, "The last sequence to go.").like(12_000))
        .or_null("before", time("What was stored before this goes.").like(REGISTERED_AT))
        .may("erase", flag(ERASE).like(false))
        .closed()
        .ruled([rule().with("through").without("before"), rule().with("before").without("through")])
        .like(json!({"before": REGISTERED_AT}))
}

fn compact() -> Shape {
    object("How a topic is compacted.").may("erase", flag(ERASE).like(false)).closed().like(json!({"erase": false}))
}

/// What `erase` means, for `:trim` and `:compact`.
const ERASE: &str = "Whether the bytes of everything removed from the topic's log are erased from its files before the \
    answer. Without it that is done within `maintenance.erase_within_secs`.";

fn counted() -> Shape {
    object("How many it was.").must("count", number(0..=NUMBER_MAX, "That many.").like(100)).like(json!({"count": 100}))
}

fn dry_run() -> Shape {
    let effects = json!(["1 subscription(s) (mail) would be deleted."]);
    let effect = any_text("One effect.").like("1 subscription(s) (mail) would be deleted.");
    object("What would be done; nothing is done.")
        .must("count", number(0..=NUMBER_MAX, "How many events would go.").like(120))
        .must("effects", list(effect, "What else would happen, one sentence each.").like(effects.clone()))
        .like(json!({"count": 120, "effects": effects}))
}

fn segment() -> Shape {
    let example = examples::segment();
    let numbered =
        |name: &str, description: &str| number(1..=NUMBER_MAX, description).like(part(&example, &format!("/{name}")));
    let timed = |name: &str, description: &str| time(description).like(part(&example, &format!("/{name}")));
    object("A run of a topic's events in one file.")
        .must("location", any_text("Where it lies.").like(part(&example, "/location")))
        .must("startSequence", numbered("startSequence", "The topic's first sequence in it."))
        .must("startTime", timed("startTime", "When that was stored."))
        .must("endSequence", numbered("endSequence", "The topic's last sequence in it."))
        .must("endTime", timed("endTime", "When that was stored."))
        .must("amount", numbered("amount", "How many of the topic's events it holds."))
        .must("createdAt", timed("createdAt", "When it was begun."))
        .like(example.clone())
}

fn segments() -> Shape {
    let example = examples::segments();
    let numbered =
        |name: &str, description: &str| number(1..=NUMBER_MAX, description).like(part(&example, &format!("/{name}")));
    let timed = |name: &str, description: &str| time(description).like(part(&example, &format!("/{name}")));
    let rows = list(named("Segment"), "The segments of this page.").like(part(&example, "/segments"));
    object("A topic's segments, and what they reach over; a topic without events has none.")
        .must("topic", topic_id("The topic.").like(USERS_TOPIC))
        .must_or_null("start", numbered("start", "Its first sequence that is still there."))
        .must_or_null("startTime", timed("startTime", "When that was stored."))
        .must_or_null("end", numbered("end", "Its last sequence."))
        .must_or_null("endTime", timed("endTime", "When that was stored."))
        .must("segments", rows)
        .must("page_info", named("PageInfo"))
        .like(example.clone())
}
