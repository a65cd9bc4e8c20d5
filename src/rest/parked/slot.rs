//! Where polls wait: beside their connection, which is taken apart meanwhile.
//!
//! ```text
//!   hyper's connection ── a poll has to wait ──▶ socket + question + what it waits for
//!            ▲                                              │
//!            └── the question again, with its answer ◀───────┘
//! ```
//!
//! - Hyper keeps two buffers of 8 KiB for a connection, and every handler on a request's way its future. A poll that may wait
//!   for half a minute needs none of that; `bench idle` shows what it costs.
//! - What a poll waits for is moved, not begun anew: a filter does not look at anything twice.
//! - A poll is parked as soon as it has to wait: what its connection needed is still at hand, for the next one to use. Only
//!   where the last one was answered soon it stays for a while, for the next may be too.
//! - For HTTP/1 and requests without a body. HTTP/2 shares its buffers among many requests.

use super::address_limiter::{AddressLimiter, AddressPermit};
use super::connection_timer::ConnectionTimer;
use super::problem::HandlerResult;
use super::socket::HttpSocket;
use contract::{BoxFuture, Error, Kind};
use http::Uri;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use std::future::{pending, poll_fn};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// An answer that comes sooner is not worth the parking.
const QUICK_ANSWER: Duration = Duration::from_secs(1);
/// Not all at once, when many turn out to wait for longer: this much later each, and then from the start again.
const STAGGER_STEP: Duration = Duration::from_millis(64);
const STAGGER_STEPS: u32 = 32;

/// One connection's.
#[derive(Clone)]
pub(crate) struct ParkingSlot(Arc<ParkingState>);

struct ParkingState {
    timer: ConnectionTimer,
    phase: Mutex<ParkingPhase>,
    /// How long a poll stays where the last one was answered soon.
    stay_time: Duration,
    was_quick: AtomicBool,
}

#[derive(Default)]
enum ParkingPhase {
    #[default]
    Empty,
    Waiting(ParkedRequest),
    Answered(HandlerResult),
}

/// A request's way to the parking of its connection, and where it comes from.
#[derive(Clone)]
pub(crate) struct ParkingContext {
    /// `None`: over HTTP/2 it waits where it is.
    parking: Option<ParkingSlot>,
    address: IpAddr,
    /// What was asked for; a handler may see a tidier form of it.
    target: Uri,
}

/// A request that waits without a connection.
pub(crate) struct ParkedRequest {
    request_head: Vec<u8>,
    answer: BoxFuture<'static, HandlerResult>,
    /// When it was asked.
    received_at: Instant,
    /// Its place among all that wait.
    _permit: Option<AddressPermit>,
}

impl ParkingContext {
    /// For a request of this target.
    pub(crate) fn new(parking: Option<&ParkingSlot>, address: IpAddr, target: Uri) -> Self {
        Self { parking: parking.cloned(), address, target }
    }
}

/// A place among the requests that wait.
pub(crate) fn acquire_wait_permit(
    waits: &Arc<AddressLimiter>,
    context: &ParkingContext,
) -> Result<AddressPermit, Error> {
    waits.try_acquire(context.address).ok_or_else(|| {
        let detail = "As many requests wait as may, over all or from this address; come back later.";
        Error::new(Kind::Overloaded, detail).with_retry_after(RETRY_SECONDS)
    })
}

/// Places get free as polls end, which takes up to half a minute.
const RETRY_SECONDS: u32 = 5;

impl ParkingSlot {
    /// Another connection's.
    pub(crate) fn new() -> Self {
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        let patience = QUICK_ANSWER + STAGGER_STEP * (CONNECTIONS.fetch_add(1, Ordering::Relaxed) % STAGGER_STEPS);
        let (alarm, place, was_soon) = (ConnectionTimer::default(), Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(ParkingState { timer: alarm, phase: place, stay_time: patience, was_quick: was_soon }))
    }

    /// The connection's alarm.
    pub(crate) fn timer(&self) -> &ConnectionTimer {
        &self.0.timer
    }

    /// The request that is to wait without its connection, if there is one.
    pub(crate) fn take_parked(&self) -> Option<ParkedRequest> {
        let mut place = self.lock_phase();
        // Asked after every request: no answer is moved to find out.
        if !matches!(*place, ParkingPhase::Waiting(_)) {
            return None;
        }
        match std::mem::take(&mut *place) {
            ParkingPhase::Waiting(parked) => Some(parked),
            ParkingPhase::Empty | ParkingPhase::Answered(_) => None,
        }
    }

