//! Memory for responses: reserved from a budget, and held until the response has been sent.
//!
//! Hyper drops a body as soon as it has taken the last piece, but the piece may wait for its client for long. So the
//! reservation belongs to the pieces, and ends with the last of them.

use super::problem::{HandlerResult, Problem};
use super::{AppState, ServerState};
use crate::memory::{AddressUsage, ByteBudget, ByteReservation, PAGE_BYTES_MAX, PageBudget, at_once_on_behalf_of};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contract::Result;
use http::header::CONTENT_ENCODING;
use http::{HeaderName, Method};
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tower_http::compression::Predicate;

/// A smaller response fits into what an HTTP/1 connection has anyway.
pub(crate) const LARGE_RESPONSE_BYTES: usize = 16 * 1024;
/// A larger response is not sent without a reservation.
const BUDGETED_BYTES_MIN: u64 = 64 * 1024;
/// The same over HTTP/2, where many responses of one connection may wait for its client.
const HTTP2_BUDGETED_BYTES_MIN: u64 = 4 * 1024;
/// The memory of a compressor, in bytes.
const COMPRESSOR_BYTES: usize = 1024 * 1024;

tokio::task_local! {
    /// Where the compressor of a response is reserved, if the client accepts a compressed one.
    static COMPRESSOR: Option<SharedReservation>;
}

/// A reservation that one step of a request leaves for another: the one of a body for the response, which is often as large.
#[derive(Clone, Default)]
pub(crate) struct SharedReservation(Arc<Mutex<Option<ByteReservation>>>);

impl SharedReservation {
    /// Leaves a reservation here.
    pub(crate) fn store(&self, reservation: ByteReservation) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
    }

    fn take(&self) -> Option<ByteReservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Compresses a response only if there is room for a compressor; otherwise the response is sent uncompressed.
#[derive(Clone)]
pub(crate) struct CompressWithinBudget(pub(crate) ByteBudget);

impl Predicate for CompressWithinBudget {
    fn should_compress<B: http_body::Body>(&self, _: &http::Response<B>) -> bool {
        let reserve = |slot: &Option<SharedReservation>| match slot {
            // The client accepts no compressed response, and gets none.
            None => true,
            Some(slot) => self.0.try_reserve(COMPRESSOR_BYTES).map(|reservation| slot.store(reservation)).is_ok(),
        };
        COMPRESSOR.try_with(reserve).unwrap_or_default()
    }
}

/// Runs a request's handler; the compressor of its response is reserved in `slot`.
pub(crate) async fn with_compressor<F: Future>(slot: Option<SharedReservation>, handler: F) -> F::Output {
    COMPRESSOR.scope(slot, handler).await
}

/// The response with one page: `read` reserves room for it as soon as there is something to read.
pub(crate) async fn budgeted_page<T>(
    app: &AppState,
    read: impl Future<Output = Result<T>>,
    respond: impl FnOnce(&T) -> HandlerResult,
) -> HandlerResult {
    let budget = PageBudget::new(app.answers(), PAGE_BYTES_MAX);
    let page = budget.scope(read).await?;
    let response = respond(&page)?;
    Ok(hold_if_large(response, budget.take_reservation()))
}

/// The response with something of at most `bytes` bytes.
pub(crate) async fn budgeted<T>(
    app: &AppState,
    bytes: usize,
    read: impl Future<Output = Result<T>>,
    respond: impl FnOnce(&T) -> HandlerResult,
) -> HandlerResult {
    let mut reservation = app.answers().reserve(bytes).await?;
    let response = respond(&read.await?)?;
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    reservation.shrink_to(size.unwrap_or(usize::MAX));
    Ok(hold_if_large(response, Some(reservation)))
}

/// What a response needs to be sent.
pub(crate) struct SendBudget<'a> {
    pub(crate) server: &'a ServerState,
    pub(crate) usage: &'a Arc<AddressUsage>,
    pub(crate) is_http2: bool,
    /// The reservation of the request's body.
    pub(crate) body: Option<SharedReservation>,
    pub(crate) compressor: Option<SharedReservation>,
}

