//! Clients that make the broker hold as much memory as possible: bodies that do not arrive, lines without an end,
//! responses that are not read, and thousands of polls. Memory stays bounded, and the bystander is served.

use super::super::{CREATED, Deadline, Server, TOPIC, event};
use super::{ATTACKERS, BystanderPublisher, OTHER, RSS_MAX, client_from, connect_from, rss, send_from};
use futures_util::future::join_all;
use reqwest::Client;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The number of events that the bystander publishes during an attack.
pub(super) const EVENTS: usize = 50;

pub(super) async fn server() -> Server {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    server
}

/// The same bound holds on PostgreSQL: an append holds its records several times, but only two appends of a few MiB are in
/// flight.
pub(super) fn expect_bounded(server: &Server, most: usize) {
    assert!(rss(server) < most, "{} MB", rss(server));
}

async fn connect(server: &Server) -> TcpStream {
    let address: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Connections of the attackers that send this and read nothing.
async fn send(server: &Server, count: usize, request: &[u8]) -> Vec<TcpStream> {
    send_from(server, &ATTACKERS, count, request).await
}

/// Waits for the first bytes of a response.
pub(super) async fn status(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8_lossy(&line[9..]).into_owned()
}

/// Publishes events of nearly a megabyte each.
pub(super) async fn publish_large(server: &Server, count: usize) {
    for _ in 0..count {
        let mut large = event(CREATED, "large");
        large["data"]["text"] = "x".repeat(1_000_000).into();
        assert_eq!(server.post("/v1/events", &large).await.0, 201);
    }
}

pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub(super) const SILENT: &[u8] = b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
    content-length: 1000000\r\n\r\n";

pub(super) fn endless_line() -> Vec<u8> {
    let mut request = b"POST /v1/events:import HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
        content-length: 100000000\r\n\r\n"
        .to_vec();
    request.extend(vec![b'x'; 1_100_000]);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_that_announce_large_bodies_do_not_keep_others_from_publishing() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let silent = send(&server, 600, SILENT).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 200);
    bystander.end().await;
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_of_lines_without_an_end_hold_no_more_than_their_share() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let line = endless_line();
    let importing = send(&server, 300, &line).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 250);
    bystander.end().await;
    drop(importing);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_reads_hold_no_more_than_their_share() {
    let server = server().await;
    publish_large(&server, 9).await;
    let mut bystander = BystanderPublisher::begin(&server);
    // The system buffers some megabytes for each connection, so one page is not enough.
    let list = get(&format!("/v1/events?topic={TOPIC}&offset=0")).repeat(4);
    let mut readers = send(&server, 100, &list).await;
    let stream = get(&format!("/v1/events:stream?topic={TOPIC}&offset=0"));
    readers.extend(send(&server, 100, &stream).await);
    // Every client has a response, even if it is a refusal for lack of memory.
    let answers = join_all(readers.iter_mut().map(status)).await;
    assert!(answers.iter().all(|status| matches!(status.as_str(), "200" | "429")), "{answers:?}");
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 300);
    bystander.end().await;
    // The memory is free again when the connections are closed.
    drop(readers);
    let deadline = Deadline::begin();
    let page = loop {
        deadline.check("the memory to be released");
        let (status, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0&limit=5")).await;
        if status == 200 && page["items"].as_array().unwrap().len() == 5 {
            break page;
        }
    };
    assert_eq!(page["nextOffset"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_events_whose_publishers_read_nothing_hold_no_more_than_their_share() {
    let server = server().await;
    let mut large = event(CREATED, "large");
    large["data"]["text"] = "x".repeat(1_000_000).into();
    let body = large.to_string();
    let mut request = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend(body.into_bytes());
    let mut bystander = BystanderPublisher::begin(&server);
    let mut publishers = send(&server, 200, &request).await;
    let answers = join_all(publishers.iter_mut().map(status)).await;
    assert!(answers.iter().all(|status| matches!(status.as_str(), "201" | "429")), "{answers:?}");
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, RSS_MAX);
    bystander.end().await;
}

/// Clients of one HTTP/2 connection each.
fn http2_clients(count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::builder().no_proxy().http2_prior_knowledge().build().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_of_one_address_are_counted_over_http2_too_and_beyond_their_number_refused() {
    let variables = [("EVENT_BROKER__SERVER__MAX_WAITS_PER_ADDRESS", "200")];
    let server = Server::start_with(&variables, &[]);
    server.register(CREATED).await;
    let mut bystander = BystanderPublisher::begin(&server);
    let url = format!("{}/v1/events:poll?topic={TOPIC}&offset=1000000&timeout=30", server.url);
    let clients = http2_clients(4);
    let polls = clients.iter().flat_map(|client| std::iter::repeat_n(client, 100));
    let mut polls: Vec<_> = polls.map(|client| tokio::spawn(client.get(&url).send())).collect();
    // Half of them are refused; the others wait.
    let mut refused = 0;
    let deadline = Deadline::begin();
    while refused < 200 {
        deadline.check("refusals");
        let (answer, _, rest) = futures_util::future::select_all(polls).await;
        polls = rest;
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.status(), 429);
        assert!(answer.headers().contains_key("retry-after"));
        refused += 1;
    }
    let mut stream = connect(&server).await;
    stream.write_all(&get(&format!("/v1/events:stream?topic={TOPIC}"))).await.unwrap();
    assert_eq!(status(&mut stream).await, "429", "a stream waits, too");
    bystander.goes_on(EVENTS).await;
    polls.iter().for_each(|poll| assert!(!poll.is_finished()));
    polls.iter().for_each(tokio::task::JoinHandle::abort);
    // A place that is released can be used by another poll.
    drop((polls, clients));
    let url = format!("/v1/events:poll?topic={TOPIC}&offset=0&timeout=1");
    let deadline = Deadline::begin();
    while server.get(&url).await.0 != 200 {
        deadline.check("the released places of polls");
    }
    bystander.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_address_beyond_their_number_are_turned_away() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__MAX_CONNECTIONS_PER_ADDRESS", "20")], &[]);
    server.register(CREATED).await;
    let mut bystander = BystanderPublisher::begin(&server);
    bystander.goes_on(1).await;
    let connect = async |server| connect_from(server, ATTACKERS[0]).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&server).await;
        stream.write_all(&get("/healthz")).await.unwrap();
        assert_eq!(status(&mut stream).await, "200");
        held.push(stream);
    }
    assert_eq!(status(&mut connect(&server).await).await, "429");
    // A stream that ends makes a place for another.
    held.pop();
    let deadline = Deadline::begin();
    loop {
        deadline.check("the released place of a connection");
        let mut stream = connect(&server).await;
        stream.write_all(&get("/healthz")).await.unwrap();
        if status(&mut stream).await == "200" {
            break;
        }
    }
    bystander.goes_on(EVENTS).await;
    bystander.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_one_address_leave_room_to_other_addresses() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let mut request = b"POST /v1/topics?waitFor=1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        idempotency-key: k\r\ncontent-length: 65000\r\n\r\n"
        .to_vec();
    request.extend(vec![b' '; 64_999]);
    // Enough bodies to use up the memory limit; a refusal shows that the others have arrived.
    let mut held = send_from(&server, &ATTACKERS[..1], 600, &request).await;
    let deadline = Deadline::begin();
    loop {
        let mut line = [0; 12];
        let answered = held.iter_mut().filter_map(|stream| stream.try_read(&mut line).ok()).count();
        if answered > 0 {
            assert!(line.ends_with(b" 429"), "{}", String::from_utf8_lossy(&line));
            break;
        }
        deadline.check("a refusal");
        tokio::task::yield_now().await;
    }
    let mut large = event(CREATED, "other");
    large["data"]["text"] = "x".repeat(500_000).into();
    let answer = client_from(OTHER).post(format!("{}/v1/events", server.url)).json(&large).send().await.unwrap();
    assert_eq!(answer.status(), 201, "{:?}", answer.text().await);
    bystander.goes_on(EVENTS).await;
    bystander.end().await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_one_address_leave_room_to_readers_of_other_addresses() {
    let server = server().await;
    publish_large(&server, 9).await;
    let mut bystander = BystanderPublisher::begin(&server);
    let list = get(&format!("/v1/events?topic={TOPIC}&offset=0")).repeat(4);
    let mut unread = send_from(&server, &ATTACKERS[..1], 60, &list).await;
    let answers = join_all(unread.iter_mut().map(status)).await;
    assert!(answers.iter().any(|status| status == "429"), "all of them were accepted: {answers:?}");
    let url = format!("{}/v1/events?topic={TOPIC}&offset=0&limit=1", server.url);
    let answer = client_from(OTHER).get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    bystander.goes_on(EVENTS).await;
    bystander.end().await;
    drop(unread);
}

#[tokio::test]
async fn a_large_event_that_has_to_be_prepared_again_is_as_it_was_sent() {
    let server = server().await;
    let mut large = event(CREATED, "large");
    large["id"] = uuid::Uuid::new_v4().to_string().into();
    large["data"]["text"] = "x".repeat(100_000).into();
    assert_eq!(server.post("/v1/events", &large).await.0, 201);
    // Its response is stored, so the broker must read the stored event before it decides again.
    let again = server.request(reqwest::Method::POST, "/v1/events").header("idempotency-key", "again").json(&large);
    let answer = again.send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("payload-mismatch")), (200, None));
    assert_eq!(answer.json::<serde_json::Value>().await.unwrap()["data"], large["data"]);
}

