//! Topics, and the segments that store them.

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
        ("Republished", republished()),
        ("DryRun", dry_run()),
        ("Segment", segment()),
        ("Segments", segments()),
    ]
}

fn retention() -> SchemaSpec {
    duration("How long events are kept. Default: `storage.retention_days` of the configuration; without it, for ever.")
        .example("P30D")
}

fn idempotent_retention() -> SchemaSpec {
    let description = format!(
        "How long idempotency keys are remembered: at most {IDEMPOTENT_DAYS_MAX} days. Default: \
            {IDEMPOTENT_HOURS_DEFAULT} hours."
    );
    duration(&description)
}

fn on_payload_mismatch() -> SchemaSpec {
    let description = "How a repeated idempotency key with different `data` is treated: as a duplicate (`duplicate`, the \
        default), as a duplicate that the response flags (`flag`), or as an error (`reject`, 409).";
    enumeration(&["duplicate", "flag", "reject"], description).example("duplicate")
}

fn deduplicate_by() -> SchemaSpec {
    let description = "Which submissions are duplicates. `submission` (default): those with equal `id`, topic, type, \
        tenant, subject, `occurredAt` and `Producer-Id`, or with equal `deduplicationId`, topic and tenant. `id`: those \
        with equal `id`, topic and tenant. Fixed when the topic is registered.";
    enumeration(&["submission", "id"], description).example("id")
}

fn secrets() -> SchemaSpec {
    let description = "What happens to submitted events that seem to contain a secret. `off`: nothing. `flag` (default): they \
        are stored, and the response says where (`Secret-Suspected`). `reject`: those in which something has the form of a known \
        kind of secret are refused (422), others are flagged.";
    enumeration(&["off", "flag", "reject"], description).example("reject")
}

fn normalisation() -> SchemaSpec {
    let rule = enumeration(
        &["trim", "caseFold", "nfc"],
        "`trim`: ignore white space at both ends. `caseFold`: ignore upper and \
            lower case. `nfc`: compare in Unicode normalisation form C.",
    );
    let description = "Differences between two subjects that are ignored when events are assigned to aggregates. \
        Default: none, the bytes are compared. The event keeps its spelling. Fixed when the topic is registered.";
    list(rule.example("trim"), description).items(0, 3).unique_items().example(json!(["trim", "caseFold"]))
}

fn cleanup() -> SchemaSpec {
    let description = "What retention removes. `delete` (default): events that are older than `retention`. `compact`: of \
        those, all but the latest event of each aggregate.";
    enumeration(&["delete", "compact"], description).example("compact")
}

fn internal() -> SchemaSpec {
    boolean("Hidden from lists.").example(false)
}

fn new_topic() -> SchemaSpec {
    object("The definition of a topic.")
        .required("id", topic_id("The name of the topic.").example(USERS_TOPIC))
        .optional_nullable("description", description_text())
        .required("streaming", described_ref("StreamingInput", "How it is stored."))
        .optional_nullable("retention", retention())
        .optional_nullable("idempotentRetention", idempotent_retention())
        .optional_nullable("onPayloadMismatch", on_payload_mismatch())
        .optional_nullable("deduplicateBy", deduplicate_by())
        .optional_nullable("secrets", secrets())
        .optional_nullable("cleanup", cleanup())
        .optional("aggregateNormalisation", normalisation())
        .optional("internal", internal())
        .closed()
        .example(examples::new_topic())
}

fn enabled() -> SchemaSpec {
    boolean("`true`: the topic is stored in the default log.").allowed_values([Value::Bool(true)]).example(true)
}

fn options_example() -> Value {
    at_pointer(&examples::new_topic(), "/streaming")
}

fn streaming_type() -> SchemaSpec {
    let description = "The storage of the log. Default: the same as the default log's. `database` needs a default log in \
        a database (otherwise 422).";
    enumeration(&["memory", "file", "database"], description).example("file")
}

const AT: &str = "The folder of the topic's own log: inside the data folder, or in a folder of `storage.locations`.";

fn new_streaming() -> SchemaSpec {
    let options = object("Options for a log of its own.")
        .optional_nullable("type", streaming_type())
        .optional_nullable("location", text_up_to(LOCATION_BYTES_MAX, AT))
        .optional_nullable("retention", retention().example("P30D"))
        .closed()
        .example(options_example());
    any_of([enabled(), options], "How a topic is stored: `true`, or an object.").example(options_example())
}

fn streaming() -> SchemaSpec {
    let options = object("Options for a log of its own.")
        .optional("type", streaming_type())
        .optional("location", any_text(AT))
        .optional("retention", retention().example("P30D"))
        .example(options_example());
    any_of([enabled(), options], "How a topic is stored: `true`, or an object.").example(options_example())
}

fn topic_change() -> SchemaSpec {
    object("A change of a topic. Absent members are not changed. Null removes a member, so that its default applies.")
        .optional_nullable("description", description_text())
        .optional_nullable("retention", retention())
        .optional_nullable("idempotentRetention", idempotent_retention())
        .optional_nullable("onPayloadMismatch", on_payload_mismatch())
        .optional_nullable("secrets", secrets())
        .closed()
        .example(json!({"retention": "P90D"}))
}

