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

use super::alarm::Alarm;
use super::crowd::{Crowd, Member};
use super::problem::Answer;
use super::socket::Socket;
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
const SOON: Duration = Duration::from_secs(1);
/// Not all at once, when many turn out to wait for longer: this much later each, and then from the start again.
const STEP: Duration = Duration::from_millis(64);
const STEPS: u32 = 32;

/// One connection's.
#[derive(Clone)]
pub(crate) struct Parking(Arc<Shared>);

struct Shared {
    alarm: Alarm,
    place: Mutex<Place>,
    /// How long a poll stays where the last one was answered soon.
    patience: Duration,
    was_soon: AtomicBool,
}

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Waiting(Parked),
    Answered(Answer),
}

/// A request's way to the parking of its connection, and where it comes from.
#[derive(Clone)]
pub(crate) struct Entrance {
    /// `None`: over HTTP/2 it waits where it is.
    parking: Option<Parking>,
    address: IpAddr,
    /// What was asked for; a handler may see a tidier form of it.
    target: Uri,
}

/// A request that waits without a connection.
pub(crate) struct Parked {
    question: Vec<u8>,
    answer: BoxFuture<'static, Answer>,
    /// When it was asked.
    asked: Instant,
    /// Its place among all that wait.
    _member: Option<Member>,
}

impl Entrance {
    /// For a request of this target.
    pub(crate) fn new(parking: Option<&Parking>, address: IpAddr, target: Uri) -> Self {
        Self { parking: parking.cloned(), address, target }
    }
}

/// A place among the requests that wait.
pub(crate) fn enter(waits: &Arc<Crowd>, entrance: &Entrance) -> Result<Member, Error> {
    waits.enter(entrance.address).ok_or_else(|| {
        let detail = "As many requests wait as may, over all or from this address; come back later.";
        Error::new(Kind::Overloaded, detail).with_retry_after(RETRY_SECONDS)
    })
}

/// Places get free as polls end, which takes up to half a minute.
const RETRY_SECONDS: u32 = 5;

impl Parking {
    /// Another connection's.
    pub(crate) fn new() -> Self {
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        let patience = SOON + STEP * (CONNECTIONS.fetch_add(1, Ordering::Relaxed) % STEPS);
        let (alarm, place, was_soon) = (Alarm::default(), Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(Shared { alarm, place, patience, was_soon }))
    }

    /// The connection's alarm.
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.0.alarm
    }

    /// The request that is to wait without its connection, if there is one.
    pub(crate) fn leave(&self) -> Option<Parked> {
        let mut place = self.place();
        // Asked after every request: no answer is moved to find out.
        if !matches!(*place, Place::Waiting(_)) {
            return None;
        }
        match std::mem::take(&mut *place) {
            Place::Waiting(parked) => Some(parked),
            Place::Empty | Place::Answered(_) => None,
        }
    }

    /// The request is answered, whatever came of it; what was left for it is for nobody else.
    pub(crate) fn clear(&self) {
        *self.place() = Place::Empty;
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `answer` comes to before it is time to leave the connection.
    async fn stay(&self, answer: &mut BoxFuture<'static, Answer>) -> Option<Answer> {
        if self.0.was_soon.load(Ordering::Relaxed) {
            return self.0.alarm.within(self.0.patience, answer).await;
        }
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
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
        parking.0.was_soon.store(self.asked.elapsed() < SOON, Ordering::Relaxed);
        *parking.place() = Place::Answered(answer);
        Some(self.question)
    }
}

/// A request that may have to wait: with its head, to ask again.
pub(crate) struct Patient {
    parts: Parts,
    entrance: Option<Entrance>,
    waits: Arc<Crowd>,
}

impl Patient {
    /// A request with this head; it is one of those that wait.
    pub(crate) fn new(mut parts: Parts, waits: Arc<Crowd>) -> Self {
        let entrance = parts.extensions.remove::<Entrance>();
        Self { parts, entrance, waits }
    }

