//! One kept-alive HTTP/1.1 connection, with or without TLS: one request at a time, written in one piece, its answer read to
//! its end.

use super::tls::Endpoint;
use crate::{Failure, Outcome};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Room for the next read.
const ROOM: usize = 4096;
/// Connections that are opened at the same time; fewer than a listener keeps waiting.
const OPENING_MAX: u64 = 64;
/// A request that any server answers somehow.
const ANYTHING: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Room for the next read of a stream that does not end.
const STREAM_ROOM: usize = 64 * 1024;

/// An open connection.
pub(crate) struct Connection {
    stream: Wire,
    /// What was read of the present answer.
    buffer: Vec<u8>,
}

/// What a connection is written to and read from.
enum Wire {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// An answer's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Bytes of the head itself.
    length: usize,
    body_length: usize,
}

/// Opens so many, some at a time. The last of each wave is answered before the next begins, so the server has taken all
/// of them: a listener whose queue is full lets a connection wait for a second.
pub(crate) async fn open_many(to: impl Into<Endpoint>, count: u64) -> Outcome<Vec<Connection>> {
    let to = to.into();
    let mut open = Vec::new();
    while (open.len() as u64) < count {
        let wave = OPENING_MAX.min(count - open.len() as u64);
        let opening: Vec<_> = (0..wave).map(|_| tokio::spawn(Connection::open(to.clone()))).collect();
        for connection in opening {
            open.push(connection.await??);
        }
        if let Some(last) = open.last_mut() {
            last.ask(ANYTHING).await?;
        }
    }
    Ok(open)
}

impl Connection {
    pub(crate) async fn open(to: impl Into<Endpoint>) -> Outcome<Self> {
        let Endpoint { address, tls } = to.into();
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = match tls {
            None => Wire::Plain(stream),
            Some(tls) => Wire::Encrypted(Box::new(tls.connect(address.ip().into(), stream).await?)),
        };
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends a request and reads its answer: the status and the body.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Outcome<(u16, &[u8])> {
        let head = self.begin(request).await?;
        let whole = head.length + head.body_length;
        while self.buffer.len() < whole {
            self.buffer.reserve(whole - self.buffer.len());
            self.read().await?;
        }
        Ok((head.status, self.buffer.get(head.length..whole).unwrap_or_default()))
    }

    /// Asks, and fails with what was said if the status is another.
    pub(crate) async fn expect(&mut self, wanted: u16, request: &[u8]) -> Outcome<&[u8]> {
        let (status, body) = self.ask(request).await?;
        if status == wanted { Ok(body) } else { Err(unexpected(wanted, status, body)) }
    }

    /// Sends a request whose answer does not end, and reads its head.
    pub(crate) async fn follow(&mut self, request: &[u8]) -> Outcome {
        let head = self.begin(request).await?;
        self.buffer.drain(..head.length);
        if head.status == 200 { Ok(()) } else { Err(unexpected(200, head.status, &self.buffer)) }
    }

    /// Waits for more of an answer that does not end. What `take` says is done with is not seen again.
    pub(crate) async fn more(&mut self, take: impl FnOnce(&[u8]) -> usize) -> Outcome {
        self.buffer.reserve(STREAM_ROOM);
        self.read().await?;
        let done = take(&self.buffer);
        self.buffer.drain(..done.min(self.buffer.len()));
        Ok(())
    }

    async fn begin(&mut self, request: &[u8]) -> Outcome<Head> {
        match &mut self.stream {
            Wire::Plain(stream) => stream.write_all(request).await?,
            Wire::Encrypted(stream) => {
                stream.write_all(request).await?;
                stream.flush().await?;
            }
        }
        self.buffer.clear();
        loop {
            self.buffer.reserve(ROOM);
            self.read().await?;
            if let Some(head) = Head::of(&self.buffer) {
                return Ok(head);
            }
        }
    }

    async fn read(&mut self) -> Outcome {
        let read = match &mut self.stream {
            Wire::Plain(stream) => stream.read_buf(&mut self.buffer).await?,
            Wire::Encrypted(stream) => stream.read_buf(&mut self.buffer).await?,
        };
        match read {
            0 => Err("a server closed a connection".into()),
            _ => Ok(()),
        }
    }
}

impl Head {
    /// The head, if all of it is there.
    fn of(bytes: &[u8]) -> Option<Self> {
        let end = memmem::find(bytes, b"\r\n\r\n")?;
        let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
        let status = text.get(9..12)?.parse().ok()?;
        let lengths = text.split("\r\n").filter_map(|line| {
            let (name, value) = line.split_at_checked("content-length:".len())?;
            name.eq_ignore_ascii_case("content-length:").then(|| value.trim().parse::<usize>().ok())?
        });
        Some(Self { status, length: end + 4, body_length: lengths.last().unwrap_or(0) })
    }
}

fn unexpected(wanted: u16, status: u16, body: &[u8]) -> Failure {
    let start = String::from_utf8_lossy(body.get(..body.len().min(400)).unwrap_or_default());
    format!("a server answered {status} instead of {wanted}: {start}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 12\r\nx: y\r\n\r\nbody";
        assert_eq!(Head::of(text), Some(Head { status: 201, length: 50, body_length: 12 }));
        assert_eq!(Head::of(&text[..49]), None);
        assert_eq!(Head::of(b"HTTP/1.1 204 No\r\n\r\n").map(|head| head.body_length), Some(0));
    }
}
