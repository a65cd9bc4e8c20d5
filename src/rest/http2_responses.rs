//! Responses over HTTP/2: a client that stops taking one is disconnected, as over HTTP/1.
//!
//! - HTTP/2 has its own flow control. If the client opens no window, the response stays in this process while the socket looks
//!   healthy, so `server.write_timeout_secs` counts for every response: from the last piece of it that left.
//! - Bodies are cut into small pieces, so that a slow client is seen to make progress.
//! - The last pieces wait inside hyper, where a single stream cannot be reset any more. So the connection ends.

use crate::memory::ByteReservation;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Largest piece of a body, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// The watch looks this often within a time-out.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// What a request holds until its response has been sent.
pub(crate) enum RequestRoom {
    /// Its memory.
    Reserved(#[expect(dead_code, reason = "held until it is dropped")] ByteReservation),
    /// There is none; it is one of the few that are refused at a time.
    Refused(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit),
}

/// The responses of one connection that are being sent; clones share it.
#[derive(Clone, Default)]
pub(crate) struct ResponseWatch(Arc<Mutex<Vec<Weak<ResponseProgress>>>>);

/// How far one response has been sent.
struct ResponseProgress {
    state: Mutex<ProgressState>,
    /// The request's room, which is free when the last piece was sent.
    _room: RequestRoom,
}

struct ProgressState {
    /// Pieces that hyper holds.
    unsent: usize,
    /// When a piece was sent, or the first one was handed to hyper.
    moved_at: Instant,
}

impl ResponseWatch {
    /// The same response, watched and holding `room` until it is sent.
    pub(crate) fn watch(&self, response: Response, room: RequestRoom) -> Response {
        if response.body().is_end_stream() {
            return response;
        }
        let state = Mutex::new(ProgressState { unsent: 0, moved_at: Instant::now() });
        let progress = Arc::new(ResponseProgress { state, _room: room });
        let mut responses = self.lock();
        // Amortised: the list is at most twice as long as it must be.
        if responses.len() == responses.capacity() {
            responses.retain(|response| response.strong_count() > 0);
        }
        responses.push(Arc::downgrade(&progress));
        drop(responses);
        response.map(|body| Body::new(WatchedBody { body, rest: Bytes::new(), progress }))
    }

    /// Ends when the client has taken nothing of a response for `timeout`.
    pub(crate) async fn stalled(&self, timeout: Duration) {
        loop {
            tokio::time::sleep(timeout / CHECKS_PER_TIMEOUT).await;
            let mut responses = self.lock();
            responses.retain(|response| response.strong_count() > 0);
            if responses.iter().filter_map(Weak::upgrade).any(|response| response.is_stalled(timeout)) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ResponseProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseProgress {
    fn is_stalled(&self, timeout: Duration) -> bool {
        let state = self.lock();
        state.unsent > 0 && state.moved_at.elapsed() >= timeout
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece that hyper is about to hold.
    fn piece(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        let mut state = self.lock();
        if state.unsent == 0 {
            state.moved_at = Instant::now();
        }
        state.unsent += 1;
        drop(state);
        Bytes::from_owner(UnsentPiece { bytes, progress: Arc::clone(self) })
    }
}

/// A piece of a body, until it is sent.
struct UnsentPiece {
    bytes: Bytes,
    progress: Arc<ResponseProgress>,
}

impl AsRef<[u8]> for UnsentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentPiece {
    fn drop(&mut self) {
        let mut state = self.progress.lock();
        debug_assert!(state.unsent > 0, "every piece was counted");
        state.unsent = state.unsent.saturating_sub(1);
        state.moved_at = Instant::now();
    }
}

struct WatchedBody {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    progress: Arc<ResponseProgress>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(bytes);
        Poll::Ready(Some(Ok(Frame::data(self.progress.piece(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ByteBudget;
    use http_body_util::BodyExt;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_response_of_which_nothing_is_taken_stalls_and_a_slow_one_does_not() {
        let watch = ResponseWatch::default();
        let budget = ByteBudget::new(10_000, "full");
        let body = Body::from(vec![b'x'; 2 * PIECE_BYTES + 1]);
        let room = RequestRoom::Reserved(budget.try_reserve(5000).unwrap());
        let mut response = watch.watch(Response::new(body), room);
        let never = tokio::time::timeout(10 * TIMEOUT, watch.stalled(TIMEOUT)).await;
        assert!(never.is_err(), "nothing was handed out yet");
        let mut pieces = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE_BYTES, PIECE_BYTES, 1]);
        drop(response);
        for piece in pieces.drain(..2) {
            let slow = tokio::time::timeout(TIMEOUT * 2 / 3, watch.stalled(TIMEOUT)).await;
            assert!(slow.is_err(), "a piece is taken within every time-out");
            drop(piece);
        }
        assert!(
            tokio::time::timeout(2 * TIMEOUT, watch.stalled(TIMEOUT)).await.is_ok(),
            "the last piece was not taken"
        );
        assert_eq!(budget.free(), 5000);
        pieces.clear();
        assert_eq!(budget.free(), 10_000);
    }
}
