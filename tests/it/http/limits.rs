//! Limits: bodies, heads and connections that are too large or too slow; each is refused without an effect on the
//! others.

use super::{CREATED, Server, TOPIC, answer, event, expect_problem};
use reqwest::Method;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn raw(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_its_own_code() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let mut large = event(CREATED, "s");
    large["data"] = json!({"text": "x".repeat(2 * 1024 * 1024)});
    expect_problem(server.post("/v1/events", &large).await, 413, "EVENT_BROKER_PAYLOAD_TOO_LARGE");
    let batch = json!({"events": [large]});
    expect_problem(server.post("/v1/events:batch", &batch).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
    let batch = json!({"events": vec![event(CREATED, "s"); 101]});
    expect_problem(server.post("/v1/events:batch", &batch).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
    expect_problem(server.post("/v1/events:batch", &json!({"events": []})).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    let request = server.request(Method::GET, "/healthz").header("x-large", "x".repeat(100_000));
    expect_problem(answer(request).await, 431, "EVENT_BROKER_HEADERS_TOO_LARGE");
    let path = format!("/v1/events?topic={TOPIC}&offset=0&subject={}", "x".repeat(20_000));
    expect_problem(server.get(&path).await, 414, "EVENT_BROKER_URI_TOO_LONG");
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!(page["tail"], 0, "nothing of it was stored");
}

#[test]
fn what_is_not_http_gets_a_problem_document_too() {
    let server = Server::start(&[]);
    let many_headers = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x-many: 1\r\n".repeat(200));
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(70_000));
    for (request, status, code) in [
        (b"GARBAGE\r\n\r\n".to_vec(), 400, "EVENT_BROKER_MALFORMED"),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n".to_vec(), 400, "EVENT_BROKER_MALFORMED"),
        (many_headers.into_bytes(), 431, "EVENT_BROKER_HEADERS_TOO_LARGE"),
        (long.into_bytes(), 414, "EVENT_BROKER_URI_TOO_LONG"),
    ] {
        let answer = raw(&server, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains(code), "{answer}");
        assert!(answer.contains("\r\nx-trace-id: "), "{answer}");
    }
}

#[test]
fn a_method_a_path_does_not_take_is_told_which_it_does() {
    let server = Server::start(&[]);
    let answer = raw(&server, b"DELETE /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("EVENT_BROKER_METHOD_NOT_ALLOWED"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\nallow: get,head,post"), "{answer}");
}
