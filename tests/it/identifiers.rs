//! Identifiers in the broker: codes and GTS ids side by side, on every engine and in the configuration.

use crate::scenario::check;
use event_broker::config::{LoadedConfig, load};
use tempfile::TempDir;

#[test]
fn codes_name_topics_types_and_subjects_beside_gts_ids() {
    check(
        "
        topic shop.orders                                           -> created
        topic ecommerce:orders                                      -> created
        topic orders                                                -> created
        type order.created topic=shop.orders subjects=shop.order    -> created
        type order.line.added topic=shop.orders                     -> created
        type orders.x topic=shop.orders                             -> created
        type ecommerce:orders:order:created topic=ecommerce:orders  -> created
        type placed topic=shop.orders                               -> created
        publish order.created a of=shop.order id=1                  -> created 1 aggregate 1
        publish order.created a of=shop.order id=1                  -> duplicate 1
        publish order.created a of=order                            -> VALIDATION_ERROR /subjectType
        publish order.line.added a of=shop.order                    -> created 2 aggregate 2
        publish orders.x a of=Shop.order                            -> created 3 aggregate 1
        publish placed a                                            -> created 4 aggregate 1
        publish order.Created a of=shop.order                       -> VALIDATION_ERROR /type
        publish ecommerce:orders:order:created order:12345 of=-     -> created 1 aggregate 1
        read shop.orders type=order.*                               -> 1 2 next 4 tail 4
        read shop.orders type=order.created                         -> 1 next 4 tail 4
        read shop.orders type=order.created type=gts.*              -> 1 4 next 4 tail 4
        read shop.orders subject-type=shop.*                        -> 1 2 next 4 tail 4
        read shop.orders type=shop:*                                -> next 4 tail 4
        read shop.orders cel=type=='order.line.added'               -> 2 next 4 tail 4
        read ecommerce:orders type=ecommerce:orders:*               -> 1 next 1 tail 1
        topics pattern=shop.*                                       -> shop.orders end
        topics pattern=ecommerce:*                                  -> ecommerce:orders end
        topics pattern=shop.orders                                  -> shop.orders end
        types pattern=order.*                                       -> order.created order.line.added
        types pattern=ecommerce:orders:*                            -> ecommerce:orders:order:created
        aggregate shop.orders a of=shop.order                       -> 2 at 2 there
        crash
        publish order.created a of=shop.order id=1                  -> duplicate 1
        rebuild
        read shop.orders type=order.*                               -> 1 2 next 4 tail 4
        aggregate shop.orders a of=shop.order                       -> 2 at 2 there
        topics pattern=shop.*                                       -> shop.orders end
    ",
    );
}

#[test]
fn the_longest_code_is_stored_on_every_engine() {
    let long = format!("{}.{}", "a".repeat(99), "b".repeat(100));
    check(&format!(
        "
        topic {long}                        -> created
        type {long} topic={long}            -> created
        publish {long} s of={long}          -> created 1 aggregate 1
        read {long} type={long}             -> 1 next 1 tail 1
        reopen
        aggregate {long} s of={long}        -> 1 at 1 there
        "
    ));
}

/// The events of the README have a subject and no subject type; the state of such an aggregate could not be queried.
#[test]
fn an_aggregate_without_a_subject_type_is_found() {
    check(
        "
        type placed                          -> created
        publish placed a of=-                -> created 1 aggregate 1
        publish placed a                     -> created 2 aggregate 1
        publish placed a of=- expected=1     -> created 3 aggregate 2
        aggregate default a of=-             -> 2 at 3 there
        aggregate default a                  -> 1 at 2 there
        aggregate default b of=-             -> NOT_FOUND
        reopen
        aggregate default a of=-             -> 2 at 3 there
    ",
    );
}

