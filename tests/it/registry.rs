//! Topics and event types: registering, describing, listing, declaring.

use crate::scenario::{check, check_alone, check_with, topic_id, type_id};
use contract::{NewEventType, NewTopic};
use event_broker::config::TypesConfig;
use event_broker::{Config, TopicRoute, UnregisteredPolicy};

#[test]
fn the_same_registration_again_changes_nothing_and_another_one_is_refused() {
    check(
        "
        topic orders retention=PT30D    -> created
        topic orders retention=P30D     -> unchanged
        topic orders                    -> ALREADY_EXISTS
        type placed topic=orders        -> created
        type placed topic=orders        -> unchanged
        type placed                     -> ALREADY_EXISTS
        reopen
        topic orders retention=PT30D    -> unchanged
        type placed topic=orders        -> unchanged
    ",
    );
}

#[test]
fn a_type_needs_its_topic_and_a_schema_that_compiles() {
    check(
        r#"
        type placed topic=nowhere                       -> VALIDATION_ERROR /topic
        type placed schema={"type":"nonsense"}          -> VALIDATION_ERROR /dataSchema/type
        type placed schema={"$ref":"http://a.example/"} -> VALIDATION_ERROR /dataSchema
        types                                           ->
    "#,
    );
}

#[test]
fn topics_are_listed_in_order_by_pattern_and_page_without_internal_ones() {
    check(
        "
        topic b                  -> created
        topic a                  -> created
        topic hidden internal    -> created
        topics limit=2           -> gts.hx.core.events.topic.v1~ gts.hx.core.events.topic.v1~vendor.a.v1 more
        topics limit=2 after=gts.hx.core.events.topic.v1~vendor.a.v1 -> gts.hx.core.events.topic.v1~vendor.b.v1 end
        topics pattern=gts.hx.core.events.topic.v1~vendor.a.v1 -> gts.hx.core.events.topic.v1~vendor.a.v1 end
        topics pattern=gts.hx.core.events.topic.v1~vendor.* -> gts.hx.core.events.topic.v1~vendor.a.v1 gts.hx.core.events.topic.v1~vendor.b.v1 end
        topics pattern=*         -> INVALID_TYPE
        topics limit=0           -> VALIDATION_ERROR /limit
        topics limit=101         -> VALIDATION_ERROR /limit
    ",
    );
}

#[test]
fn a_topic_can_be_changed_where_numbering_does_not_rest_on_it() {
    check(
        "
        topic orders description=old       -> created
        change orders description=new      -> new
        change nowhere description=new     -> NOT_FOUND
        change orders window=P400D         -> VALIDATION_ERROR /idempotentRetention
        reopen
        change orders                      -> new
    ",
    );
}

#[test]
fn a_topic_that_asks_for_a_log_that_cannot_be_is_refused() {
    check_alone(
        r#"
        topic a streaming=false                                -> VALIDATION_ERROR /streaming
        topic a streaming={"type":"database"}                  -> VALIDATION_ERROR /streaming/type
        topic a streaming={"type":"tape"}                      -> VALIDATION_ERROR /streaming/type
        topic a streaming={"location":"file:///var/lib/events"} -> VALIDATION_ERROR /streaming/location
        topic a streaming={"location":"file://../events"}      -> VALIDATION_ERROR /streaming/location
        topics                                                 -> gts.hx.core.events.topic.v1~ end
        topic a streaming={"retention":"PT30D"}                -> created
    "#,
    );
}

#[test]
fn declared_topics_types_and_routes_are_there_from_the_start() {
    let mut placed = NewEventType::new(type_id("placed").parse().unwrap());
    placed.topic = Some(topic_id("orders"));
    let config = Config {
        topics: vec![NewTopic::new(topic_id("orders")), NewTopic::new(topic_id("others"))],
        event_types: vec![placed],
        routes: vec![
            TopicRoute { pattern: "gts.hyperspot.*".parse().unwrap(), topic: topic_id("orders") },
            TopicRoute {
                pattern: "gts.hyperspot.core.events.type.v1~vendor.app.*".parse().unwrap(),
                topic: topic_id("others"),
            },
        ],
        ..Config::default()
    };
    check_with(
        &config,
        "
        publish placed a        -> created 1 aggregate 1
        read orders             -> 1 next 1 tail 1
        type shipped            -> created
        publish shipped a       -> created 1 aggregate 1
        read others             -> 1 next 1 tail 1
        reopen
        topic orders            -> unchanged
    ",
    );
}

#[test]
fn unregistered_types_are_refused_unless_the_configuration_lets_them_through() {
    check("publish placed a -> VALIDATION_ERROR /type");
    let config = Config { types: TypesConfig { unregistered: UnregisteredPolicy::Accept }, ..Config::default() };
    check_with(
        &config,
        "
        publish placed a        -> created 1 aggregate 1
        publish placed a topic=nowhere -> VALIDATION_ERROR /topic
        read default            -> 1 next 1 tail 1
    ",
    );
}
