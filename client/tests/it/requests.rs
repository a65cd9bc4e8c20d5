//! Requests: what is sent, what is received, and what is repeated.

use crate::scripted_broker::{Reply, ScriptedBroker};
use crate::test_broker::{TestBroker, bank, moved};
use contract::api::*;
use contract::{
    EventFilter, Generation, Kind, LogRead, NewCheckpoint, NewProjection, Offset, Position, PublishOutcome,
    RegisterOutcome, Sequence, TopicRead,
};
use event_broker_client::{Client, RetryPolicy, WaitFor};
use serde_json::json;
use std::time::Duration;

/// Short waits.
const RETRY: RetryPolicy =
    RetryPolicy { tries_max: 4, first_wait: Duration::from_millis(1), wait_max: Duration::from_millis(20) };

#[tokio::test]
async fn what_is_published_is_read_waited_for_and_followed() {
    let server = TestBroker::set(Vec::new()).await;
    let client = server.client();
    let data = json!({"account": "a", "amount": 5});
    let published = client.publish(moved("a", None, &data), None).await.unwrap();
    assert_eq!((published.outcome, published.event.sequence), (PublishOutcome::Created, Sequence(1)));
    let mut again = moved("a", None, &data);
    again.id = Some(published.event.id);
    let duplicate = client.publish(again, None).await.unwrap();
    assert_eq!(
        (duplicate.outcome, &duplicate.event),
        (PublishOutcome::Duplicate { payload_mismatch: false }, &published.event)
    );
    let page = client.read(TopicRead::all(bank())).await.unwrap();
    assert_eq!((&page.items, page.next_offset, page.tail), (&vec![published.event.clone()], Offset(1), Offset(1)));
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait(TopicRead::all(bank()).after(Offset(1)), Duration::from_secs(30)).await }
    });
    let second = client.publish(moved("b", None, &data), None).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().items, std::slice::from_ref(&second.event));
    let filter = EventFilter {
        subjects: vec!["b".to_owned()],
        cel: Some("data.amount == 5".to_owned()),
        ..EventFilter::default()
    };
    let log = client.read_log(LogRead { after: Position(0), limit: 10, filter }).await.unwrap();
    assert_eq!((log.items, log.next_position >= second.event.position), (vec![second.event], true));
    server.close().await;
}

#[tokio::test]
async fn a_projection_is_put_moved_waited_for_and_reset() {
    let server = TestBroker::set(Vec::new()).await;
    let client = server.client();
    let definition = NewProjection::of_topic(bank()).filtered("has(data)");
    let RegisterOutcome::Created(made) = client.put_projection("a/b c", definition.clone()).await.unwrap() else {
        panic!()
    };
    assert_eq!((made.name.as_str(), &made.definition, made.generation), ("a/b c", &definition, Generation(1)));
    let RegisterOutcome::Unchanged(known) = client.put_projection("a/b c", definition.clone()).await.unwrap() else {
        panic!()
    };
    assert_eq!(known, made);
    let event = moved("a", None, &json!({}));
    let wait_for = WaitFor { projections: &["a/b c"], timeout: Duration::ZERO };
    let late = client.publish_for(event, None, &wait_for).await.unwrap_err();
    assert_eq!((late.kind(), late.stored().unwrap().1), (Kind::ProjectionTimeout, Sequence(1)));
    let to = NewCheckpoint { offset: Offset(1), expected: Some(Offset(0)), generation: Some(Generation(1)) };
    assert_eq!(client.move_checkpoint("a/b c", to).await.unwrap().checkpoint, Offset(1));
    let refused = client.move_checkpoint("a/b c", NewCheckpoint::at(Offset(0))).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual()), (Kind::InvalidState, Some(1)));
    let there = client.wait_for_projection("a/b c", Offset(1), Duration::from_secs(30)).await.unwrap();
    assert_eq!(there, client.projection("a/b c").await.unwrap());
    let reset = client.reset_projection("a/b c", Offset(0)).await.unwrap();
    assert_eq!((reset.checkpoint, reset.generation, reset.lag.events), (Offset(0), Generation(2), 1));
    let refused = client.put_projection("x", NewProjection::of_topic(bank()).filtered("(")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.violations()[0].pointer.as_str()), (Kind::Validation, "/filter"));
    assert_eq!(client.projection("x").await.unwrap_err().kind(), Kind::NotFound);
    server.close().await;
}

