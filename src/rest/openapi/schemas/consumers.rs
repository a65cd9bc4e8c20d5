//! Consumers, and the groups whose offset they share.

use super::ids::{duration, pattern, topic_id};
use super::{NUMBER_MAX, list_page};
use crate::rest::openapi::examples::{self, CEL, CONSUMER_ID, CREATED, OCCURRED_AT, at_pointer};
use crate::rest::openapi::member_rules::rule;
use crate::rest::openapi::schema_spec::{
    SchemaSpec, enumeration, list, nullable_ref, number, object, patterned, schema_ref, text, time, uuid,
};
use contract::limits::{
    CEL_BYTES_MAX, CONSUMER_TYPES_MAX, IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX, LABEL_BYTES_MAX, SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
};
use serde_json::json;

const LAG: &str = "Events that are still to be done, of those the group wants: dead letters that are open count, stale and \
    discarded events do not. The same as the lag of the handler of its name.";

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
    let description =
        format!("The name that instances share; offsets are the group's. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().max_length(LABEL_BYTES_MAX).example("tenant-service-instances")
}

fn patterns(description: &str, example: &str) -> SchemaSpec {
    list(pattern("What it wants."), description).items(0, CONSUMER_TYPES_MAX).example(json!([example]))
}

fn cel() -> SchemaSpec {
    let description = format!("A CEL expression over the event's members. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().max_length(CEL_BYTES_MAX).example(CEL)
}

fn session_timeout() -> SchemaSpec {
    let description =
        format!("How long it lives without polling: {SESSION_SECONDS_MIN} to {SESSION_SECONDS_MAX} seconds.");
    duration(&description).example("PT30S")
}

fn distribution() -> SchemaSpec {
    let description = "How the group's members divide the events. `broadcast`: each sees them all. `shared`: each event \
        goes to one live member, as a claim by the handler named like the group, and of one aggregate one at a time. All \
        consumers of a group read a topic in one way and, shared, through the same filter (409).";
    enumeration(&["broadcast", "shared"], description).example("broadcast")
}

fn max_in_flight() -> SchemaSpec {
    let description = format!(
        "Most events it has in hand at a time, where the distribution is `shared`; {IN_FLIGHT_DEFAULT} when absent."
    );
    number(1..=IN_FLIGHT_MAX.into(), &description).example(20)
}

fn new_consumer() -> SchemaSpec {
    object("A consumer as one asks for it.")
        .required("consumerGroup", group_name())
        .required("topic", topic_id("What it reads."))
        .optional("types", patterns("Event types it wants; empty: any.", CREATED))
        .optional("subjectTypes", patterns("Subject types it wants; empty: any.", "gts.vendor.tenants.tenant.v1~"))
        .optional_nullable("CEL", cel())
        .optional_nullable("sessionTimeout", session_timeout())
        .optional_nullable("distribution", distribution())
        .optional_nullable("maxInFlight", max_in_flight())
        .closed()
        .with_rules([rule().with_word("distribution", &["shared"]), rule().without("maxInFlight")])
        .example(examples::new_consumer())
}

fn consumer() -> SchemaSpec {
    let example = examples::consumer();
    let timed = |name: &str, description: &str| time(description).example(at_pointer(&example, &format!("/{name}")));
    object("One reading instance with a filter and a session.")
        .required("id", uuid("Made by the broker.").example(CONSUMER_ID))
        .required("consumerGroup", group_name())
        .required("topic", topic_id("What it reads."))
        .required("types", patterns("Event types it wants; empty: any.", CREATED))
        .required("subjectTypes", patterns("Subject types it wants; empty: any.", "gts.vendor.tenants.tenant.v1~"))
        .optional("CEL", cel())
        .required("sessionTimeout", session_timeout())
        .required("distribution", distribution())
        .optional("maxInFlight", max_in_flight())
        .required("createdAt", timed("createdAt", "When it was made."))
        .required("lastSeenAt", timed("lastSeenAt", "When it last polled or committed; now, while a poll of it waits."))
        .required("expiresAt", timed("expiresAt", "It lives at least until then."))
        .example(example.clone())
}

fn consumer_data() -> SchemaSpec {
    object("A consumer, wrapped.")
        .required("data", schema_ref("Consumer"))
        .example(json!({"data": examples::consumer()}))
}

fn commit() -> SchemaSpec {
    object("How far a group has come.")
        .required("offset", number(0..=u64::MAX, "The last sequence dealt with; not beyond the tail.").example(12_345))
        .closed()
        .example(json!({"offset": 12_345}))
}

fn member() -> SchemaSpec {
    object("A live consumer as its group sees it.")
        .required("consumerId", uuid("Which one.").example(CONSUMER_ID))
        .required(
            "lastSeenAt",
            time("When it last polled or committed.").example(at_pointer(&examples::member(), "/lastSeenAt")),
        )
        .required(
            "inFlight",
            number(0..=NUMBER_MAX, "Events handed to it and not done; none in a broadcast.").example(0),
        )
        .example(examples::member())
}

fn group_topic() -> SchemaSpec {
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("How far a group has come in one topic, and who reads there.")
        .required("topic", topic_id("The topic."))
        .required(
            "committedOffset",
            offset("What the group has said it has seen, or, shared, has finished; 0: nothing so far.").example(12_300),
        )
        .required("tail", offset("The topic's last sequence.").example(12_345))
        .required("lag", offset(LAG).example(45))
        .required(
            "members",
            list(schema_ref("Member"), "Its live consumers there.").example(json!([examples::member()])),
        )
        .example(examples::group_topic())
}

fn group() -> SchemaSpec {
    let topics = list(schema_ref("GroupTopic"), "The topics it has members or an offset in, in order of their ids.");
    object("A group as it stands, topic by topic.")
        .required("consumerGroup", group_name())
        .required("topics", topics.example(json!([examples::group_topic()])))
        .example(examples::group())
}

fn reset() -> SchemaSpec {
    let offset = "Where to: a sequence, or one of the two ends; or `time`.";
    let at = "Before the first event created at this time or later; or `offset`.";
    object("Where a group's offset is moved: to an offset, or to a time.")
        .required("topic", topic_id("In which topic."))
        .optional("offset", nullable_ref("ReadOffset", offset).example(12_000))
        .optional_nullable("time", time(at).example(OCCURRED_AT))
        .with_rules([rule().with("offset").without("time"), rule().with("time").without("offset")])
        .closed()
        .example(json!({"topic": examples::TOPIC, "offset": "earliest"}))
}
