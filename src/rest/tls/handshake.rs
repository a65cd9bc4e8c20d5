//! The handshake of one connection.
//!
//! - It begins with the first byte of the peer, waits for its turn in the queue, and has ended within
//!   `server.header_timeout_secs`. A peer that sends nothing takes no place in the queue.
//! - It reserves the memory that it takes, and keeps that for the session (`connection_memory`).
//! - A request over plain HTTP gets a problem document and is closed. Nothing that follows it is read.
//! - Failures are logged one by one while they are rare. Of many, one line says how many there were.

use super::ServerTls;
use crate::rest::connection_memory::ConnectionReservation;
use crate::rest::peer_stream::PeerStream;
use crate::rest::problem::Problem;
use crate::rest::socket::{HttpSocket, HttpVersion, encode_problem};
use contract::{Error, Kind};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

/// The first byte of TLS: a record with a part of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// What is held of encrypted data that the peer does not read; more waits unencrypted. In bytes.
const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// A peer that speaks plain HTTP must read the response within this time.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// What is read and discarded of its request meanwhile, in bytes.
const REFUSED_BYTES_MAX: u64 = 64 * 1024;
/// After a line about a failed handshake, further failures are counted for this long.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Which failures were logged.
#[derive(Default)]
pub(super) struct HandshakeFailures(Mutex<FailureLog>);

#[derive(Default)]
struct FailureLog {
    logged_at: Option<Instant>,
    /// Failures since then.
    unlogged: u64,
}

impl ServerTls {
    /// Accepts a connection within `header_timeout`. `None`: the peer has left, or was refused.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        memory: &mut ConnectionReservation,
        header_timeout: Duration,
        stall_max: Duration,
    ) -> Option<HttpSocket> {
        let deadline = Instant::now() + header_timeout;
        let mut first = [0];
        match timeout_at(deadline, stream.peek(&mut first)).await {
            Ok(Ok(1)) => (),
            _ => return None,
        }
        if first != [HANDSHAKE_RECORD] {
            self.failures.note(peer, &"the first byte is not TLS; the client may use http:// instead of https://");
            refuse_plain_http(stream, first).await;
            return None;
        }
        let handshake = async {
            let address = self.handshakes.of(peer);
            let _place = address.enter().await;
            if memory.grow_for_tls().await.is_err() {
                return Err((io::ErrorKind::OutOfMemory.into(), stream));
            }
            let acceptor = TlsAcceptor::from(self.current());
            let accept = acceptor.accept_with(stream, |connection| connection.set_buffer_limit(Some(UNSENT_BYTES_MAX)));
            accept.into_fallible().await
        };
        // Boxed, because a handshake is larger than what a connection needs afterwards. A connection that fails is closed when
        // that is logged.
        let mut handshake = Box::pin(handshake);
        let stream = match timeout_at(deadline, handshake.as_mut()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, _stream))) => {
                self.failures.note(peer, &HandshakeFault(&error));
                return None;
            }
            Err(_) => {
                self.failures.note(peer, &"it was not finished within `server.header_timeout_secs`");
                return None;
            }
        };
        let version = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => HttpVersion::Two,
            _ => HttpVersion::One,
        };
        Some(HttpSocket::new(PeerStream::Encrypted(Box::new(stream)), version, stall_max))
    }
}

/// Why a handshake failed, in the words of the side that ended it.
struct HandshakeFault<'a>(&'a io::Error);

impl std::fmt::Display for HandshakeFault<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::AlertReceived(alert)) => write!(f, "the client ended it with the alert {alert:?}"),
            Some(error) => write!(f, "{error}"),
            None if self.0.kind() == io::ErrorKind::OutOfMemory => f.write_str("there is no memory for it"),
            None => write!(f, "the connection ended: {}", self.0.kind()),
        }
    }
}

impl HandshakeFailures {
    fn note(&self, peer: IpAddr, reason: &dyn std::fmt::Display) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.logged_at.is_some_and(|logged_at| logged_at.elapsed() < FAILURE_LOG_INTERVAL) {
            log.unlogged += 1;
            drop(log);
            tracing::debug!(%peer, %reason, "a TLS handshake failed");
            return;
        }
        let unlogged = std::mem::take(&mut log.unlogged);
        log.logged_at = Some(Instant::now());
        drop(log);
        tracing::warn!(%peer, %reason, failures_not_logged_before = unlogged, "a TLS handshake failed");
    }
}

/// Refuses a request over plain HTTP in its own language. Other protocols get nothing.
async fn refuse_plain_http(mut stream: TcpStream, first: [u8; 1]) {
    if !first[0].is_ascii_uppercase() {
        return;
    }
    let error = Error::new(Kind::Malformed, "This port serves only TLS: use https:// instead of http://.");
    let document = encode_problem(&Problem::from(error));
    let refuse = async {
        stream.write_all(&document).await?;
        stream.shutdown().await?;
        // A connection that is closed with unread bytes is reset, and the peer would lose the response.
        tokio::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(REFUSAL_TIMEOUT, refuse).await;
}
