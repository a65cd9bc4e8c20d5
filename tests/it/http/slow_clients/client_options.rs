//! Optional features: what a client gets only when it requests it, beyond the plain response.

use super::is_served;
use crate::http::raw_http::ask;
use crate::http::{CREATED, Server, TOPIC, answer, event};
use reqwest::{Client, Method, Version};
use serde_json::{Value, json};

#[tokio::test]
async fn http_2_is_spoken_to_those_who_begin_with_it() {
    let mut server = Server::start(&[]);
    server.register(CREATED).await;
    server.client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let response = server.request(Method::POST, "/v1/events").json(&event(CREATED, "s")).send().await.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 201));
    assert_eq!(response.headers()["x-trace-id"].len(), 32);
    let polls: Vec<_> = (0..100)
        .map(|_| {
            let request = server.request(Method::GET, &format!("/v1/events:poll?topic={TOPIC}&offset=1&timeout=30"));
            tokio::spawn(async move { answer(request).await })
        })
        .collect();
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
    for poll in polls {
        assert_eq!(poll.await.unwrap().1["items"][0]["sequence"], 2);
    }
    let (status, problem) = server.get("/v1/events/none").await;
    assert_eq!((status.as_u16(), &problem["status"]), (404, &json!(404)));
    let request = server.request(Method::GET, "/healthz").header("x-large", "x".repeat(50_000));
    assert!(request.send().await.is_ok_and(|response| response.status() == 431), "a head that is too large");
    is_served(&server);
}

#[tokio::test]
async fn answers_are_compressed_for_those_who_ask() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let mut large = event(CREATED, "s");
    large["data"] = json!({"text": "x".repeat(10_000)});
    server.post("/v1/events", &large).await;
    let path = format!("/v1/events?topic={TOPIC}&offset=0");
    let plain = ask(&server, "GET", &path, &[], b"");
    assert_eq!((plain.header("content-encoding"), plain.json()["tail"].as_u64()), (None, Some(1)));
    for (accepted, encoding, magic) in [
        ("gzip", Some("gzip"), &[0x1f, 0x8b][..]),
        ("zstd", Some("zstd"), &[0x28, 0xb5, 0x2f, 0xfd]),
        ("br, gzip;q=0.5", Some("gzip"), &[0x1f, 0x8b]),
        ("identity", None, b"{"),
        ("gzip;q=0", None, b"{"),
        ("br", None, b"{"),
    ] {
        let reply = ask(&server, "GET", &path, &[("accept-encoding", accepted)], b"");
        assert_eq!((reply.status, reply.header("content-encoding")), (200, encoding), "{accepted}");
        assert!(reply.body.starts_with(magic), "{accepted}");
        assert!(encoding.is_none() || reply.body.len() < plain.body.len() / 10, "{accepted}");
    }
    let off = Server::start_with(&[("EVENT_BROKER__SERVER__COMPRESSION", "false")], &[]);
    let reply = ask(&off, "GET", &path, &[("accept-encoding", "gzip")], b"");
    assert_eq!(reply.header("content-encoding"), None);
}

const PREFLIGHT: [(&str, &str); 3] = [
    ("origin", "https://console.example"),
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", "content-type, idempotency-key"),
];

#[test]
fn web_pages_may_call_when_the_configuration_says_so() {
    let origins = "EVENT_BROKER__SERVER__CORS__ALLOWED_ORIGINS";
    let server = Server::start_with(&[(origins, "[https://console.example]")], &[]);
    let reply = ask(&server, "OPTIONS", "/v1/events", &PREFLIGHT, b"");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://console.example"));
    assert!(
        reply.header("access-control-allow-methods").is_some_and(|methods| methods == "*" || methods.contains("POST"))
    );
    assert!(reply.header("access-control-allow-headers").is_some());
    let reply = ask(&server, "GET", "/v1/topics", &[("origin", "https://console.example")], b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://console.example")));
    // The page can read an error response too.
    let reply = ask(&server, "GET", "/v1/events", &[("origin", "https://console.example")], b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (400, Some("https://console.example")));
    let reply = ask(&server, "GET", "/v1/topics", &[("origin", "https://elsewhere.example")], b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
}

#[test]
fn web_pages_may_not_call_otherwise() {
    let server = Server::start(&[]);
    let reply = ask(&server, "OPTIONS", "/v1/events", &PREFLIGHT, b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (405, None));
    let reply = ask(&server, "GET", "/v1/topics", &[("origin", "https://console.example")], b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
}

#[test]
fn a_trace_goes_through_the_answer_the_problem_and_the_log() {
    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let variables = [("EVENT_BROKER__LOGGING__FORMAT", "json"), ("EVENT_BROKER__LOGGING__LEVEL", "debug")];
    let server = Server::start_with(&variables, &[]);
    let parent = format!("00-{ID}-00f067aa0ba902b7-01");
    for (target, status) in [("/v1/topics", 200), ("/v1/events", 400), ("/nowhere", 404)] {
        let reply = ask(&server, "GET", target, &[("traceparent", &parent)], b"");
        assert_eq!((reply.status, reply.header("x-trace-id")), (status, Some(ID)));
        assert!(reply.header("traceparent").is_some_and(|parent| parent.starts_with(&format!("00-{ID}-"))));
        assert!(reply.header("traceparent") != Some(&parent), "the server has its own span in the trace");
        assert!(status == 200 || reply.json()["traceId"] == ID);
    }
    // A value that is not a valid trace context is not passed on.
    let ids = [("traceparent", "00-nonsense"), ("x", "y")].map(|header| {
        let reply = ask(&server, "GET", "/v1/topics", &[header], b"");
        reply.header("x-trace-id").unwrap().to_owned()
    });
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 32 && id != "00-nonsense"), "{ids:?}");
    server.terminate();
    let logged = wait_and_read(server);
    let lines: Vec<Value> = logged.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let traced = lines.iter().filter(|line| line["trace"] == ID).count();
    assert_eq!(traced, 3, "{logged}");
}

/// The log of a server after it was stopped.
fn wait_and_read(server: Server) -> String {
    let log = server.log_path();
    let (status, _folder) = server.wait();
    assert!(status.success(), "{status}");
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(log).unwrap();
    logged
}
