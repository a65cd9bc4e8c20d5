//! Where reading starts: `offset=earliest` and `offset=latest` wherever a read takes an offset, and how a reader
//! resumes after retention has removed its events.

use super::projections::check_table;
use super::waiting::next_event;
use super::{CREATED, Deadline, Server, TOPIC, answer, event, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A server whose topic has events 1 to `count`.
async fn server_with(count: usize) -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    publish(&server, count).await;
    server
}

async fn publish(server: &Server, count: usize) {
    for number in 0..count {
        assert_eq!(server.post("/v1/events", &event(CREATED, &format!("s-{number}"))).await.0, 201);
    }
}

async fn trim(server: &Server, through: u64) {
    let (status, answer) = server.post(&format!("/v1/topics/{TOPIC}:trim"), &json!({"through": through})).await;
    assert_eq!(status, 200, "{answer}");
}

/// Sequences, `nextOffset` and `tail` of a page.
fn page((status, body): (StatusCode, Value)) -> (Vec<u64>, u64, u64) {
    assert_eq!(status, 200, "{body}");
    let sequences = body["items"].as_array().unwrap().iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    (sequences, body["nextOffset"].as_u64().unwrap(), body["tail"].as_u64().unwrap())
}

async fn consumer(server: &Server, group: &str, distribution: &str) -> String {
    let body = json!({"consumerGroup": group, "topic": TOPIC, "distribution": distribution});
    let (status, made) = server.post("/v1/consumers", &body).await;
    assert_eq!(status, 201, "{made}");
    made["data"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_read_starts_before_the_first_event_that_is_left_or_behind_the_last() {
    let server = server_with(5).await;
    for trimmed in [0, 2, 5] {
        if trimmed > 0 {
            trim(&server, trimmed).await;
        }
        let left: Vec<_> = (trimmed + 1..=5).collect();
        let id = consumer(&server, "all", "broadcast").await;
        for reader in [format!("topic={TOPIC}"), format!("consumer_id={id}")] {
            for route in ["events", "events:poll"] {
                let rest = if route == "events" { "" } else { "&timeout=0" };
                let read =
                    async |offset: &str| page(server.get(&format!("/v1/{route}?{reader}&offset={offset}{rest}")).await);
                assert_eq!(read("earliest").await, (left.clone(), 5, 5), "{reader} {route}");
                assert_eq!(read("latest").await, (Vec::new(), 5, 5), "{reader} {route}");
            }
        }
        // A shared group without a committed offset starts where its first poll says.
        for (offset, first) in [("earliest", left.first().copied()), ("latest", None)] {
            let id = consumer(&server, &format!("{offset}-{trimmed}"), "shared").await;
            let (sequences, ..) = page(server.get(&format!("/v1/events?consumer_id={id}&offset={offset}")).await);
            assert_eq!(sequences.first().copied(), first, "{offset}");
        }
    }
    let (status, log) = server.get("/v1/log?after=latest").await;
    assert_eq!((status.as_u16(), &log["items"], &log["nextPosition"]), (200, &json!([]), &log["tail"]));
    assert_eq!(server.get("/v1/log?after=earliest").await, server.get("/v1/log?after=0").await);
}

#[tokio::test]
async fn a_stream_starts_at_either_end_and_the_last_event_id_beats_both() {
    let server = server_with(4).await;
    trim(&server, 2).await;
    let open = async |offset: &str, last: Option<&str>| {
        let request = server.request(Method::GET, &format!("/v1/events:stream?topic={TOPIC}&offset={offset}"));
        let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
        request.send().await.unwrap().error_for_status().unwrap().bytes_stream()
    };
    let mut earliest = open("earliest", None).await;
    let mut latest = open("latest", None).await;
    let mut resumed = open("earliest", Some("3")).await;
    publish(&server, 1).await;
    assert_eq!(next_event(&mut earliest, &mut String::new()).await.0, 3);
    assert_eq!(next_event(&mut latest, &mut String::new()).await.0, 5);
    assert_eq!(next_event(&mut resumed, &mut String::new()).await.0, 4);
}

#[tokio::test]
async fn a_poll_from_the_latest_event_is_woken_by_the_next_one() {
    let server = server_with(2).await;
    let request = server.request(Method::GET, &format!("/v1/events:poll?topic={TOPIC}&offset=latest&timeout=30"));
    let poll = tokio::spawn(async move { answer(request).await });
    // The poll may not have read the tail yet; it does not return events that were published before it did.
    let deadline = Deadline::begin();
    while !poll.is_finished() {
        deadline.check("the poll to end");
        publish(&server, 1).await;
    }
    let (sequences, ..) = page(poll.await.unwrap());
    assert!(sequences.first().is_some_and(|first| *first > 2), "{sequences:?}");
}

#[tokio::test]
async fn what_is_no_offset_is_refused_as_before() {
    let server = server_with(1).await;
    check_table(
        &server,
        "
        GET /v1/events?topic={T} -> 400 INVALID_OFFSET
        GET /v1/events?topic={T}&offset= -> 400 INVALID_OFFSET
        GET /v1/events?topic={T}&offset=first -> 400 INVALID_OFFSET
        GET /v1/events?topic={T}&offset=EARLIEST -> 400 INVALID_OFFSET
        GET /v1/events?topic={T}&offset=latest&offset=latest -> 400 INVALID_OFFSET
        GET /v1/events?topic={T}&offset=-1 -> 400 INVALID_OFFSET
        GET /v1/events:poll?topic={T}&offset=end&timeout=0 -> 400 INVALID_OFFSET
        GET /v1/events:stream?topic={T}&offset=beginning -> 400 INVALID_OFFSET
        GET /v1/log?after=first -> 422 VALIDATION_ERROR /after
        GET /v1/log?after=latest&after=1 -> 422 VALIDATION_ERROR /after
    ",
    );
}

#[tokio::test]
async fn who_goes_on_with_resume_offset_loses_no_event() {
    let server = server_with(4).await;
    trim(&server, 2).await;
    let id = consumer(&server, "g", "broadcast").await;
    for path in [
        format!("/v1/events?topic={TOPIC}&offset=1"),
        format!("/v1/events:poll?topic={TOPIC}&offset=0&timeout=0"),
        format!("/v1/events:stream?topic={TOPIC}&offset=0"),
        format!("/v1/events?consumer_id={id}&offset=1"),
        format!("/v1/events:poll?consumer_id={id}&offset=1&timeout=0"),
    ] {
        let problem = expect_problem(server.get(&path).await, 410, "EVENT_BROKER_TRIMMED");
        assert_eq!((&problem["earliest"], &problem["resumeOffset"]), (&json!(3), &json!(2)), "{path}");
        assert!(problem["detail"].as_str().unwrap().contains("`resumeOffset`"), "{problem}");
    }
    let (sequences, ..) = page(server.get(&format!("/v1/events?topic={TOPIC}&offset=2")).await);
    assert_eq!(sequences, [3, 4]);
}

#[tokio::test]
async fn work_whose_event_is_removed_is_told_where_the_topic_begins() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let mut first = event(CREATED, "a");
    first["id"] = json!("550e8400-e29b-41d4-a716-446655440000");
    assert_eq!(server.post("/v1/events", &first).await.0, 201);
    publish(&server, 3).await;
    let claim = json!({"handler": "billing", "topic": TOPIC, "sequence": 1});
    let (_, taken) = server.post("/v1/claims", &claim).await;
    let (id, token) = (taken["claim"]["id"].as_str().unwrap(), &taken["claim"]["token"]);
    let failed = json!({"token": token, "error": {"class": "E", "message": "m"}, "retryable": false});
    assert_eq!(server.post(&format!("/v1/claims/{id}:fail"), &failed).await.0, 200);
    let (_, letters) = server.get("/v1/dead-letters").await;
    let dead_letter = letters["items"][0]["id"].as_str().unwrap().to_owned();
    trim(&server, 2).await;
    for (path, body) in [
        ("/v1/claims".to_owned(), json!({"handler": "other", "topic": TOPIC, "sequence": 2})),
        (format!("/v1/dead-letters/{dead_letter}:redrive"), json!({})),
        ("/v1/events".to_owned(), first.clone()),
    ] {
        let problem = expect_problem(server.post(&path, &body).await, 410, "EVENT_BROKER_TRIMMED");
        assert_eq!((&problem["earliest"], &problem["resumeOffset"]), (&json!(3), &json!(2)), "{path}");
    }
    // The same under a key, whose response is stored and replayed.
    for replayed in [false, true] {
        let request = server.request(Method::POST, "/v1/events").header("idempotency-key", "k").json(&first);
        let response = request.send().await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        let problem: Value = response.json().await.unwrap();
        assert_eq!((&problem["status"], &problem["resumeOffset"]), (&json!(410), &json!(2)), "{problem}");
    }
}
