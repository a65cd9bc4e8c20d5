//! The server: accepts connections, serves HTTP/1.1 and HTTP/2 on them, with or without TLS, and drains.
//!
//! - Connections are limited in number: in total and per address. The last places are kept for addresses with few connections,
//!   so that a few addresses cannot lock out all others. A connection beyond the limits gets a problem document and is closed;
//!   while many are refused at once, most are closed without one, because each uses a file descriptor. With TLS none gets one,
//!   because that would need a handshake.
//! - Each connection reserves the memory that it takes (`connection_memory`), before a handshake of TLS begins.
//! - When the system has no file descriptor left, accepting is retried after a pause.
//! - A peer must send its head in time, read its responses in time, and answer TCP keep-alive probes.
//! - Draining: no new connections; waiting requests get their response at once; requests in flight are finished.

use super::address_limiter::{LimitReached, PeerAddress};
use super::connection_memory::{ConnectionReservation, HTTP2_BYTES};
use super::http2_heads::Http2HeadMeter;
use super::http2_responses::{RequestRoom, ResponseWatch};
use super::middleware::{self, RequestSource};
use super::parked::serve_http1;
use super::problem::Problem;
use super::socket::{HeadCounter, HttpSocket, HttpVersion, encode_problem};
use super::{HttpFrontend, HttpOptions};
use crate::broker::SlotState;
use contract::{Error, Kind};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// TCP probes a silent peer after this time, then a few times more.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 3;
/// Concurrent requests of one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Requests of one HTTP/2 connection that are refused for lack of memory at the same time; further streams are reset, because
/// refusals that the client does not take need memory too.
const REFUSED_STREAMS_MAX: usize = 4;
/// What hyper may buffer of one HTTP/1 connection beyond the largest head: the longest request target that it parses, so
/// that a longer one is refused with 414.
pub(super) const TARGET_BYTES_MAX: usize = 64 * 1024;
/// What a client may send over HTTP/2 before the server reads it: for one request, and for one connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 64 * 1024;
/// What hyper may buffer of one response over HTTP/2 before the client takes it.
const SEND_BUFFER: usize = 64 * 1024;
/// The pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that are refused with a problem document at the same time.
const REFUSALS_MAX: usize = 16;

/// Serves until `stop` ends, then drains. `Err`: so many connections had to be cut off.
pub(crate) async fn serve(
    listener: TcpListener,
    frontend: Arc<HttpFrontend>,
    mut changes: watch::Receiver<SlotState>,
    stop: impl Future<Output = ()>,
) -> std::result::Result<(), usize> {
    let places = Arc::new(Semaphore::new(frontend.options.connections_max));
    let refusing = Arc::new(Semaphore::new(REFUSALS_MAX));
    let mut stop = std::pin::pin!(stop);
    let mut is_short = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Ok(()) = changes.changed() => {
                frontend.refresh_router();
                continue;
            }
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if was_lost(&error) => continue,
            Err(error) => {
                if !std::mem::replace(&mut is_short, true) {
                    tracing::warn!(%error, "a connection could not be accepted; retrying until it works");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        is_short = false;
        let permit = frontend.connections.try_acquire(peer.ip());
        let permits = permit.and_then(|permit| match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => Ok((permit, place)),
            Err(_) => Err(LimitReached::Total),
        });
        let permits = permits.map_err(connections_exhausted).and_then(|(permit, place)| {
            let memory = frontend.memory.open(&permit.peer(), permit.has_few())?;
            Ok((permit, place, memory))
        });
        let (permit, place, memory) = match permits {
            Ok(permits) => permits,
            Err(refusal) => {
                if frontend.options.tls.is_none()
                    && let Ok(permit) = Arc::clone(&refusing).try_acquire_owned()
                {
                    tokio::spawn(refuse_connection(stream, refusal, permit));
                }
                continue;
            }
        };
        let frontend = Arc::clone(&frontend);
        tokio::spawn(async move {
            serve_connection(stream, permit.peer(), memory, frontend).await;
            drop((permit, place));
        });
    }
    drop(listener);
    frontend.drain();
    let all = u32::try_from(frontend.options.connections_max).unwrap_or(u32::MAX);
    match tokio::time::timeout(frontend.options.drain_timeout, places.acquire_many(all)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(frontend.options.connections_max - places.available_permits()),
    }
}

/// Serves one connection to its end.
async fn serve_connection(
    stream: TcpStream,
    peer: PeerAddress,
    mut memory: ConnectionReservation,
    frontend: Arc<HttpFrontend>,
) {
    set_socket_options(&stream);
    let opened = tokio::select! {
        opened = open_socket(stream, &peer, &mut memory, &frontend) => opened,
        // No request has arrived, so no response is owed.
        () = frontend.drained() => return,
    };
    let Some(socket) = opened else { return };
    if let Some(certificate) = socket.client_certificate() {
        let fingerprint = blake3::hash(certificate);
        tracing::debug!(peer = %peer.address, %fingerprint, "a client certificate was verified");
    }
    match socket.version() {
        HttpVersion::One => serve_http1(socket, peer, memory, frontend).await,
        // Boxed, because it is larger than what most connections need.
        HttpVersion::Two => Box::pin(serve_http2(socket, peer, memory, frontend)).await,
    }
}

