//! Topics, and the segments they lie in.

use super::ids::{duration, topic_id};
use super::{NUMBER_MAX, description_text};
use crate::rest::openapi::examples::{self, REGISTERED_AT, USERS_TOPIC, at_pointer};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_of, any_text, boolean, described_ref, enumeration, list, number, object, schema_ref, text,
    text_up_to, time,
};
use contract::limits::{IDEMPOTENT_DAYS_MAX, IDEMPOTENT_HOURS_DEFAULT, LOCATION_BYTES_MAX};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
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

fn retention() -> SchemaSpec {
    duration("How long events are kept; absent: for ever, or as the server is told.").example("P30D")
}

fn idempotent_retention() -> SchemaSpec {
    let description = format!(
        "How long idempotency keys are remembered: at most {IDEMPOTENT_DAYS_MAX} days, {IDEMPOTENT_HOURS_DEFAULT} hours \
        when absent."
    );
    duration(&description)
}

fn on_payload_mismatch() -> SchemaSpec {
    let description = "What a repeated idempotency key with other `data` is: a duplicate like any other, one that the \
        answer flags, or refused (409).";
    enumeration(&["duplicate", "flag", "reject"], description).example("duplicate")
}

fn deduplicate_by() -> SchemaSpec {
    let description = "Which submissions are one. `submission` (default): those with the same `id`, topic, type, tenant, \
        subject, `occurredAt` and `Producer-Id`, or with the same `deduplicationId`, topic and tenant. `id`: those with the \
        same `id`, topic and tenant, whatever else they say. Fixed when the topic is registered.";
    enumeration(&["submission", "id"], description).example("id")
}

fn normalisation() -> SchemaSpec {
    let rule =
        enumeration(&["trim", "caseFold", "nfc"], "White space at either end; upper and lower case; Unicode form C.");
    let description = "Which differences between two subjects do not make them two aggregates; none when absent: their \
        bytes are compared. An event keeps its own spelling. Said once, when the topic is registered.";
    list(rule.example("trim"), description).items(0, 3).unique_items().example(json!(["trim", "caseFold"]))
}

fn cleanup() -> SchemaSpec {
    let description = "What retention lets go. `delete`: events past their age. `compact`: those of them that are not the \
        latest of their aggregates.";
    enumeration(&["delete", "compact"], description).example("compact")
}

fn internal() -> SchemaSpec {
    boolean("Hidden from lists.").example(false)
}

fn new_topic() -> SchemaSpec {
    object("A topic as one asks for it.")
        .required("id", topic_id("Its name.").example(USERS_TOPIC))
        .optional_nullable("description", description_text())
        .required("streaming", described_ref("StreamingInput", "How it is stored."))
        .optional_nullable("retention", retention())
        .optional_nullable("idempotentRetention", idempotent_retention())
        .optional_nullable("onPayloadMismatch", on_payload_mismatch())
        .optional_nullable("deduplicateBy", deduplicate_by())
        .optional_nullable("cleanup", cleanup())
        .optional("aggregateNormalisation", normalisation())
        .optional("internal", internal())
        .closed()
        .example(examples::new_topic())
}

fn enabled() -> SchemaSpec {
    boolean("In the default log.").allowed_values([Value::Bool(true)]).example(true)
}

fn options_example() -> Value {
    at_pointer(&examples::new_topic(), "/streaming")
}

fn streaming_type() -> SchemaSpec {
    let description = "What keeps the log; the default log's own when absent. `database` only where the broker's default log is in a database (422 otherwise).";
    enumeration(&["memory", "file", "database"], description).example("file")
}

const AT: &str = "Where a log of its own lies: inside the data folder, or in a folder the configuration lists.";

fn new_streaming() -> SchemaSpec {
    let options = object("With options of its own.")
        .optional_nullable("type", streaming_type())
        .optional_nullable(
            "location",
            text_up_to(LOCATION_BYTES_MAX, AT).example(at_pointer(&options_example(), "/location")),
        )
        .optional_nullable("retention", retention().example("P30D"))
        .closed()
        .example(options_example());
    any_of([enabled(), options], "How a topic is stored: `true`, or an object.").example(options_example())
}

fn streaming() -> SchemaSpec {
    let options = object("With options of its own.")
        .optional("type", streaming_type())
        .optional("location", any_text(AT).example(at_pointer(&options_example(), "/location")))
        .optional("retention", retention().example("P30D"))
        .example(options_example());
    any_of([enabled(), options], "How a topic is stored: `true`, or an object.").example(options_example())
}

fn topic_change() -> SchemaSpec {
    object("What may change about a topic. Absent members, and those that are null, stay as they are.")
        .optional_nullable("description", description_text())
        .optional_nullable("retention", retention())
        .optional_nullable("idempotentRetention", idempotent_retention())
        .optional_nullable("onPayloadMismatch", on_payload_mismatch())
        .closed()
        .example(json!({"retention": "P90D"}))
}

