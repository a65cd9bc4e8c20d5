//! Projections over HTTP: every verb and every refusal, and publishing that waits for them.

use super::raw_http::ask;
use super::{CREATED, Server, TOPIC, answer, event, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

const OTHER_TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.others.v1";
const OTHER_TYPE: &str = "gts.hyperspot.core.events.type.v1~vendor.others.other_made.v1";

async fn server() -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let topic = json!({"id": OTHER_TOPIC, "streaming": true});
    assert_eq!(server.post("/v1/topics", &topic).await.0, 201);
    let event_type = json!({"id": OTHER_TYPE, "topic": OTHER_TOPIC});
    assert_eq!(server.post("/v1/event-types", &event_type).await.0, 201);
    server
}

/// For every line `METHOD path [body] -> status [code] [pointer]`, compares the response with the expected one.
pub(super) fn check_table(server: &Server, table: &str) {
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (request, expected) = line.rsplit_once(" -> ").unwrap();
        let request = request.replace("{T}", TOPIC).replace("{O}", OTHER_TOPIC);
        let mut words = request.splitn(3, ' ');
        let (method, target, body) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let headers = [("content-type", "application/json"), ("connection", "close")];
        let headers = if body.is_empty() { &headers[1..] } else { &headers[..] };
        let reply = ask(server, method, target, headers, body.as_bytes());
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let mut expected = expected.split(' ');
        assert_eq!(reply.status.to_string(), expected.next().unwrap(), "{line}\n{text}");
        let Some(code) = expected.next() else { continue };
        let problem = expect_problem(reply.answer(), reply.status, &format!("EVENT_BROKER_{code}"));
        for word in expected {
            let holds = match word.split_once('=') {
                Some((member, number)) => problem[member] == number.parse::<u64>().unwrap(),
                None => problem["errors"].as_array().unwrap().iter().any(|it| it["pointer"] == word),
            };
            assert!(holds, "{line}\n{text}");
        }
    }
}

#[tokio::test]
async fn a_worker_of_a_deleted_projection_cannot_move_the_checkpoint_of_the_next_one() {
    let mut server = server().await;
    for subject in ["a", "b", "c"] {
        assert_eq!(server.post("/v1/events", &event(CREATED, subject)).await.0, 201);
    }
    let put = async |server: &Server, name: &str, body: Value| {
        let request = server.request(Method::PUT, &format!("/v1/projections/{name}")).json(&body);
        let (status, made) = answer(request).await;
        assert_eq!(status, 201, "{made}");
        made["generation"].as_u64().unwrap()
    };
    let of_topic = json!({"topic": TOPIC});
    assert_eq!(put(&server, "p", of_topic.clone()).await, 1);
    for generation in 2..=4 {
        assert_eq!(answer(server.request(Method::DELETE, "/v1/projections/p")).await.0, 204);
        // However it restarts: from its checkpoint, from the log alone, or not at all.
        server = match generation {
            2 => server,
            _ => {
                server.terminate();
                let folder = server.wait().1;
                if generation == 4 {
                    let _ = std::fs::remove_dir_all(folder.path().join("state"));
                }
                Server::start_in(folder, &[])
            }
        };
        assert_eq!(put(&server, "p", of_topic.clone()).await, generation);
        let old = json!({"offset": 3, "generation": generation - 1});
        let refused = server.post("/v1/projections/p:checkpoint", &old).await;
        expect_problem(refused, 409, "EVENT_BROKER_INVALID_STATE");
        let new = json!({"offset": 3, "generation": generation});
        assert_eq!(server.post("/v1/projections/p:checkpoint", &new).await.0, 200);
    }
    assert_eq!(put(&server, "another", of_topic).await, 1, "a name that was never deleted starts at 1");
}

