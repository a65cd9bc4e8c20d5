//! The loop of an HTTP/1 connection: hyper serves it until a poll is parked, and again when the poll has its response.

use super::ParkingSlot;
use crate::rest::HttpFrontend;
use crate::rest::address_limiter::PeerAddress;
use crate::rest::connection_memory::{ConnectionReservation, HTTP1_BYTES};
use crate::rest::head_meter::HeadMeter;
use crate::rest::middleware::{self, RequestSource};
use crate::rest::problem::Problem;
use crate::rest::server::{TARGET_BYTES_MAX, run_connection};
use crate::rest::socket::{HeadCounter, HttpSocket};
use axum::response::Response;
use http::Request;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Serves an HTTP/1 connection to its end. While a poll is parked there is no hyper connection, only a socket, and `memory` is
/// smaller.
pub(crate) async fn serve_http1(
    mut socket: HttpSocket,
    peer: PeerAddress,
    mut memory: ConnectionReservation,
    frontend: Arc<HttpFrontend>,
) {
    let (parking, flushed) = (ParkingSlot::new(Some(memory.budget().clone())), socket.flushed());
    let meter = HeadMeter::new(&frontend.heads, &peer.usage);
    socket.count_heads(HeadCounter::Http1(Arc::clone(&meter)));
    loop {
        // Many polls may have their responses at once; then they take turns.
        if let Err(refusal) = memory.grow_to(HTTP1_BYTES).await {
            return socket.refuse(&Problem::from(refusal)).await;
        }
        let service = service_fn(|request| respond(&frontend, &peer, &parking, &meter, request));
        let connection = http1::Builder::new()
            .timer(parking.timer().clone())
            .header_read_timeout(frontend.options.header_timeout)
            .max_buf_size(frontend.options.header_bytes_max + TARGET_BYTES_MAX)
            // The socket notices that the peer has left.
            .half_close(true)
            .serve_connection(TokioIo::new(socket), service);
        // Boxed, so that its memory is free while a poll is parked.
        let mut connection = Box::new(connection);
        let take_parked = || flushed.swap(false, Ordering::Relaxed).then(|| parking.take_parked()).flatten();
        let shut_down = |connection: Pin<&mut _>| http1::Connection::graceful_shutdown(connection);
        let Some(parked) = run_connection(&frontend, Pin::new(&mut *connection), shut_down, take_parked).await else {
            return;
        };
        let parts = {
            // Moved, so that the box is freed here and not after the wait.
            let connection = connection;
            connection.into_parts()
        };
        socket = parts.io.into_inner();
        // Copied, so that hyper's read buffer is freed.
        let unread = parts.read_buf.to_vec();
        drop((parts.read_buf, parts.service));
        memory.shrink();
        let Some(request_head) = parked.wait(&mut socket, &parking).await else { return };
        socket.push_back(&[request_head, unread].concat());
    }
}

/// The response to one request of this connection.
fn respond(
    frontend: &Arc<HttpFrontend>,
    peer: &PeerAddress,
    parking: &ParkingSlot,
    meter: &Arc<HeadMeter>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + Send + 'static {
    let reading = meter.parsed(!request.body().is_end_stream());
    let source = RequestSource { peer: peer.clone(), parking: Some(parking.clone()), reading, refusal: None };
    let (response, meter) = (middleware::handle(Arc::clone(frontend), source, request), Arc::clone(meter));
    async move {
        let mut response = response.await?;
        if meter.is_scarce() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
}
