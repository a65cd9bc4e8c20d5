//! Limits: input that is too long, too deep or too large is refused with the reason, and nothing is stored.

use crate::scenario::{describe, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{NewEvent, NewEventType, TopicRead, limits};
use event_broker::{Broker, Config};
use serde_json::value::RawValue;
use uuid::Uuid;

fn event(data: &str) -> NewEvent {
    let data = RawValue::from_string(data.to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.tenant = Some(Uuid::from_u128(1));
    event.about(subject_type_id("order"), "a")
}

#[tokio::test]
async fn what_breaks_a_limit_is_refused_with_its_own_code_and_stores_nothing() {
    let broker = Broker::open(Config::default()).await.unwrap();
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let large = format!(r#"{{"x":"{}"}}"#, "y".repeat(limits::EVENT_BYTES_MAX));
    let nearly = format!(r#"{{"x":"{}"}}"#, "y".repeat(limits::EVENT_BYTES_MAX - 20));
    let changed = |change: &dyn Fn(&mut NewEvent)| {
        let mut event = event("{}");
        change(&mut event);
        event
    };
    let long = "z".repeat(2000);
    let refusals = [
        (event(&large), "PAYLOAD_TOO_LARGE"),
        (event(&nearly), "PAYLOAD_TOO_LARGE"),
        (event(&deep(65)), "VALIDATION_ERROR"),
        (event(&deep(100_000)), "VALIDATION_ERROR"),
        (event(r#"{"a":1e400}"#), "VALIDATION_ERROR /data/a"),
        (event(r#"{"a":[{"b":1},{"b":-1e400}]}"#), "VALIDATION_ERROR /data/a/1/b"),
        (changed(&|e| e.subject = Some(long.clone())), "VALIDATION_ERROR /subject"),
        (changed(&|e| e.subject = Some("a\0b".to_owned())), "VALIDATION_ERROR /subject"),
        (changed(&|e| e.subject = Some(String::new())), "VALIDATION_ERROR /subject"),
        (changed(&|e| e.source = long.clone()), "VALIDATION_ERROR /source"),
        (changed(&|e| e.correlation_id = Some(long.clone())), "VALIDATION_ERROR /correlationId"),
        (
            changed(&|e| e.context = (0..65).map(|n| (n.to_string(), String::new())).collect()),
            "VALIDATION_ERROR /context",
        ),
        (changed(&|e| drop(e.context.insert("k".to_owned(), long.clone()))), "VALIDATION_ERROR /context"),
    ];
    for (event, expected) in refusals {
        let error = broker.publish(event, None).await.unwrap_err();
        assert!(describe(&error).starts_with(expected), "{} instead of {expected}", describe(&error));
        assert!(
            !error.to_string().contains("zzz") && !error.to_string().contains("yyy"),
            "the response quotes the value"
        );
    }
    assert!(broker.read(TopicRead::all(topic_id("default"))).await.unwrap().items.is_empty());
    broker.publish(event(&deep(64)), None).await.unwrap();
    let fits = format!(r#"{{"x":"{}"}}"#, "y".repeat(limits::EVENT_BYTES_MAX - 1000));
    broker.publish(event(&fits), None).await.unwrap();
    assert_eq!(broker.read(TopicRead::all(topic_id("default"))).await.unwrap().items.len(), 2);
}

#[test]
fn identifiers_that_are_not_gts_do_not_parse() {
    for text in
        ["", "hello", "gts.", "gts.x.v1~", "GTS.a.b.c.d.v1~", "gts.a.b.c.d.v1~~", "gts.a.b.c.d~", &"x".repeat(600)]
    {
        let error = text.parse::<contract::EventTypeId>().unwrap_err();
        assert_eq!(describe(&error), "INVALID_TYPE", "{text}");
    }
}
