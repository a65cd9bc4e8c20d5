//! Where polls wait that wait for long: beside their connection, which is taken apart meanwhile.
//!
//! ```text
//!   hyper's connection ── a poll has waited a while ──▶ socket + question + what it waits for
//!            ▲                                                    │
//!            └── the question is read again, the answer is there ◀┘
//! ```
//!
//! - Hyper keeps two buffers of 8 KiB for a connection, and every handler on a request's way its future. A poll that may wait
//!   for half a minute needs none of that; `bench idle` shows what it costs.
//! - What a poll waits for is moved, not begun anew: a filter does not look at anything twice.
//! - For HTTP/1 and requests without a body. HTTP/2 shares its buffers among many requests.

use super::alarm::Alarm;
use super::problem::Answer;
use super::socket::Socket;
use contract::BoxFuture;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// How long a poll waits at least before its connection is taken apart. What comes sooner is not worth it.
const AFTER: Duration = Duration::from_secs(1);
/// Not all at once, when many began to wait at the same time: this much later each, and then from the start again.
const STEP: Duration = Duration::from_millis(64);
const STEPS: u32 = 32;

/// One connection's.
#[derive(Clone)]
pub(crate) struct Parking(Arc<Shared>);

struct Shared {
    alarm: Alarm,
    place: Mutex<Place>,
    after: Duration,
}

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Waiting(Parked),
    Answered(Answer),
}

/// A request that waits without a connection.
pub(crate) struct Parked {
    question: Vec<u8>,
    answer: BoxFuture<'static, Answer>,
}

impl Parking {
    /// Another connection's.
    pub(crate) fn new() -> Self {
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        let step = CONNECTIONS.fetch_add(1, Ordering::Relaxed) % STEPS;
        Self(Arc::new(Shared { alarm: Alarm::default(), place: Mutex::default(), after: AFTER + STEP * step }))
    }

    /// The connection's alarm.
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.0.alarm
    }

    /// The request that is to wait without its connection, if there is one.
    pub(crate) fn leave(&self) -> Option<Parked> {
        let mut place = self.place();
        match std::mem::take(&mut *place) {
            Place::Waiting(parked) => Some(parked),
            other => {
                *place = other;
                None
            }
        }
    }

    /// The request is answered, whatever came of it; what was left for it is for nobody else.
    pub(crate) fn clear(&self) {
        *self.place() = Place::Empty;
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer that was waited for, when its question is asked again.
    fn answered(&self) -> Option<Answer> {
        let mut place = self.place();
        match std::mem::take(&mut *place) {
            Place::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

impl Parked {
    /// Waits for the answer and leaves it in its place; gives back the question. `None`: the peer went away.
    pub(crate) async fn wait(mut self, socket: &Socket, parking: &Parking) -> Option<Vec<u8>> {
        let answer = poll_fn(|context| match self.answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if socket.has_lost_its_peer(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let answer = answer.await?;
        *parking.place() = Place::Answered(answer);
        Some(self.question)
    }
}

/// A request that may have to wait: with its head, to ask again.
pub(crate) struct Patient {
    parts: Parts,
    parking: Option<Parking>,
}

impl Patient {
    /// A request with this head.
    pub(crate) fn new(mut parts: Parts) -> Self {
        let parking = parts.extensions.remove::<Parking>();
        let has_body = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
        Self { parking: parking.filter(|_| !has_body), parts }
    }

    /// What `answer` comes to, wherever it is waited for.
    pub(crate) fn wait(self, answer: impl Future<Output = Answer> + Send + 'static) -> BoxFuture<'static, Answer> {
        let mut answer: BoxFuture<'static, Answer> = Box::pin(answer);
        let Some(parking) = self.parking else { return answer };
        Box::pin(async move {
            if let Some(answer) = parking.answered() {
                return answer;
            }
            if let Some(answer) = parking.alarm().within(parking.0.after, &mut answer).await {
                return answer;
            }
            *parking.place() = Place::Waiting(Parked { question: question(&self.parts), answer });
            // This future is dropped with the connection, or finds its peer gone.
            pending().await
        })
    }
}

/// A request's head as it came, near enough.
fn question(parts: &Parts) -> Vec<u8> {
    let mut text = format!("{} {} {:?}\r\n", parts.method, parts.uri, parts.version).into_bytes();
    for (name, value) in &parts.headers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(piece);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Version};

    /// A poll with these headers on a connection, and what it waits for: nothing.
    fn waiting(parking: &Parking, headers: &[(&'static str, &'static str)]) -> BoxFuture<'static, Answer> {
        let mut request = Request::get("/v1/events:poll").extension(parking.clone());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Patient::new(request.body(()).unwrap().into_parts().0).wait(pending())
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_leaves_its_connection_after_a_while_and_finds_its_answer_when_it_asks_again() {
        let parking = Parking::new();
        let in_time = tokio::time::timeout(AFTER / 2, waiting(&parking, &[])).await;
        assert!(in_time.is_err() && parking.leave().is_none(), "it left too soon");
        let by_then = AFTER + STEP * STEPS;
        assert!(tokio::time::timeout(by_then, waiting(&parking, &[])).await.is_err());
        assert!(parking.leave().is_some(), "it is still there");
        let answer = axum::response::Response::new(axum::body::Body::from("here"));
        *parking.place() = Place::Answered(Ok(answer));
        assert!(waiting(&parking, &[]).await.is_ok());
        // For nobody else.
        assert!(parking.answered().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_a_body_stays_with_its_connection() {
        let parking = Parking::new();
        for headers in [&[("content-length", "2")], &[("transfer-encoding", "chunked")]] {
            let by_then = AFTER + STEP * STEPS;
            assert!(tokio::time::timeout(by_then, waiting(&parking, headers)).await.is_err());
            assert!(parking.leave().is_none(), "{headers:?}");
        }
    }

    #[test]
    fn a_question_is_asked_as_it_was() {
        let request = Request::get("/v1/events:poll?topic=a%20b&timeout=30").version(Version::HTTP_10);
        let request =
            request.header("Host", "here").header("X-Twice", "1").header("X-Twice", "2").header("X-Odd", "\u{e9}");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let wanted = "GET /v1/events:poll?topic=a%20b&timeout=30 HTTP/1.0\r\nhost: here\r\nx-twice: 1\r\nx-twice: 2\r\nx-odd: \u{e9}\r\n\r\n";
        assert_eq!(String::from_utf8(question(&parts)).unwrap(), wanted);
    }
}
