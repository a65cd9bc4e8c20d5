//! Connections themselves: as many as possible, each as large as possible, over HTTP/1 and HTTP/2, with heads that are not
//! finished, polls and streams. All of it comes from two addresses, so their shares together are the whole budget.

use super::super::{CREATED, Server, TOPIC, event};
use super::http2::{CONTINUATION, END_OF_STREAM_AND_HEADERS, HEADERS, PREFACE, SETTINGS, frame, head};
use super::memory::{
    EVENTS, SILENT, endless_head, endless_line, expect_bounded, get, publish_large, refused_bodies, server, status,
};
use super::{ATTACKERS, BystanderPublisher, OTHER, RSS_MAX, Reader, client_from, connect_from, send_from};
use reqwest::Client;
use std::net::IpAddr;
use tokio::io::AsyncWriteExt;

/// The beginning of an HTTP/2 connection.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, 1, 0, &[])].concat()
}

/// A connection with a head that never ends: one header of a megabyte, of which 96 KiB are sent.
fn endless_http2_head() -> Vec<u8> {
    // A literal header `x` whose value has 2^20 bytes (RFC 7541 5.1).
    let literal = [&[0, 1, b'x', 0x7f, 0x81, 0xff, 0x3f][..], &[b'v'; 16_000]].concat();
    let begun = frame(HEADERS, 0, 1, &[head("/healthz"), literal].concat());
    [opening(), begun, frame(CONTINUATION, 0, 1, &[b'v'; 16_000]).repeat(5)].concat()
}

/// A connection with as many requests for `path` as it may have.
fn http2_requests(path: &str) -> Vec<u8> {
    let requests = (0..128).flat_map(|number| frame(HEADERS, END_OF_STREAM_AND_HEADERS, 2 * number + 1, &head(path)));
    [opening(), requests.collect()].concat()
}

/// A client over HTTP/2 at an address that no attack uses.
fn http2_client() -> Client {
    Client::builder().no_proxy().local_address(IpAddr::V4(OTHER)).http2_prior_knowledge().build().unwrap()
}

/// The status of a request with a head that is larger than a frame of HTTP/2.
async fn status_of_large_head(server: &Server, client: &Client) -> u16 {
    let mut request = client.get(format!("{}/healthz", server.url));
    for number in 0..30 {
        request = request.header(format!("x-{number}"), "v".repeat(1000));
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_over_http2_that_are_not_finished_hold_no_more_than_their_share() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin_with(&server, http2_client());
    let heads = send_from(&server, &ATTACKERS, 1500, &endless_http2_head()).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 180);
    bystander.end().await;
    drop(heads);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_half_heads_over_one_version_of_http_leaves_room_for_the_other() {
    let server = server().await;
    let (http1, http2) = (client_from(OTHER), http2_client());
    let mut bystander = BystanderPublisher::begin_with(&server, http2.clone());
    // Small ones, so that those which are closed leave no room for a whole head.
    let line = format!("x-{}: {}\r\n", "h".repeat(20), "v".repeat(976));
    let half = [b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", line.repeat(17).as_bytes()].concat();
    let half = send_from(&server, &ATTACKERS, 4000, &half).await;
    assert_eq!(status_of_large_head(&server, &http2).await, 200);
    bystander.goes_on(EVENTS).await;
    drop(half);
    bystander.end().await;
    let mut bystander = BystanderPublisher::begin_with(&server, http1.clone());
    // Just long enough to have room reserved, and not closed for their length.
    let unfinished = [opening(), frame(HEADERS, 0, 1, &head("/healthz"))].concat();
    let half = send_from(&server, &ATTACKERS, 500, &unfinished).await;
    assert_eq!(status_of_large_head(&server, &http1).await, 200);
    bystander.goes_on(EVENTS).await;
    bystander.end().await;
    drop(half);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_wait_hold_no_more_than_the_memory_of_connections() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let stream = get(&format!("/v1/events:stream?topic={TOPIC}"));
    let mut streams = send_from(&server, &ATTACKERS, 7000, &stream).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 200);
    assert_eq!(status(&mut streams[0]).await, "200");
    // An address with few connections is served, although the memory is used up.
    let mut other = connect_from(&server, OTHER).await;
    other.write_all(&stream).await.unwrap();
    assert_eq!(status(&mut other).await, "200");
    bystander.end().await;
    drop(streams);
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_over_http2_hold_no_more_than_the_memory_of_connections() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin_with(&server, http2_client());
    let polls = http2_requests(&format!("/v1/events:poll?topic={TOPIC}&offset=1000000&timeout=30"));
    let polls = send_from(&server, &ATTACKERS, 120, &polls).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 200);
    bystander.end().await;
    drop(polls);
}

/// An event of nearly a megabyte, whose publisher does not read the response.
fn large_event() -> Vec<u8> {
    let mut large = event(CREATED, "large");
    large["data"]["text"] = "x".repeat(1_000_000).into();
    let body = large.to_string();
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_attacks_at_once_stay_below_the_bound_with_default_settings() {
    let server = server().await;
    publish_large(&server, 9).await;
    let mut bystander = BystanderPublisher::begin(&server);
    let mut other_bystander = BystanderPublisher::begin_with(&server, http2_client());
    let mut reader = Reader::begin(&server);
    let (line, event, head, http2_head) = (endless_line(), large_event(), endless_head(), endless_http2_head());
    let list = get(&format!("/v1/events?topic={TOPIC}&offset=0")).repeat(4);
    let catching_up = get(&format!("/v1/events:stream?topic={TOPIC}&offset=0"));
    let docs = get("/docs/swagger-ui-bundle.js").repeat(6);
    let [too_large, media, host, origin] = refused_bodies();
    let send = |count, request| send_from(&server, &ATTACKERS, count, request);
    // Only by one of them: nothing is kept of the room for responses, so two addresses may use up all of it.
    let read = |count, request| send_from(&server, &ATTACKERS[..1], count, request);
    // Each fills its own budget.
    let large = tokio::join!(
        send(600, SILENT),
        send(100, &line),
        send(150, &event),
        read(100, &list),
        read(100, &catching_up),
        send(300, &head),
        send(300, &http2_head),
        read(60, &docs),
        send(30, &too_large),
        send(30, &media),
        send(30, &host),
        send(30, &origin),
    );
    // What is left of the memory for connections.
    let poll = format!("/v1/events:poll?topic={TOPIC}&offset=1000000&timeout=30");
    let (http2_polls, poll) = (http2_requests(&poll), get(&poll));
    let waiting = get(&format!("/v1/events:stream?topic={TOPIC}"));
    let small = tokio::join!(send(30, &http2_polls), send(3000, &poll), send(4000, &waiting));
    bystander.goes_on(EVENTS).await;
    other_bystander.goes_on(EVENTS).await;
    reader.goes_on(EVENTS).await;
    expect_bounded(&server, RSS_MAX);
    bystander.end().await;
    other_bystander.end().await;
    reader.end().await;
    drop((large, small));
}