/// A producer that set `occurredAt` in its retry loop, or retried from another process, created several events with one
/// id.
#[test]
fn a_topic_that_deduplicates_by_id_takes_an_id_once_whatever_else_is_sent() {
    check(
        r#"
        topic once deduplicate=id window=PT1H                        -> created
        topic once deduplicate=id window=PT1H                        -> unchanged
        topic once window=PT1H                                       -> ALREADY_EXISTS
        topic flagged deduplicate=id mismatch=flag                   -> created
        type placed topic=once                                       -> created
        type shipped topic=once                                      -> created
        type f topic=flagged                                         -> created
        type other                                                   -> created
        publish placed a id=1 at=2026-01-01T00:00:00Z                -> created 1 aggregate 1
        publish placed a id=1 at=2026-01-02T00:00:00Z                -> duplicate 1
        publish placed b id=1 producer=p                             -> duplicate 1
        publish shipped a id=1                                       -> duplicate 1
        publish placed a id=1 dedup=x                                -> duplicate 1
        publish placed a id=2 dedup=x                                -> created 2 aggregate 2
        publish placed a id=1 tenant=2                               -> created 3 aggregate 3
        publish other a id=1                                         -> created 1 aggregate 1
        publish placed a dedup=x                                     -> created 4 aggregate 4
        publish placed a dedup=x                                     -> created 5 aggregate 5
        publish f a id=1 data={"n":1}                                -> created 1 aggregate 1
        publish f b id=1 data={"n":2}                                -> mismatch 1
        batch placed a id=7 ; shipped b id=7                         -> created 6 aggregate 6 | duplicate 6
        crash
        publish shipped b id=1                                       -> duplicate 1
        rebuild
        publish shipped b id=1                                       -> duplicate 1
        advance 3600000
        publish placed a id=1                                        -> created 7 aggregate 7
    "#,
    );
}

fn configured(keys: &str) -> Result<LoadedConfig, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("broker.yaml");
    std::fs::write(&file, format!("modules:\n  event_broker:\n    {}\n", keys.replace('\n', "\n    "))).unwrap();
    load(Some(&file), [], Vec::new()).map_err(|error| error.to_string())
}

#[test]
fn the_configuration_takes_codes_wherever_it_names_something() {
    let keys = "topics:\n  - {id: shop.orders, streaming: true, deduplicateBy: id}\nevent_types:\n  \
        - {id: ecommerce:orders:order:created, topic: shop.orders, allowedSubjectTypes: [shop.order]}\nroutes:\n  \
        - {type: order.*, topic: shop.orders}\n  - {type: \"shop:orders:*\", topic: shop.orders}\n\
        default_topic: shop.rest";
    let config = configured(keys).unwrap().config;
    assert_eq!(config.default_topic.unwrap().as_str(), "shop.rest");
    assert_eq!(config.event_types[0].id.as_str(), "ecommerce:orders:order:created");
    assert_eq!(config.routes[1].pattern.as_str(), "shop:orders:*");
    let refused = configured("default_topic: orders").unwrap_err();
    assert!(refused.contains("default_topic") && refused.contains("order.created"), "{refused}");
}

#[test]
fn a_strict_configuration_declares_strict_identifiers_only() {
    let topic = "gts.hx.core.events.topic.v1~acme.shop.main.orders.v1";
    for (keys, place) in [
        ("topics: [{id: shop.orders, streaming: true}]", "topics[0].id"),
        ("topics: [{id: gts.hx.core.events.topic.v1~vendor.orders.v1, streaming: true}]", "topics[0].id"),
        ("event_types: [{id: order.created}]", "event_types[0].id"),
        ("event_types: [{id: gts.a.b.c.d.v1~, topic: shop.orders}]", "event_types[0].topic"),
        ("event_types: [{id: gts.a.b.c.d.v1~, allowedSubjectTypes: [shop.order]}]", "allowedSubjectTypes[0]"),
        ("routes: [{type: order.*, topic: gts.hx.core.events.topic.v1~}]", "routes[0].type"),
        ("routes: [{type: gts.a.b.c.*, topic: shop.orders}]", "routes[0].topic"),
        ("default_topic: shop.orders", "default_topic"),
    ] {
        assert!(configured(keys).is_ok(), "{keys}");
        let refused = configured(&format!("{keys}\ngts: {{profile: strict}}")).unwrap_err();
        assert!(refused.contains(place) && refused.contains("strict GTS identifiers only"), "{refused}");
    }
    let strict = format!(
        "gts: {{profile: strict}}\ntopics: [{{id: {topic}, streaming: true}}]\nroutes: [{{type: gts.a.b.*, topic: {topic}}}]"
    );
    assert!(configured(&strict).is_ok());
    assert!(configured("gts: {profile: strict}").unwrap().config.default_topic.is_some());
}
