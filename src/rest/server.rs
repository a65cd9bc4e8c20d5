//! The server: accepts connections, serves HTTP/1.1 and HTTP/2 without TLS on them, and drains.
//!
//! - As many connections as allowed; one more is told to come back, and not kept.
//! - A peer must send its head in time, take its answers in time, and answer the network's probes.
//! - Draining: no new connections, waiting requests are answered at once, what is in flight is finished.

use super::problem::Problem;
use super::socket::{Socket, Version, written_out};
use super::{App, edge};
use axum::Router;
use contract::{Error, Kind};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The network asks a silent peer after this time whether it is still there, then a few times more.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 3;
/// Requests of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 1024;
/// How long to wait when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` ends, then drains; `Err` says how many connections had to be cut off.
pub(crate) async fn serve(
    listener: TcpListener,
    app: App,
    router: Router,
    stop: impl Future<Output = ()>,
) -> Result<(), usize> {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(app.options.connections_max));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tokio::spawn(turn_away(stream));
            continue;
        };
        let (app, router, watcher) = (app.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            connection(stream, app, router, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    app.drain();
    let left = Arc::clone(&places);
    let drained = tokio::time::timeout(app.options.drain_timeout, graceful.shutdown()).await;
    match drained {
        Ok(()) => Ok(()),
        Err(_) => Err(app.options.connections_max - left.available_permits()),
    }
}

/// Serves one connection to its end.
async fn connection(stream: TcpStream, app: App, router: Router, watcher: hyper_util::server::graceful::Watcher) {
    let at_hand = app.clone();
    let options = &at_hand.options;
    prepare(&stream);
    let greeting = Socket::greet(stream, options.write_timeout);
    let Ok(Ok(socket)) = tokio::time::timeout(options.header_timeout, greeting).await else { return };
    let version = socket.version();
    let service = service_fn(move |request| edge::handle(app.clone(), router.clone(), request));
    // How a connection ends is its peer's business: a reset, a timeout and a goodbye are all the same to us.
    let _ = match version {
        Version::One => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(options.header_timeout)
                .serve_connection(TokioIo::new(socket), service);
            watcher.watch(connection).await.is_ok()
        }
        Version::Two => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(u32::try_from(options.header_bytes_max).unwrap_or(u32::MAX))
                .keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(options.header_timeout)
                .serve_connection(TokioIo::new(socket), service);
            watcher.watch(connection).await.is_ok()
        }
    };
}

/// Small answers leave at once, and a peer that vanished is noticed.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(KEEPALIVE_RETRIES);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Tells a peer that there is no place for it.
async fn turn_away(mut stream: TcpStream) {
    let error = Error::new(Kind::Unavailable, "The server has as many connections as it may; come back shortly.");
    let answer = written_out(&Problem::from(error));
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&answer)).await;
}

/// A connection that died before it was accepted is nothing; a system out of files needs a moment.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "no connection can be accepted just now");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
