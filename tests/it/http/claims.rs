//! Claims and handlers over HTTP: every verb and every refusal, as a worker in any language sees them.

use super::projections::check_table;
use super::{CREATED, Server, TOPIC, event, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A server with three events: two of `a`, one of `b`.
pub(super) async fn server() -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    for subject in ["a", "a", "b"] {
        assert_eq!(server.post("/v1/events", &event(CREATED, subject)).await.0, 201);
    }
    server
}

/// Claims an event of the default topic; returns the claim.
pub(super) async fn claim(server: &Server, handler: &str, sequence: u64) -> Value {
    let wanted = json!({"handler": handler, "topic": TOPIC, "sequence": sequence});
    let (status, answer) = server.post("/v1/claims", &wanted).await;
    assert_eq!((status.as_u16(), answer["outcome"].as_str()), (200, Some("claimed")), "{answer}");
    answer["claim"].clone()
}

/// Sends a report about a claim.
pub(super) async fn say(server: &Server, claim: &Value, verb: &str, more: &Value) -> (StatusCode, Value) {
    let mut body = more.clone();
    body["token"] = claim["token"].clone();
    server.post(&format!("/v1/claims/{}:{verb}", claim["id"].as_str().unwrap()), &body).await
}

#[tokio::test]
async fn every_verb_answers_and_refuses_as_the_table_says() {
    let server = server().await;
    let taken = claim(&server, "h", 1).await;
    let (id, token) = (taken["id"].as_str().unwrap(), taken["token"].as_u64().unwrap());
    let long = "x".repeat(513);
    let table = r#"
        POST /v1/claims {} -> 422 VALIDATION_ERROR /handler
        POST /v1/claims [] -> 422 VALIDATION_ERROR
        POST /v1/claims { -> 400 MALFORMED
        POST /v1/claims {"handler":"h"} -> 422 VALIDATION_ERROR /eventId
        POST /v1/claims {"handler":"","topic":"{T}","sequence":2} -> 422 VALIDATION_ERROR /handler
        POST /v1/claims {"handler":"{long}","topic":"{T}","sequence":2} -> 422 VALIDATION_ERROR /handler
        POST /v1/claims {"handler":"h","topic":"{T}"} -> 422 VALIDATION_ERROR /sequence
        POST /v1/claims {"handler":"h","sequence":2} -> 422 VALIDATION_ERROR /topic
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":0} -> 422 VALIDATION_ERROR /sequence
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":-1} -> 422 VALIDATION_ERROR /sequence
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":"2"} -> 422 VALIDATION_ERROR /sequence
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"eventId":"550e8400-e29b-41d4-a716-446655440000"} -> 422 VALIDATION_ERROR /eventId
        POST /v1/claims {"handler":"h","topic":"canary","sequence":2} -> 400 INVALID_TYPE
        POST /v1/claims {"handler":"h","topic":"{O}","sequence":2} -> 422 VALIDATION_ERROR /topic
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":4} -> 404 NOT_FOUND
        POST /v1/claims {"handler":"h","eventId":"550e8400-e29b-41d4-a716-446655440000"} -> 404 NOT_FOUND
        POST /v1/claims {"handler":"h","eventId":"canary"} -> 422 VALIDATION_ERROR /eventId
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"lease":"30"} -> 422 VALIDATION_ERROR /lease
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"lease":"PT0S"} -> 422 VALIDATION_ERROR /lease
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"lease":"P2D"} -> 422 VALIDATION_ERROR /lease
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"order":"any"} -> 422 VALIDATION_ERROR /order
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"owner":""} -> 422 VALIDATION_ERROR /owner
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":2,"canary":1} -> 422 VALIDATION_ERROR /canary
        POST /v1/claims?x=1 {"handler":"h","topic":"{T}","sequence":2} -> 422 VALIDATION_ERROR /x
        POST /v1/claims {"claims":[]} -> 422 VALIDATION_ERROR /claims
        POST /v1/claims {"claims":[{"handler":"h","canary":1}]} -> 422 VALIDATION_ERROR /claims/0/canary
        POST /v1/claims {"claims":[],"canary":1} -> 422 VALIDATION_ERROR /canary
        POST /v1/claims {"claims":7} -> 422 VALIDATION_ERROR /claims
        POST /v1/claims {"handler":"h","topic":"{T}","sequence":1} -> 200
        GET /v1/claims -> 422 VALIDATION_ERROR /handler
        GET /v1/claims?handler=h -> 200
        GET /v1/claims?handler=nobody -> 200
        GET /v1/claims?handler=h&limit=0 -> 422 VALIDATION_ERROR /limit
        GET /v1/claims/{id} -> 200
        GET /v1/claims/canary -> 404 NOT_FOUND
        GET /v1/claims/{id}:done -> 405 METHOD_NOT_ALLOWED
        DELETE /v1/claims/{id} -> 405 METHOD_NOT_ALLOWED
        POST /v1/claims/{id} {} -> 405 METHOD_NOT_ALLOWED
        POST /v1/claims/{id}:canary {} -> 404 NOT_FOUND
        POST /v1/claims/{id}:heartbeat {} -> 422 VALIDATION_ERROR /token
        POST /v1/claims/{id}:heartbeat {"token":"{token}"} -> 422 VALIDATION_ERROR /token
        POST /v1/claims/{id}:heartbeat {"token":1} -> 409 CLAIM_LOST
        POST /v1/claims/{id}:heartbeat {"token":{token},"canary":1} -> 422 VALIDATION_ERROR /canary
        POST /v1/claims/canary:heartbeat {"token":1} -> 404 NOT_FOUND
        POST /v1/claims/{id}:heartbeat {"token":{token}} -> 200
        POST /v1/claims/{id}:fail {"token":{token}} -> 422 VALIDATION_ERROR /error
        POST /v1/claims/{id}:fail {"token":{token},"error":{"class":"X"}} -> 422 VALIDATION_ERROR /error/message
        POST /v1/claims/{id}:fail {"token":{token},"error":{"class":"","message":"m"}} -> 422 VALIDATION_ERROR /error/class
        POST /v1/claims/{id}:fail {"token":{token},"error":["X","m"]} -> 422 VALIDATION_ERROR /error
        POST /v1/claims/{id}:fail {"token":1,"error":{"class":"X","message":"m"}} -> 409 CLAIM_LOST
        POST /v1/claims/{id}:done {} -> 422 VALIDATION_ERROR /token
        POST /v1/claims/{id}:done {"token":1} -> 409 CLAIM_LOST
        POST /v1/claims/{id}:done {"token":{token},"offset":-1} -> 422 VALIDATION_ERROR /offset
        POST /v1/claims/{id}:done {"token":{token},"offset":4} -> 422 VALIDATION_ERROR /offset
        POST /v1/claims/{id}:done {"token":{token},"events":[{}]} -> 422 VALIDATION_ERROR /events/0/type
        POST /v1/claims/{id}:done {"token":{token},"events":[{"type":"gts.a.b.v1","source":"s","data":{}}]} -> 422 VALIDATION_ERROR /events/0/type
        POST /v1/claims/{id}:done {"token":{token},"offset":1} -> 200
        POST /v1/claims/{id}:done {"token":{token},"offset":1} -> 200
        POST /v1/claims/{id}:heartbeat {"token":{token}} -> 409 CLAIM_LOST
        GET /v1/claims/{id} -> 404 NOT_FOUND
        POST /v1/claims:done {} -> 422 VALIDATION_ERROR /claims
        POST /v1/claims:done {"claims":[]} -> 422 VALIDATION_ERROR /claims
        POST /v1/claims:done {"claims":[{"id":"{id}","token":{token}}]} -> 200
        GET /v1/claims:done -> 405 METHOD_NOT_ALLOWED
        GET /v1/handlers -> 200
        GET /v1/handlers?limit=0 -> 422 VALIDATION_ERROR /limit
        GET /v1/handlers/nobody -> 404 NOT_FOUND
        PUT /v1/handlers/h [] -> 422 VALIDATION_ERROR
        PUT /v1/handlers/h {"lease":"1"} -> 422 VALIDATION_ERROR /lease
        PUT /v1/handlers/h {"maxAttempts":0} -> 422 VALIDATION_ERROR /maxAttempts
        PUT /v1/handlers/h {"maxAttempts":1.5} -> 422 VALIDATION_ERROR /maxAttempts
        PUT /v1/handlers/h {"backoff":"PT2H"} -> 422 VALIDATION_ERROR /backoff
        PUT /v1/handlers/h {"canary":1} -> 422 VALIDATION_ERROR /canary
        PUT /v1/handlers/{long} {} -> 422 VALIDATION_ERROR /name
        PUT /v1/handlers/h {"maxAttempts":3} -> 201
        PUT /v1/handlers/h {"maxAttempts":4} -> 200
        PUT /v1/handlers/a%2Fb%20c:d {} -> 201
        GET /v1/handlers/a%2Fb%20c:d -> 200
        POST /v1/handlers/h {} -> 405 METHOD_NOT_ALLOWED
        PATCH /v1/handlers/h {} -> 405 METHOD_NOT_ALLOWED
        DELETE /v1/handlers/canary -> 404 NOT_FOUND
        DELETE /v1/handlers/h?x=1 -> 422 VALIDATION_ERROR /x
    "#;
    let table = table.replace("{id}", id).replace("{token}", &token.to_string()).replace("{long}", &long);
    check_table(&server, &table);
}

