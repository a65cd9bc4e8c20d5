//! Every broker sees what another broker was sent.

use super::{Database, TYPES, publish, register, start, topic};
use crate::http::groups::join;
use crate::http::{Server, answer, event};
use futures_util::StreamExt;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn two() -> [Server; 2] {
    let database = Database::shared().create_database();
    let servers = [start(&database), start(&database)];
    register(&servers[0]).await;
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_here_is_woken_by_a_publish_there() {
    let [here, there] = two().await;
    for number in 0..5 {
        let path = format!("/v1/events:poll?topic={}&offset={number}&timeout=30", topic(0));
        let (page, stored) = tokio::join!(here.get(&path), publish(&there, 0, "s"));
        assert_eq!((page.0, &page.1["items"]), (StatusCode::OK, &json!([stored])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_here_has_what_is_published_everywhere_in_one_order() {
    let [here, there] = two().await;
    let path = format!("/v1/events:stream?topic={}&offset=0", topic(1));
    let mut stream = here.request(Method::GET, &path).send().await.unwrap().bytes_stream();
    let mut published = Vec::new();
    for number in 0..40 {
        published.push(publish(if number % 2 == 0 { &here } else { &there }, 1, "s").await);
    }
    let mut text = String::new();
    while text.matches("data: ").count() < published.len() || !text.ends_with("\n\n") {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    let seen: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(seen, published);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_made_here_reads_and_commits_there() {
    let [here, there] = two().await;
    let stored = publish(&there, 2, "s").await;
    let asked = json!({"consumerGroup": "billing", "topic": topic(2)});
    let (status, made) = here.post("/v1/consumers", &asked).await;
    assert_eq!(status, 201, "{made}");
    let id = made["data"]["id"].as_str().unwrap();
    let (status, page) = there.get(&format!("/v1/events:poll?consumer_id={id}&offset=0&timeout=30")).await;
    assert_eq!((status, &page["items"]), (StatusCode::OK, &json!([stored])));
    let (status, answer) = there.post(&format!("/v1/consumers/{id}:commit"), &json!({"offset": 1})).await;
    assert_eq!(status, 200, "{answer}");
    // The other broker knows of the commit.
    let (status, group) = here.get("/v1/consumer-groups/billing").await;
    assert_eq!(status, 200);
    assert_eq!(group["topics"][0]["committedOffset"], 1, "{group}");
    let status = there.request(Method::DELETE, &format!("/v1/consumers/{id}")).send().await.unwrap().status();
    assert_eq!(status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_divide_the_work_wherever_they_ask() {
    let [here, there] = two().await;
    for subject in ["a", "b", "a", "c"] {
        publish(&here, 0, subject).await;
    }
    let (one, other) = (join(&here, "billing", &topic(0)).await, join(&there, "billing", &topic(0)).await);
    let mut seen = Vec::new();
    let mut idle = 0;
    // Each broker assigns events that the other one has not, and the next events once the other one has finished the
    // earlier ones.
    while seen.len() < 4 && idle < 20 {
        for (server, path, teller) in [(&here, &one, &there), (&there, &other, &here)] {
            let (status, page) = server.get(&format!("{path}&limit=1&timeout=1")).await;
            assert_eq!(status, 200, "{page}");
            idle += 1;
            for item in page["items"].as_array().unwrap() {
                let claim = &item["claim"];
                let path = format!("/v1/claims/{}:done", claim["id"].as_str().unwrap());
                let (status, answer) = teller.post(&path, &json!({"token": claim["token"]})).await;
                assert_eq!(status, 200, "{answer}");
                seen.push(item["sequence"].as_u64().unwrap());
            }
        }
    }
    let position = |sequence: u64| seen.iter().position(|known| *known == sequence).unwrap();
    assert!(position(1) < position(3), "{seen:?}");
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4]);
    for server in [&here, &there] {
        let (_, group) = server.get("/v1/consumer-groups/billing").await;
        assert_eq!(group["consumerGroup"], "billing", "{group}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_here_is_known_there_at_once() {
    let [here, there] = two().await;
    for number in 0..50 {
        let (first, second) = if number % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let mut event = event(TYPES[0], "s");
        event["id"] = json!(uuid::Uuid::new_v4());
        event["expectedAggregateSequence"] = json!(number);
        let (status, stored) = first.post("/v1/events", &event).await;
        assert_eq!(status, 201, "{stored}");
        assert_eq!(second.post("/v1/events", &event).await, (StatusCode::OK, stored.clone()));
        let id = stored["id"].as_str().unwrap();
        assert_eq!(second.get(&format!("/v1/events/{id}")).await, (StatusCode::OK, stored));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_leaves_nothing_behind() {
    let [here, there] = two().await;
    for _ in 0..10 {
        publish(&here, 0, "s").await;
        publish(&there, 0, "s").await;
    }
    drop(there.kill());
    assert_eq!(publish(&here, 0, "s").await["sequence"], 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_is_archived_here_is_deleted_there_once_its_events_are_gone() {
    let [here, there] = two().await;
    publish(&here, 0, "s").await;
    let path = format!("/v1/event-types/{}", TYPES[0]);
    assert_eq!(here.post(&format!("{path}:archive"), &json!({})).await.0, 200);
    let delete = |server: &Server| answer(server.request(Method::DELETE, &path));
    let (status, problem) = delete(&there).await;
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("sequence 1 of"), "{problem}");
    assert_eq!(there.post("/v1/events", &event(TYPES[0], "s")).await.0, 422);
    let (status, trimmed) = here.post(&format!("/v1/topics/{}:trim", topic(0)), &json!({"through": 1})).await;
    assert_eq!((status, &trimmed["count"]), (StatusCode::OK, &json!(1)));
    assert_eq!(delete(&there).await.0, 204);
    assert_eq!(delete(&here).await.0, 404);
    let (status, made) = here.post("/v1/event-types", &json!({"id": TYPES[0], "topic": topic(1)})).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(there.post("/v1/events", &event(TYPES[0], "s")).await.0, 201);
}
