//! The real program: its background task reclaims entries, the program is killed, and its state is folded from the
//! remaining entries.

use crate::http::{CREATED, Server, TOPIC, answer, event};
use log::testing::in_time;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

/// Entries are removed at once, as soon as there are a few.
const VARIABLES: [(&str, &str); 3] = [
    ("EVENT_BROKER__MAINTENANCE__RECLAIM_BYTES", "1"),
    ("EVENT_BROKER__MAINTENANCE__RECLAIM_AFTER_SECS", "0"),
    ("EVENT_BROKER__MAINTENANCE__RETENTION_CHECK_SECS", "1"),
];

/// Whether the engine has removed entries.
fn has_removed(folder: &Path) -> bool {
    let mut files = std::fs::read_dir(folder.join("log")).unwrap();
    files.any(|file| file.unwrap().file_name().to_string_lossy().starts_with("trimmed."))
}

async fn claim(server: &Server, sequence: u64) -> Value {
    let claim = json!({"handler": "billing", "topic": TOPIC, "sequence": sequence});
    let (status, claim) = server.post("/v1/claims", &claim).await;
    assert_eq!(status, 200, "{claim}");
    claim
}

#[tokio::test]
async fn a_process_that_reclaimed_and_was_killed_comes_back_without_its_tables() {
    if crate::http::is_on_databases() {
        return;
    }
    let server = Server::start_with(&VARIABLES, &[]);
    server.register(CREATED).await;
    let path = server.path().to_owned();
    let keyed = |server: &Server| server.request(Method::POST, "/v1/events").header("idempotency-key", "k1");
    let (status, first) = answer(keyed(&server).json(&event(CREATED, "a"))).await;
    assert_eq!(status, 201, "{first}");
    let open = claim(&server, 1).await;
    // Finished work, until its entries outnumber those that are still needed.
    let reclaimed = async {
        let mut sequence = 1;
        while !has_removed(&path) {
            sequence += 1;
            server.post("/v1/events", &event(CREATED, "b")).await;
            let claim = claim(&server, sequence).await;
            let done = format!("/v1/claims/{}:done", claim["claim"]["id"].as_str().unwrap());
            let (status, _) = server.post(&done, &json!({"token": claim["claim"]["token"]})).await;
            assert_eq!(status, 200);
        }
        sequence
    };
    let sequence = in_time(reclaimed).await;
    let folder = server.kill();
    std::fs::remove_dir_all(folder.path().join("state")).unwrap();
    let server = Server::start_again_with(folder, &VARIABLES);
    assert!(server.logged().contains("the state is taken from the snapshot in the log"), "{}", server.logged());
    // The stored response is replayed, the open claim is held, finished claims stay finished, and numbers continue.
    let (status, again) = answer(keyed(&server).json(&event(CREATED, "a"))).await;
    assert_eq!((status.as_u16(), again), (201, first));
    assert_eq!(claim(&server, 1).await["outcome"], "held");
    assert_eq!(claim(&server, sequence).await["outcome"], "done");
    let done = format!("/v1/claims/{}:done", open["claim"]["id"].as_str().unwrap());
    let (status, ended) = server.post(&done, &json!({"token": open["claim"]["token"]})).await;
    assert_eq!(status, 200, "{ended}");
    let (status, next) = server.post("/v1/events", &event(CREATED, "c")).await;
    assert_eq!((status.as_u16(), next["sequence"].as_u64()), (201, Some(sequence + 1)));
}
