//! Consumers, and the groups whose offset they share.

use super::ids::{duration, pattern, topic_id};
use super::{NUMBER_MAX, rows};
use crate::rest::openapi::examples::{self, CEL, CONSUMER_ID, CREATED, OCCURRED_AT, part};
use crate::rest::openapi::rules::rule;
use crate::rest::openapi::shape::{
    Shape, list, named, named_or_null, number, object, patterned, text, time, uuid, word,
};
use contract::limits::{
    CEL_BYTES_MAX, CONSUMER_TYPES_MAX, IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX, LABEL_BYTES_MAX, SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
};
use serde_json::json;

const LAG: &str = "Events that are still to be done, of those the group wants: dead letters that are open count, stale and \
    discarded events do not. The same as the lag of the handler of its name.";

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("ConsumerInput", new_consumer()),
        ("Consumer", consumer()),
        ("ConsumerData", consumer_data()),
        ("Consumers", rows("Consumer", "A page of consumers.", examples::page_of(&examples::consumer()))),
        ("Commit", commit()),
        ("Member", member()),
        ("GroupTopic", group_topic()),
        ("ConsumerGroup", group()),
        ("ConsumerGroups", rows("ConsumerGroup", "A page of groups.", examples::page_of(&examples::group()))),
        ("GroupReset", reset()),
    ]
}

const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// A group's name.
fn group_name() -> Shape {
    let description =
        format!("The name that instances share; offsets are the group's. At most {LABEL_BYTES_MAX} bytes as UTF-8.");
    patterned(NO_CONTROL, &description).not_empty().up_to(LABEL_BYTES_MAX).like("tenant-service-instances")
}

fn patterns(description: &str, example: &str) -> Shape {
    list(pattern("What it wants."), description).items(0, CONSUMER_TYPES_MAX).like(json!([example]))
}

fn cel() -> Shape {
    let description = format!("A CEL expression over the event's members. At most {CEL_BYTES_MAX} bytes as UTF-8.");
    text(&description).not_empty().up_to(CEL_BYTES_MAX).like(CEL)
}

fn session_timeout() -> Shape {
    let description =
        format!("How long it lives without polling: {SESSION_SECONDS_MIN} to {SESSION_SECONDS_MAX} seconds.");
    duration(&description).like("PT30S")
}

fn distribution() -> Shape {
    let description = "How the group's members divide the events. `broadcast`: each sees them all. `shared`: each event \
        goes to one live member, as a claim by the handler named like the group, and of one aggregate one at a time. All \
        consumers of a group read a topic in one way and, shared, through the same filter (409).";
    word(&["broadcast", "shared"], description).like("broadcast")
}

fn max_in_flight() -> Shape {
    let description = format!(
        "Most events it has in hand at a time, where the distribution is `shared`; {IN_FLIGHT_DEFAULT} when absent."
    );
    number(1..=IN_FLIGHT_MAX.into(), &description).like(20)
}

fn new_consumer() -> Shape {
    object("A consumer as one asks for it.")
        .must("consumerGroup", group_name())
        .must("topic", topic_id("What it reads."))
        .may("types", patterns("Event types it wants; empty: any.", CREATED))
        .may("subjectTypes", patterns("Subject types it wants; empty: any.", "gts.vendor.tenants.tenant.v1~"))
        .or_null("CEL", cel())
        .or_null("sessionTimeout", session_timeout())
        .or_null("distribution", distribution())
        .or_null("maxInFlight", max_in_flight())
        .closed()
        .ruled([rule().with_word("distribution", &["shared"]), rule().without("maxInFlight")])
        .like(examples::new_consumer())
}

fn consumer() -> Shape {
    let example = examples::consumer();
    let timed = |name: &str, description: &str| time(description).like(part(&example, &format!("/{name}")));
    object("One reading instance with a filter and a session.")
        .must("id", uuid("Made by the broker.").like(CONSUMER_ID))
        .must("consumerGroup", group_name())
        .must("topic", topic_id("What it reads."))
        .must("types", patterns("Event types it wants; empty: any.", CREATED))
        .must("subjectTypes", patterns("Subject types it wants; empty: any.", "gts.vendor.tenants.tenant.v1~"))
        .may("CEL", cel())
        .must("sessionTimeout", session_timeout())
        .must("distribution", distribution())
        .may("maxInFlight", max_in_flight())
        .must("createdAt", timed("createdAt", "When it was made."))
        .must("lastSeenAt", timed("lastSeenAt", "When it last polled or committed; now, while a poll of it waits."))
        .must("expiresAt", timed("expiresAt", "It lives at least until then."))
        .like(example.clone())
}

fn consumer_data() -> Shape {
    object("A consumer, wrapped.").must("data", named("Consumer")).like(json!({"data": examples::consumer()}))
}

fn commit() -> Shape {
    object("How far a group has come.")
        .must("offset", number(0..=u64::MAX, "The last sequence dealt with; not beyond the tail.").like(12_345))
        .closed()
        .like(json!({"offset": 12_345}))
}

fn member() -> Shape {
    object("A live consumer as its group sees it.")
        .must("consumerId", uuid("Which one.").like(CONSUMER_ID))
        .must("lastSeenAt", time("When it last polled or committed.").like(part(&examples::member(), "/lastSeenAt")))
        .must("inFlight", number(0..=NUMBER_MAX, "Events handed to it and not done; none in a broadcast.").like(0))
        .like(examples::member())
}

fn group_topic() -> Shape {
    let offset = |description: &str| number(0..=NUMBER_MAX, description);
    object("How far a group has come in one topic, and who reads there.")
        .must("topic", topic_id("The topic."))
        .must(
            "committedOffset",
            offset("What the group has said it has seen, or, shared, has finished; 0: nothing so far.").like(12_300),
        )
        .must("tail", offset("The topic's last sequence.").like(12_345))
        .must("lag", offset(LAG).like(45))
        .must("members", list(named("Member"), "Its live consumers there.").like(json!([examples::member()])))
        .like(examples::group_topic())
}

fn group() -> Shape {
    let topics = list(named("GroupTopic"), "The topics it has members or an offset in, in order of their ids.");
    object("A group as it stands, topic by topic.")
        .must("consumerGroup", group_name())
        .must("topics", topics.like(json!([examples::group_topic()])))
        .like(examples::group())
}

fn reset() -> Shape {
    let offset = "Where to: a sequence, or one of the two ends; or `time`.";
    let at = "Before the first event created at this time or later; or `offset`.";
    object("Where a group's offset is moved: to an offset, or to a time.")
        .must("topic", topic_id("In which topic."))
        .may("offset", named_or_null("ReadOffset", offset).like(12_000))
        .or_null("time", time(at).like(OCCURRED_AT))
        .ruled([rule().with("offset").without("time"), rule().with("time").without("offset")])
        .closed()
        .like(json!({"topic": examples::TOPIC, "offset": "earliest"}))
}