#[tokio::test]
async fn every_verb_answers_and_refuses_as_the_table_says() {
    let server = server().await;
    for subject in ["a", "b", "c"] {
        assert_eq!(server.post("/v1/events", &event(CREATED, subject)).await.0, 201);
    }
    let long = "x".repeat(513);
    check_table(
        &server,
        &format!(
            r#"
        GET /v1/projections -> 200
        GET /v1/projections/p -> 404 NOT_FOUND
        PUT /v1/projections/p {{}} -> 422 VALIDATION_ERROR /topic
        PUT /v1/projections/p {{"log":false}} -> 422 VALIDATION_ERROR /topic
        PUT /v1/projections/p {{"log":"yes"}} -> 422 VALIDATION_ERROR /log
        PUT /v1/projections/p {{"log":true,"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /log
        PUT /v1/projections/p {{"topic":"canary"}} -> 400 INVALID_TYPE
        PUT /v1/projections/p {{"topic":"{{O}}x.v1"}} -> 422 VALIDATION_ERROR /topic
        PUT /v1/projections/p {{"topic":"{{T}}","filter":"data ==="}} -> 422 VALIDATION_ERROR /filter
        PUT /v1/projections/p {{"topic":"{{T}}","filter":7}} -> 422 VALIDATION_ERROR /filter
        PUT /v1/projections/p {{"topic":"{{T}}","canary":1}} -> 422 VALIDATION_ERROR /canary
        PUT /v1/projections/p [] -> 422 VALIDATION_ERROR
        PUT /v1/projections/p {{ -> 400 MALFORMED
        PUT /v1/projections/p?x=1 {{"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /x
        PUT /v1/projections/a,b {{"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /name
        PUT /v1/projections/a:b {{"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /name
        PUT /v1/projections/a%07 {{"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /name
        PUT /v1/projections/{long} {{"topic":"{{T}}"}} -> 422 VALIDATION_ERROR /name
        GET /v1/projections/p -> 404 NOT_FOUND
        PUT /v1/projections/p {{"topic":"{{T}}"}} -> 201
        PUT /v1/projections/p {{"topic":"{{T}}","log":false}} -> 200
        PUT /v1/projections/p {{"topic":"{{T}}","filter":"has(data)"}} -> 200
        PUT /v1/projections/p {{"topic":"{{O}}"}} -> 409 ALREADY_EXISTS
        PUT /v1/projections/p {{"log":true}} -> 409 ALREADY_EXISTS
        PUT /v1/projections/a%2Fb%20c {{"log":true}} -> 201
        GET /v1/projections/a%2Fb%20c -> 200
        GET /v1/projections?limit=1 -> 200
        GET /v1/projections?limit=0 -> 422 VALIDATION_ERROR /limit
        GET /v1/projections?cursor=x -> 422 VALIDATION_ERROR /cursor
        GET /v1/projections?name=p -> 422 VALIDATION_ERROR /name
        POST /v1/projections {{}} -> 405 METHOD_NOT_ALLOWED
        POST /v1/projections/p {{}} -> 405 METHOD_NOT_ALLOWED
        POST /v1/projections/p:canary {{}} -> 404 NOT_FOUND
        POST /v1/projections/p:wait {{}} -> 405 METHOD_NOT_ALLOWED
        GET /v1/projections/p:checkpoint -> 405 METHOD_NOT_ALLOWED
        PUT /v1/projections/p:checkpoint {{}} -> 405 METHOD_NOT_ALLOWED
        DELETE /v1/projections/p:reset -> 405 METHOD_NOT_ALLOWED
        POST /v1/projections/p:checkpoint {{}} -> 422 VALIDATION_ERROR /offset
        POST /v1/projections/p:checkpoint {{"offset":-1}} -> 400 INVALID_OFFSET
        POST /v1/projections/p:checkpoint {{"offset":1.5}} -> 400 INVALID_OFFSET
        POST /v1/projections/p:checkpoint {{"offset":"1"}} -> 400 INVALID_OFFSET
        POST /v1/projections/p:checkpoint {{"offset":1,"expected":-1}} -> 422 VALIDATION_ERROR /expected
        POST /v1/projections/p:checkpoint {{"offset":1,"generation":"1"}} -> 422 VALIDATION_ERROR /generation
        POST /v1/projections/p:checkpoint {{"offset":1,"canary":1}} -> 422 VALIDATION_ERROR /canary
        POST /v1/projections/p:checkpoint {{"offset":4}} -> 422 VALIDATION_ERROR /offset
        POST /v1/projections/nobody:checkpoint {{"offset":1}} -> 404 NOT_FOUND
        POST /v1/projections/p:checkpoint {{"offset":2,"expected":null,"generation":null}} -> 200
        POST /v1/projections/p:checkpoint {{"offset":2,"expected":0}} -> 200
        POST /v1/projections/p:checkpoint {{"offset":1}} -> 409 INVALID_STATE actual=2
        POST /v1/projections/p:checkpoint {{"offset":3,"expected":1}} -> 409 INVALID_STATE actual=2
        POST /v1/projections/p:checkpoint {{"offset":3,"generation":2}} -> 409 INVALID_STATE actual=2
        GET /v1/projections/p:wait -> 400 INVALID_OFFSET
        GET /v1/projections/p:wait?offset=x -> 400 INVALID_OFFSET
        GET /v1/projections/p:wait?offset=2&timeout=31 -> 422 VALIDATION_ERROR /timeout
        GET /v1/projections/p:wait?offset=2&x=1 -> 422 VALIDATION_ERROR /x
        GET /v1/projections/nobody:wait?offset=2 -> 404 NOT_FOUND
        GET /v1/projections/p:wait?offset=2 -> 200
        GET /v1/projections/p%3Await?offset=2 -> 200
        GET /v1/projections/p:wait?offset=3&timeout=0 -> 504 PROJECTION_TIMEOUT
        POST /v1/projections/p:reset {{}} -> 422 VALIDATION_ERROR /offset
        POST /v1/projections/p:reset {{"offset":"earliest"}} -> 400 INVALID_OFFSET
        POST /v1/projections/p:reset {{"offset":4}} -> 422 VALIDATION_ERROR /offset
        POST /v1/projections/nobody:reset {{"offset":0}} -> 404 NOT_FOUND
        POST /v1/projections/p:reset {{"offset":1}} -> 200
        POST /v1/projections/p:checkpoint {{"offset":3,"generation":1}} -> 409 INVALID_STATE actual=1
        DELETE /v1/projections/p?x=1 -> 422 VALIDATION_ERROR /x
        DELETE /v1/projections/p -> 204
        DELETE /v1/projections/p -> 404 NOT_FOUND
        GET /v1/projections/p -> 404 NOT_FOUND
    "#
        ),
    );
}

async fn put(server: &Server, name: &str, body: &Value) -> (StatusCode, Value) {
    answer(server.request(Method::PUT, &format!("/v1/projections/{name}")).json(body)).await
}

async fn checkpoint(server: &Server, name: &str, offset: u64) {
    let (status, body) = server.post(&format!("/v1/projections/{name}:checkpoint"), &json!({"offset": offset})).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn a_projection_is_shown_whole_and_survives_a_kill() {
    let server = server().await;
    let response = server.request(Method::PUT, "/v1/projections/my%20view").json(&json!({"topic": TOPIC}));
    let response = response.send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (201, &"/v1/projections/my%20view".parse().unwrap())
    );
    for subject in ["a", "b"] {
        server.post("/v1/events", &event(CREATED, subject)).await;
    }
    checkpoint(&server, "my%20view", 1).await;
    let (_, mut shown) = server.get("/v1/projections/my%20view").await;
    for time in ["createdAt", "updatedAt"] {
        assert!(shown[time].take().as_str().unwrap().ends_with('Z'));
    }
    assert!(shown["lag"]["seconds"].take().as_u64().is_some());
    let expected = json!({
        "name": "my view", "topic": TOPIC, "checkpoint": 1, "generation": 1, "start": 0,
        "lag": {"events": 1, "seconds": null}, "createdAt": null, "updatedAt": null,
    });
    assert_eq!(shown, expected);
    let (_, list) = server.get("/v1/projections").await;
    assert_eq!((&list["items"][0]["name"], &list["page_info"]["next_cursor"]), (&json!("my view"), &Value::Null));
    let server = Server::start_in(server.kill(), &[]);
    assert_eq!(server.get("/v1/projections/my%20view").await.1["checkpoint"], 1);
    assert_eq!(put(&server, "all", &json!({"log": true})).await.1["log"], true);
}

/// A request in flight; it has arrived when a later request has its response.
fn on_its_way(
    server: &Server,
    method: Method,
    path: &str,
    body: &Value,
) -> tokio::task::JoinHandle<(StatusCode, Value)> {
    let request = server.request(method, path).json(body);
    tokio::spawn(async move { answer(request).await })
}

/// Waits until this many events are stored.
async fn until_stored(server: &Server, topic: &str, count: u64) {
    let path = format!("/v1/events:poll?topic={topic}&offset={}&timeout=30", count - 1);
    assert_eq!(server.get(&path).await.1["tail"], count);
}

#[tokio::test]
async fn a_publisher_is_answered_once_the_projections_it_names_have_applied_its_event() {
    let server = server().await;
    for (name, body) in
        [("one", json!({"topic": TOPIC})), ("all", json!({"log": true})), ("other", json!({"topic": OTHER_TOPIC}))]
    {
        assert_eq!(put(&server, name, &body).await.0, 201);
    }
    // No projections: the response comes at once.
    assert_eq!(server.post("/v1/events?timeout=1", &event(CREATED, "a")).await.0, 201);
    // One projection.
    let mut second = event(CREATED, "b");
    second["id"] = json!("7b0b8f0a-3a3c-4f0e-9d5e-111111111111");
    let waiting = on_its_way(&server, Method::POST, "/v1/events?waitFor=one", &second);
    until_stored(&server, TOPIC, 2).await;
    checkpoint(&server, "one", 1).await;
    assert!(!waiting.is_finished());
    checkpoint(&server, "one", 2).await;
    let (status, stored) = waiting.await.unwrap();
    assert_eq!((status.as_u16(), &stored["sequence"]), (201, &json!(2)));
    // A duplicate waits in the same way; here the projection has applied the event already.
    assert_eq!(server.post("/v1/events?waitFor=one,one&timeout=0", &second).await.0, 200);
    let problem = expect_problem(
        server.post("/v1/events?waitFor=all&timeout=0", &second).await,
        504,
        "EVENT_BROKER_PROJECTION_TIMEOUT",
    );
    assert_eq!((&problem["eventId"], &problem["sequence"]), (&second["id"], &json!(2)));
    // Two projections.
    let waiting = on_its_way(&server, Method::POST, "/v1/events?waitFor=one,all", &event(CREATED, "c"));
    until_stored(&server, TOPIC, 3).await;
    checkpoint(&server, "one", 3).await;
    assert!(!waiting.is_finished());
    let (_, log) = server.get("/v1/log?after=0").await;
    checkpoint(&server, "all", log["items"][2]["position"].as_u64().unwrap()).await;
    assert_eq!(waiting.await.unwrap().0, 201);
}

#[tokio::test]
async fn names_are_looked_at_before_anything_is_stored() {
    let server = server().await;
    assert_eq!(put(&server, "one", &json!({"topic": TOPIC})).await.0, 201);
    assert_eq!(put(&server, "other", &json!({"topic": OTHER_TOPIC})).await.0, 201);
    let many: Vec<_> = (0..17).map(|n| format!("p{n}")).collect();
    for name in &many {
        assert_eq!(put(&server, name, &json!({"log": true})).await.0, 201);
    }
    let many = many.join(",");
    let batch = json!({"events": [event(CREATED, "a")]});
    for names in ["canary", "one,canary", "", "one,", ",", "other", "one,other", &many, "one&waitFor=one"] {
        let answer = server.post(&format!("/v1/events?waitFor={names}"), &event(CREATED, "a")).await;
        let problem = expect_problem(answer, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert_eq!(problem["errors"][0]["pointer"], "/waitFor", "{names}");
        assert!(!problem.to_string().contains("canary"), "{problem}");
        // In a batch, a projection may have nothing to wait for.
        if !names.contains("other") {
            let answer = server.post(&format!("/v1/events:batch?waitFor={names}"), &batch).await;
            expect_problem(answer, 422, "EVENT_BROKER_VALIDATION_ERROR");
        }
    }
    // An event that would be refused anyway is refused for its own fault.
    let unknown = event("gts.vendor.none.such.v1", "a");
    let problem =
        expect_problem(server.post("/v1/events?waitFor=other", &unknown).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    assert_eq!(problem["errors"][0]["pointer"], "/type");
    assert_eq!(server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"], 0);
}

#[tokio::test]
async fn a_batch_waits_for_what_concerns_each_projection() {
    let server = server().await;
    assert_eq!(put(&server, "one", &json!({"topic": TOPIC})).await.0, 201);
    assert_eq!(put(&server, "other", &json!({"topic": OTHER_TOPIC})).await.0, 201);
    let batch = json!({"events": [event(CREATED, "a"), event(OTHER_TYPE, "b"), event(CREATED, "c")]});
    let waiting = on_its_way(&server, Method::POST, "/v1/events:batch?waitFor=one,other", &batch);
    until_stored(&server, TOPIC, 2).await;
    checkpoint(&server, "other", 1).await;
    checkpoint(&server, "one", 1).await;
    let early = server.post("/v1/events:batch?waitFor=one&timeout=0", &with_ids(&batch)).await;
    expect_problem(early, 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
    assert!(!waiting.is_finished());
    checkpoint(&server, "one", 4).await;
    let (status, outcome) = waiting.await.unwrap();
    assert_eq!((status.as_u16(), &outcome["meta"]["succeeded"]), (207, &json!(3)));
    // No event matches the projection: there is nothing to wait for.
    let alone = json!({"events": [event(OTHER_TYPE, "d")]});
    assert_eq!(server.post("/v1/events:batch?waitFor=one&timeout=0", &alone).await.0, 207);
    // Nothing is stored: there is nothing to wait for.
    let refused = json!({"events": [event("gts.vendor.none.such.v1", "e")]});
    assert_eq!(server.post("/v1/events:batch?waitFor=one&timeout=0", &refused).await.0, 207);
    let late = server.post("/v1/events:batch?waitFor=one&timeout=0", &batch).await;
    let problem = expect_problem(late, 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
    assert!(problem["detail"].as_str().unwrap().contains("are stored"), "{problem}");
    assert_eq!(server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"], 6);
}

/// A batch whose events have ids, so that it can be repeated.
fn with_ids(batch: &Value) -> Value {
    let mut batch = batch.clone();
    for (n, event) in batch["events"].as_array_mut().unwrap().iter_mut().enumerate() {
        event["id"] = json!(format!("7b0b8f0a-3a3c-4f0e-9d5e-00000000000{n}"));
    }
    batch
}

#[tokio::test]
async fn cloud_events_wait_too() {
    let server = server().await;
    assert_eq!(put(&server, "one", &json!({"topic": TOPIC})).await.0, 201);
    let cloud_event = json!({
        "specversion": "1.0", "id": "5d5a9e3f-5b0e-4f2c-9a55-222222222222", "type": CREATED, "source": "s",
        "subject": "a", "tenant": super::TENANT, "data": {"n": 1},
    });
    let single = |timeout: u64| {
        let request = server.request(Method::POST, &format!("/v1/events?waitFor=one&timeout={timeout}"));
        request.header("content-type", "application/cloudevents+json").body(cloud_event.to_string())
    };
    let problem = expect_problem(answer(single(0)).await, 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
    assert_eq!((&problem["eventId"], &problem["sequence"]), (&cloud_event["id"], &json!(1)));
    checkpoint(&server, "one", 1).await;
    assert_eq!(answer(single(0)).await.0, 200);
    let request = server.request(Method::POST, "/v1/events?waitFor=one&timeout=0");
    let batch = request.header("content-type", "application/cloudevents-batch+json").body(format!("[{cloud_event}]"));
    assert_eq!(answer(batch).await.0, 207);
    // A late view is not a server error.
    assert!(!server.logged().contains("ERROR"), "{}", server.logged());
}

#[tokio::test]
async fn what_waits_for_a_projection_ends_when_the_server_drains() {
    let server = server().await;
    assert_eq!(put(&server, "one", &json!({"topic": TOPIC})).await.0, 201);
    let before = super::waiting::connections(&server);
    // It uses its own connection, so that the test can see it arrive.
    let asking = super::client().get(format!("{}/v1/projections/one:wait?offset=1&timeout=30", server.url));
    let asking = tokio::spawn(async move { answer(asking).await });
    super::waiting::wait_for_connections(&server, before + 1).await;
    let publishing = on_its_way(&server, Method::POST, "/v1/events?waitFor=one&timeout=30", &event(CREATED, "a"));
    until_stored(&server, TOPIC, 1).await;
    let began = std::time::Instant::now();
    server.terminate();
    let problem = expect_problem(publishing.await.unwrap(), 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
    assert_eq!(problem["sequence"], 1);
    expect_problem(asking.await.unwrap(), 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
    assert!(server.wait().0.success());
    assert!(began.elapsed() < Duration::from_secs(20), "the request waited for its time-out");
}

#[tokio::test]
async fn a_publish_that_is_replayed_waits_for_the_projection_again() {
    let server = server().await;
    let put = server.request(Method::PUT, "/v1/projections/view").json(&json!({"topic": TOPIC}));
    assert_eq!(answer(put).await.0, 201);
    let batch = json!({"events": [event(CREATED, "b")]});
    let requests = [("/v1/events", event(CREATED, "a"), 201), ("/v1/events:batch", batch, 207)];
    let send = |path: &str, body: &Value| {
        let request = server.request(Method::POST, &format!("{path}?waitFor=view&timeout=0"));
        answer(request.header("idempotency-key", path).json(body))
    };
    for (path, body, _) in &requests {
        for _ in 0..2 {
            expect_problem(send(path, body).await, 504, "EVENT_BROKER_PROJECTION_TIMEOUT");
        }
    }
    let checkpoint = server.post("/v1/projections/view:checkpoint", &json!({"offset": 2})).await;
    assert_eq!(checkpoint.0, 200, "{}", checkpoint.1);
    for (path, body, expected) in &requests {
        let (status, reply) = send(path, body).await;
        assert_eq!(status, *expected, "{reply}");
    }
}
