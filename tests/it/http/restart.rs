//! Shutdown: acknowledged events are stored, parked requests get a response, and the exit code is clean.

use super::{CREATED, Deadline, Server, TOPIC, event};
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_keeps_every_acknowledged_event() {
    const CLIENTS: usize = 64;
    const ANSWER_MAX: Duration = Duration::from_secs(60);
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let publishers: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (url, acknowledged) = (format!("{}/v1/events", server.url), Arc::clone(&acknowledged));
            let http = super::client();
            tokio::spawn(async move {
                let mut kept = Vec::new();
                loop {
                    let body = event(CREATED, &format!("client-{client}"));
                    // Seen once: the client's library kept waiting for a connection after the connection and the server
                    // were gone. It received no response, so it counts as refused.
                    let sent = http.post(&url).json(&body).timeout(ANSWER_MAX).send().await;
                    match sent {
                        Ok(response) if response.status() == 201 => {
                            let stored: serde_json::Value = response.json().await.unwrap();
                            kept.push(stored["id"].as_str().unwrap().to_owned());
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(response) => {
                            assert_eq!(response.status(), 503);
                            return kept;
                        }
                        // A refused or closed connection is a clear refusal too: no part of the response was sent.
                        Err(error) => {
                            assert!(error.is_connect() || error.is_request() || error.is_timeout(), "{error:?}");
                            return kept;
                        }
                    }
                }
            })
        })
        .collect();
    let deadline = Deadline::begin();
    while acknowledged.load(Ordering::Relaxed) < 2000 {
        deadline.check("acknowledged events");
        tokio::task::yield_now().await;
    }
    server.terminate();
    let mut kept = Vec::new();
    for publisher in publishers {
        kept.extend(publisher.await.unwrap());
    }
    let (status, folder) = server.wait();
    assert!(status.success(), "{status}");
    let server = Server::start_in(folder, &[]);
    for id in &kept {
        assert_eq!(server.get(&format!("/v1/events/{id}")).await.0, 200, "{id} is lost");
    }
}

#[tokio::test]
async fn a_waiting_poll_is_answered_when_the_server_drains() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let consumer = json!({"consumerGroup": "g", "topic": TOPIC, "sessionTimeout": "PT10M"});
    let (_, consumer) = server.post("/v1/consumers", &consumer).await;
    let id = consumer["data"]["id"].as_str().unwrap();
    let request = server.request(Method::GET, &format!("/v1/events:poll?consumer_id={id}&offset=0&timeout=30"));
    let stream = server.request(Method::GET, &format!("/v1/events:stream?topic={TOPIC}")).send().await.unwrap();
    let poll = tokio::spawn(async move { super::answer(request).await });
    // When its consumer has been seen, the server has received the poll.
    let deadline = Deadline::begin();
    while server.get(&format!("/v1/consumers/{id}")).await.1["data"]["lastSeenAt"] == consumer["data"]["lastSeenAt"] {
        assert!(!poll.is_finished(), "the poll did not wait");
        deadline.check("the consumer to be seen");
    }
    server.terminate();
    let (status, page) = poll.await.unwrap();
    assert_eq!((status.as_u16(), page["items"].as_array().map(Vec::len)), (200, Some(0)));
    let rest = stream.text().await.unwrap();
    assert!(rest.starts_with(": from 0"), "{rest}");
    assert!(server.wait().0.success());
}

#[tokio::test]
async fn a_log_line_that_cannot_be_written_ends_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    // A full disk, as the target of standard error.
    std::os::unix::fs::symlink("/dev/full", folder.path().with_extension("log")).unwrap();
    let server = Server::start_in(folder, &[]);
    server.register(CREATED).await;
    let (status, _) = server.post("/v1/events", &event(CREATED, "a")).await;
    assert_eq!(status, 201);
    server.terminate();
    assert!(server.wait().0.success());
}