#[tokio::test]
async fn a_worker_claims_works_and_says_so() {
    let server = server().await;
    let wanted = json!({"handler": "billing", "topic": TOPIC, "sequence": 1, "lease": "PT30S"});
    let request = server.request(Method::POST, "/v1/claims").header("producer-id", "w-1").json(&wanted);
    let (status, answer) = super::answer(request).await;
    assert_eq!(status, 200);
    let taken = &answer["claim"];
    assert_eq!((&taken["owner"], &taken["attempt"], &taken["status"]), (&json!("w-1"), &json!(1), &json!("claimed")));
    assert_eq!((&taken["lease"], &taken["heartbeat"]), (&json!("PT30S"), &json!("PT10S")));
    let (_, held) = server.post("/v1/claims", &wanted).await;
    assert_eq!((&held["outcome"], &held["retryAt"]), (&json!("held"), &taken["leaseExpiresAt"]));
    let produced = json!({"offset": 1, "events": [event(CREATED, "c")]});
    let (status, done) = say(&server, taken, "done", &produced).await;
    assert_eq!((status.as_u16(), &done["status"], &done["token"]), (200, &json!("done"), &taken["token"]), "{done}");
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=3")).await;
    assert_eq!((&page["items"][0]["causationId"], &page["items"][0]["subject"]), (&taken["eventId"], &json!("c")));
    let (_, group) = server.get("/v1/consumer-groups/billing").await;
    assert_eq!(group["topics"][0]["committedOffset"], 1);
    assert_eq!(server.post("/v1/claims", &wanted).await.1, json!({"outcome": "done"}));
    let (_, handler) = server.get("/v1/handlers/billing").await;
    assert_eq!((&handler["inFlight"], &handler["lag"], &handler["maxAttempts"]), (&json!(0), &json!(3), &json!(5)));
    assert_eq!(handler["topics"][0]["topic"], TOPIC);
}

