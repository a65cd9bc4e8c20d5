//! The requests that a receiver gets.

use super::receiver::{HttpReceiver, ReceivedRequest};
use super::*;
use crate::delivery::signature::signature;
use serde_json::Value;

async fn sent(change: impl FnOnce(&mut DeliveryCase)) -> ReceivedRequest {
    let receiver = HttpReceiver::answering(204, "").await;
    let mut case = DeliveryCase::to(&receiver.url("/hooks/a?b=c%20d"));
    change(&mut case);
    let attempt = case.deliver(&WebhookDeliverer::new(local())).await;
    assert_eq!((attempt.outcome, attempt.status, attempt.error), (AttemptOutcome::Done, Some(204), None));
    receiver.seen().remove(0)
}

#[tokio::test]
async fn the_envelope_is_the_stored_bytes_with_our_headers_around_it() {
    let seen = sent(|case| case.signing = check_secrets("", &[SECRET, KEY]).unwrap()).await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/hooks/a?b=c%20d"));
    assert_eq!(seen.body, EVENT);
    for (name, value) in [
        ("content-type", "application/json"),
        ("webhook-id", ID),
        ("webhook-timestamp", "1764763200"),
        ("event-broker-attempt", "3"),
        ("event-broker-subscription", "orders"),
        ("event-broker-topic", TOPIC),
        ("event-broker-sequence", "7"),
        ("event-broker-replay", "00000000-0000-0000-0000-000000000005"),
        ("event-broker-token", "12"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("user-agent", concat!("event-broker/", env!("CARGO_PKG_VERSION"))),
        ("authorization", ""),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    let secrets = check_secrets("", &[SECRET, KEY]).unwrap();
    let expected = signature(&secrets, ID, 1_764_763_200, EVENT.as_bytes()).unwrap();
    assert_eq!(seen.header("webhook-signature"), expected);
    assert!(expected.starts_with("v1,") && expected.contains(" v1a,"), "{expected}");
}

#[tokio::test]
async fn without_secrets_there_is_no_signature() {
    assert!(!sent(|_| ()).await.headers.contains_key("webhook-signature"));
}

#[tokio::test]
async fn data_only_is_data_as_it_was_spelt() {
    let seen = sent(|case| case.shape = EventFormat::DataOnly).await;
    assert_eq!((seen.body.as_ref(), seen.header("content-type")), (DATA.as_bytes(), "application/json"));
}

#[tokio::test]
async fn a_structured_cloud_event_has_everything_in_the_body() {
    let seen = sent(|case| case.shape = EventFormat::CloudEventsStructured).await;
    assert_eq!(seen.header("content-type"), "application/cloudevents+json; charset=utf-8");
    assert!(str::from_utf8(&seen.body).unwrap().ends_with(&format!(r#""data":{DATA}}}"#)));
    let event: Value = serde_json::from_slice(&seen.body).unwrap();
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", ID),
        ("source", "/shop/é"),
        ("subject", "o 1%"),
        ("time", "2025-12-03T12:01:59.829Z"),
        ("dataschema", "gts://gts.vendor.orders.order_placed.v1#1.0"),
        ("sequence", "7"),
        ("appid", "web"),
        ("context", r#"{"Region":"eu"}"#),
    ] {
        assert_eq!(event[name], value, "{name}");
    }
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("ce-")));
}

#[tokio::test]
async fn a_binary_cloud_event_has_its_attributes_in_headers() {
    let seen = sent(|case| case.shape = EventFormat::CloudEventsBinary).await;
    assert_eq!((seen.body.as_ref(), seen.header("content-type")), (DATA.as_bytes(), "application/json"));
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", ID),
        ("ce-source", "/shop/%C3%A9"),
        ("ce-subject", "o%201%25"),
        ("ce-context", "{%22Region%22:%22eu%22}"),
        ("ce-traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("ce-datacontenttype", ""),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn own_headers_and_credentials_are_sent_along() {
    let seen = sent(|case| {
        case.headers = check_headers("", [("X-Api-Key", "k 1"), ("Accept", "text/plain")]).unwrap();
        case.auth = AuthMethod::basic("", "me", "secret").unwrap();
    })
    .await;
    assert_eq!((seen.header("x-api-key"), seen.header("accept")), ("k 1", "text/plain"));
    assert_eq!(seen.header("authorization"), "Basic bWU6c2VjcmV0");
    let seen = sent(|case| case.auth = AuthMethod::bearer("", "t0ken").unwrap()).await;
    assert_eq!(seen.header("authorization"), "Bearer t0ken");
}

#[tokio::test]
async fn a_task_is_posted_as_it_was_given_and_has_no_event_headers() {
    let receiver = HttpReceiver::answering(200, "").await;
    let case = DeliveryCase::to(&receiver.url("/"));
    let delivery = DeliveryRequest {
        payload: DeliveryPayload::Task(Bytes::from_static(b"[1, 2]")),
        subscription: None,
        topic: None,
        sequence: None,
        token: None,
        trace_parent: None,
        ..delivery_of(&case)
    };
    assert_eq!(WebhookDeliverer::new(local()).deliver(delivery).await.outcome, AttemptOutcome::Done);
    let seen = receiver.seen().remove(0);
    assert_eq!((seen.body.as_ref(), seen.header("content-type")), (b"[1, 2]".as_slice(), "application/json"));
    for name in ["subscription", "topic", "sequence", "replay", "token"] {
        assert_eq!(seen.header(&format!("event-broker-{name}")), "", "{name}");
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_put_into_the_format_fails_for_good_and_nothing_is_sent() {
    let receiver = HttpReceiver::answering(200, "").await;
    let case = DeliveryCase::to(&receiver.url("/"));
    for format in [EventFormat::DataOnly, EventFormat::CloudEventsStructured, EventFormat::CloudEventsBinary] {
        let payload = DeliveryPayload::Event { text: Bytes::from_static(b"{\"id\":"), format };
        let attempt = WebhookDeliverer::new(local()).deliver(DeliveryRequest { payload, ..delivery_of(&case) }).await;
        expect_failure(&attempt, ErrorClass::Payload, false);
    }
    assert_eq!(receiver.seen().len(), 0);
}

fn delivery_of(case: &DeliveryCase) -> DeliveryRequest<'_> {
    DeliveryRequest {
        target: &case.target,
        payload: DeliveryPayload::Task(Bytes::new()),
        signing: &case.signing,
        auth: &case.auth,
        identity: None,
        headers: &case.headers,
        timeout: case.timeout,
        id: ID,
        at: Timestamp::from_millis(0),
        attempt: 1,
        subscription: Some("orders"),
        topic: Some(TOPIC),
        sequence: Some(Sequence(7)),
        replay: None,
        token: Some(1),
        trace_parent: None,
    }
}
