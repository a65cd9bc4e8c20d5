//! Consumers, and the groups whose offset they share.

use crate::rest::openapi::examples::{self, CONSUMER_ID};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, path};
use crate::rest::openapi::schema_spec::{any_text, uuid};
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Consumers";
const GROUP: &str = "tenant-service-instances";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![create(), list(), show(), remove(), commit(), list_groups(), show_group(), reset(), remove_group()]
}

fn id() -> Parameter {
    path("id", uuid("The consumer."), "The consumer's id. One that is no UUID is not found.", CONSUMER_ID)
}

fn name() -> Parameter {
    path("name", any_text("The group.").not_empty(), "The group's name, percent-encoded where it must be.", GROUP)
}

fn consumer() -> serde_json::Value {
    json!({"data": examples::consumer()})
}

fn create() -> OperationSpec {
    operation(Post, "/v1/consumers", "createConsumer", "Create a consumer")
        .about(
            "Makes a consumer: a filter and a session under an id, to poll with. It lives for its session, which every poll \
            and commit begins anew. To change a filter, make another consumer and delete this one.",
        )
        .body(BodySpec::about("The consumer.").of(JSON, "ConsumerInput", examples::new_consumer()))
        .response(201, ResponseSpec::json("Made.", "ConsumerData", consumer()).with(&["Location"]))
        .problems(&[Kind::InvalidState, Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    let which = "Consumers of this group.";
    operation(Get, "/v1/consumers", "listConsumers", "List consumers")
        .about("Live consumers in order of their ids.")
        .parameter(optional_query("consumerGroup", any_text(which), which, GROUP))
        .shared_parameters(&["limit", "cursor"])
        .response(
            200,
            ResponseSpec::json("A page of consumers.", "Consumers", examples::page_of(&examples::consumer())),
        )
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/consumers/{id}", "getConsumer", "Read a consumer")
        .about("One consumer. Deleted or expired, it is not found.")
        .parameter(id())
        .response(200, ResponseSpec::json("The consumer.", "ConsumerData", consumer()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/consumers/{id}", "deleteConsumer", "Delete a consumer")
        .about(
            "Ends a consumer; a poll of it that waits ends with it, not found. The group's offsets stay. What a member of a \
            shared group holds is released: others may have it at once, and no attempt is spent.",
        )
        .parameter(id())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::Validation, Kind::Overloaded])
}

fn commit() -> OperationSpec {
    operation(Post, "/v1/consumers/{id}:commit", "commitOffset", "Commit an offset")
        .about(
            "Records how far the consumer's group has come in its topic. Never backwards: a late commit changes nothing and \
            answers what is. Where the members divide the events, the offset moves by itself, as they are finished.",
        )
        .parameter(id())
        .body(BodySpec::about("How far it has come.").of(JSON, "Commit", json!({"offset": 12_345})))
        .response(200, ResponseSpec::json("How far the group has come.", "GroupTopic", examples::group_topic()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn list_groups() -> OperationSpec {
    operation(Get, "/v1/consumer-groups", "listConsumerGroups", "List groups")
        .about("Groups in order of their names: those with a live consumer or an offset.")
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of groups.", "ConsumerGroups", examples::page_of(&examples::group())))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show_group() -> OperationSpec {
    operation(Get, "/v1/consumer-groups/{name}", "getConsumerGroup", "Read a group")
        .about("How far a group has come in each of its topics, how far behind it is, and who reads there.")
        .parameter(name())
        .response(200, ResponseSpec::json("The group.", "ConsumerGroup", examples::group()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn remove_group() -> OperationSpec {
    operation(Delete, "/v1/consumer-groups/{name}", "deleteConsumerGroup", "Delete a group")
        .about(
            "Deletes a group: all its offsets, and in topics that its members divide what the handler of its name has done, \
            is at, or has given up there. The name begins anew. Refused with 409 while a consumer of the group lives.",
        )
        .parameter(name())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn reset() -> OperationSpec {
    let example = json!({"topic": examples::TOPIC, "offset": "earliest"});
    operation(Post, "/v1/consumer-groups/{name}:reset", "resetConsumerGroup", "Move a group's offset")
        .about("Moves a group's offset: to an offset, to either end, to a time. Creates the group if it does not exist. \
            To an earlier offset: a shared group delivers the events after it again, finished or not. To a later one: the \
            events between are skipped.")
        .parameter(name())
        .body(BodySpec::about("Where to.").of(JSON, "GroupReset", example))
        .response(200, ResponseSpec::json("The group as it is now.", "ConsumerGroup", examples::group()))
        .problems(&[Kind::InvalidOffset, Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}
