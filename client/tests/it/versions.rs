//! The example of two versions, during an upgrade.

#[path = "../../examples/two_versions.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod two_versions;

use crate::test_broker::{TestBroker, bank, moved};
use contract::api::*;
use contract::{EventTypeId, NewProjection, NewVersion, Offset, Sequence};
use event_broker_client::RetryPolicy;
use event_broker_client::projection::{ProjectionError, ProjectionOptions, ProjectionRunner};
use serde_json::json;
use std::time::Duration;
use two_versions::{Balances, MoneyMoved};

fn versions() -> Vec<NewVersion> {
    let schema = |member: &str, kind: &str| json!({"type": "object", "required": ["account", member], "properties": {member: {"type": kind}}});
    vec![
        NewVersion::json_schema("1.0".parse().unwrap(), schema("amount", "string")),
        NewVersion::json_schema("2.0".parse().unwrap(), schema("cents", "integer")),
    ]
}

#[tokio::test]
async fn both_versions_come_to_the_same_while_producers_are_upgraded_one_by_one() {
    let server = TestBroker::set(versions()).await;
    let balances = Balances::default();
    let mut runner =
        ProjectionRunner::new(server.client(), "balances", NewProjection::of_topic(bank()), balances.clone());
    server.client().put_projection("balances", NewProjection::of_topic(bank())).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move { runner.run(async { drop(stopped.await) }).await });
    // Old, old, new, old, new: two producers, one of which is upgraded first.
    for (account, version, data) in [
        ("a", "1.0", json!({"account": "a", "amount": "12.50"})),
        ("b", "1.0", json!({"account": "b", "amount": "0.99"})),
        ("a", "2.0", json!({"account": "a", "cents": -250})),
        ("a", "1.0", json!({"account": "a", "amount": "-1.01"})),
        ("b", "2.0", json!({"account": "b", "cents": 1})),
    ] {
        server.publish(moved(account, Some(version), &data)).await;
    }
    server.client().wait_for_projection("balances", Offset(5), Duration::from_secs(30)).await.unwrap();
    assert_eq!(balances.all().into_iter().collect::<Vec<_>>(), [("a".to_owned(), 899), ("b".to_owned(), 100)]);
    drop(stop);
    running.await.unwrap().unwrap();
    server.close().await;
}

#[tokio::test]
async fn a_version_nobody_has_told_it_of_stops_the_projection_and_is_named() {
    let server = TestBroker::set(versions()).await;
    server.publish(moved("a", Some("2.0"), &json!({"account": "a", "cents": 1}))).await;
    let event_type: EventTypeId = crate::test_broker::MOVED.parse().unwrap();
    let third = NewVersion::json_schema("3.0".parse().unwrap(), json!({"type": "object"}));
    server.broker.add_version(&event_type, third).await.unwrap();
    server.broker.finalise_version(&event_type, "3.0".parse().unwrap()).await.unwrap();
    server.publish(moved("a", Some("3.0"), &json!({"account": "a", "parts": [1]}))).await;
    let apply = RetryPolicy { tries_max: 2, first_wait: Duration::from_millis(1), wait_max: Duration::from_millis(1) };
    let balances = Balances::default();
    let runner = ProjectionRunner::new(server.client(), "balances", NewProjection::of_topic(bank()), balances.clone());
    let mut runner = runner.with(ProjectionOptions { apply, ..ProjectionOptions::default() });
    let stopped = runner.run(std::future::pending()).await.unwrap_err();
    let ProjectionError::Poison { topic, sequence, .. } = &stopped else { panic!("{stopped}") };
    assert_eq!((topic.as_ref(), *sequence), (Some(&bank()), Sequence(2)));
    assert!(stopped.to_string().contains("does not know version 3.0"), "{stopped}");
    assert_eq!(server.client().projection("balances").await.unwrap().checkpoint, Offset(1));
    assert_eq!(balances.all()["a"], 1);
    server.close().await;
}

#[test]
fn each_version_is_read_in_its_own_way() {
    for (version, data, cents) in [
        (Some("1.0"), r#"{"account":"a","amount":"12.50"}"#, Some(1250)),
        (Some("1.0"), r#"{"account":"a","amount":"-0.07"}"#, Some(-7)),
        (Some("1.0"), r#"{"account":"a","amount":"1.5"}"#, None),
        (Some("1.0"), r#"{"account":"a","amount":"1.+5"}"#, None),
        (Some("1.0"), r#"{"account":"a","cents":5}"#, None),
        (Some("2.0"), r#"{"account":"a","cents":-5}"#, Some(-5)),
        (Some("2.0"), r#"{"account":"a","amount":"1.00"}"#, None),
        (Some("3.0"), r#"{"account":"a","cents":5}"#, None),
        (None, r#"{"account":"a","cents":5}"#, None),
    ] {
        let read = MoneyMoved::read(version, data).ok().map(|moved| moved.cents);
        assert_eq!(read, cents, "{version:?} {data}");
    }
}