    /// The request is answered, whatever came of it; what was left for it is for nobody else.
    pub(crate) fn clear(&self) {
        *self.lock_phase() = ParkingPhase::Empty;
    }

    fn lock_phase(&self) -> MutexGuard<'_, ParkingPhase> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `answer` comes to before it is time to leave the connection.
    async fn wait_on_connection(&self, answer: &mut BoxFuture<'static, HandlerResult>) -> Option<HandlerResult> {
        if self.0.was_quick.load(Ordering::Relaxed) {
            return self.0.timer.timeout(self.0.stay_time, answer).await;
        }
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// The answer that was waited for, when its question is asked again.
    fn take_answer(&self) -> Option<HandlerResult> {
        let mut place = self.lock_phase();
        match std::mem::take(&mut *place) {
            ParkingPhase::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

impl ParkedRequest {
    /// Waits for the answer and leaves it in its place; gives back the question. `None`: the peer went away.
    pub(crate) async fn wait(mut self, socket: &HttpSocket, parking: &ParkingSlot) -> Option<Vec<u8>> {
        let answer = poll_fn(|context| match self.answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if socket.has_lost_its_peer(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let answer = answer.await?;
        parking.0.was_quick.store(self.received_at.elapsed() < QUICK_ANSWER, Ordering::Relaxed);
        *parking.lock_phase() = ParkingPhase::Answered(answer);
        Some(self.request_head)
    }
}

/// A request that may have to wait: with its head, to ask again.
pub(crate) struct WaitingRequest {
    parts: Parts,
    context: Option<ParkingContext>,
    waits: Arc<AddressLimiter>,
}

impl WaitingRequest {
    /// A request with this head; it is one of those that wait.
    pub(crate) fn new(mut parts: Parts, waits: Arc<AddressLimiter>) -> Self {
        let entrance = parts.extensions.remove::<ParkingContext>();
        Self { parts, context: entrance, waits }
    }

    /// What `answer` comes to, wherever it is waited for.
    pub(crate) fn wait(
        self,
        answer: impl Future<Output = HandlerResult> + Send + 'static,
    ) -> BoxFuture<'static, HandlerResult> {
        let mut answer: BoxFuture<'static, HandlerResult> = Box::pin(answer);
        let Self { mut parts, context: entrance, waits } = self;
        let Some(mut entrance) = entrance else { return answer };
        let has_body = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
        let Some(parking) = entrance.parking.take().filter(|_| !has_body) else {
            drop(parts);
            return Box::pin(async move {
                let _member = acquire_wait_permit(&waits, &entrance)?;
                answer.await
            });
        };
        Box::pin(async move {
            if let Some(answer) = parking.take_answer() {
                return answer;
            }
            // Not when the question is asked again: it has waited by then.
            let member = Some(acquire_wait_permit(&waits, &entrance)?);
            let asked = Instant::now();
            if let Some(answer) = parking.wait_on_connection(&mut answer).await {
                return answer;
            }
            parts.uri = entrance.target;
            *parking.lock_phase() = ParkingPhase::Waiting(ParkedRequest {
                request_head: encode_head(&parts),
                answer,
                received_at: asked,
                _permit: member,
            });
            // This future is dropped with the connection, or finds its peer gone.
            pending().await
        })
    }
}

/// A request's head as it came, near enough.
fn encode_head(parts: &Parts) -> Vec<u8> {
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
    use crate::broker::{Broker, BrokerSlot};
    use crate::config::Config;
    use crate::rest::address_limiter::PeerAddress;
    use crate::rest::{HttpFrontend, HttpOptions, ServerState, middleware};
    use axum::body::Body;
    use axum::response::Response;
    use http::{Request, Version};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{sleep_until, timeout};

    /// A poll with these headers on a connection, for an answer that takes some time.
    fn poll(
        parking: &ParkingSlot,
        headers: &[(&'static str, &'static str)],
        time: Duration,
    ) -> BoxFuture<'static, HandlerResult> {
        let context = ParkingContext::new(Some(parking), HERE, Uri::from_static("/v1/events%3Apoll"));
        let mut request = Request::get("/v1/events:poll").extension(context);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = async move {
            sleep_until(Instant::now() + time).await;
            Ok(Response::new(Body::from("here")))
        };
        WaitingRequest::new(request.body(()).unwrap().into_parts().0, AddressLimiter::new(1, 1)).wait(answer)
    }

    /// Whether it has left its connection after some time.
    async fn leaves(
        parking: &ParkingSlot,
        poll: BoxFuture<'static, HandlerResult>,
        time: Duration,
    ) -> Option<ParkedRequest> {
        assert!(timeout(time, poll).await.is_err(), "it was answered");
        parking.take_parked()
    }

    /// A socket, and its peer.
    async fn socket() -> (HttpSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        peer.write_all(b"GET / HTTP/1.1").await.unwrap();
        (HttpSocket::detect_version(listener.accept().await.unwrap().0, LONG).await.unwrap(), peer)
    }

    fn here() -> PeerAddress {
        PeerAddress { address: HERE, usage: Arc::default() }
    }

    const LONG: Duration = Duration::from_secs(30);
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn a_poll_leaves_its_connection_at_once_and_a_while_later_where_the_last_one_was_answered_soon() {
        let (socket, _peer) = socket().await;
        let parking = ParkingSlot::new();
        for (time, next_stays) in
            [(QUICK_ANSWER / 2, true), (QUICK_ANSWER * 2, false), (QUICK_ANSWER, false), (QUICK_ANSWER / 10, true)]
        {
            parking.0.was_quick.store(false, Ordering::Relaxed);
            let parked = leaves(&parking, poll(&parking, &[], time), Duration::ZERO).await.expect("it is still there");
            let question = parked.wait(&socket, &parking).await.expect("its peer is there");
            assert!(question.starts_with(b"GET /v1/events%3Apoll HTTP/1.1\r\n"), "it was asked in other words");
            assert!(poll(&parking, &[], LONG).await.is_ok(), "its answer is not there");
            assert!(parking.take_answer().is_none(), "it is there for somebody else");
            let next = leaves(&parking, poll(&parking, &[], LONG), QUICK_ANSWER / 2).await;
            assert_eq!(next.is_none(), next_stays, "after {time:?}");
        }
        let for_long = leaves(&parking, poll(&parking, &[], LONG), QUICK_ANSWER + STAGGER_STEP * STAGGER_STEPS).await;
        let parked = for_long.expect("it is still there");
        assert!(parked.wait(&socket, &parking).await.is_some());
        parking.clear();
        assert!(leaves(&parking, poll(&parking, &[], LONG), Duration::ZERO).await.is_some(), "the wait was long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_a_body_stays_with_its_connection() {
        let parking = ParkingSlot::new();
        for headers in [&[("content-length", "2")], &[("transfer-encoding", "chunked")]] {
            let left = leaves(&parking, poll(&parking, headers, LONG), LONG / 2).await;
            assert!(left.is_none(), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_before_the_routes_leaves_no_answer_for_the_next_poll_of_the_connection() {
        let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
        let common = ServerState::new(Arc::new(BrokerSlot::new(broker)), HttpOptions::default(), None);
        let (frontend, parking) = (Arc::new(HttpFrontend::new(common)), ParkingSlot::new());
        *parking.lock_phase() = ParkingPhase::Answered(Ok(Response::new(Body::from("another caller's"))));
        let shared = parking.clone();
        let service = service_fn(move |request| {
            middleware::handle(Arc::clone(&frontend), here(), Some(shared.clone()), (request, None))
        });
        let (mut peer, served) = tokio::io::duplex(64 * 1024);
        peer.write_all(b"GET /v1/events:poll HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        http1::Builder::new().serve_connection(TokioIo::new(served), service).await.unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(parking.take_answer().is_none(), "it is there for somebody else");
    }

    #[test]
    fn a_question_is_asked_as_it_was() {
        let request = Request::get("/v1/events:poll?topic=a%20b&timeout=30").version(Version::HTTP_10);
        let request =
            request.header("Host", "here").header("X-Twice", "1").header("X-Twice", "2").header("X-Odd", "\u{e9}");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = "GET /v1/events:poll?topic=a%20b&timeout=30 HTTP/1.0\r\nhost: here\r\nx-twice: 1\r\nx-twice: 2\r\nx-odd: \u{e9}\r\n\r\n";
        assert_eq!(String::from_utf8(encode_head(&parts)).unwrap(), query);
    }
}
