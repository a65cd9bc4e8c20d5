//! The pages for people, as a browser loads them: compressed, and once.

use crate::http::Server;
use crate::http::wire::ask;

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
