//! The meaning of responses, over a connection. The whole table is next to its code (`response`).

use super::receiver::{HttpReceiver, answer};
use super::*;

#[tokio::test]
async fn every_row_of_the_table_comes_over_the_wire() {
    let failed = AttemptOutcome::Failed { retryable: true };
    let deferred = |seconds| AttemptOutcome::Deferred { after: Duration::from_secs(seconds) };
    for (status, headers, body, outcome, expected) in [
        (200, vec![], "ok", AttemptOutcome::Done, None),
        (204, vec![], "", AttemptOutcome::Done, None),
        (202, vec![], r#"{"ack":false,"delaySeconds":7}"#, deferred(7), None),
        (429, vec![("retry-after", "9")], "slow", deferred(9), None),
        (503, vec![("retry-after", "Wed, 03 Dec 2025 12:01:00 GMT")], "", deferred(60), None),
        (429, vec![], "slow", failed, Some(ErrorClass::Http4xx)),
        (410, vec![], "bye", AttemptOutcome::Gone, Some(ErrorClass::Http4xx)),
        (404, vec![], "", failed, Some(ErrorClass::Http4xx)),
        (500, vec![], "no", failed, Some(ErrorClass::Http5xx)),
    ] {
        let text = body.to_owned();
        let answering = move |_: &_| answer(status, &headers, text.clone());
        let receiver = HttpReceiver::start(Box::new(answering), None).await;
        let attempt = DeliveryCase::to(&receiver.url("/")).deliver(&WebhookDeliverer::new(local())).await;
        assert_eq!(
            (attempt.outcome, attempt.status, class(&attempt)),
            (outcome, Some(status), expected),
            "{attempt:?}"
        );
        assert_eq!(attempt.response, body);
        assert!(attempt.duration > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_nobody_goes_there() {
    let elsewhere = HttpReceiver::answering(200, "").await;
    for location in [elsewhere.url("/"), "http://169.254.169.254/latest/meta-data/".to_owned()] {
        for status in [301, 302, 303, 307, 308] {
            let there = location.clone();
            let answering = move |_: &_| answer(status, &[("location", &there)], "");
            let receiver = HttpReceiver::start(Box::new(answering), None).await;
            let attempt = DeliveryCase::to(&receiver.url("/")).deliver(&WebhookDeliverer::new(local())).await;
            expect_failure(&attempt, ErrorClass::Http3xx, true);
            assert_eq!((attempt.status, receiver.seen().len()), (Some(status), 1));
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn what_is_kept_of_an_answer_is_short_text() {
    let policy = DeliveryPolicy { response_bytes_kept: 5, ..local() };
    for (body, kept) in [("short", "short"), ("a\0b", "a\u{fffd}b"), ("abcdé", "abcd"), ("longer", "longe")] {
        let receiver = HttpReceiver::answering(200, body).await;
        let attempt = DeliveryCase::to(&receiver.url("/")).deliver(&WebhookDeliverer::new(policy.clone())).await;
        assert_eq!((attempt.outcome, attempt.response.as_str()), (AttemptOutcome::Done, kept));
    }
}

#[tokio::test]
async fn a_receiver_is_asked_for_its_consent() {
    let granting =
        |_: &_| answer(200, &[("webhook-allowed-origin", "broker.example.com"), ("webhook-allowed-rate", "120")], "");
    let receiver = HttpReceiver::start(Box::new(granting), None).await;
    let case = DeliveryCase::to(&receiver.url("/hooks"));
    let auth = AuthMethod::bearer("", "t").unwrap();
    let question = |target| ConsentRequest {
        target,
        auth: &auth,
        identity: None,
        headers: &case.headers,
        timeout: case.timeout,
        origin: "broker.example.com",
        rate_per_minute: Some(600),
    };
    let deliverer = WebhookDeliverer::new(local());
    let consent = deliverer.handshake(question(&case.target)).await;
    assert_eq!(consent, ConsentAnswer::Granted { rate_per_minute: Some(120) });
    let seen = receiver.seen().remove(0);
    assert_eq!((seen.method.as_str(), seen.path.as_str(), seen.body.len()), ("OPTIONS", "/hooks", 0));
    assert_eq!(seen.header("webhook-request-origin"), "broker.example.com");
    assert_eq!((seen.header("webhook-request-rate"), seen.header("authorization")), ("600", "Bearer t"));
    // Whoever merely answers has not consented, and whoever may not be called is not asked.
    let indifferent = HttpReceiver::answering(200, "").await;
    let other = DeliveryCase::to(&indifferent.url("/"));
    let consent = deliverer.handshake(question(&other.target)).await;
    assert_eq!(consent, ConsentAnswer::Withheld { status: 200 });
    let public_only = WebhookDeliverer::new(DeliveryPolicy::default());
    match public_only.handshake(question(&case.target)).await {
        ConsentAnswer::Unreachable(failure) => assert_eq!(failure.class, ErrorClass::TargetRefused),
        other => panic!("{other:?}"),
    }
    assert_eq!(receiver.seen().len(), 1);
}
