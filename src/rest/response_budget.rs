//! Answers that hold their room until they have been sent.
//!
//! Hyper drops a body as soon as it has taken its last piece, but the piece may wait for its client for long. So the room
//! belongs to the pieces, and is given back with the last of them.

use super::problem::{HandlerResult, Problem};
use super::{AppState, ServerState};
use crate::memory::{AddressUsage, ByteReservation, PAGE_BYTES_MAX, PAGE_ROOM_MIN, PageBudget, at_once_on_behalf_of};
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

/// Smaller answers fit into what a connection has anyway, and take no room.
pub(crate) const LARGE_RESPONSE_BYTES: usize = 16 * 1024;
/// Larger answers are not sent without room, whoever made them.
const BUDGETED_BYTES_MIN: u64 = 64 * 1024;
/// What an answer takes that is compressed while it is sent: nobody knows its size, but there is its compressor.
const COMPRESSED_ROOM: u64 = 256 * 1024;

/// Where the room of a request's body stays until the answer is made: what is answered to a large body is often as large.
#[derive(Clone, Default)]
pub(crate) struct BodyReservation(Arc<Mutex<Option<ByteReservation>>>);

impl BodyReservation {
    /// Leaves the room here.
    pub(crate) fn store(&self, reservation: ByteReservation) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
    }

    fn take(&self) -> Option<ByteReservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An answer of one page: `read` takes room for it as soon as there is something to read.
pub(crate) async fn budgeted_page<T>(
    app: &AppState,
    read: impl Future<Output = Result<T>>,
    answer: impl FnOnce(&T) -> HandlerResult,
) -> HandlerResult {
    let reservation = PageBudget::new(app.answers(), PAGE_BYTES_MAX);
    let page = reservation.scope(read).await?;
    let answer = answer(&page)?;
    Ok(hold_reservation(answer, reservation.take_reservation()))
}

/// An answer of one event.
pub(crate) async fn budgeted_event<T>(
    app: &AppState,
    read: impl Future<Output = Result<T>>,
    answer: impl FnOnce(&T) -> HandlerResult,
) -> HandlerResult {
    let mut reservation = app.answers().reserve(PAGE_ROOM_MIN).await?;
    let answer = answer(&read.await?)?;
    reservation.shrink_to(answer.body().size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX));
    Ok(hold_reservation(answer, Some(reservation)))
}

/// Whatever was answered, with room if it is large. `None`: there is none, and the caller may ask again.
pub(crate) fn with_reservation(
    (common, usage): (&ServerState, &Arc<AddressUsage>),
    method: &Method,
    body_room: Option<BodyReservation>,
    response: Response,
) -> Result<Response, Problem> {
    let size = match response.body().size_hint().exact() {
        Some(size) => size,
        None if response.headers().contains_key(CONTENT_ENCODING) => COMPRESSED_ROOM,
        // Streams and reports of imports are made piece by piece, and their pieces take room where they are large.
        None => 0,
    };
    if size < BUDGETED_BYTES_MIN || response.extensions().get::<ReservedMarker>().is_some() {
        return Ok(response);
    }
    if let Some(reservation) = body_room.and_then(|reservation| reservation.take()) {
        return Ok(hold_reservation(response, Some(reservation)));
    }
    let take = || common.answers.try_reserve(usize::try_from(size).unwrap_or(usize::MAX));
    match at_once_on_behalf_of(usage, take) {
        Ok(reservation) => Ok(hold_reservation(response, Some(reservation))),
        // What was carried out just now is told in any case; it is not larger than what was sent.
        Err(_) if !method.is_safe() && !response.headers().contains_key(REPLAYED) => Ok(response),
        Err(error) => Err(error.into()),
    }
}

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Marks an answer that has its room.
#[derive(Clone, Copy)]
struct ReservedMarker;

/// Marks an answer whose bytes all requests for it share: sending it takes no memory of its own.
pub(crate) fn shared(mut answer: Response) -> Response {
    answer.extensions_mut().insert(ReservedMarker);
    answer
}

/// An answer that holds `room` until it has been sent.
fn hold_reservation(mut answer: Response, reservation: Option<ByteReservation>) -> Response {
    let Some(reservation) = reservation.filter(|reservation| reservation.bytes() >= LARGE_RESPONSE_BYTES) else { return answer };
    answer.extensions_mut().insert(ReservedMarker);
    answer.map(|body| Body::new(BudgetedBody { body, reservation: Arc::new(reservation) }))
}

/// A piece of an answer that holds `room` until it has been sent.
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
    async fn the_room_of_an_answer_is_given_back_with_its_last_piece_and_not_with_its_body() {
        let budget = ByteBudget::new(100_000, "full");
        let answer = Response::new(Body::from(vec![b'x'; 50_000]));
        let mut answer = hold_reservation(answer, Some(budget.try_reserve(50_000).unwrap()));
        assert_eq!(answer.body().size_hint().exact(), Some(50_000));
        let sent = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        drop(answer);
        assert_eq!(budget.free(), 50_000);
        let rest = sent.slice(49_999..);
        drop(sent);
        assert_eq!(budget.free(), 50_000);
        drop(rest);
        assert_eq!(budget.free(), 100_000);
    }

    #[test]
    fn a_small_answer_holds_nothing() {
        let budget = ByteBudget::new(100_000, "full");
        let _answer = hold_reservation(Response::new(Body::from("small")), Some(budget.try_reserve(5).unwrap()));
        assert_eq!(budget.free(), 100_000);
    }
}
