//! One request and its response, within a deadline and a number of bytes.
//!
//! - The deadline covers everything: connecting, sending, waiting, and every byte of the response. A receiver that
//!   sends byte by byte gets no further than one that hangs.
//! - Only the first bytes of a body are read. Then the connection is closed (HTTP/1.1) or the stream is reset (HTTP/2),
//!   and the rest is discarded.

use super::connect::ConnectionUse;
use super::failure::{DeliveryFailure, ErrorClass};
use super::pool::PooledClient;
use super::response::ReceiverResponse;
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// An exchange without a complete response.
#[derive(Debug)]
pub(super) struct ExchangeError {
    pub(super) failure: DeliveryFailure,
    /// The status, if the head of a response arrived.
    pub(super) status: Option<StatusCode>,
    /// The part of the body that arrived.
    pub(super) body: Bytes,
    /// Whether a kept connection ended before the first byte of a response: the receiver was closing it, so the request can be
    /// sent once more on a new one.
    pub(super) is_stale: bool,
}

impl From<DeliveryFailure> for ExchangeError {
    fn from(failure: DeliveryFailure) -> Self {
        Self { failure, status: None, body: Bytes::new(), is_stale: false }
    }
}

/// Sends a request and reads up to `bytes_max` of the response body.
pub(super) async fn exchange(
    client: &PooledClient,
    request: Request<Full<Bytes>>,
    deadline: Instant,
    bytes_max: usize,
) -> Result<ReceiverResponse, ExchangeError> {
    let response = timeout_at(deadline, client.request(request)).await;
    let response = response.map_err(|_| timed_out("No response in time."))?.map_err(|error| {
        let failure = DeliveryFailure::of(&error);
        let is_stale = failure.class == ErrorClass::Reset && ConnectionUse::was_used(&error);
        ExchangeError { is_stale, ..failure.into() }
    })?;
    ConnectionUse::responded(response.extensions());
    let (parts, mut incoming) = response.into_parts();
    let mut body = BytesMut::new();
    match timeout_at(deadline, read(&mut incoming, &mut body, bytes_max)).await {
        Ok(Ok(is_cut)) => {
            Ok(ReceiverResponse { status: parts.status, headers: parts.headers, body: body.freeze(), is_cut })
        }
        Ok(Err(failure)) => Err(cut_off(failure, parts.status, body.freeze())),
        Err(_) => {
            let failure = timed_out("The response did not end in time.");
            Err(cut_off(failure, parts.status, body.freeze()))
        }
    }
}

/// A response whose body did not end.
const fn cut_off(failure: DeliveryFailure, status: StatusCode, body: Bytes) -> ExchangeError {
    ExchangeError { failure, status: Some(status), body, is_stale: false }
}

/// The deadline passed.
pub(super) fn timed_out(message: &str) -> DeliveryFailure {
    DeliveryFailure::new(ErrorClass::Timeout, message)
}

/// Appends up to `bytes_max`; true if there was more.
async fn read(incoming: &mut Incoming, body: &mut BytesMut, bytes_max: usize) -> Result<bool, DeliveryFailure> {
    while let Some(frame) = incoming.frame().await {
        // Trailers are ignored.
        let Ok(piece) = frame.map_err(|error| DeliveryFailure::of(&error))?.into_data() else { continue };
        let room = bytes_max - body.len();
        body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if piece.len() > room {
            return Ok(true);
        }
    }
    Ok(false)
}
