//! Topics.

use crate::rest::openapi::examples::{self, REGISTERED_AT, USERS_TOPIC};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, path, required_query};
use crate::rest::openapi::schema_spec::patterned;
use crate::rest::openapi::schemas::ids;
use contract::Kind;
use contract::limits::REPUBLISH_EVENTS_MAX;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Patch, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Topics";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![list(), register(), segments(), show(), change(), remove(), republish(), compact(), trim()]
}

fn id() -> Parameter {
    path("id", ids::topic_id("The topic."), "The topic's id.", USERS_TOPIC)
}

fn list() -> OperationSpec {
    let which = "Topics of this id, or matching this pattern.";
    operation(Get, "/v1/topics", "listTopics", "List topics")
        .about("Topics, sorted by id, without internal ones.")
        .parameter(optional_query("topic", ids::pattern("A topic, or a pattern."), which, USERS_TOPIC))
        .paged("A page of topics.", "Topics", examples::topics())
        .problems(&[Kind::InvalidType])
}

fn register() -> OperationSpec {
    operation(Post, "/v1/topics", "registerTopic", "Register a topic")
        .about("Registers a topic. Registering the same definition again changes nothing; a different one is refused.")
        .body(BodySpec::about("The topic.").of(JSON, "TopicInput", examples::new_topic()))
        .response(201, ResponseSpec::json("Registered.", "Topic", examples::topic()).with(&["Location"]))
        .response(
            200,
            ResponseSpec::json("It was registered before with the same definition.", "Topic", examples::topic()),
        )
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn segments() -> OperationSpec {
    let order = "The order: `rangeStart asc` (default) or `rangeStart desc`.";
    operation(Get, "/v1/topics/segments", "listSegments", "List a topic's segments")
        .about("The files that store a topic's events, with their ranges.")
        .parameter(required_query("topic", ids::topic_id("The topic."), "The topic.", USERS_TOPIC))
        .parameter(optional_query("$orderby", patterned("^rangeStart( (asc|desc))?$", order), order, "rangeStart desc"))
        .paged("A page of segments.", "Segments", examples::segments())
        .problems(&[Kind::InvalidType, Kind::NotFound])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/topics/{id}", "getTopic", "Read a topic")
        .about("One topic.")
        .parameter(id())
        .shown("The topic.", "Topic", examples::topic())
        .problems(&[Kind::InvalidType])
}

fn change() -> OperationSpec {
    let changed = json!({"retention": "P90D"});
    operation(Patch, "/v1/topics/{id}", "changeTopic", "Change a topic")
        .about("Changes a topic. Members that are absent or null are not changed.")
        .parameter(id())
        .body(BodySpec::about("The change.").of(JSON, "TopicChange", changed.clone()).of(
            "application/merge-patch+json",
            "TopicChange",
            changed,
        ))
        .response(200, ResponseSpec::json("The topic after the change.", "Topic", examples::topic()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove() -> OperationSpec {
    let force = "Also delete the subscriptions, consumers and projections of the topic.";
    let dry_run = "Change nothing, and return what would be done.";
    let planned = json!({"count": 120, "effects": ["1 subscription(s) (mail) would be deleted."]});
    operation(Delete, "/v1/topics/{id}", "deleteTopic", "Delete a topic")
        .about(
            "Deletes a topic with its events, the offsets of groups and the progress of handlers there. Its open dead \
                letters are closed; event types stay. Refused while subscriptions, consumers or projections use the \
                topic, unless `force` deletes them. Open polls and streams of the topic end with 404. The name can be \
                registered again: that is a new topic, whose sequences start at 1. The default topic of the broker \
                cannot be deleted.",
        )
        .parameter(id())
        .parameter(optional_query("force", patterned("^(true|false)$", force), force, "true"))
        .parameter(optional_query("dryRun", patterned("^(true|false)$", dry_run), dry_run, "true"))
        .response(204, ResponseSpec::about("Deleted."))
        .response(200, ResponseSpec::json("What would be done, with `dryRun`.", "DryRun", planned))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation])
}

fn republish() -> OperationSpec {
    let example = json!({"from": 1, "to": 100, "target": "topic", "dryRun": true});
    operation(Post, "/v1/topics/{id}:republish", "republishTopic", "Publish events again")
        .about(format!(
            "Republishes events of the topic, from one sequence to another, both included. For `topic` they are appended \
                again with the same ids and `republishOf`; deduplication does not apply, and a handler that has done one \
                gets `done`. For `group` the shared group `name` receives again those that it has finished. For \
                `subscriptions` they are replayed to the subscription `name`, or to all of the topic, and the deliveries \
                are counted. Events that retention has removed do not count. Neither do events that are damaged on \
                disk: `damaged` names them, and the others are republished. A topic with `cleanup` `compact` publishes \
                the latest event of each aggregate, under a new id, with the old one as its cause. At most \
                {REPUBLISH_EVENTS_MAX} sequences in one request. An interrupted request has appended the first of them."
        ))
        .parameter(id())
        .body(BodySpec::about("The events and their receivers.").of(JSON, "Republish", example))
        .response(200, ResponseSpec::json("The number of events that were published, or would be.", "Republished", json!({"count": 100})))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn compact() -> OperationSpec {
    operation(Post, "/v1/topics/{id}:compact", "compactTopic", "Compact a topic")
        .about(
            "Removes at once what retention would remove later from a topic with `cleanup: compact`: events that are not \
                the latest of their aggregates, up to the first event that is the latest of its aggregate. Tombstones \
                stay for the topic's retention. With `erase` the bytes of the removed events are erased from the files \
                of the log before the response.",
        )
        .parameter(id())
        .body(BodySpec::about("Options.").of(JSON, "Compact", json!({"erase": false})).or_none())
        .response(200, ResponseSpec::json("The number of removed sequences.", "Counted", json!({"count": 0})))
        .problems(&[Kind::InvalidState, Kind::InvalidType, Kind::NotFound, Kind::Validation])
}

fn trim() -> OperationSpec {
    operation(Post, "/v1/topics/{id}:trim", "trimTopic", "Remove a topic's oldest events")
        .about(
            "Removes events at once: up to a sequence, or those stored before a time. If the broker's role has no right \
                to delete from its database, the refusal names the missing privilege. With `erase` the bytes of the \
                removed events are erased from the files of the log before the response, which takes as long as writing \
                the rest of these files. If the client disconnects, erasing continues; the request can be repeated. A \
                log in a database cannot tell when bytes are erased, and refuses `erase`.",
        )
        .parameter(id())
        .body(BodySpec::about("The events to remove.").of(JSON, "Trim", json!({"before": REGISTERED_AT, "erase": false})))
        .response(200, ResponseSpec::json("The number of removed sequences.", "Counted", json!({"count": 0})))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}
