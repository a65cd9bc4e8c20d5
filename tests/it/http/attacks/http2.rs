//! HTTP/2 clients that open no flow-control window: the server buffers their responses, while the sockets look healthy.

use super::super::{CREATED, Server, TOPIC, event};
use super::{ATTACKERS, BystanderPublisher, IN_TIME};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEADERS: u8 = 1;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const SETTINGS: u8 = 4;
pub(super) const END_OF_STREAM_AND_HEADERS: u8 = 5;
const INITIAL_WINDOW_SIZE: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header that is neither indexed nor compressed (RFC 7541 6.2.2); name and value are short.
fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// The head of a request for `path`.
pub(super) fn head(path: &str) -> Vec<u8> {
    let pairs = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    pairs.iter().flat_map(|(name, value)| header(name, value)).collect()
}

/// Sends this many requests for `path` over one connection with a window of 0, and reads nothing of the bodies.
fn request_without_window(server: &Server, path: &str, count: u32) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((ATTACKERS[0], 0)).into()).unwrap();
    let target: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
    socket.connect(&target.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let setting = [0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0];
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &setting), &frame(SETTINGS, 1, 0, &[])].concat();
    let head = head(path);
    for number in 0..count {
        bytes.extend(frame(HEADERS, END_OF_STREAM_AND_HEADERS, 2 * number + 1, &head));
    }
    stream.write_all(&bytes).unwrap();
    stream
}

/// Reads until the server closes the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(IN_TIME)).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => (),
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_opens_no_window_is_disconnected_and_others_can_read_again() {
    // The default is half a minute.
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__WRITE_TIMEOUT_SECS", "2")], &[]);
    server.register(CREATED).await;
    let mut large = event(CREATED, "large");
    large["data"]["text"] = "x".repeat(500_000).into();
    assert_eq!(server.post("/v1/events", &large).await.0, 201);
    let mut bystander = BystanderPublisher::begin(&server);
    let path = format!("/v1/events?topic={TOPIC}&offset=0&limit=1");
    let mut stalled = request_without_window(&server, &path, 100);
    let closed = tokio::task::spawn_blocking(move || is_closed(&mut stalled)).await.unwrap();
    assert!(closed, "the connection holds its responses for ever");
    bystander.goes_on(10).await;
    bystander.end().await;
    tokio::time::timeout(IN_TIME, async {
        while server.get(&path).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the memory of the responses is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_responses_that_are_not_taken_end_with_their_connection() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__WRITE_TIMEOUT_SECS", "1")], &[]);
    server.register(CREATED).await;
    let mut bystander = BystanderPublisher::begin(&server);
    let mut stalled = request_without_window(&server, "/healthz", 100);
    assert!(tokio::task::spawn_blocking(move || is_closed(&mut stalled)).await.unwrap());
    bystander.goes_on(10).await;
    bystander.end().await;
}
