//! Consumers, and the groups that share an offset.

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
    path("id", uuid("The consumer."), "The consumer's id. An invalid UUID is not found.", CONSUMER_ID)
}

fn name() -> Parameter {
    path("name", any_text("The group.").not_empty(), "The group's name, percent-encoded if necessary.", GROUP)
}

fn consumer() -> serde_json::Value {
    json!({"data": examples::consumer()})
}

fn create() -> OperationSpec {
    operation(Post, "/v1/consumers", "createConsumer", "Create a consumer")
        .about(
            "Creates a consumer: an id to poll with, a filter and a session. Every poll and every commit extends the \
                session; when it ends, the consumer expires. To change a filter, create another consumer and delete this \
                one.",
        )
        .body(BodySpec::about("The consumer.").of(JSON, "ConsumerInput", examples::new_consumer()))
        .response(201, ResponseSpec::json("Created.", "ConsumerData", consumer()).with(&["Location"]))
        .problems(&[Kind::InvalidState, Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    let which = "Consumers of this group.";
    operation(Get, "/v1/consumers", "listConsumers", "List consumers")
        .about("Live consumers, sorted by id. A page has at most 2 MiB of definitions.")
        .parameter(optional_query("consumerGroup", any_text(which), which, GROUP))
        .paged("A page of consumers.", "Consumers", examples::page_of(&examples::consumer()))
}

fn show() -> OperationSpec {
    operation(Get, "/v1/consumers/{id}", "getConsumer", "Read a consumer")
        .about("One consumer. After it was deleted or has expired, it is not found.")
        .parameter(id())
        .shown("The consumer.", "ConsumerData", consumer())
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/consumers/{id}", "deleteConsumer", "Delete a consumer")
        .about(
            "Deletes a consumer; a waiting poll of it ends with 404. The group's offsets stay. The claims of a member of \
                a shared group are released: other members can have them at once, and no attempt is counted.",
        )
        .parameter(id())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::Validation, Kind::Overloaded])
}

fn commit() -> OperationSpec {
    operation(Post, "/v1/consumers/{id}:commit", "commitOffset", "Commit an offset")
        .about(
            "Commits the offset of the consumer's group in its topic. It never moves back: a late commit changes nothing \
                and returns the current offset. In a shared group the offset moves by itself as events are finished.",
        )
        .parameter(id())
        .body(BodySpec::about("The offset.").of(JSON, "Commit", json!({"offset": 12_345})))
        .response(200, ResponseSpec::json("The group's offset in the topic.", "GroupTopic", examples::group_topic()))
        .problems(&[Kind::InvalidOffset, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn list_groups() -> OperationSpec {
    operation(Get, "/v1/consumer-groups", "listConsumerGroups", "List groups")
        .about("Groups with a live consumer or an offset, sorted by name.")
        .paged("A page of groups.", "ConsumerGroups", examples::page_of(&examples::group()))
}

fn show_group() -> OperationSpec {
    operation(Get, "/v1/consumer-groups/{name}", "getConsumerGroup", "Read a group")
        .about("One group, with its offset, lag and consumers in each of its topics.")
        .parameter(name())
        .shown("The group.", "ConsumerGroup", examples::group())
}

fn remove_group() -> OperationSpec {
    operation(Delete, "/v1/consumer-groups/{name}", "deleteConsumerGroup", "Delete a group")
        .about(
            "Deletes a group with all its offsets and, for topics that it shares, the claims, finished events and dead \
                letters of the handler with its name. The name can be used again from scratch. Refused with 409 while a \
                consumer of the group lives.",
        )
        .parameter(name())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation, Kind::Overloaded])
}

fn reset() -> OperationSpec {
    let example = json!({"topic": examples::TOPIC, "offset": "earliest"});
    operation(Post, "/v1/consumer-groups/{name}:reset", "resetConsumerGroup", "Move a group's offset")
        .about("Moves a group's offset: to an offset, to either end, to a time. Creates the group if it does not exist. \
            To an earlier offset: a shared group delivers the events after it again, finished or not. To a later one: the \
            events between are skipped.")
        .parameter(name())
        .body(BodySpec::about("The new offset.").of(JSON, "GroupReset", example))
        .response(200, ResponseSpec::json("The group after the change.", "ConsumerGroup", examples::group()))
        .problems(&[Kind::InvalidOffset, Kind::InvalidType, Kind::PayloadTooLarge, Kind::Validation])
}
