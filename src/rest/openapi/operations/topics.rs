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
        .about("Topics in order of their ids. Internal ones are left out.")
        .parameter(optional_query("topic", ids::pattern("Which topics."), which, USERS_TOPIC))
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of topics.", "Topics", examples::topics()))
        .problems(&[Kind::InvalidType, Kind::NotAcceptable, Kind::Validation])
}

fn register() -> OperationSpec {
    operation(Post, "/v1/topics", "registerTopic", "Register a topic")
        .about("Registers a topic. The same definition again changes nothing; another one is refused.")
        .body(BodySpec::about("The topic.").of(JSON, "TopicInput", examples::new_topic()))
        .response(201, ResponseSpec::json("Registered now.", "Topic", examples::topic()).with(&["Location"]))
        .response(200, ResponseSpec::json("The same was registered before.", "Topic", examples::topic()))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn segments() -> OperationSpec {
    let order = "By where they begin: `rangeStart asc` (the default) or `rangeStart desc`.";
    operation(Get, "/v1/topics/segments", "listSegments", "List a topic's segments")
        .about("The files a topic's events lie in, and what they reach over.")
        .parameter(required_query("topic", ids::topic_id("The topic."), "The topic.", USERS_TOPIC))
        .parameter(optional_query("$orderby", patterned("^rangeStart( (asc|desc))?$", order), order, "rangeStart desc"))
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of segments.", "Segments", examples::segments()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/topics/{id}", "getTopic", "Read a topic")
        .about("One topic as it is registered.")
        .parameter(id())
        .response(200, ResponseSpec::json("The topic.", "Topic", examples::topic()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn change() -> OperationSpec {
    let changed = json!({"retention": "P90D"});
    operation(Patch, "/v1/topics/{id}", "changeTopic", "Change a topic")
        .about("Changes what may change about a topic. Members that are absent or null stay as they are.")
        .parameter(id())
        .body(BodySpec::about("What changes.").of(JSON, "TopicChange", changed.clone()).of(
            "application/merge-patch+json",
            "TopicChange",
            changed,
        ))
        .response(200, ResponseSpec::json("The topic as it is now.", "Topic", examples::topic()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove() -> OperationSpec {
    let force = "Delete subscriptions, consumers and projections of the topic, too.";
    let dry_run = "Do nothing, and say what would be done.";
    let planned = json!({"count": 120, "effects": ["1 subscription(s) (mail) would be deleted."]});
    operation(Delete, "/v1/topics/{id}", "deleteTopic", "Delete a topic")
        .about(
            "Deletes a topic with its events, the offsets of groups and what handlers have done there; open dead letters of it \
            are closed, and event types stay. Refused while subscriptions, consumers or projections use it, unless `force` has \
            them deleted. Open polls and streams of the topic end with 404. Its name may be registered again: that is a new \
            topic, whose sequences begin at 1. The broker's default topic cannot be deleted.",
        )
        .parameter(id())
        .parameter(optional_query("force", patterned("^(true|false)$", force), force, "true"))
        .parameter(optional_query("dryRun", patterned("^(true|false)$", dry_run), dry_run, "true"))
        .response(204, ResponseSpec::about("It is gone."))
        .response(200, ResponseSpec::json("What would be done (`dryRun`).", "DryRun", planned))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::Validation])
}

fn republish() -> OperationSpec {
    let example = json!({"from": 1, "to": 100, "target": "topic", "dryRun": true});
    operation(Post, "/v1/topics/{id}:republish", "republishTopic", "Publish events again")
        .about(format!(
            "Republishes events of the topic, from one sequence to another, both included. For `topic` they are appended \
            again with the same ids and `republishOf`; deduplication does not swallow them, and a handler that has done one \
            is told `done`. For `group` the shared group called `name` is handed again what it has finished of them. For `subscriptions` they are replayed to the one called `name`, or to \
            every one of the topic, and the deliveries are counted. What \
            retention has removed does not count. A topic with `cleanup` `compact` publishes the latest event of each aggregate, under a new id \
            and caused by the old one. At most {REPUBLISH_EVENTS_MAX} sequences in one request; one that is cut \
            short has appended the first of them."
        ))
        .parameter(id())
        .body(BodySpec::about("Which events, and for whom.").of(JSON, "Republish", example))
        .response(200, ResponseSpec::json("How many it was, or would be.", "Counted", json!({"count": 100})))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn compact() -> OperationSpec {
    operation(Post, "/v1/topics/{id}:compact", "compactTopic", "Compact a topic")
        .about(
            "Removes now what retention would remove later from a topic with `cleanup` `compact`: events that are not the \
            latest of their aggregates, up to the first one that is. Tombstones stay for the topic's retention. With \
            `erase` the bytes of what was removed are gone from the log's files when this is answered.",
        )
        .parameter(id())
        .body(BodySpec::about("How; may be left out.").of(JSON, "Compact", json!({"erase": false})).or_none())
        .response(200, ResponseSpec::json("How many sequences went.", "Counted", json!({"count": 0})))
        .problems(&[Kind::InvalidState, Kind::InvalidType, Kind::NotFound, Kind::Validation])
}

fn trim() -> OperationSpec {
    operation(Post, "/v1/topics/{id}:trim", "trimTopic", "Remove a topic's oldest events")
        .about(
            "Removes events now as retention would later: through a sequence, or those stored before a time. Where the broker \
            has no right to delete from its database, the refusal says what is missing. With `erase` the bytes of what was \
            removed are gone from the log's files when this is answered, which takes as long as writing what is left of \
            them; one that does not wait for that long goes on, and can be repeated. A log in a database cannot say when \
            bytes are gone and refuses `erase`.",
        )
        .parameter(id())
        .body(BodySpec::about("What goes.").of(JSON, "Trim", json!({"before": REGISTERED_AT, "erase": false})))
        .response(200, ResponseSpec::json("How many sequences went.", "Counted", json!({"count": 0})))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::InvalidState, Kind::PayloadTooLarge, Kind::Validation])
}
