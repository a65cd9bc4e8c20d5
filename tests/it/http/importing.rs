//! Import over HTTP: a bad line affects that line only, and a client may send the whole body before it reads the
//! response.

use super::raw_http::{RawConnection, RawResponse, ask};
use super::{CREATED, Server, TOPIC, event};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const QUICK_BODY: (&str, &str) = ("EVENT_BROKER__SERVER__BODY_TIMEOUT_SECS", "1");
const QUICK_WRITE: (&str, &str) = ("EVENT_BROKER__SERVER__WRITE_TIMEOUT_SECS", "1");
const QUICK_UNREAD: (&str, &str) = ("EVENT_BROKER__SERVER__IMPORT_UNREAD_TIMEOUT_SECS", "1");
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

async fn server(variables: &[(&str, &str)]) -> Server {
    let server = Server::start_with(variables, &[]);
    server.register(CREATED).await;
    server
}

fn good(number: usize) -> String {
    format!("{}\n", event(CREATED, &format!("s-{number}")))
}

/// The lines of a report.
fn report(reply: &RawResponse) -> Vec<Value> {
    assert_eq!(reply.status, 200);
    let lines = reply.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

async fn tail(server: &Server) -> Value {
    server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1["tail"].take()
}

#[tokio::test]
async fn a_bad_line_costs_that_line_only() {
    let server = server(&[]).await;
    let mut body: Vec<u8> = (0..50).flat_map(|number| good(number).into_bytes()).collect();
    body.extend(vec![b'x'; 2 * 1024 * 1024]);
    body.extend(b"\nnot json\n\xff\xfe\n\n{\"type\":\"gts.vendor.none.such.v1\"}\n[]\n");
    body.extend((50..60).flat_map(|number| good(number).into_bytes()));
    // The last line is too long, and does not end.
    body.extend(vec![b'x'; 3 * 1024 * 1024]);
    let reply = report(&ask(&server, "POST", "/v1/events:import", &[NDJSON], &body));
    let refused: Vec<_> = reply.iter().filter(|row| row.get("error").is_some()).collect();
    let lines: Vec<_> = refused.iter().map(|row| (row["line"].as_u64(), row["error"]["status"].as_u64())).collect();
    let expected = [(51, 413), (52, 400), (53, 400), (55, 422), (56, 422), (67, 413)];
    assert_eq!(lines, expected.map(|(line, status)| (Some(line), Some(status))), "{reply:?}");
    assert_eq!(refused[1]["error"]["detail"], "The line is not JSON: look at column 2.");
    assert_eq!(refused[2]["error"]["detail"], "The line is not UTF-8.");
    let total = json!({"lines": 67, "imported": 60, "duplicates": 0, "failed": 6, "done": true});
    assert_eq!(reply.last(), Some(&total));
    assert_eq!(tail(&server).await, 60);
}

/// Lines with the members of an export were read leniently: unknown members were dropped without an error.
#[tokio::test]
async fn an_exported_line_is_read_as_strictly_as_a_published_event() {
    let server = server(&[]).await;
    let line = |members: Value| {
        let mut line = event(CREATED, "s");
        let exported = json!({
            "id": uuid::Uuid::new_v4(), "topic": TOPIC, "position": 9, "sequence": 9, "aggregateSequence": 1,
            "createdAt": "2020-01-01T00:00:00Z", "occurredAt": "2020-01-01T00:00:00Z",
        });
        line.as_object_mut().unwrap().extend(exported.as_object().unwrap().clone());
        line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        format!("{line}\n")
    };
    for (members, pointer) in [
        (json!({"unknown": 1}), Some("/unknown")),
        (json!({"expectedAggregateSequence": 99}), Some("")),
        (json!({"position": "x"}), Some("/position")),
        (json!({"createdAt": null}), Some("/createdAt")),
        (json!({"claim": {"id": "c"}}), None),
        (json!({"contextData": [{"key": "a", "value": "b"}]}), None),
    ] {
        let reply = report(&ask(&server, "POST", "/v1/events:import", &[NDJSON], line(members.clone()).as_bytes()));
        match pointer {
            None => assert_eq!(reply.last().unwrap()["imported"], 1, "{members}: {reply:?}"),
            Some(pointer) => {
                let errors = &reply[0]["error"]["errors"];
                assert!(pointer.is_empty() || errors[0]["pointer"] == pointer, "{members}: {reply:?}");
                assert_eq!(reply.last().unwrap()["failed"], 1, "{members}: {reply:?}");
            }
        }
    }
    let events = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await.1;
    assert_eq!(events["items"][1]["context"], json!({"a": "b"}));
    let reply = report(&ask(&server, "POST", "/v1/events:import", &[NDJSON], b"\"x\"\nnull\n[]\n7\n"));
    for refused in &reply[..4] {
        assert_eq!(refused["error"]["detail"], "The line must be a JSON object.", "{refused}");
    }
}

/// A valid line with about this many bytes of payload.
fn large(number: usize, bytes: usize) -> String {
    let mut event = event(CREATED, &format!("s-{number}"));
    event["data"]["filling"] = json!("x".repeat(bytes));
    format!("{event}\n")
}

fn all_imported(lines: usize) -> Value {
    json!({"lines": lines, "imported": lines, "duplicates": 0, "failed": 0, "done": true})
}

#[tokio::test]
async fn lines_that_are_too_large_for_one_batch_are_stored_one_after_the_other() {
    let server = server(&[]).await;
    let body = large(0, 500 * 1024) + &large(1, 700 * 1024) + &good(2) + &large(3, 900 * 1024) + &large(4, 900 * 1024);
    let reply = report(&ask(&server, "POST", "/v1/events:import", &[NDJSON], body.as_bytes()));
    assert_eq!(reply.last(), Some(&all_imported(5)), "{reply:?}");
    assert_eq!(tail(&server).await, 5);
}

#[tokio::test]
async fn an_import_is_as_long_as_it_likes_however_small_batches_may_be() {
    let small = [("EVENT_BROKER__BATCH__MAX_SIZE", "7"), ("EVENT_BROKER__BATCH__MAX_PAYLOAD_BYTES", "1024")];
    let server = server(&small).await;
    let body: String = (0..50).map(|number| large(number, 300)).collect();
    let reply = report(&ask(&server, "POST", "/v1/events:import", &[NDJSON], body.as_bytes()));
    assert_eq!(reply.last(), Some(&all_imported(50)), "{reply:?}");
    assert_eq!(tail(&server).await, 50);
}

#[tokio::test]
async fn lines_before_a_body_that_breaks_off_are_stored() {
    let server = server(&[QUICK_BODY]).await;
    let mut wire = RawConnection::to(&server);
    let sent: String = (0..10).map(good).collect::<String>() + "{\"half\":";
    wire.send(b"POST /v1/events:import HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 1000000\r\n\r\n");
    wire.send(sent.as_bytes());
    let reply = report(&wire.reply(false));
    assert_eq!(reply[reply.len() - 2]["error"]["status"], 408, "{reply:?}");
    let total = json!({"lines": 10, "imported": 10, "duplicates": 0, "failed": 0, "done": false});
    assert_eq!(reply.last(), Some(&total));
    assert_eq!(tail(&server).await, 10);
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_is_served() {
    const REFUSED: usize = 30_000;
    // Enough for a busy machine; a server that waited for its client to read would wait for ever.
    let server = server(&[("EVENT_BROKER__SERVER__WRITE_TIMEOUT_SECS", "10")]).await;
    let bad = "x".repeat(1000) + "\n";
    let mut body = good(0);
    for _ in 0..REFUSED {
        body.push_str(&bad);
    }
    body.push_str(&good(1));
    let mut wire = RawConnection::to(&server);
    wire.request("POST", "/v1/events:import", &[NDJSON], body.as_bytes());
    let reply = report(&wire.reply(false));
    let reported = reply.iter().filter(|row| row.get("error").is_some()).count();
    let last = reply.last().unwrap();
    assert_eq!((&last["lines"], &last["imported"]), (&json!(REFUSED + 2), &json!(2)), "{last}");
    assert_eq!((&last["failed"], &last["done"]), (&json!(REFUSED), &json!(true)), "{last}");
    assert_eq!(last["unreported"].as_u64().unwrap_or_default() as usize + reported, REFUSED, "{last}");
    assert!(reported > 100, "the first failures are reported one by one");
}

#[tokio::test]
async fn a_client_that_reads_meanwhile_is_told_of_every_line() {
    const REFUSED: usize = 20_000;
    let server = server(&[]).await;
    let body: Vec<u8> = (0..REFUSED).flat_map(|_| *b"x\n").collect();
    let mut wire = RawConnection::to(&server);
    let mut sender = wire.stream().try_clone().unwrap();
    let head = format!("POST /v1/events:import HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let sending = std::thread::spawn(move || {
        sender.write_all(head.as_bytes()).unwrap();
        sender.write_all(&body).unwrap();
    });
    let reply = report(&wire.reply(false));
    sending.join().unwrap();
    let lines = reply.iter().filter_map(|row| row["line"].as_u64());
    assert!(lines.eq(1..=REFUSED as u64));
    let total = json!({"lines": REFUSED, "imported": 0, "duplicates": 0, "failed": REFUSED, "done": true});
    assert_eq!(reply.last(), Some(&total));
}

#[tokio::test]
async fn a_client_that_sends_for_ever_and_never_reads_is_let_go() {
    let server = server(&[QUICK_WRITE, QUICK_UNREAD]).await;
    let mut wire = RawConnection::to(&server);
    wire.send(b"POST /v1/events:import HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = ["10000\r\n", &("x".repeat(1023) + "\n").repeat(64), "\r\n"].concat();
    let began = Instant::now();
    while wire.send(chunk.as_bytes()) {
        assert!(began.elapsed() < Duration::from_secs(60), "the server still reads the body");
    }
    let peak = memory_peak(&server);
    assert!(peak < 400 * 1024 * 1024, "{peak} bytes");
    assert_eq!(ask(&server, "GET", "/healthz", &[], b"").status, 200);
    // The rest of the response, if any, does not say that the import is done.
    let mut rest = Vec::new();
    let _ = wire.stream().read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("\"done\":true"));
}

/// The peak memory of the server, in bytes.
fn memory_peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
