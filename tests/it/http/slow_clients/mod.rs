//! Slow clients: a client that is slow, silent, misbehaving or one of many is disconnected alone; all others are
//! served.
//!
//! - A test waits for the socket: no test guesses how long something takes.
//! - Time-outs are reduced to a second by configuration, as an operator would do it.

mod client_options;

use super::attacks::BystanderThread;
use super::raw_http::{RawConnection, ask};
use super::{CREATED, Server, TOPIC, event, expect_problem};
use serde_json::json;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

const QUICK_HEAD: (&str, &str) = ("EVENT_BROKER__SERVER__HEADER_TIMEOUT_SECS", "1");
const QUICK_BODY: (&str, &str) = ("EVENT_BROKER__SERVER__BODY_TIMEOUT_SECS", "1");
const QUICK_WRITE: (&str, &str) = ("EVENT_BROKER__SERVER__WRITE_TIMEOUT_SECS", "1");
/// Much longer than a second, and much shorter than any time-out that is not reduced.
const SOON: Duration = Duration::from_secs(20);

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// Waits until the server holds the expected number of descriptors.
fn wait_for_descriptors(server: &Server, wanted: impl Fn(usize) -> bool) {
    let give_up = Instant::now() + SOON;
    while !wanted(descriptors(server)) {
        assert!(Instant::now() < give_up, "it still has {} descriptors", descriptors(server));
        std::thread::yield_now();
    }
}