impl SendBudget<'_> {
    /// The response with a reservation, if it is large. `Err`: there is no room, and the caller may retry.
    pub(crate) fn hold(self, method: &Method, response: Response) -> Result<Response, Problem> {
        let compressor = self.compressor.and_then(|slot| slot.take());
        if let Some(compressor) = compressor.filter(|_| response.headers().contains_key(CONTENT_ENCODING)) {
            // Its size is not known, but the compressor is the larger part unless the handler has reserved a page.
            return Ok(hold_reservation(response, compressor));
        }
        // Streams and import reports are produced in pieces, and large pieces have their own reservations.
        let size = response.body().size_hint().exact().unwrap_or_default();
        let least = if self.is_http2 { HTTP2_BUDGETED_BYTES_MIN } else { BUDGETED_BYTES_MIN };
        if size < least || response.extensions().get::<ReservedMarker>().is_some() {
            return Ok(response);
        }
        if let Some(reservation) = self.body.and_then(|slot| slot.take()) {
            return Ok(hold_reservation(response, reservation));
        }
        let reserve = || self.server.answers.try_reserve(usize::try_from(size).unwrap_or(usize::MAX));
        match at_once_on_behalf_of(self.usage, reserve) {
            Ok(reservation) => Ok(hold_reservation(response, reservation)),
            // What has just been executed is reported in any case; the report is not larger than the request was.
            Err(_) if !method.is_safe() && !response.headers().contains_key(REPLAYED) => Ok(response),
            Err(error) => Err(error.into()),
        }
    }
}

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Marks a response that has its reservation.
#[derive(Clone, Copy)]
struct ReservedMarker;

/// Marks a response whose bytes all requests for it share: sending it needs no memory of its own.
pub(crate) fn shared(mut response: Response) -> Response {
    response.extensions_mut().insert(ReservedMarker);
    response
}

/// The response, which holds `reservation` until it has been sent.
fn hold_reservation(mut response: Response, reservation: ByteReservation) -> Response {
    response.extensions_mut().insert(ReservedMarker);
    response.map(|body| Body::new(BudgetedBody { body, reservation: Arc::new(reservation) }))
}

/// The same if the reservation is large.
fn hold_if_large(response: Response, reservation: Option<ByteReservation>) -> Response {
    match reservation.filter(|reservation| reservation.bytes() >= LARGE_RESPONSE_BYTES) {
        Some(reservation) => hold_reservation(response, reservation),
        None => response,
    }
}

/// A piece of a response that holds `reservation` until it has been sent, if it is large.
pub(crate) fn budgeted_chunk(bytes: Bytes, reservation: Option<ByteReservation>) -> Bytes {
    match reservation.filter(|reservation| reservation.bytes() >= LARGE_RESPONSE_BYTES) {
        Some(reservation) => Bytes::from_owner(BudgetedChunk { bytes, _room: Arc::new(reservation) }),
        None => bytes,
    }
}

struct BudgetedBody {
    body: Body,
    reservation: Arc<ByteReservation>,
}

struct BudgetedChunk {
    bytes: Bytes,
    _room: Arc<ByteReservation>,
}

impl AsRef<[u8]> for BudgetedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for BudgetedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let reservation = &self.reservation;
        let held = |bytes| Bytes::from_owner(BudgetedChunk { bytes, _room: Arc::clone(reservation) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ByteBudget;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_reservation_ends_with_the_last_piece_of_a_response_and_not_with_its_body() {
        let budget = ByteBudget::new(100_000, "full");
        let response = Response::new(Body::from(vec![b'x'; 50_000]));
        let mut response = hold_reservation(response, budget.try_reserve(50_000).unwrap());
        assert_eq!(response.body().size_hint().exact(), Some(50_000));
        let sent = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        drop(response);
        assert_eq!(budget.free(), 50_000);
        let rest = sent.slice(49_999..);
        drop(sent);
        assert_eq!(budget.free(), 50_000);
        drop(rest);
        assert_eq!(budget.free(), 100_000);
    }

    #[test]
    fn a_small_response_holds_nothing() {
        let budget = ByteBudget::new(100_000, "full");
        let _response = hold_if_large(Response::new(Body::from("small")), Some(budget.try_reserve(5).unwrap()));
        assert_eq!(budget.free(), 100_000);
    }
}