fn topic() -> SchemaSpec {
    object("A registered topic.")
        .required("id", topic_id("Its name.").example(USERS_TOPIC))
        .optional("description", description_text())
        .required("streaming", described_ref("Streaming", "How it is stored."))
        .optional("retention", retention())
        .optional("idempotentRetention", idempotent_retention())
        .optional("onPayloadMismatch", on_payload_mismatch())
        .optional("deduplicateBy", deduplicate_by())
        .optional("cleanup", cleanup())
        .optional("aggregateNormalisation", normalisation())
        .optional("internal", internal())
        .required("createdAt", time("When it was registered.").example(REGISTERED_AT))
        .example(examples::topic())
}

fn topics() -> SchemaSpec {
    object("A page of topics.")
        .required(
            "topics",
            list(schema_ref("Topic"), "The topics, in order of their ids.").example(json!([examples::topic()])),
        )
        .required("page_info", schema_ref("PageInfo"))
        .example(examples::topics())
}

fn republish() -> SchemaSpec {
    let target = "For whom: everybody who reads the topic, one shared group, or those who are pushed to.";
    let example = json!({"from": 1, "to": 100, "target": "topic", "dryRun": true});
    object("Which events are published again, and for whom.")
        .required("from", number(1..=u64::MAX, "The first sequence.").example(1))
        .required("to", number(1..=u64::MAX, "The last sequence; not less than `from`.").example(100))
        .required("target", enumeration(&["topic", "group", "subscriptions"], target).example("topic"))
        .optional_nullable("name", text("Which group, or which subscription (all of the topic's where it is absent); not beside the target `topic`.").not_empty().example("billing"))
        .optional("dryRun", boolean("Only count them.").example(true))
        .closed()
        .with_rules([
            rule().with_word("target", &["topic"]).without("name"),
            rule().with_word("target", &["group"]).with("name"),
            rule().with_word("target", &["subscriptions"]),
        ])
        .example(example)
}

fn trim() -> SchemaSpec {
    object("What is removed of a topic's beginning: `through` or `before`.")
        .optional_nullable("through", number(0..=u64::MAX, "The last sequence to go.").example(12_000))
        .optional_nullable("before", time("What was stored before this goes.").example(REGISTERED_AT))
        .optional("erase", boolean(ERASE).example(false))
        .closed()
        .with_rules([rule().with("through").without("before"), rule().with("before").without("through")])
        .example(json!({"before": REGISTERED_AT}))
}

fn compact() -> SchemaSpec {
    object("How a topic is compacted.")
        .optional("erase", boolean(ERASE).example(false))
        .closed()
        .example(json!({"erase": false}))
}

/// What `erase` means, for `:trim` and `:compact`.
const ERASE: &str = "Whether the bytes of everything removed from the topic's log are erased from its files before the \
    answer. Without it that is done within `maintenance.erase_within_secs`.";

fn counted() -> SchemaSpec {
    object("How many it was.")
        .required("count", number(0..=NUMBER_MAX, "That many.").example(100))
        .example(json!({"count": 100}))
}

fn dry_run() -> SchemaSpec {
    let effects = json!(["1 subscription(s) (mail) would be deleted."]);
    let effect = any_text("One effect.").example("1 subscription(s) (mail) would be deleted.");
    object("What would be done; nothing is done.")
        .required("count", number(0..=NUMBER_MAX, "How many events would go.").example(120))
        .required("effects", list(effect, "What else would happen, one sentence each.").example(effects.clone()))
        .example(json!({"count": 120, "effects": effects}))
}

fn segment() -> SchemaSpec {
    let example = examples::segment();
    let numbered = |name: &str, description: &str| {
        number(1..=NUMBER_MAX, description).example(at_pointer(&example, &format!("/{name}")))
    };
    let timed = |name: &str, description: &str| time(description).example(at_pointer(&example, &format!("/{name}")));
    object("A run of a topic's events in one file.")
        .required("location", any_text("Where it lies.").example(at_pointer(&example, "/location")))
        .required("startSequence", numbered("startSequence", "The topic's first sequence in it."))
        .required("startTime", timed("startTime", "When that was stored."))
        .required("endSequence", numbered("endSequence", "The topic's last sequence in it."))
        .required("endTime", timed("endTime", "When that was stored."))
        .required("amount", numbered("amount", "How many of the topic's events it holds."))
        .required("createdAt", timed("createdAt", "When it was begun."))
        .example(example.clone())
}

fn segments() -> SchemaSpec {
    let example = examples::segments();
    let numbered = |name: &str, description: &str| {
        number(1..=NUMBER_MAX, description).example(at_pointer(&example, &format!("/{name}")))
    };
    let timed = |name: &str, description: &str| time(description).example(at_pointer(&example, &format!("/{name}")));
    let rows = list(schema_ref("Segment"), "The segments of this page.").example(at_pointer(&example, "/segments"));
    object("A topic's segments, and what they reach over; a topic without events has none.")
        .required("topic", topic_id("The topic.").example(USERS_TOPIC))
        .required_nullable("start", numbered("start", "Its first sequence that is still there."))
        .required_nullable("startTime", timed("startTime", "When that was stored."))
        .required_nullable("end", numbered("end", "Its last sequence."))
        .required_nullable("endTime", timed("endTime", "When that was stored."))
        .required("segments", rows)
        .required("page_info", schema_ref("PageInfo"))
        .example(example.clone())
}