/// An unfinished head, just below the size at which it would be refused.
pub(super) fn endless_head() -> Vec<u8> {
    let line = format!("x-{}: {}\r\n", "h".repeat(20), "v".repeat(974));
    [b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", line.repeat(90).as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_not_finished_hold_no_more_than_their_share() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let heads = send(&server, 1500, &endless_head()).await;
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 150);
    bystander.end().await;
    drop(heads);
}

/// A request with a large head and a slow response, so that the server may hold the head meanwhile.
fn large_head(target: &str) -> Vec<u8> {
    let line = format!("x-{}: {}\r\n", "h".repeat(20), "v".repeat(400));
    let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", line.repeat(70));
    head.into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_of_polls_and_streams_hold_no_more_than_their_share() {
    let server = server().await;
    let mut bystander = BystanderPublisher::begin(&server);
    let mut held = Vec::new();
    for target in ["/v1/events:poll?offset=latest&timeout=30&topic=", "/v1/events:stream?topic="] {
        held.extend(send(&server, 1500, &large_head(&format!("{target}{TOPIC}"))).await);
    }
    bystander.goes_on(EVENTS).await;
    expect_bounded(&server, 200);
    bystander.end().await;
    drop(held);
}

/// A request with a large body that is refused before it is read.
fn refused_body(target: &str, headers: &str) -> Vec<u8> {
    let head = format!("POST {target} HTTP/1.1\r\n{headers}content-length: 4000000\r\n\r\n");
    [head.as_bytes(), &vec![b' '; 4_000_000]].concat()
}

/// Refused with 413, 415, 421 and 403.
pub(super) fn refused_bodies() -> [Vec<u8>; 4] {
    [
        refused_body("/v1/events", "host: localhost\r\ncontent-type: application/json\r\n"),
        refused_body("/v1/events", "host: localhost\r\ncontent-type: text/xml\r\n"),
        refused_body("/v1/events", "host: evil.example\r\ncontent-type: application/json\r\n"),
        refused_body(
            "/v1/events",
            "host: localhost\r\ncontent-type: application/json\r\norigin: http://evil.example\r\n",
        ),
    ]
}
