//! Long polls and streams: an append wakes them, they end in time, and they are dropped when their caller disconnects.

use super::{CREATED, Deadline, Server, TOPIC, event};
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;
use std::time::{Duration, Instant};

fn poll_path(offset: u64, timeout: u64) -> String {
    format!("/v1/events:poll?topic={TOPIC}&offset={offset}&timeout={timeout}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_a_thousand_waiting_polls() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let polls: Vec<_> = (0..1000)
        .map(|_| {
            let request = server.request(Method::GET, &poll_path(0, 30));
            tokio::spawn(async move { super::answer(request).await })
        })
        .collect();
    wait_for_connections(&server, 1000).await;
    let (status, stored) = server.post("/v1/events", &event(CREATED, "s-1")).await;
    assert_eq!(status, 201, "{stored}");
    for poll in polls {
        let (status, page) = poll.await.unwrap();
        assert_eq!((status.as_u16(), &page["items"][0]), (200, &stored));
    }
}

/// The number of file descriptors that the server has open.
pub(super) fn connections(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// Waits until the server has this many open connections: then their requests are on the way too.
pub(super) async fn wait_for_connections(server: &Server, wanted: usize) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while connections(server) < wanted && Instant::now() < give_up {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_poll_without_news_ends_at_its_time_out() {
    let server = Server::start(&[]);
    let began = Instant::now();
    let (status, page) = server.get(&poll_path(0, 1)).await;
    assert_eq!(status, 200);
    assert_eq!(page, serde_json::json!({"items": [], "nextOffset": 0, "tail": 0}));
    assert!(began.elapsed() >= Duration::from_secs(1), "the poll ended early");
}

#[tokio::test]
async fn a_poll_waits_on_past_events_that_do_not_match() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let path = format!("{}&subject=wanted", poll_path(0, 30));
    let request = server.request(Method::GET, &path);
    let poll = tokio::spawn(async move { super::answer(request).await });
    for subject in ["other", "another", "wanted"] {
        assert_eq!(server.post("/v1/events", &event(CREATED, subject)).await.0, 201);
    }
    let (_, page) = poll.await.unwrap();
    assert_eq!((page["items"].as_array().unwrap().len(), &page["items"][0]["sequence"]), (1, &Value::from(3)));
}

/// The next event of a stream; comments are skipped.
pub(super) async fn next_event(
    stream: &mut (impl StreamExt<Item = reqwest::Result<bytes::Bytes>> + Unpin),
    seen: &mut String,
) -> (u64, Value) {
    let deadline = Deadline::begin();
    loop {
        deadline.check("an event of the stream");
        if let Some((block, rest)) = seen.split_once("\n\n") {
            let (block, rest) = (block.to_owned(), rest.to_owned());
            *seen = rest;
            let field =
                |name: &str| block.lines().filter_map(|line| line.strip_prefix(name)).collect::<Vec<_>>().join("\n");
            if block.contains("data: ") {
                return (field("id: ").parse().unwrap(), serde_json::from_str(&field("data: ")).unwrap());
            }
            continue;
        }
        let piece = stream.next().await.expect("the stream ended").unwrap();
        seen.push_str(std::str::from_utf8(&piece).unwrap());
    }
}

#[tokio::test]
async fn a_stream_resumed_after_a_restart_loses_and_repeats_nothing() {
    let mut server = Server::start(&[]);
    server.register(CREATED).await;
    let mut last = 0;
    for round in 0..3_u64 {
        for number in 0..20 {
            server.post("/v1/events", &event(CREATED, &format!("s-{round}-{number}"))).await;
        }
        let request = server.request(Method::GET, &format!("/v1/events:stream?topic={TOPIC}&offset=0"));
        let request = request.header("Last-Event-ID", last.to_string());
        let mut stream = request.send().await.unwrap().bytes_stream();
        let mut seen = String::new();
        // The events of the last round wait in the log; those of this round arrive while the stream is open.
        for _ in 0..15 {
            let (id, body) = next_event(&mut stream, &mut seen).await;
            assert_eq!((id, body["sequence"].as_u64()), (last + 1, Some(last + 1)));
            last = id;
        }
        server = Server::start_in(server.kill(), &[]);
    }
    assert_eq!(last, 45);
}

#[tokio::test]
async fn a_stream_without_a_start_begins_at_the_tail() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    server.post("/v1/events", &event(CREATED, "before")).await;
    let request = server.request(Method::GET, &format!("/v1/events:stream?topic={TOPIC}"));
    let mut stream = request.send().await.unwrap().bytes_stream();
    let mut pretty = event(CREATED, "after");
    pretty["data"] = serde_json::json!({"n": 2});
    // Line breaks inside `data` are preserved.
    let text = serde_json::to_string_pretty(&pretty).unwrap();
    let request = server.request(Method::POST, "/v1/events").header("content-type", "application/json").body(text);
    assert_eq!(super::answer(request).await.0, 201);
    let (id, body) = next_event(&mut stream, &mut String::new()).await;
    assert_eq!((id, &body["subject"], &body["data"]["n"]), (2, &Value::from("after"), &Value::from(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_is_counted_however_its_target_is_spelt() {
    let limits =
        ["EVENT_BROKER__SERVER__MAX_WAITS", "EVENT_BROKER__SERVER__MAX_WAITS_PER_ADDRESS"].map(|name| (name, "1"));
    let server = Server::start_with(&limits, &[]);
    server.register(CREATED).await;
    let view = serde_json::json!({"topic": TOPIC});
    let put = server.request(Method::PUT, "/v1/projections/view").json(&view);
    assert_eq!(super::answer(put).await.0, 201);
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, 201);
    let poll = server.request(Method::GET, &poll_path(1, 30));
    // The requests below may take the one place first; then the poll is refused and is sent again.
    let poll = tokio::spawn(async move { while super::answer(poll.try_clone().unwrap()).await.0 == 429 {} });
    let deadline = Deadline::begin();
    while server.get("/v1/projections/view:wait?offset=1&timeout=0").await.0 != 429 {
        deadline.check("the poll is counted");
    }
    for (method, target) in [
        (Method::GET, "/v1/projections/view:wait?offset=1&timeout=5"),
        (Method::GET, "/v1/projections/view:w%61it?offset=1&timeout=5"),
        (Method::GET, "/v1/projections/view%3Await?offset=1&timeout=5"),
        (Method::POST, "/v1/events?waitFor=view&timeout=5"),
        (Method::POST, "/v1/events?wait%46or=view&timeout=5"),
    ] {
        let request = server.request(method, target).json(&event(CREATED, "s"));
        let refused = super::answer(request).await;
        assert_eq!(refused.0, 429, "{target}: {}", refused.1);
    }
    poll.abort();
}
