//! The HTML pages, as a browser loads them: compressed, and once.

use crate::http::raw_http::{RawConnection, ask};
use crate::http::{CREATED, Server, TOPIC, event};
use serde_json::json;

const FILES: [&str; 4] = ["/docs/", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/v1/openapi.json"];

#[test]
fn files_are_compressed_for_browsers_that_take_it() {
    let server = Server::start(&[]);
    for file in FILES.into_iter().skip(1) {
        let plain = ask(&server, "GET", file, &[], b"");
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{file}");
        for encoding in ["gzip", "zstd"] {
            let reply = ask(&server, "GET", file, &[("accept-encoding", encoding)], b"");
            assert_eq!((reply.status, reply.header("content-encoding")), (200, Some(encoding)), "{file}");
            assert!(reply.body.len() < plain.body.len() / 2, "{file}: {} bytes", reply.body.len());
        }
    }
    let off = Server::start_with(&[("EVENT_BROKER__SERVER__COMPRESSION", "false")], &[]);
    assert_eq!(ask(&off, "GET", FILES[1], &[("accept-encoding", "gzip")], b"").header("content-encoding"), None);
}

#[test]
fn files_that_the_browser_has_are_not_sent_again() {
    let server = Server::start(&[]);
    for file in FILES {
        for encoding in ["identity", "gzip"] {
            let first = ask(&server, "GET", file, &[("accept-encoding", encoding)], b"");
            assert_eq!(first.header("cache-control"), Some("no-cache"), "{file}");
            let tag = first.header("etag").unwrap();
            let again = ask(&server, "GET", file, &[("accept-encoding", encoding), ("if-none-match", tag)], b"");
            assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag)), "{file}");
        }
        assert_eq!(ask(&server, "GET", file, &[("if-none-match", "\"other\"")], b"").status, 200, "{file}");
    }
}

#[tokio::test]
async fn files_that_nobody_reads_leave_the_room_for_answers_to_readers() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__MAX_ANSWER_BYTES", "4194304")], &[]);
    server.register(CREATED).await;
    let mut large = event(CREATED, "large");
    large["data"] = json!({"text": "x".repeat(500_000)});
    assert_eq!(server.post("/v1/events", &large).await.0, 201);
    // More than the system buffers for each connection, so that a part stays in the server.
    let mut unread: Vec<_> = (0..10).map(|_| RawConnection::to(&server)).collect();
    for wire in &mut unread {
        (0..8).for_each(|_| wire.request("GET", "/docs/swagger-ui-bundle.js", &[], b""));
        let mut status = [0; 12];
        std::io::Read::read_exact(&mut wire.stream(), &mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    let page = format!("/v1/events?topic={TOPIC}&offset=0");
    for _ in 0..10 {
        assert_eq!(server.get(&page).await.0, 200);
    }
}
