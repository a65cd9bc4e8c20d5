//! The server: accepts connections, serves HTTP/1.1 and HTTP/2 without TLS on them, and drains.
//!
//! - As many connections as allowed, in all and from one address; one more is told to come back, and not kept. Only few are told at a time, the others are
//!   closed: each holds a file descriptor meanwhile.
//! - A system without file descriptors is asked again after a pause.
//! - A peer must send its head in time, take its answers in time, and answer the network's probes.
//! - Draining: no new connections, waiting requests are answered at once, what is in flight is finished.

use super::address_limiter::PeerAddress;
use super::head_meter::HeadMeter;
use super::parked::ParkingSlot;
use super::problem::Problem;
use super::socket::{HttpSocket, HttpVersion, encode_problem};
use super::{HttpFrontend, middleware};
use crate::broker::SlotState;
use contract::{Error, Kind};
use http::Request;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The network asks a silent peer after this time whether it is still there, then a few times more.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 3;
/// Requests of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 128;
/// What hyper may buffer of one HTTP/1 connection beyond the largest head: the longest request target that it parses, so
/// that one too long is refused as such (414).
pub(super) const TARGET_BYTES_MAX: usize = 64 * 1024;
/// What a client may send over HTTP/2 before it is read: for one request, and for all of one connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 128 * 1024;
/// What hyper may copy of an answer over HTTP/2 before the client takes it.
const SEND_BUFFER: usize = 64 * 1024;
/// How long to wait when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that are turned away at a time.
const REFUSALS_MAX: usize = 16;

/// Serves until `stop` ends, then drains; `Err` says how many connections had to be cut off.
pub(crate) async fn serve(
    listener: TcpListener,
    frontend: Arc<HttpFrontend>,
    mut changes: watch::Receiver<SlotState>,
    stop: impl Future<Output = ()>,
) -> Result<(), usize> {
    let places = Arc::new(Semaphore::new(frontend.options.connections_max));
    let turned_away = Arc::new(Semaphore::new(REFUSALS_MAX));
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
                    tracing::warn!(%error, "no connection can be accepted just now; trying again until one can");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        is_short = false;
        let place = Arc::clone(&places).try_acquire_owned().map_err(|_| connections_exhausted());
        let member = || frontend.connections.try_acquire(peer.ip()).ok_or_else(address_exhausted);
        let (place, member) = match place.and_then(|place| Ok((place, member()?))) {
            Ok(both) => both,
            Err(refusal) => {
                if let Ok(permit) = Arc::clone(&turned_away).try_acquire_owned() {
                    tokio::spawn(refuse_connection(stream, refusal, permit));
                }
                continue;
            }
        };
        let frontend = Arc::clone(&frontend);
        tokio::spawn(async move {
            serve_connection(stream, member.peer(), frontend).await;
            drop((member, place));
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
async fn serve_connection(stream: TcpStream, peer: PeerAddress, frontend: Arc<HttpFrontend>) {
    set_socket_options(&stream);
    let greeting = HttpSocket::detect_version(stream, frontend.options.write_timeout);
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(frontend.options.header_timeout, greeting) => greeted,
        // Who has asked nothing yet is owed nothing.
        () = frontend.drained() => return,
    };
    let Ok(Ok(socket)) = greeted else { return };
    match socket.version() {
        HttpVersion::One => serve_http1(socket, peer, frontend).await,
        // It needs more room, which the others need not have.
        HttpVersion::Two => Box::pin(serve_http2(socket, peer, frontend)).await,
    }
}

/// Serves HTTP/1; while a poll waits for long, there is no connection, only a socket.
async fn serve_http1(mut socket: HttpSocket, peer: PeerAddress, frontend: Arc<HttpFrontend>) {
    let (parking, flushed) = (ParkingSlot::new(), socket.flushed());
    let meter = HeadMeter::new(&frontend.heads, &peer.usage);
    socket.count_heads(Arc::clone(&meter));
    loop {
        let (at_hand, peer) = (Arc::clone(&frontend), peer.clone());
        let (shared, meter) = (parking.clone(), Arc::clone(&meter));
        let service = service_fn(move |request: Request<Incoming>| {
            let reading = meter.parsed(!request.body().is_end_stream());
            middleware::handle(Arc::clone(&at_hand), peer.clone(), Some(shared.clone()), (request, reading))
        });
        let connection = http1::Builder::new()
            .timer(parking.timer().clone())
            .header_read_timeout(frontend.options.header_timeout)
            .max_buf_size(frontend.options.header_bytes_max + TARGET_BYTES_MAX)
            // It is the socket that notices a peer that leaves.
            .half_close(true)
            .serve_connection(TokioIo::new(socket), service);
        // In a box, so that a parked poll has no room for it.
        let mut connection = Box::new(connection);
        let leave = || flushed.swap(false, Ordering::Relaxed).then(|| parking.take_parked()).flatten();
        let left =
            run_connection(&frontend, Pin::new(&mut *connection), |connection| connection.graceful_shutdown(), leave)
                .await;
        let Some(parked) = left else { return };
        let rest = {
            // The box is gone at the end of this, and not of the wait.
            let connection = connection;
            connection.into_parts()
        };
        socket = rest.io.into_inner();
        // Copied: the buffer is what we want to be rid of.
        let behind = rest.read_buf.to_vec();
        drop((rest.read_buf, rest.service));
        let Some(question) = parked.wait(&socket, &parking).await else { return };
        socket.push_back(&[question, behind].concat());
    }
}

async fn serve_http2(socket: HttpSocket, peer: PeerAddress, frontend: Arc<HttpFrontend>) {
    let (options, at_hand) = (&frontend.options, Arc::clone(&frontend));
    let service =
        service_fn(move |request| middleware::handle(Arc::clone(&at_hand), peer.clone(), None, (request, None)));
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
    let nothing = || None::<Infallible>;
    run_connection(&frontend, pin!(connection), |connection| connection.graceful_shutdown(), nothing).await;
}

/// Runs a connection until it ends, or until `leave` has something to leave it with. When the server drains, it ends with
/// what it is at.
async fn run_connection<C: Future, T>(
    frontend: &HttpFrontend,
    mut connection: Pin<&mut C>,
    wind_down: impl Fn(Pin<&mut C>),
    leave: impl Fn() -> Option<T>,
) -> Option<T> {
    let mut drained = pin!(frontend.drained());
    let mut draining = false;
    poll_fn(|context| {
        // How a connection ends is its peer's business: a reset, a timeout and a goodbye are all the same to us.
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Some(left) = leave() {
            return Poll::Ready(Some(left));
        }
        if !draining && drained.as_mut().poll(context).is_ready() {
            draining = true;
            wind_down(connection.as_mut());
            // What it does about that is seen when it is asked again.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Small answers leave at once, and a peer that vanished is noticed.
fn set_socket_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(KEEPALIVE_RETRIES);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Tells a peer that there is no place for it.
async fn refuse_connection(mut stream: TcpStream, refusal: Error, _permit: OwnedSemaphorePermit) {
    let answer = encode_problem(&Problem::from(refusal));
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&answer)).await;
}

#[cold]
fn connections_exhausted() -> Error {
    Error::new(Kind::Unavailable, "The server has as many connections as it may; come back shortly.")
}

#[cold]
fn address_exhausted() -> Error {
    let detail = "The server has as many connections from this address as it may; use fewer, or come back shortly.";
    Error::new(Kind::Overloaded, detail).with_retry_after(1)
}

/// Whether a connection was gone before it was accepted, which concerns nobody.
fn was_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