fn problem(status: u16, code: &str) -> Reply {
    let body = json!({"type": format!("https://errors.hyperspot.com/{code}"), "status": status, "detail": "d"});
    Some((status, "retry-after: 0\r\n", body.to_string()))
}

fn projection() -> Reply {
    let body = json!({
        "name": "p", "log": true, "checkpoint": 0, "generation": 1, "start": 0, "lag": {"events": 0, "seconds": 0},
        "createdAt": "2025-12-03T12:05:00.000Z", "updatedAt": "2025-12-03T12:05:00.000Z",
    });
    Some((200, "", body.to_string()))
}

#[tokio::test]
async fn a_read_is_asked_again_when_the_broker_is_full_away_or_breaks_off() {
    let full = problem(429, "EVENT_BROKER_OVERLOADED");
    let away = problem(503, "EVENT_BROKER_UNAVAILABLE");
    let pretend = ScriptedBroker::with(vec![full, away, None, projection()]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    client.projection("p").await.unwrap();
    assert_eq!(pretend.asked(), ["GET /v1/projections/p"; 4]);
}

#[tokio::test]
async fn after_enough_tries_the_last_answer_counts() {
    let pretend = ScriptedBroker::with(vec![None, None, None, problem(503, "EVENT_BROKER_UNAVAILABLE"), projection()]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    let error = client.projection("p").await.unwrap_err();
    assert_eq!((error.kind(), error.detail()), (Kind::Unavailable, "d"));
    assert_eq!(pretend.asked().len(), 4);
}

#[tokio::test]
async fn a_refusal_is_not_asked_again() {
    let pretend = ScriptedBroker::with(vec![problem(404, "EVENT_BROKER_NOT_FOUND"), projection()]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    assert_eq!(client.projection("p").await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(pretend.asked().len(), 1);
}

#[tokio::test]
async fn a_reset_is_sent_again_under_the_key_of_its_call() {
    let in_flight = problem(409, "idempotency_key_in_flight");
    let replies = vec![problem(429, "EVENT_BROKER_OVERLOADED"), None, in_flight, projection(), projection()];
    let pretend = ScriptedBroker::with(replies);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    client.reset_projection("p", Offset(7)).await.unwrap();
    client.reset_projection("p", Offset(7)).await.unwrap();
    assert_eq!(pretend.asked(), [r#"POST /v1/projections/p:reset {"offset":7}"#; 5]);
    let keys = pretend.keys();
    assert!(keys[0].is_some() && keys[..4].iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(keys[4].is_some() && keys[4] != keys[0], "{keys:?}");
}

#[tokio::test]
async fn one_call_takes_no_longer_than_its_total() {
    let replies =
        || problem(503, "EVENT_BROKER_UNAVAILABLE").map(|(status, _, body)| (status, "retry-after: 60\r\n", body));
    let pretend = ScriptedBroker::with(vec![replies(), projection()]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY).within(Duration::from_secs(10));
    let error = client.projection("p").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after_seconds()), (Kind::Unavailable, Some(60)));
    // A response that never arrives.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let client = Client::new(&url).unwrap().within(Duration::from_millis(50));
    assert_eq!(client.projection("p").await.unwrap_err().detail(), "The broker did not answer in time.");
}

#[tokio::test]
async fn an_event_is_published_again_under_the_same_id() {
    let pretend = ScriptedBroker::with(vec![None, problem(409, "EVENT_BROKER_EVENT_ID_REUSE")]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    let refused = client.publish(moved("a", None, &json!({})), None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::EventIdReuse);
    let asked = pretend.asked();
    assert!(asked[0] == asked[1] && asked[0].contains(r#""id":""#), "{asked:?}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    for url in ["", "nowhere", "ftp://x", "127.0.0.1:8087"] {
        assert_eq!(Client::new(url).unwrap_err().kind(), Kind::Validation, "{url}");
    }
}
