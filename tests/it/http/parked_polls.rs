//! Long polls are parked: their connection's state is taken apart meanwhile, and clients see no difference.
//!
//! The test does not guess how long that takes: a poll that ended at its time-out was open longer than the others
//! needed.

use super::raw_http::RawConnection;
use super::waiting::{connections, wait_for_connections};
use super::{CREATED, Server, TOPIC, event};
use std::time::{Duration, Instant};

/// A topic without events.
const QUIET: &str = "gts.hx.core.events.topic.v1~vendor.app.quiet.v1";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn poll(topic: &str, timeout: u64) -> String {
    format!("/v1/events:poll?topic={topic}&offset=0&timeout={timeout}")
}

/// Waits until the polls that are already waiting have been parked.
fn wait_long(server: &Server) {
    let mut wire = RawConnection::to(server);
    wire.request("GET", &poll(QUIET, 1), &[], b"");
    assert_eq!(wire.reply(false).json()["items"], serde_json::json!([]));
}

async fn start() -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let (status, answer) = server.post("/v1/topics", &serde_json::json!({"id": QUIET, "streaming": true})).await;
    assert_eq!(status, 201, "{answer}");
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_polls_that_waited_for_long_and_their_connections_go_on() {
    let server = start().await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let asked = [
        (poll(TOPIC, 30), vec![("traceparent", parent.as_str())]),
        (format!("{}&subject=s-1", poll(TOPIC, 30)), vec![]),
        ("/v1/log?timeout=30&type=gts.*".to_owned(), vec![]),
        (poll(TOPIC, 30), vec![("accept", "application/cloudevents-batch+json")]),
        (poll(TOPIC, 30), vec![("accept-encoding", "gzip")]),
        // An announced body that is not read; its request is not parked.
        (poll(TOPIC, 30), vec![("content-length", "2")]),
    ];
    let mut wires: Vec<_> = asked.iter().map(|_| RawConnection::to(&server)).collect();
    for (wire, (path, headers)) in wires.iter_mut().zip(&asked) {
        wire.request("GET", path, headers, b"");
    }
    wires[5].send(b"{}");
    wait_long(&server);
    let (_, stored) = server.post("/v1/events", &event(CREATED, "s-1")).await;
    let replies: Vec<_> = wires.iter_mut().map(|wire| wire.reply(false)).collect();
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    for number in [0, 1, 2, 5] {
        assert_eq!(replies[number].json()["items"][0], stored, "{}", asked[number].0);
    }
    assert_eq!(replies[0].header("x-trace-id"), Some(TRACE));
    assert_eq!(replies[3].json()[0]["specversion"], "1.0");
    assert_eq!(replies[4].header("content-encoding"), Some("gzip"));
    for wire in &mut wires {
        wire.request("GET", "/healthz", &[], b"");
        assert_eq!(wire.reply(false).status, 200);
    }
    // The same once more, with a response that comes soon.
    wires.iter_mut().for_each(|wire| wire.request("GET", &format!("/v1/events:poll?topic={TOPIC}&offset=1"), &[], b""));
    let (_, stored) = server.post("/v1/events", &event(CREATED, "s-2")).await;
    assert!(wires.iter_mut().all(|wire| wire.reply(false).json()["items"][0] == stored));
    // And once more, with a time-out that is longer than the time after which a poll is parked.
    let began = Instant::now();
    wires.iter_mut().for_each(|wire| wire.request("GET", &poll(QUIET, 4), &[], b""));
    for wire in &mut wires {
        assert_eq!(wire.reply(false).json()["items"], serde_json::json!([]));
    }
    assert!(began.elapsed() >= Duration::from_secs(4), "the polls ended early");
}

#[tokio::test]
async fn what_is_asked_behind_a_poll_is_answered_behind_it() {
    let server = start().await;
    let mut wire = RawConnection::to(&server);
    wire.request("GET", &poll(QUIET, 1), &[], b"");
    wire.request("GET", "/healthz", &[], b"");
    let both =
        [format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", poll(QUIET, 1)), "GET /nowhere HTTP/1.1\r\n".to_owned()];
    wire.send(both.concat().as_bytes());
    wire.send(b"host: localhost\r\nconnection: close\r\n\r\n");
    let all = String::from_utf8(wire.rest()).unwrap();
    let order: Vec<_> = all.match_indices("HTTP/1.1 ").map(|(at, _)| &all[at + 9..at + 12]).collect();
    assert_eq!(order, ["200", "200", "200", "404"], "{all}");
    assert_eq!(all.matches("\"nextOffset\":0").count(), 2, "{all}");
}

#[tokio::test]
async fn a_poll_of_old_is_answered_and_its_connection_closed() {
    let server = start().await;
    let mut wire = RawConnection::to(&server);
    wire.send(format!("GET {} HTTP/1.0\r\n\r\n", poll(QUIET, 1)).as_bytes());
    let all = String::from_utf8(wire.rest()).unwrap();
    assert!(all.starts_with("HTTP/1.0 200 ") && all.contains("\"items\":[]"), "{all}");
}

#[tokio::test]
async fn a_client_that_hangs_up_after_a_long_wait_is_forgotten() {
    let server = start().await;
    let before = connections(&server);
    let mut wires: Vec<_> = (0..20).map(|_| RawConnection::to(&server)).collect();
    wires.iter_mut().for_each(|wire| wire.request("GET", &poll(QUIET, 30), &[], b""));
    wait_long(&server);
    wait_for_connections(&server, before + 20).await;
    drop(wires);
    let give_up = Instant::now() + Duration::from_secs(20);
    while connections(&server) > before {
        assert!(Instant::now() < give_up, "{} connections are left of {before}", connections(&server));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_that_drains_answers_those_who_waited_for_long() {
    let server = start().await;
    let mut wires: Vec<_> = (0..20).map(|_| RawConnection::to(&server)).collect();
    wires.iter_mut().for_each(|wire| wire.request("GET", &poll(QUIET, 30), &[], b""));
    wait_long(&server);
    server.terminate();
    for wire in &mut wires {
        let reply = wire.reply(false);
        assert_eq!((reply.status, &reply.json()["items"]), (200, &serde_json::json!([])));
    }
    let (status, _) = server.wait();
    assert!(status.success(), "{status}");
}
