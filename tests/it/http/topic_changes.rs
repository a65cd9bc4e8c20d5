//! Changes of topics over HTTP: what is set, what null removes, and what stays.

use super::{Server, answer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const ORDERS: &str = "/v1/topics/shop.orders";

async fn patch(server: &Server, change: &Value) -> (StatusCode, Value) {
    answer(server.request(Method::PATCH, ORDERS).json(change)).await
}

#[tokio::test]
async fn null_removes_a_setting_of_a_topic_and_it_stays_removed() {
    for streaming in [json!(true), json!({"type": "memory"})] {
        if super::is_on_databases() && streaming != json!(true) {
            continue; // Every topic lives in the database.
        }
        let server = Server::start(&[]);
        let bare = json!({"id": "shop.orders", "streaming": streaming});
        let (status, registered) = server.post("/v1/topics", &bare).await;
        assert_eq!(status, 201, "{registered}");
        for (member, value) in [
            ("description", json!("for people")),
            ("retention", json!("P30D")),
            ("idempotentRetention", json!("P2D")),
            ("onPayloadMismatch", json!("reject")),
            ("secrets", json!("reject")),
        ] {
            let (status, changed) = patch(&server, &json!({ member: value })).await;
            assert_eq!((status.as_u16(), &changed[member]), (200, &value));
            // An absent member is kept.
            assert_eq!(patch(&server, &json!({})).await, (StatusCode::OK, changed));
            let (status, changed) = patch(&server, &json!({ member: null })).await;
            assert_eq!((status.as_u16(), &changed), (200, &registered), "{member}");
            assert_eq!(server.get(ORDERS).await.1, registered, "{member}");
        }
        server.terminate();
        let (ended, folder) = server.wait();
        assert!(ended.success());
        assert_eq!(Server::start_in(folder, &[]).get(ORDERS).await.1, registered);
    }
}
