//! What web pages may make a browser send: hosts, origins, bodies without a content type, and the form of a refusal.
//!
//! The unit tests of `rest::browser_policy` cover every combination of headers; `scripts/attack-browsers` tests with
//! Chromium.

use super::raw_http::{RawConnection, ask};
use super::{CREATED, Server, TOPIC, answer, client, event, expect_problem};
use reqwest::{Client, Method};
use serde_json::{Value, json};

const HOSTS: &str = "EVENT_BROKER__SERVER__ALLOWED_HOSTS";
const ORIGINS: &str = "EVENT_BROKER__SERVER__CORS__ALLOWED_ORIGINS";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The status of a request for this host, and the problem document.
fn for_host(server: &Server, host: &str, path: &str) -> (u16, Value) {
    let mut wire = RawConnection::to(server);
    wire.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
    let reply = wire.reply(false);
    (reply.status, reply.json())
}

/// The server's own origin.
fn own(server: &Server) -> String {
    server.url.clone()
}

#[test]
fn a_request_for_another_host_is_misdirected() {
    let server = Server::start_with(&[(HOSTS, "[broker.example, '*.cluster.local']")], &[]);
    let port = server.url.rsplit(':').next().unwrap();
    for path in ["/healthz", "/readyz", "/v1/topics", "/docs/", "/nowhere"] {
        let (status, problem) = for_host(&server, &format!("evil.example:{port}"), path);
        let problem = expect_problem((status.try_into().unwrap(), problem), 421, "EVENT_BROKER_MISDIRECTED");
        assert!(problem["detail"].as_str().unwrap().contains("`server.allowed_hosts`"), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().contains("evil"), "{problem}");
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]:8087", "broker.example", "events.default.svc.cluster.local:80"] {
        assert_eq!(for_host(&server, host, "/v1/topics").0, 200, "{host}");
    }
}

#[test]
fn a_server_on_all_addresses_answers_for_any_address_and_no_other_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let server = Server::start_at(folder, "0.0.0.0:0", &["--insecure"]);
    // The kubelet uses the pod's address as the host.
    for path in ["/healthz", "/readyz", "/v1/topics"] {
        assert_eq!(for_host(&server, "10.42.0.17:8087", path).0, 200, "{path}");
    }
    assert_eq!(for_host(&server, "evil.example", "/healthz").0, 421);
}

#[tokio::test]
async fn the_authority_of_http2_is_a_host_too() {
    let server = Server::start(&[]);
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    let http2 = || Client::builder().no_proxy().http2_prior_knowledge();
    let evil = http2().resolve("evil.example", address).build().unwrap();
    let url = format!("http://evil.example:{}/v1/topics", address.port());
    expect_problem(answer(evil.get(&url)).await, 421, "EVENT_BROKER_MISDIRECTED");
    let known = http2().resolve("broker.localhost", address).build().unwrap();
    let url = format!("http://broker.localhost:{}/v1/topics", address.port());
    assert_eq!(answer(known.get(&url)).await.0, 200);
}

#[tokio::test]
async fn pages_of_other_origins_change_nothing_and_are_told_so_with_a_trace() {
    let server = Server::start(&[]);
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let topic = json!({"id": "evil.topic", "streaming": true}).to_string();
    for evidence in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let headers = [evidence, ("content-type", "application/json"), ("traceparent", &parent)];
        let reply = ask(&server, "POST", "/v1/topics", &headers, topic.as_bytes());
        let problem = expect_problem(reply.answer(), 403, "EVENT_BROKER_FORBIDDEN");
        assert_eq!((reply.header("x-trace-id"), problem["traceId"].as_str()), (Some(TRACE), Some(TRACE)));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        // The request is refused before anything is looked up.
        let reply = ask(&server, "DELETE", "/v1/subscriptions/unknown", &headers, b"");
        expect_problem(reply.answer(), 403, "EVENT_BROKER_FORBIDDEN");
    }
    let (_, topics) = server.get("/v1/topics").await;
    assert!(!topics.to_string().contains("evil.topic"), "{topics}");
    let own = own(&server);
    let host = own.trim_start_matches("http://");
    let mut wire = RawConnection::to(&server);
    wire.send(
        format!(
            "POST /v1/topics HTTP/1.1\r\nhost: {host}\r\norigin: {own}\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{topic}",
            topic.len()
        )
        .as_bytes(),
    );
    assert_eq!(wire.reply(false).status, 201, "the server's own page is allowed");
}

