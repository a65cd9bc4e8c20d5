//! Access tokens: fetched once, cached, renewed when refused, and never fetched from a target that must not be called.

use super::receiver::{HttpReceiver, ReceivedRequest, answer};
use super::*;
use futures_util::future::join_all;
use http::Response;

/// A token endpoint that gives `t1`, `t2` and so on.
async fn endpoint(expires_in: u32) -> HttpReceiver {
    let issued = AtomicUsize::new(0);
    let issuing = move |_: &ReceivedRequest| {
        let number = issued.fetch_add(1, Ordering::Relaxed) + 1;
        let body = format!(r#"{{"access_token":"t{number}","token_type":"Bearer","expires_in":{expires_in}}}"#);
        answer(200, &[], body)
    };
    HttpReceiver::start(Box::new(issuing), None).await
}

fn client(endpoint: &HttpReceiver) -> AuthMethod {
    let grant = OAuthGrant {
        token_url: &endpoint.url("/token"),
        client_id: "me",
        client_secret: "s3cret",
        scope: Some("hooks"),
        audience: None,
        secret_in_form: false,
    };
    AuthMethod::oauth2("/auth", grant, true).unwrap()
}

/// A receiver that accepts only these tokens.
async fn wanting(tokens: &'static [&'static str]) -> HttpReceiver {
    let answering = |seen: &ReceivedRequest| -> Response<_> {
        let known = tokens.iter().any(|token| seen.header("authorization") == format!("Bearer {token}"));
        answer(if known { 200 } else { 401 }, &[], "")
    };
    HttpReceiver::start(Box::new(answering), None).await
}

fn tokens(receiver: &HttpReceiver) -> Vec<String> {
    receiver.seen().iter().map(|seen| seen.header("authorization").to_owned()).collect()
}

#[tokio::test]
async fn a_token_is_fetched_once_and_used_until_it_expires() {
    let (endpoint, receiver) = (endpoint(3600).await, wanting(&["t1"]).await);
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&receiver.url("/")) };
    let deliverer = WebhookDeliverer::new(local());
    let attempts = join_all((0..8).map(|_| case.deliver(&deliverer))).await;
    assert!(attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Done), "{attempts:?}");
    let requests = endpoint.seen();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("POST", "/token"));
    assert_eq!(requests[0].header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(requests[0].header("authorization"), "Basic bWU6czNjcmV0");
    assert_eq!(requests[0].body, "grant_type=client_credentials&scope=hooks");
}

#[tokio::test]
async fn a_token_that_has_expired_is_fetched_anew() {
    let (endpoint, receiver) = (endpoint(0).await, wanting(&["t1", "t2", "t3"]).await);
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&receiver.url("/")) };
    let deliverer = WebhookDeliverer::new(local());
    for _ in 0..3 {
        assert_eq!(case.deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    }
    assert_eq!(tokens(&receiver), ["Bearer t1", "Bearer t2", "Bearer t3"]);
}

#[tokio::test]
async fn a_kept_token_that_is_refused_is_renewed_once() {
    let endpoint = endpoint(3600).await;
    let deliverer = WebhookDeliverer::new(local());
    let first = wanting(&["t1"]).await;
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&first.url("/")) };
    assert_eq!(case.deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    // Revoked: the next receiver knows only the next token.
    let second = wanting(&["t2"]).await;
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&second.url("/")) };
    assert_eq!(case.deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    assert_eq!(tokens(&second), ["Bearer t1", "Bearer t2"]);
    // One that knows none is asked twice and not a third time.
    let third = wanting(&[]).await;
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&third.url("/")) };
    let attempt = case.deliver(&deliverer).await;
    expect_failure(&attempt, ErrorClass::Http4xx, true);
    assert_eq!((attempt.status, tokens(&third)), (Some(401), vec!["Bearer t2".to_owned(), "Bearer t3".to_owned()]));
}

#[tokio::test]
async fn a_new_token_that_is_refused_is_not_renewed() {
    let (endpoint, receiver) = (endpoint(3600).await, wanting(&[]).await);
    let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&receiver.url("/")) };
    expect_failure(&case.deliver(&WebhookDeliverer::new(local())).await, ErrorClass::Http4xx, true);
    assert_eq!((endpoint.seen().len(), receiver.seen().len()), (1, 1));
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_attempt_says_why() {
    let long = format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "x".repeat(9000));
    for (status, body, expected) in [
        (400, r#"{"error":"invalid_client"}"#, "responded with 400 (invalid_client)"),
        (400, r#"{"error":"<b>s3cret</b>"}"#, "responded with 400."),
        (302, "", "responded with 302."),
        (500, "oops", "responded with 500."),
        (200, "oops", "has no bearer token"),
        (200, r#"{"access_token":"t","token_type":"mac"}"#, "has no bearer token"),
        (200, r#"{"access_token":"","token_type":"bearer"}"#, "cannot be sent in a header"),
        (200, r#"{"access_token":"a\r\nb","token_type":"bearer"}"#, "cannot be sent in a header"),
        (200, long.as_str(), "cannot be sent in a header"),
    ] {
        let (endpoint, receiver) = (HttpReceiver::answering(status, body).await, wanting(&["t"]).await);
        let case = DeliveryCase { auth: client(&endpoint), ..DeliveryCase::to(&receiver.url("/")) };
        let attempt = case.deliver(&WebhookDeliverer::new(local())).await;
        expect_failure(&attempt, ErrorClass::Auth, true);
        let message = &attempt.error.as_ref().unwrap().1;
        assert!(message.contains(expected) && !message.contains("s3cret"), "{message}");
        assert_eq!((attempt.status, receiver.seen().len(), endpoint.seen().len()), (None, 0, 1));
    }
}

#[tokio::test]
async fn a_token_endpoint_inside_is_refused_as_a_target_would_be() {
    let endpoint = endpoint(3600).await;
    let names = ResolverTable::of(&[("id.test", &[&["127.0.0.1"]])]);
    let deliverer = WebhookDeliverer::with_resolver(DeliveryPolicy::default(), names);
    let grant = OAuthGrant {
        token_url: &format!("https://id.test:{}/token", endpoint.address.port()),
        client_id: "me",
        client_secret: "s3cret",
        scope: None,
        audience: None,
        secret_in_form: true,
    };
    let in_the_clear = OAuthGrant { token_url: "http://id.example.com/token", ..grant };
    let refused = AuthMethod::oauth2("/auth", in_the_clear, false).unwrap_err();
    assert_eq!(refused.violations()[0].detail, "must be https: the client's secret is sent there");
    let case = DeliveryCase {
        auth: AuthMethod::oauth2("/auth", grant, false).unwrap(),
        ..DeliveryCase::to("https://hooks.example.com/")
    };
    let attempt = case.deliver(&deliverer).await;
    expect_failure(&attempt, ErrorClass::Auth, true);
    assert!(attempt.error.unwrap().1.contains("target_refused"));
    assert_eq!(endpoint.connections(), 0);
}
