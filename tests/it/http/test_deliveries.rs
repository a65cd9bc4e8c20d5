//! Test deliveries of subscriptions.

use super::subscriptions::PRIVATE;
use super::{Server, TOPIC};
use serde_json::json;

/// The request ended with 503 when its own time was over, though the receiver had more.
#[tokio::test]
async fn a_test_delivery_may_take_as_long_as_its_receiver_has() {
    let variables = [PRIVATE[0], ("EVENT_BROKER__SERVER__REQUEST_TIMEOUT_SECS", "1")];
    let server = Server::start_with(&variables, &[]);
    server.register(super::CREATED).await;
    // Nobody accepts its connections, so no response comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}/hook", silent.local_addr().unwrap());
    let new = json!({"code": "mail", "topic": TOPIC, "target": target, "timeoutSeconds": 2});
    assert_eq!(server.post("/v1/subscriptions", &new).await.0, 201);
    let (status, attempt) = server.post("/v1/subscriptions/mail:test", &json!({})).await;
    assert_eq!((status.as_u16(), &attempt["error"]["class"]), (200, &json!("timeout")), "{attempt}");
    let too_long = json!({"code": "slow", "topic": TOPIC, "target": target, "timeoutSeconds": 301});
    let (status, problem) = server.post("/v1/subscriptions", &too_long).await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!("/timeoutSeconds")), "{problem}");
}
