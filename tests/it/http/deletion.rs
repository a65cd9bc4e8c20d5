//! Released claims, deleted handlers and groups, and offsets that are held back, as a worker in any language sees them.

use super::claims::{claim, say, server};
use super::{Server, TOPIC, answer, expect_problem};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

#[tokio::test]
async fn a_released_claim_is_claimable_at_once_and_the_token_holds_no_longer() {
    let server = server().await;
    let first = claim(&server, "h", 1).await;
    let (status, released) = say(&server, &first, "release", &json!({})).await;
    assert_eq!(
        (status.as_u16(), released["status"].as_str(), released["attempt"].as_u64()),
        (200, Some("released"), Some(0))
    );
    for verb in ["release", "heartbeat", "done"] {
        expect_problem(say(&server, &first, verb, &json!({})).await, 409, "EVENT_BROKER_CLAIM_LOST");
    }
    let second = claim(&server, "h", 1).await;
    assert_eq!(second["attempt"], 1);
    assert!(second["token"].as_u64() > first["token"].as_u64());
    let id = first["id"].as_str().unwrap();
    for (body, expected) in [(json!({}), 422), (json!({"token": "x"}), 422), (json!({"token": 1, "canary": 1}), 422)] {
        assert_eq!(server.post(&format!("/v1/claims/{id}:release"), &body).await.0, expected, "{body}");
    }
    assert_eq!(server.post("/v1/claims/canary:release", &json!({"token": 1})).await.0, 404);
    let (status, problem) = server.get(&format!("/v1/claims/{id}:release")).await;
    assert_eq!(status, 405, "{problem}");
}

#[tokio::test]
async fn a_claim_never_advises_a_heartbeat_that_comes_too_late() {
    let server = server().await;
    let short = json!({"handler": "h", "topic": TOPIC, "sequence": 1, "lease": "PT5S"});
    let (_, taken) = server.post("/v1/claims", &short).await;
    assert_eq!((&taken["claim"]["lease"], &taken["claim"]["heartbeat"]), (&json!("PT5S"), &json!("PT1.666S")));
    assert_eq!(claim(&server, "h", 3).await["heartbeat"], "PT30S");
}

#[tokio::test]
async fn an_offset_that_would_pass_a_failed_event_is_held_back_and_the_answer_says_by_which() {
    let server = server().await;
    let failing = claim(&server, "h", 1).await;
    let error = json!({"error": {"class": "X", "message": "y"}});
    assert_eq!(say(&server, &failing, "fail", &error).await.0, 200);
    let other = claim(&server, "h", 3).await;
    let (status, done) = say(&server, &other, "done", &json!({"offset": 3})).await;
    assert_eq!((status.as_u16(), done["status"].as_str()), (200, Some("done")));
    assert_eq!((&done["committedOffset"], &done["openSequence"]), (&json!(0), &json!(1)));
    let (_, group) = server.get("/v1/consumer-groups/h").await;
    let (_, handler) = server.get("/v1/handlers/h").await;
    assert_eq!((&group["topics"][0]["committedOffset"], &group["topics"][0]["lag"]), (&json!(0), &json!(2)));
    assert_eq!((&handler["lag"], &handler["stale"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn a_handler_is_deleted_once_and_a_group_not_while_its_members_live() {
    let server = server().await;
    let done = claim(&server, "h", 1).await;
    assert_eq!(say(&server, &done, "done", &json!({})).await.0, 200);
    for expected in [204, 404] {
        assert_eq!(delete(&server, "/v1/handlers/h").await.0, expected);
    }
    assert_eq!(server.get("/v1/handlers/h").await.0, 404);
    claim(&server, "h", 1).await;
    let wanted = json!({"consumerGroup": "g", "topic": TOPIC, "distribution": "shared"});
    let (_, member) = server.post("/v1/consumers", &wanted).await;
    let id = member["data"]["id"].as_str().unwrap().to_owned();
    let (_, page) = server.get(&format!("/v1/events?consumer_id={id}&offset=0")).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{page}");
    for path in ["/v1/consumer-groups/g", "/v1/handlers/g"] {
        expect_problem(delete(&server, path).await, 409, "EVENT_BROKER_INVALID_STATE");
    }
    assert_eq!(delete(&server, &format!("/v1/consumers/{id}")).await.0, 204);
    // The event that it held can be claimed at once.
    let (_, open) = server.get("/v1/claims?handler=g").await;
    let standings: Vec<_> = open["items"].as_array().unwrap().iter().map(|claim| &claim["status"]).collect();
    assert_eq!(standings, ["released", "released"]);
    for expected in [204, 404] {
        assert_eq!(delete(&server, "/v1/consumer-groups/g").await.0, expected);
    }
    assert_eq!(server.get("/v1/consumer-groups/g").await.0, 404);
    let (_, open) = server.get("/v1/claims?handler=g").await;
    assert_eq!(open["items"], json!([]));
}

async fn delete(server: &Server, path: &str) -> (StatusCode, Value) {
    answer(server.request(Method::DELETE, path)).await
}