/// The socket of a connection whose version of HTTP is known. `None`: the peer has left, or did not say it in time.
async fn open_socket(
    stream: TcpStream,
    peer: &PeerAddress,
    memory: &mut ConnectionReservation,
    frontend: &HttpFrontend,
) -> Option<HttpSocket> {
    let HttpOptions { header_timeout, write_timeout, .. } = *frontend.options;
    match &frontend.options.tls {
        Some(tls) => Box::pin(tls.accept(stream, peer.address, memory, header_timeout, write_timeout)).await,
        None => {
            let detecting = HttpSocket::detect_version(stream, write_timeout);
            tokio::time::timeout(header_timeout, detecting).await.ok()?.ok()
        }
    }
}

/// Serves an HTTP/2 connection to its end.
async fn serve_http2(
    mut socket: HttpSocket,
    peer: PeerAddress,
    mut memory: ConnectionReservation,
    frontend: Arc<HttpFrontend>,
) {
    if memory.grow_to(HTTP2_BYTES).await.is_err() {
        return socket.go_away().await;
    }
    let (options, responses) = (&frontend.options, ResponseWatch::default());
    let meter = Http2HeadMeter::new(&frontend.http2_heads, &peer.usage, options.header_bytes_max);
    socket.count_heads(HeadCounter::Http2(Box::new(meter)));
    let refused = Arc::new(Semaphore::new(REFUSED_STREAMS_MAX));
    let service = service_fn(|request: Request<Incoming>| {
        let (frontend, responses, peer) = (Arc::clone(&frontend), responses.clone(), peer.clone());
        let (room, refused) = (memory.budget().reserve_request(&request), Arc::clone(&refused));
        async move {
            let (room, refusal) = match room {
                Ok(room) => (RequestRoom::Reserved(room), None),
                Err(refusal) => {
                    let permit = refused.try_acquire_owned().map_err(|_| StreamReset)?;
                    (RequestRoom::Refused(permit), Some(refusal))
                }
            };
            let source = RequestSource { peer, parking: None, reading: None, refusal };
            let Ok(response) = middleware::handle(frontend, source, request).await;
            Ok::<_, StreamReset>(responses.watch(response, room))
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(options.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(options.header_timeout)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let shut_down = |connection: Pin<&mut _>| http2::Connection::graceful_shutdown(connection);
    let run = run_connection(&frontend, connection.as_mut(), shut_down, || None::<Infallible>);
    tokio::select! {
        _ = run => (),
        () = responses.stalled(options.write_timeout) => (),
    }
}

/// There is no room for a request over HTTP/2, not even for its refusal: hyper resets its stream.
#[derive(Debug)]
struct StreamReset;

impl fmt::Display for StreamReset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("there is no room for the refusal of a request")
    }
}

impl std::error::Error for StreamReset {}

/// Runs a connection until it ends, or until `leave` returns a reason to leave it. When the server drains, the connection ends
/// with the requests in flight.
pub(super) async fn run_connection<C: Future, T>(
    frontend: &HttpFrontend,
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    leave: impl Fn() -> Option<T>,
) -> Option<T> {
    let mut drained = pin!(frontend.drained());
    let mut draining = false;
    poll_fn(|context| {
        // A reset, a time-out and an orderly end are all the same here.
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Some(left) = leave() {
            return Poll::Ready(Some(left));
        }
        if !draining && drained.as_mut().poll(context).is_ready() {
            draining = true;
            shut_down(connection.as_mut());
            // The shutdown takes effect with the next poll.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Small responses are sent at once, and a peer that has vanished is noticed.
fn set_socket_options(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(KEEPALIVE_RETRIES);
    let set = stream.set_nodelay(true).and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "the options of a socket could not be set; the connection is served without them");
    }
}

/// Sends a refusal to a peer whose connection is not accepted.
async fn refuse_connection(mut stream: TcpStream, refusal: Error, _permit: OwnedSemaphorePermit) {
    let document = encode_problem(&Problem::from(refusal));
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&document)).await;
}

#[cold]
fn connections_exhausted(limit: LimitReached) -> Error {
    match limit {
        LimitReached::Total => {
            Error::new(Kind::Unavailable, "The server has its maximum number of connections; retry shortly.")
        }
        LimitReached::Address => {
            let detail =
                "The server has its maximum number of connections from this address; use fewer, or retry shortly.";
            Error::new(Kind::Overloaded, detail).with_retry_after(1)
        }
    }
}

/// Whether a connection was closed before it was accepted, which needs no action.
fn was_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