fn topic() -> SchemaSpec {
    object("A registered topic.")
        .required("id", topic_id("The name of the topic.").example(USERS_TOPIC))
        .optional("description", description_text())
        .required("streaming", described_ref("Streaming", "How it is stored."))
        .optional("retention", retention())
        .optional("idempotentRetention", idempotent_retention())
        .optional("onPayloadMismatch", on_payload_mismatch())
        .optional("deduplicateBy", deduplicate_by())
        .optional("secrets", secrets())
        .optional("cleanup", cleanup())
        .optional("aggregateNormalisation", normalisation())
        .optional("internal", internal())
        .required("createdAt", time("When it was registered.").example(REGISTERED_AT))
        .example(examples::topic())
}

fn topics() -> SchemaSpec {
    object("A page of topics.")
        .required("topics", list(schema_ref("Topic"), "The topics, sorted by id.").example(json!([examples::topic()])))
        .required("page_info", schema_ref("PageInfo"))
        .example(examples::topics())
}

fn republish() -> SchemaSpec {
    let target = "The receivers: all readers of the topic, one shared group, or subscriptions.";
    object("The events to publish again, and their receivers.")
        .required("from", number(1..=u64::MAX, "The first sequence.").example(1))
        .required("to", number(1..=u64::MAX, "The last sequence; not less than `from`.").example(100))
        .required("target", enumeration(&["topic", "group", "subscriptions"], target).example("topic"))
        .optional_nullable(
            "name",
            text(
                "The name of the group, or of the subscription (default: all subscriptions of \
            the topic). Not allowed with the target `topic`.",
            )
            .not_empty()
            .example("billing"),
        )
        .optional("dryRun", boolean("Only count the events.").example(true))
        .closed()
        .with_rules([
            rule().with_word("target", &["topic"]).without("name"),
            rule().with_word("target", &["group"]).with("name"),
            rule().with_word("target", &["subscriptions"]),
        ])
        .example(json!({"from": 1, "to": 100, "target": "topic", "dryRun": true}))
}

fn republished() -> SchemaSpec {
    let damaged = "Events of the range that are damaged on disk, the first hundred at most. They are not counted.";
    object("The number of events that were published again, or would be.")
        .required("count", number(0..=NUMBER_MAX, "The number.").example(100))
        .optional("damaged", list(number(1..=NUMBER_MAX, "A sequence.").example(42), damaged).example(json!([42])))
        .example(json!({"count": 100}))
}

fn trim() -> SchemaSpec {
    object("The events to remove from the beginning of a topic: `through` or `before`.")
        .optional_nullable("through", number(0..=u64::MAX, "The last sequence to remove.").example(12_000))
        .optional_nullable("before", time("Events stored before this time are removed.").example(REGISTERED_AT))
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

/// The description of `erase`, for `:trim` and `:compact`.
const ERASE: &str = "Whether the bytes of all removed events of the topic's log are erased from its files before the \
    response. Otherwise they are erased within `maintenance.erase_within_secs`.";

fn counted() -> SchemaSpec {
    object("A number of events.")
        .required("count", number(0..=NUMBER_MAX, "The number.").example(100))
        .example(json!({"count": 100}))
}

fn dry_run() -> SchemaSpec {
    let effects = json!(["1 subscription(s) (mail) would be deleted."]);
    let effect = any_text("One effect.").example("1 subscription(s) (mail) would be deleted.");
    object("What would be done. Nothing is changed.")
        .required("count", number(0..=NUMBER_MAX, "How many events would be removed.").example(120))
        .required("effects", list(effect, "The other effects, one sentence each.").example(effects.clone()))
        .example(json!({"count": 120, "effects": effects}))
}

fn segment() -> SchemaSpec {
    object("Consecutive events of a topic in one file.")
        .required("location", any_text("The file."))
        .required("startSequence", number(1..=NUMBER_MAX, "The first sequence of the topic in it."))
        .required("startTime", time("When that event was stored."))
        .required("endSequence", number(1..=NUMBER_MAX, "The last sequence of the topic in it."))
        .required("endTime", time("When that event was stored."))
        .required("amount", number(1..=NUMBER_MAX, "The number of events of the topic in it."))
        .required("createdAt", time("When the segment was created."))
        .example(examples::segment())
}

fn segments() -> SchemaSpec {
    let example = examples::segments();
    let rows = list(schema_ref("Segment"), "The segments of this page.").example(at_pointer(&example, "/segments"));
    object("The segments of a topic, and the range that they cover. A topic without events has none.")
        .required("topic", topic_id("The topic.").example(USERS_TOPIC))
        .required_nullable("start", number(1..=NUMBER_MAX, "The first sequence that is stored."))
        .required_nullable("startTime", time("When that event was stored."))
        .required_nullable("end", number(1..=NUMBER_MAX, "The last sequence."))
        .required_nullable("endTime", time("When that event was stored."))
        .required("segments", rows)
        .required("page_info", schema_ref("PageInfo"))
        .example(example.clone())
}
