//! HTTP/1.1 by hand, for requests that no client library sends.

use super::Server;
use reqwest::StatusCode;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any wait may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP connection that sends and receives bytes.
pub(super) struct RawConnection(TcpStream);

/// A parsed response.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl RawConnection {
    pub(super) fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.0
    }

    /// Sends bytes; a peer that has already closed the connection is no failure here, its response shows it.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Sends a request unchanged, with a body if there is one.
    pub(super) fn request(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut text = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || !matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE") {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        self.send(text.as_bytes());
        self.send(body);
    }

    /// Whether the peer has sent unread bytes, or closed the connection.
    pub(super) fn has_answer(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let found = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        found.is_ok_and(|bytes| bytes > 0)
    }

    /// Everything that the peer still sends, until it closes the connection.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server neither responds nor closes");
        }
        rest
    }

    /// The response to a request, with its body.
    pub(super) fn reply(&mut self, to_head: bool) -> RawResponse {
        read_response(&mut self.0, to_head)
    }
}

/// The response to a request other than `HEAD` on any connection.
pub(super) fn response_of(stream: &mut impl Read) -> RawResponse {
    read_response(stream, false)
}

fn read_response(stream: &mut impl Read, to_head: bool) -> RawResponse {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        assert!(read_more(stream, &mut bytes), "the response is not complete: {}", String::from_utf8_lossy(&bytes));
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let mut reply = RawResponse { status, head, body: Vec::new() };
    let chunked = reply.header("transfer-encoding") == Some("chunked");
    let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
    let whole = |body: &[u8]| match chunked {
        true => body.ends_with(b"0\r\n\r\n"),
        false => body.len() >= length,
    };
    while !to_head && !whole(&body) && read_more(stream, &mut body) {}
    reply.body = if chunked { unchunked(&body) } else { body };
    reply
}

fn read_more(stream: &mut impl Read, bytes: &mut Vec<u8>) -> bool {
    let mut piece = [0; 16 * 1024];
    let read = stream.read(&mut piece).expect("a response in time");
    bytes.extend_from_slice(&piece[..read]);
    read > 0
}

impl RawResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The JSON of the body; null without a body.
    pub(super) fn json(&self) -> Value {
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).unwrap() }
    }

    /// For [`super::expect_problem`].
    pub(super) fn answer(&self) -> (StatusCode, Value) {
        (StatusCode::from_u16(self.status).unwrap(), self.json())
    }
}

/// Sends one request on a new connection.
pub(super) fn ask(server: &Server, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> RawResponse {
    let mut wire = RawConnection::to(server);
    wire.request(method, target, headers, body);
    wire.reply(method == "HEAD")
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = body.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..at]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[at + 2..at + 2 + size]);
        body = &body[(at + 2 + size + 2).min(body.len())..];
    }
    whole
}
