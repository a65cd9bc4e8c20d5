//! Dead letters over HTTP, as an operator sees them.

use super::claims::{claim, say, server};
use super::projections::check_table;
use super::{Server, TOPIC, expect_problem};
use reqwest::Method;
use serde_json::{Value, json};

/// Makes an event a dead letter; returns the letter's id.
async fn give_up(server: &Server, handler: &str, sequence: u64) -> String {
    let taken = claim(server, handler, sequence).await;
    let failure = json!({"error": {"class": "Poison", "message": "cannot be"}, "retryable": false});
    let (status, dead) = say(server, &taken, "fail", &failure).await;
    assert_eq!((status.as_u16(), &dead["status"]), (200, &json!("dead")));
    dead["deadLetter"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_verb_answers_and_refuses_as_the_table_says() {
    let server = server().await;
    let first = give_up(&server, "billing", 1).await;
    let second = give_up(&server, "billing", 3).await;
    let table = r#"
        GET /v1/dead-letters -> 200
        GET /v1/dead-letters?source=handler&name=billing&topic={T}&status=all&limit=1 -> 200
        GET /v1/dead-letters?source=canary -> 422 VALIDATION_ERROR /source
        GET /v1/dead-letters?status=canary -> 422 VALIDATION_ERROR /status
        GET /v1/dead-letters?topic=canary -> 400 INVALID_TYPE
        GET /v1/dead-letters?limit=0 -> 422 VALIDATION_ERROR /limit
        GET /v1/dead-letters?cursor=x -> 422 VALIDATION_ERROR /cursor
        GET /v1/dead-letters?canary=1 -> 422 VALIDATION_ERROR /canary
        GET /v1/dead-letters/summary -> 200
        GET /v1/dead-letters/canary -> 404 NOT_FOUND
        GET /v1/dead-letters/550e8400-e29b-41d4-a716-446655440000 -> 404 NOT_FOUND
        GET /v1/dead-letters/{1} -> 200
        GET /v1/dead-letters/{1}:redrive -> 405 METHOD_NOT_ALLOWED
        POST /v1/dead-letters/{1} {} -> 405 METHOD_NOT_ALLOWED
        POST /v1/dead-letters/{1}:canary {} -> 404 NOT_FOUND
        POST /v1/dead-letters/canary:redrive {} -> 404 NOT_FOUND
        POST /v1/dead-letters/{1}:redrive {"canary":1} -> 422 VALIDATION_ERROR /canary
        POST /v1/dead-letters/{1}:redrive {"override":[]} -> 422 VALIDATION_ERROR /override
        POST /v1/dead-letters/{1}:redrive {"override":{"canary":1}} -> 422 VALIDATION_ERROR /override/canary
        POST /v1/dead-letters/{1}:redrive {"override":{"data":7}} -> 422 VALIDATION_ERROR /override/data
        POST /v1/dead-letters/{1}:redrive {"dryRun":true} -> 200
        POST /v1/dead-letters/{1}:redrive {"override":{"data":{"n":2}},"dryRun":true} -> 200
        POST /v1/dead-letters/{1}:discard {} -> 422 VALIDATION_ERROR /reason
        POST /v1/dead-letters/{1}:discard {"reason":" "} -> 422 VALIDATION_ERROR /reason
        POST /v1/dead-letters/{1}:discard {"reason":7} -> 422 VALIDATION_ERROR /reason
        POST /v1/dead-letters/{1}:redrive -> 200
        POST /v1/dead-letters/{1}:redrive {} -> 409 INVALID_STATE
        POST /v1/dead-letters/{1}:discard {"reason":"late"} -> 409 INVALID_STATE
        POST /v1/dead-letters:redrive {"dryRun":true} -> 200
        POST /v1/dead-letters:redrive {"source":"canary"} -> 422 VALIDATION_ERROR /source
        POST /v1/dead-letters:discard {} -> 422 VALIDATION_ERROR /reason
        POST /v1/dead-letters:discard {"reason":"old","canary":1} -> 422 VALIDATION_ERROR /canary
        POST /v1/dead-letters:redrive {"reason":"a\u0000b","dryRun":true} -> 422 VALIDATION_ERROR /reason
        GET /v1/dead-letters:redrive -> 405 METHOD_NOT_ALLOWED
        POST /v1/dead-letters/{2}:discard {"reason":"old"} -> 200
        POST /v1/dead-letters/{2}:discard {"reason":"old"} -> 409 INVALID_STATE
        PUT /v1/dead-letters/summary {} -> 405 METHOD_NOT_ALLOWED
    "#;
    check_table(&server, &table.replace("{1}", &first).replace("{2}", &second));
}

#[tokio::test]
async fn a_letter_tells_its_whole_story() {
    let server = server().await;
    let mut reply = super::event(super::CREATED, "z");
    reply["correlationId"] = json!("signup-1");
    let (_, stored) = server.post("/v1/events", &reply).await;
    let id = give_up(&server, "billing", 4).await;
    let (_, dead_letter) = server.get(&format!("/v1/dead-letters/{id}")).await;
    let expected = json!({
        "id": id, "source": "handler", "name": "billing", "service": "billing", "status": "open",
        "exc_class": "Poison", "exc_msg": "cannot be", "original_topic": TOPIC, "sequence": 4,
        "event_id": stored["id"], "correlation_id": "signup-1", "event": stored,
    });
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(&dead_letter[member], value, "{member}");
    }
    assert_eq!(
        (&dead_letter["attempts"][0]["number"], &dead_letter["attempts"][0]["error"]["class"]),
        (&json!(1), &json!("Poison"))
    );
    let (_, summary) = server.get("/v1/dead-letters/summary").await;
    assert_eq!((&summary["count"], &summary["items"][0]["count"]), (&json!(1), &json!(1)));
    let redrive = server.request(Method::POST, &format!("/v1/dead-letters/{id}:redrive"));
    let redrive =
        redrive.header("producer-id", "ops").json(&json!({"reason": "fixed", "override": {"data": {"n": 2}}}));
    let (status, redriven) = super::answer(redrive).await;
    assert_eq!((status.as_u16(), &redriven["status"]), (200, &json!("redriven")), "{redriven}");
    let resolution = &redriven["resolution"];
    assert_eq!((&resolution["by"], &resolution["reason"]), (&json!("ops"), &json!("fixed")));
    let (_, corrected) = server.get(&format!("/v1/events/{}", resolution["newEventId"].as_str().unwrap())).await;
    assert_eq!((&corrected["causationId"], &corrected["data"]), (&stored["id"], &json!({"n": 2})));
    assert_eq!((&corrected["aggregateSequence"], &corrected["correlationId"]), (&json!(2), &json!("signup-1")));
    let again = json!({"handler": "billing", "eventId": stored["id"]});
    assert_eq!(server.post("/v1/claims", &again).await.1, json!({"outcome": "done"}));
}

#[tokio::test]
async fn letters_are_paged_and_dealt_with_in_bulk_after_counting() {
    let server = server().await;
    for sequence in [1, 3] {
        give_up(&server, "billing", sequence).await;
    }
    give_up(&server, "mailing", 2).await;
    let (_, page) = server.get("/v1/dead-letters?limit=2").await;
    let next = page["page_info"]["next_cursor"].as_str().unwrap().to_owned();
    let (_, rest) = server.get(&format!("/v1/dead-letters?limit=2&cursor={next}")).await;
    let names =
        |page: &Value| page["items"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect::<Vec<_>>();
    assert_eq!([names(&page), names(&rest)].concat(), ["billing", "billing", "mailing"]);
    let bulk = |verb: &str, order: Value| {
        let path = format!("/v1/dead-letters:{verb}");
        let server = &server;
        async move { server.post(&path, &order).await.1["count"].clone() }
    };
    assert_eq!(bulk("redrive", json!({"name": "billing", "dryRun": true})).await, 2);
    assert_eq!(bulk("redrive", json!({"name": "billing"})).await, 2);
    assert_eq!(bulk("discard", json!({"reason": "old", "topic": TOPIC})).await, 1);
    assert_eq!(server.get("/v1/dead-letters").await.1["items"], json!([]));
    assert_eq!(server.get("/v1/dead-letters?status=all").await.1["items"].as_array().unwrap().len(), 3);
    let odd = server.get("/v1/dead-letters?status=all&cursor=canary").await;
    expect_problem(odd, 422, "EVENT_BROKER_VALIDATION_ERROR");
}