#[tokio::test]
async fn a_refused_produced_event_answers_its_own_problem_and_leaves_the_claim_held() {
    let server = server().await;
    let taken = claim(&server, "billing", 1).await;
    let mut wrong = event(CREATED, "c");
    wrong["expectedAggregateSequence"] = json!(7);
    let answer = say(&server, &taken, "done", &json!({"offset": 1, "events": [event(CREATED, "c"), wrong]})).await;
    let problem = expect_problem(answer, 409, "EVENT_BROKER_EXPECTED_SEQUENCE");
    assert_eq!((&problem["errors"][0]["pointer"], &problem["actual"]), (&json!("/events/1"), &json!(1)));
    assert_eq!(server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"], 3);
    assert_eq!(server.get("/v1/consumer-groups/billing").await.0, 404);
    assert_eq!(say(&server, &taken, "heartbeat", &json!({})).await.0, 200);
}

#[tokio::test]
async fn several_claims_go_in_one_request_and_so_do_their_completions() {
    let server = server().await;
    let wanted = |sequence: u64| json!({"handler": "billing", "topic": TOPIC, "sequence": sequence});
    let (status, answer) =
        server.post("/v1/claims", &json!({"claims": [wanted(1), wanted(9), wanted(3), wanted(1)]})).await;
    assert_eq!(status, 200);
    let results = answer["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|it| (it["index"].as_u64(), it["status"].as_u64())).collect();
    assert_eq!(statuses, [(Some(0), Some(200)), (Some(1), Some(404)), (Some(2), Some(200)), (Some(3), Some(200))]);
    assert_eq!(results[1]["error"]["type"], "https://errors.hyperspot.com/EVENT_BROKER_NOT_FOUND");
    assert_eq!((&results[0]["outcome"], &results[3]["outcome"]), (&json!("claimed"), &json!("held")));
    let finish = |result: &Value, token: u64| json!({"id": result["claim"]["id"], "token": token});
    let token = |result: &Value| result["claim"]["token"].as_u64().unwrap();
    let claims = [finish(&results[0], token(&results[0])), finish(&results[2], 1), json!({"id": "canary", "token": 1})];
    let (status, done) = server.post("/v1/claims:done", &json!({"claims": claims})).await;
    assert_eq!(status, 200);
    let statuses: Vec<_> = done["results"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, [200, 409, 404]);
    assert_eq!(done["results"][0]["claim"]["status"], "done");
    let many: Vec<_> = (0..101).map(|_| wanted(1)).collect();
    expect_problem(server.post("/v1/claims", &json!({"claims": many})).await, 400, "EVENT_BROKER_BATCH_TOO_LARGE");
}

#[tokio::test]
async fn the_knobs_of_claims_are_in_the_configuration() {
    let variables = [
        ("EVENT_BROKER__CLAIMS__LEASE_SECS", "60"),
        ("EVENT_BROKER__CLAIMS__HEARTBEAT_SECS", "7"),
        ("EVENT_BROKER__CLAIMS__MAX_ATTEMPTS", "2"),
        ("EVENT_BROKER__CLAIMS__BACKOFF_SECS", "0"),
        ("EVENT_BROKER__CLAIMS__ORDER", "gapless"),
    ];
    let server = Server::start_with(&variables, &[]);
    server.register(CREATED).await;
    for _ in 0..2 {
        assert_eq!(server.post("/v1/events", &event(CREATED, "a")).await.0, 201);
    }
    let second = json!({"handler": "billing", "topic": TOPIC, "sequence": 2});
    assert_eq!(server.post("/v1/claims", &second).await.1, json!({"outcome": "held"}));
    let failure = json!({"error": {"class": "X", "message": "y"}});
    for (attempt, status) in [(1, "failed"), (2, "dead")] {
        let taken = claim(&server, "billing", 1).await;
        assert_eq!(
            (&taken["lease"], &taken["heartbeat"], &taken["attempt"]),
            (&json!("PT60S"), &json!("PT7S"), &json!(attempt))
        );
        assert_eq!(say(&server, &taken, "fail", &failure).await.1["status"], status);
    }
    let (_, handler) = server.get("/v1/handlers/billing").await;
    assert_eq!((&handler["order"], &handler["deadLetters"]), (&json!("gapless"), &json!(1)));
}