    /// What `answer` comes to, wherever it is waited for.
    pub(crate) fn wait(self, answer: impl Future<Output = Answer> + Send + 'static) -> BoxFuture<'static, Answer> {
        let mut answer: BoxFuture<'static, Answer> = Box::pin(answer);
        let Self { mut parts, entrance, waits } = self;
        let Some(mut entrance) = entrance else { return answer };
        let has_body = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
        let Some(parking) = entrance.parking.take().filter(|_| !has_body) else {
            drop(parts);
            return Box::pin(async move {
                let _member = enter(&waits, &entrance)?;
                answer.await
            });
        };
        Box::pin(async move {
            if let Some(answer) = parking.answered() {
                return answer;
            }
            // Not when the question is asked again: it has waited by then.
            let member = Some(enter(&waits, &entrance)?);
            let asked = Instant::now();
            if let Some(answer) = parking.stay(&mut answer).await {
                return answer;
            }
            parts.uri = entrance.target;
            *parking.place() = Place::Waiting(Parked { question: question(&parts), answer, asked, _member: member });
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
    use crate::broker::{Broker, BrokerSlot};
    use crate::config::Config;
    use crate::rest::crowd::PeerAddress;
    use crate::rest::{Common, Front, Options, edge};
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
    fn poll(parking: &Parking, headers: &[(&'static str, &'static str)], time: Duration) -> BoxFuture<'static, Answer> {
        let entrance = Entrance::new(Some(parking), HERE, Uri::from_static("/v1/events%3Apoll"));
        let mut request = Request::get("/v1/events:poll").extension(entrance);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = async move {
            sleep_until(Instant::now() + time).await;
            Ok(Response::new(Body::from("here")))
        };
        Patient::new(request.body(()).unwrap().into_parts().0, Crowd::new(1, 1)).wait(answer)
    }

    /// Whether it has left its connection after some time.
    async fn leaves(parking: &Parking, poll: BoxFuture<'static, Answer>, time: Duration) -> Option<Parked> {
        assert!(timeout(time, poll).await.is_err(), "it was answered");
        parking.leave()
    }

    /// A socket, and its peer.
    async fn socket() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        peer.write_all(b"GET / HTTP/1.1").await.unwrap();
        (Socket::greet(listener.accept().await.unwrap().0, LONG).await.unwrap(), peer)
    }

    fn here() -> PeerAddress {
        PeerAddress { address: HERE, usage: Arc::default() }
    }

    const LONG: Duration = Duration::from_secs(30);
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn a_poll_leaves_its_connection_at_once_and_a_while_later_where_the_last_one_was_answered_soon() {
        let (socket, _peer) = socket().await;
        let parking = Parking::new();
        for (time, next_stays) in [(SOON / 2, true), (SOON * 2, false), (SOON, false), (SOON / 10, true)] {
            parking.0.was_soon.store(false, Ordering::Relaxed);
            let parked = leaves(&parking, poll(&parking, &[], time), Duration::ZERO).await.expect("it is still there");
            let question = parked.wait(&socket, &parking).await.expect("its peer is there");
            assert!(question.starts_with(b"GET /v1/events%3Apoll HTTP/1.1\r\n"), "it was asked in other words");
            assert!(poll(&parking, &[], LONG).await.is_ok(), "its answer is not there");
            assert!(parking.answered().is_none(), "it is there for somebody else");
            let next = leaves(&parking, poll(&parking, &[], LONG), SOON / 2).await;
            assert_eq!(next.is_none(), next_stays, "after {time:?}");
        }
        let for_long = leaves(&parking, poll(&parking, &[], LONG), SOON + STEP * STEPS).await;
        let parked = for_long.expect("it is still there");
        assert!(parked.wait(&socket, &parking).await.is_some());
        parking.clear();
        assert!(leaves(&parking, poll(&parking, &[], LONG), Duration::ZERO).await.is_some(), "the wait was long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_a_body_stays_with_its_connection() {
        let parking = Parking::new();
        for headers in [&[("content-length", "2")], &[("transfer-encoding", "chunked")]] {
            let left = leaves(&parking, poll(&parking, headers, LONG), LONG / 2).await;
            assert!(left.is_none(), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_before_the_routes_leaves_no_answer_for_the_next_poll_of_the_connection() {
        let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
        let common = Common::new(Arc::new(BrokerSlot::new(broker)), Options::default(), None);
        let (front, parking) = (Arc::new(Front::new(common)), Parking::new());
        *parking.place() = Place::Answered(Ok(Response::new(Body::from("another caller's"))));
        let shared = parking.clone();
        let service =
            service_fn(move |request| edge::handle(Arc::clone(&front), here(), Some(shared.clone()), (request, None)));
        let (mut peer, served) = tokio::io::duplex(64 * 1024);
        peer.write_all(b"GET /v1/events:poll HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        http1::Builder::new().serve_connection(TokioIo::new(served), service).await.unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(parking.answered().is_none(), "it is there for somebody else");
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