fn is_served(server: &Server) {
    assert_eq!(ask(server, "GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_let_go() {
    let server = Server::start_with(&[QUICK_HEAD], &[]);
    let before = descriptors(&server);
    for head in [
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
    ] {
        let mut wire = RawConnection::to(&server);
        // The time-out of an empty read sets the pace of the bytes.
        wire.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let began = Instant::now();
        for byte in head.bytes().chain(std::iter::repeat(b'x')) {
            assert!(began.elapsed() < SOON, "the server still reads the body");
            let gone = !wire.send(&[byte]);
            let ended = match wire.stream().read(&mut [0; 1024]) {
                Ok(_) => true,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            if gone || ended {
                break;
            }
            is_served(&server);
        }
        assert!(began.elapsed() >= Duration::from_millis(900), "the connection was closed before its time-out");
    }
    wait_for_descriptors(&server, |now| now <= before);
}

#[test]
fn a_connection_that_says_nothing_is_let_go() {
    let server = Server::start_with(&[QUICK_HEAD], &[]);
    let mut silent = RawConnection::to(&server);
    let mut half_a_preface = RawConnection::to(&server);
    half_a_preface.send(b"PRI * HT");
    let mut idle = RawConnection::to(&server);
    idle.request("GET", "/healthz", &[], b"");
    assert_eq!(idle.reply(false).status, 200);
    for wire in [&mut silent, &mut half_a_preface, &mut idle] {
        is_served(&server);
        assert_eq!(wire.rest(), b"");
    }
}

#[test]
fn a_body_that_stops_is_answered_and_let_go() {
    let server = Server::start_with(&[QUICK_BODY], &[]);
    let bystander = BystanderThread::begin(&server);
    for (target, status) in [("/v1/events", 408), ("/v1/events:batch", 408), ("/v1/topics", 408)] {
        let mut wire = RawConnection::to(&server);
        wire.send(
            format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{\"id\":").as_bytes(),
        );
        is_served(&server);
        let reply = wire.reply(false);
        expect_problem(reply.answer(), status, "EVENT_BROKER_REQUEST_TIMEOUT");
        assert_eq!(wire.rest(), b"", "the connection cannot be used any more");
    }
    let mut wire = RawConnection::to(&server);
    wire.send(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n");
    expect_problem(wire.reply(false).answer(), 408, "EVENT_BROKER_REQUEST_TIMEOUT");
    bystander.end();
}

#[test]
fn a_body_that_drips_is_answered_and_let_go_though_no_pause_is_long() {
    let server = Server::start_with(&[QUICK_BODY], &[]);
    let bystander = BystanderThread::begin(&server);
    for target in ["/v1/topics?waitFor=1", "/v1/event-types?waitFor=1", "/v1/events?waitFor=1", "/v1/events"] {
        let mut wire = RawConnection::to(&server);
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nidempotency-key: {target}\r\n\
            content-length: 1000\r\n\r\n"
        );
        wire.send(head.as_bytes());
        wire.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (began, mut answer) = (Instant::now(), [0; 12]);
        // The time-out of an empty read sets the pace of the bytes.
        while wire.stream().read_exact(&mut answer).is_err() {
            assert!(began.elapsed() < SOON, "{target}: the server still reads the body");
            wire.send(b" ");
        }
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 408", "{target}");
    }
    is_served(&server);
    bystander.end();
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = Server::start(&[]);
    let body = vec![b' '; 8 * 1024 * 1024];
    let long = format!("/v1/events?x={}", "x".repeat(20_000));
    for (target, media, status) in [
        ("/nowhere", "application/json", 404),
        ("/v1/log", "application/json", 405),
        ("/v1/events?surprise=1", "application/json", 422),
        ("/v1/events", "text/xml", 415),
        ("/v1/events", "application/json", 413),
        ("/v1/events:batch", "application/json", 400),
        (&long, "application/json", 414),
    ] {
        let mut wire = RawConnection::to(&server);
        for _ in 0..3 {
            wire.request("POST", target, &[("content-type", media)], &body);
            assert_eq!(wire.reply(false).status, status, "{target}");
        }
        // The connection can still be used.
        wire.request("GET", "/healthz", &[], b"");
        assert_eq!(wire.reply(false).status, 200, "{target}");
    }
}

#[test]
fn a_body_without_end_is_not_read_for_ever() {
    let server = Server::start(&[]);
    let bystander = BystanderThread::begin(&server);
    let mut wire = RawConnection::to(&server);
    wire.send(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let sent = (0..1000).take_while(|_| wire.send(&chunk)).count();
    assert!((64..200).contains(&sent), "{sent} MiB were taken");
    is_served(&server);
    bystander.end();
}

#[test]
fn a_body_that_breaks_off_changes_nothing() {
    let server = Server::start(&[]);
    let body = json!({"id": CREATED}).to_string();
    let mut wire = RawConnection::to(&server);
    let head =
        format!("POST /v1/event-types HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len() + 1);
    wire.send(head.as_bytes());
    wire.send(body.as_bytes());
    wire.stream().shutdown(Shutdown::Write).unwrap();
    let rest = String::from_utf8(wire.rest()).unwrap();
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400 "), "{rest}");
    assert_eq!(ask(&server, "GET", &format!("/v1/event-types/{CREATED}"), &[], b"").status, 404);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_let_go() {
    let server = Server::start_with(&[QUICK_WRITE], &[]);
    server.register(CREATED).await;
    let mut large = event(CREATED, "s");
    large["data"] = json!({"text": "x".repeat(500_000)});
    for _ in 0..20 {
        large["id"] = json!(uuid::Uuid::new_v4());
        assert_eq!(server.post("/v1/events", &large).await.0, 201);
    }
    let before = descriptors(&server);
    let path = format!("/v1/events?topic={TOPIC}&offset=0");
    let stream = format!("/v1/events:stream?topic={TOPIC}&offset=0");
    let mut wires: Vec<_> = [&path, &path, &stream].iter().map(|path| (RawConnection::to(&server), *path)).collect();
    for (wire, path) in &mut wires {
        // Several responses of many megabytes: more than the socket buffers of any system hold.
        (0..3).for_each(|_| wire.request("GET", path, &[], b""));
    }
    wait_for_descriptors(&server, |now| now >= before + 3);
    wait_for_descriptors(&server, |now| now <= before);
    is_served(&server);
}

#[test]
fn a_half_closed_socket_counts_as_hung_up_and_is_not_kept() {
    let server = Server::start(&[]);
    let before = descriptors(&server);
    // A half-closed connection cannot be distinguished from a lost client: a quick response may still reach it.
    for path in ["/v1/topics", &format!("/v1/events:poll?topic={TOPIC}&offset=0&timeout=30")] {
        let mut wire = RawConnection::to(&server);
        wire.request("GET", path, &[], b"");
        wire.stream().shutdown(Shutdown::Write).unwrap();
        let rest = wire.rest();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&rest));
        wait_for_descriptors(&server, |now| now <= before);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_is_forgotten() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let consumer = json!({"consumerGroup": "g", "topic": TOPIC, "sessionTimeout": "PT10M"});
    let (_, consumer) = server.post("/v1/consumers", &consumer).await;
    let before = descriptors(&server);
    let id = consumer["data"]["id"].as_str().unwrap();
    let paths = [
        format!("/v1/events:poll?topic={TOPIC}&offset=0&timeout=30"),
        format!("/v1/events:poll?consumer_id={id}&offset=0&timeout=30"),
        format!("/v1/events:stream?topic={TOPIC}"),
        "/v1/log?after=9999&timeout=30".to_owned(),
    ];
    let mut wires: Vec<_> = paths.iter().cycle().take(40).map(|path| (RawConnection::to(&server), path)).collect();
    wires.iter_mut().for_each(|(wire, path)| wire.request("GET", path, &[], b""));
    wait_for_descriptors(&server, |now| now >= before + 40);
    drop(wires);
    wait_for_descriptors(&server, |now| now <= before);
}

#[test]
fn one_connection_too_many_is_told_so_and_there_is_room_again_later() {
    // One address may have half of the connections, unless the configuration allows it all of them.
    let all = |name| (name, "4");
    let limits =
        ["EVENT_BROKER__SERVER__MAX_CONNECTIONS", "EVENT_BROKER__SERVER__MAX_CONNECTIONS_PER_ADDRESS"].map(all);
    let server = Server::start_with(&limits, &[]);
    let mut kept: Vec<_> = (0..4).map(|_| RawConnection::to(&server)).collect();
    for wire in &mut kept {
        wire.request("GET", "/healthz", &[], b"");
        assert_eq!(wire.reply(false).status, 200);
    }
    let mut one_more = RawConnection::to(&server);
    let reply = one_more.reply(false);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    let problem = reply.json();
    assert_eq!(problem["type"], "https://errors.hyperspot.com/EVENT_BROKER_UNAVAILABLE");
    assert_eq!(problem["traceId"].as_str(), reply.header("x-trace-id"));
    assert_eq!(one_more.rest(), b"");
    // Connections that are open stay open.
    kept[0].request("GET", "/healthz", &[], b"");
    assert_eq!(kept[0].reply(false).status, 200);
    kept.pop();
    let give_up = Instant::now() + SOON;
    loop {
        let mut wire = RawConnection::to(&server);
        // A refused connection may be closed before it has sent anything.
        wire.request("GET", "/healthz", &[("connection", "close")], b"");
        let answer = wire.rest();
        if answer.starts_with(b"HTTP/1.1 200 ") {
            break;
        }
        assert!(Instant::now() < give_up, "{}", String::from_utf8_lossy(&answer));
    }
}

/// A request whose body of `bytes` is announced and not sent; the server has reserved memory for it when this returns.
fn announce(server: &Server, bytes: usize) -> RawConnection {
    let mut wire = RawConnection::to(server);
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {bytes}\r\n\r\n"
    );
    wire.send(head.as_bytes());
    assert_eq!(wire.reply(true).status, 100);
    wire
}

#[test]
fn more_bodies_than_there_is_room_for_are_refused_at_once_and_taken_later() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__MAX_INFLIGHT_BYTES", "2097152")], &[]);
    let bystander = BystanderThread::begin(&server);
    let body = vec![b' '; 700_000];
    let publish = || ask(&server, "POST", "/v1/events", &[("content-type", "application/json")], &body);
    let is_refused = || {
        let reply = publish();
        if reply.status != 429 {
            return false;
        }
        assert_eq!(reply.header("retry-after"), Some("1"));
        expect_problem(reply.answer(), 429, "EVENT_BROKER_OVERLOADED");
        true
    };
    let hold = || {
        let mut holding = announce(&server, 1_000_000);
        holding.send(&vec![b' '; 900_000]);
        holding
    };
    // The first request sent may arrive last: then the others are accepted for a while, or the held body is refused and
    // another one is held.
    let (mut holding, give_up) = (hold(), Instant::now() + 3 * SOON);
    while !(0..10).all(|_| is_refused()) {
        assert!(Instant::now() < give_up, "bodies are accepted although the memory limit is reached");
        if holding.has_answer() {
            holding = hold();
        }
    }
    // Small bodies still fit, and reading reserves no memory.
    is_served(&server);
    assert_eq!(ask(&server, "POST", "/v1/events", &[], b"{}").status, 422);
    holding.send(&vec![b' '; 100_000]);
    expect_problem(holding.reply(false).answer(), 400, "EVENT_BROKER_MALFORMED");
    expect_problem(publish().answer(), 400, "EVENT_BROKER_MALFORMED");
    bystander.end();
}
