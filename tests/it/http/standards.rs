//! Faults found by external test suites: HTTP/1.1 by RFC 9112, problem documents by RFC 9457, integers by JSON Schema.

use super::raw_http::RawConnection;
use super::{CREATED, Deadline, Server, TOPIC, event, expect_problem};
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

/// Sends a request head unchanged; returns status and code.
fn refusal(server: &Server, head: &str) -> (u16, String) {
    let mut wire = RawConnection::to(server);
    wire.send(head.as_bytes());
    let reply = wire.reply(false);
    let document: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    (
        reply.status,
        document["type"].as_str().unwrap_or_default().trim_start_matches("https://errors.hyperspot.com/").into(),
    )
}

#[test]
fn a_request_without_one_valid_host_is_malformed() {
    let server = Server::start(&[]);
    for host in ["", "host: a\r\nhost: a\r\n", "host: a b\r\n", "host: a/b\r\n", "host: u@a\r\n"] {
        let answer = refusal(&server, &format!("GET /healthz HTTP/1.1\r\n{host}\r\n"));
        assert_eq!(answer, (400, "EVENT_BROKER_MALFORMED".into()), "{host:?}");
    }
    for head in ["GET /healthz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nhost: [::1]:8087\r\n\r\n"] {
        assert_eq!(refusal(&server, head).0, 200, "{head:?}");
    }
}

#[test]
fn a_body_in_another_transfer_coding_is_not_taken_for_something_else() {
    let server = Server::start(&[]);
    for (codings, status, code) in [
        ("gzip, chunked", 501, "EVENT_BROKER_NOT_IMPLEMENTED"),
        ("foo, chunked", 501, "EVENT_BROKER_NOT_IMPLEMENTED"),
        ("chunked, chunked", 400, "EVENT_BROKER_MALFORMED"),
    ] {
        let body = "2\r\n{}\r\n0\r\n\r\n";
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: {codings}\r\n\r\n{body}"
        );
        assert_eq!(refusal(&server, &head), (status, code.into()), "{codings}");
    }
}

#[test]
fn a_refused_body_that_drips_does_not_hold_its_connection() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__BODY_TIMEOUT_SECS", "1")], &[]);
    let mut wire = RawConnection::to(&server);
    wire.send(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n");
    assert_eq!(wire.reply(false).status, 404);
    // The time-out of an empty read sets the pace of the bytes.
    wire.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(20), "the server still reads the body");
        let gone = !wire.send(b" ");
        let ended = match wire.stream().read(&mut [0; 64]) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        if gone || ended {
            break;
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_where_polls_may_wait_for_a_second_only() {
    let server = Server::start_with(&[("EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS", "1")], &[]);
    server.register(CREATED).await;
    let path = format!("/v1/events:stream?topic={TOPIC}");
    let mut stream = server.request(Method::GET, &path).send().await.unwrap().bytes_stream();
    let mut text = String::from_utf8(stream.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
    let deadline = Deadline::begin();
    while !text.contains("\"sequence\":1") {
        deadline.check("the event in the stream");
        let piece = stream.next().await.unwrap_or_else(|| panic!("the stream ended: {text}")).unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
        assert!(!text.contains("event: problem"), "{text}");
    }
}

#[tokio::test]
async fn the_instance_of_a_problem_is_a_uri_reference() {
    let server = Server::start(&[]);
    let mut wire = RawConnection::to(&server);
    for (path, instance) in [
        ("/v1/a|b", "/v1/a%7Cb"),
        ("/v1/{x}", "/v1/%7Bx%7D"),
        ("/v1/a\\b^c[d]\"", "/v1/a%5Cb%5Ec%5Bd%5D%22"),
        ("/v1/a%20b?c=d", "/v1/a%20b"),
    ] {
        wire.request("GET", path, &[], b"");
        let document: Value = serde_json::from_slice(&wire.reply(false).body).unwrap();
        assert_eq!(document["instance"], instance, "{path}: {document}");
    }
}

#[tokio::test]
async fn a_refused_header_is_named_in_errors() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    for (name, value) in [("Idempotency-Key", String::new()), ("Producer-Id", "x".repeat(10_000))] {
        let request = server.request(Method::POST, "/v1/events").header(name, value).json(&event(CREATED, "s"));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 422, "{name}");
        let document: Value = response.json().await.unwrap();
        assert_eq!(document["errors"][0]["pointer"], format!("/{name}"), "{document}");
    }
}

#[tokio::test]
async fn an_integer_may_be_written_with_a_fraction_of_zero() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let (status, pool) =
        server.post("/v1/pools", &json!({"code": "p", "concurrency": 5.0, "ratePerMinute": 60.0})).await;
    assert_eq!((status.as_u16(), &pool["concurrency"], &pool["ratePerMinute"]), (201, &json!(5), &json!(60)));
    let mut numbered = event(CREATED, "s");
    numbered["sequence"] = json!(1.0);
    numbered["expectedAggregateSequence"] = json!(0.0);
    numbered["data"] = json!({"kept": 5.0});
    let (status, stored) = server.post("/v1/events", &numbered).await;
    assert_eq!((status.as_u16(), &stored["sequence"], &stored["data"]), (201, &json!(1), &json!({"kept": 5.0})));
    let (_, consumer) = server.post("/v1/consumers", &json!({"consumerGroup": "g", "topic": TOPIC})).await;
    let commit = format!("/v1/consumers/{}:commit", consumer["data"]["id"].as_str().unwrap());
    assert_eq!(server.post(&commit, &json!({"offset": 1.0})).await.0, 200);
    let reset = json!({"topic": TOPIC, "offset": 0.0});
    assert_eq!(server.post("/v1/consumer-groups/g:reset", &reset).await.0, 200);
    assert_eq!(server.post(&commit, &json!({"offset": 1.5})).await.0, 400);
    let (_, refused) = server.post("/v1/pools", &json!({"code": "q", "concurrency": 5.5})).await;
    assert_eq!(
        refused["errors"][0],
        json!({"pointer": "/concurrency", "detail": "must be an integer that is not negative"})
    );
}

#[tokio::test]
async fn times_reach_to_the_end_of_the_year_9999() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let mut last = event(CREATED, "s");
    last["occurredAt"] = json!("9999-12-31T23:59:59Z");
    let (status, stored) = server.post("/v1/events", &last).await;
    assert_eq!((status.as_u16(), &stored["occurredAt"]), (201, &json!("9999-12-31T23:59:59.000Z")));
    for (bounds, found) in [
        ("occurredTo=9999-12-31T23:59:59Z", 0),
        ("occurredFrom=9999-12-31T23:59:59Z", 1),
        ("filter=occurredAt%20%3E%20timestamp('9999-12-31T00:00:00Z')", 1),
    ] {
        let (status, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&{bounds}")).await;
        assert_eq!((status.as_u16(), page["items"].as_array().map(Vec::len)), (200, Some(found)), "{bounds}: {page}");
    }
    expect_problem(
        server.get(&format!("/v1/events?topic={TOPIC}&offset=0&occurredTo=9999-12-31T24:00:00Z")).await,
        422,
        "EVENT_BROKER_VALIDATION_ERROR",
    );
}
