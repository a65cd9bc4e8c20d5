//! Consumers, and the groups that share an offset.

use super::ids::{duration, pattern, topic_id};
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::{self, CEL, CONSUMER_ID, CREATED, OCCURRED_AT};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, enumeration, list, nullable_ref, number, object, patterned, schema_ref, text, time, uuid,
};
use contract::limits::{
    CEL_BYTES_MAX, CONSUMER_TYPES_MAX, IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX, LABEL_BYTES_MAX, SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
};
use serde_json::json;

const LAG: &str = "The number of events in the group's filter that are not done yet. Open dead letters count; stale and \
    discarded events do not. Equal to the lag of the handler with the group's name.";

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("ConsumerInput", new_consumer()),
        ("Consumer", consumer()),
        ("ConsumerData", consumer_data()),
        ("Consumers", list_page("Consumer", "A page of consumers.", examples::page_of(&examples::consumer()))),
        ("Commit", commit()),
        ("Member", member()),
        ("GroupTopic", group_topic()),
        ("ConsumerGroup", group()),
        ("ConsumerGroups", list_page("ConsumerGroup", "A page of groups.", examples::page_of(&examples::group()))),
        ("GroupReset", reset()),
    ]
}

const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// A group's name.
fn group_name() -> SchemaSpec {
    let description = format!(
        "The name that the instances share. Offsets belong to the group. At most {LABEL_BYTES_MAX} bytes as \
            UTF-8."
    );
    patterned(NO_CONTROL, &description).not_empty().max_length(LABEL_BYTES_MAX).example("tenant-service-instances")
}

fn patterns(description: &str, example: &str) -> SchemaSpec {
    list(pattern("A type."), description).items(0, CONSUMER_TYPES_MAX).example(json!([example]))
}

fn cel() -> SchemaSpec {
    let description = format!("A CEL expression over the event's members. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().max_length(CEL_BYTES_MAX).example(CEL)
}

fn session_timeout() -> SchemaSpec {
    let description =
        format!("How long the consumer lives without a poll: {SESSION_SECONDS_MIN} to {SESSION_SECONDS_MAX} seconds.");
    duration(&description).example("PT30S")
}

fn distribution() -> SchemaSpec {
    let description = "How events are distributed among the group's members. `broadcast` (default): every member \
        receives all events. `shared`: each event is assigned to one live member, as a claim of the handler with the \
        group's name, one event of an aggregate at a time. All consumers of a group in a topic need the same \
        distribution and, with `shared`, the same filter (otherwise 409).";
    enumeration(&["broadcast", "shared"], description).example("broadcast")
}

fn max_in_flight() -> SchemaSpec {
    let description = format!("With `shared`: the maximum number of events in flight. Default: {IN_FLIGHT_DEFAULT}.");
    number(1..=IN_FLIGHT_MAX.into(), &description).example(20)
}

fn new_consumer() -> SchemaSpec {
    object("The definition of a consumer.")
        .required("consumerGroup", group_name())
        .required("topic", topic_id("The topic that it reads."))
        .optional("types", patterns("Event types in its filter; empty: all.", CREATED))
        .optional("subjectTypes", patterns("Subject types in its filter; empty: all.", "gts.vendor.tenants.tenant.v1~"))
        .optional_nullable("CEL", cel())
        .optional_nullable("sessionTimeout", session_timeout())
        .optional_nullable("distribution", distribution())
        .optional_nullable("maxInFlight", max_in_flight())
        .closed()
        .with_rules([rule().with_word("distribution", &["shared"]), rule().without("maxInFlight")])
        .example(examples::new_consumer())
}

fn consumer() -> SchemaSpec {
    object("One reading instance, with a filter and a session.")
        .required("id", uuid("Assigned by the broker.").example(CONSUMER_ID))
        .required("consumerGroup", group_name())
        .required("topic", topic_id("The topic that it reads."))
        .required("types", patterns("Event types in its filter; empty: all.", CREATED))
        .required("subjectTypes", patterns("Subject types in its filter; empty: all.", "gts.vendor.tenants.tenant.v1~"))
        .optional("CEL", cel())
        .required("sessionTimeout", session_timeout())
        .required("distribution", distribution())
        .optional("maxInFlight", max_in_flight())
        .required("createdAt", time("When it was created."))
        .required("lastSeenAt", time("When it last polled or committed; the current time while a poll of it waits."))
        .required("expiresAt", time("The earliest time at which it can expire."))
        .example(examples::consumer())
}

fn consumer_data() -> SchemaSpec {
    object("A consumer, wrapped.")
        .required("data", schema_ref("Consumer"))
        .example(json!({"data": examples::consumer()}))
}

fn commit() -> SchemaSpec {
    object("An offset to commit.")
        .required("offset", number(0..=u64::MAX, "The last processed sequence; at most the tail.").example(12_345))
        .closed()
        .example(json!({"offset": 12_345}))
}

fn member() -> SchemaSpec {
    object("A live consumer of a group.")
        .required("consumerId", uuid("The consumer.").example(CONSUMER_ID))
        .required("lastSeenAt", time("When it last polled or committed."))
        .required(
            "inFlight",
            number(0..=NUMBER_MAX, "Events assigned to it that are not done; 0 with `broadcast`.").example(0),
        )
        .example(examples::member())
}

fn group_topic() -> SchemaSpec {
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("A group's offset in one topic, and its consumers there.")
        .required("topic", topic_id("The topic."))
        .required(
            "committedOffset",
            offset("The committed offset; with `shared`, every event up to it is finished. 0: none yet.")
                .example(12_300),
        )
        .required("tail", offset("The topic's last sequence.").example(12_345))
        .required("lag", offset(LAG).example(45))
        .required(
            "members",
            list(schema_ref("Member"), "The live consumers of the group in the topic.")
                .example(json!([examples::member()])),
        )
        .example(examples::group_topic())
}

fn group() -> SchemaSpec {
    let topics = list(schema_ref("GroupTopic"), "The topics in which it has members or an offset, sorted by id.");
    object("A group, with its topics.")
        .required("consumerGroup", group_name())
        .required("topics", topics.example(json!([examples::group_topic()])))
        .example(examples::group())
}

fn reset() -> SchemaSpec {
    let offset = "The new offset: a sequence, or an end of the topic. Alternative: `time`.";
    let at = "The offset before the first event created at this time or later. Alternative: `offset`.";
    object("The new offset of a group: as an offset, or as a time.")
        .required("topic", topic_id("The topic."))
        .optional("offset", nullable_ref("ReadOffset", offset).example(12_000))
        .optional_nullable("time", time(at).example(OCCURRED_AT))
        .with_rules([rule().with("offset").without("time"), rule().with("time").without("offset")])
        .closed()
        .example(json!({"topic": examples::TOPIC, "offset": "earliest"}))
}