#[tokio::test]
async fn a_browsers_body_without_a_type_is_not_taken_for_json() {
    let server = Server::start(&[]);
    let topic = json!({"id": "untyped.topic", "streaming": true}).to_string();
    let reply = ask(&server, "POST", "/v1/topics", &[("sec-fetch-site", "same-origin")], topic.as_bytes());
    expect_problem(reply.answer(), 415, "EVENT_BROKER_UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(server.get("/v1/topics/untyped.topic").await.0, 404);
    // A program that is not a browser may omit it.
    assert_eq!(ask(&server, "POST", "/v1/topics", &[], topic.as_bytes()).status, 201);
}

#[tokio::test]
async fn pages_of_other_origins_take_no_work_from_a_shared_group() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let member = json!({"consumerGroup": "billing", "topic": TOPIC, "distribution": "shared"});
    let (status, consumer) = server.post("/v1/consumers", &member).await;
    assert_eq!(status, 201, "{consumer}");
    let id = consumer["data"]["id"].as_str().unwrap();
    assert_eq!(server.post("/v1/events", &event(CREATED, "s-1")).await.0, 201);
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        for verb in ["", ":poll", ":stream"] {
            let path = format!("/v1/events{verb}?consumer_id={id}&offset=0");
            expect_problem(ask(&server, "GET", &path, &[(name, value)], b"").answer(), 403, "EVENT_BROKER_FORBIDDEN");
        }
    }
    let (_, page) = server.get(&format!("/v1/events:poll?consumer_id={id}&offset=0&timeout=0")).await;
    assert_eq!(page["items"][0]["claim"]["attempt"], 1, "{page}");
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_write_and_read_what_it_is_refused() {
    const CONSOLE: (&str, &str) = ("origin", "https://console.example");
    let server = Server::start_with(&[(ORIGINS, "[https://console.example]")], &[]);
    let headers = [CONSOLE, ("sec-fetch-site", "cross-site"), ("content-type", "application/json")];
    let topic = json!({"id": "console.topic", "streaming": true}).to_string();
    let reply = ask(&server, "POST", "/v1/topics", &headers, topic.as_bytes());
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (201, Some(CONSOLE.1)));
    let reply = ask(&server, "POST", "/v1/topics", &[CONSOLE], topic.as_bytes());
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (415, Some(CONSOLE.1)));
    assert_eq!(ask(&server, "POST", "/v1/topics", &[("origin", "https://other.example")], b"").status, 403);
    let preflight = [
        CONSOLE,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,idempotency-key"),
    ];
    let reply = ask(&server, "OPTIONS", "/v1/events", &preflight, b"");
    let allowed = reply.header("access-control-allow-headers").unwrap();
    assert!(["content-type", "idempotency-key", "ce-id"].iter().all(|name| allowed.contains(name)), "{allowed}");
    assert!(!allowed.contains('*'), "{allowed}");
}

#[tokio::test]
async fn every_header_of_an_answer_can_be_read_by_an_allowed_page() {
    let server = Server::start_with(&[(ORIGINS, "[https://console.example]")], &[]);
    let document = server.get("/v1/openapi.json").await.1;
    let reply = ask(&server, "GET", "/v1/topics", &[("origin", "https://console.example")], b"");
    let exposed = reply.header("access-control-expose-headers").unwrap();
    for name in document["components"]["headers"].as_object().unwrap().keys() {
        let name = name.to_ascii_lowercase();
        // Safelisted by browsers, or not useful to a script.
        if !["cache-control", "content-security-policy"].contains(&name.as_str()) {
            assert!(exposed.split(',').any(|it| it == name), "{name} is not among {exposed}");
        }
    }
}

#[tokio::test]
async fn clients_that_are_no_browsers_are_asked_for_a_host_alone() {
    let server = Server::start(&[]);
    let request = client().request(Method::POST, format!("{}/v1/topics", server.url));
    let (status, topic) = answer(request.body(r#"{"id":"plain.topic","streaming":true}"#)).await;
    assert_eq!(status, 201, "{topic}");
}
