//! When polls are parked, and what the slot of a connection holds.

use super::slot::{ParkedRequest, ParkingSlot, QUICK_RESPONSE, STAGGER_STEP, STAGGER_STEPS};
use super::waiting_request::{ParkedFuture, WaitingRequest, encode_head};
use crate::broker::{Broker, BrokerSlot};
use crate::config::Config;
use crate::rest::address_limiter::{AddressLimiter, PeerAddress};
use crate::rest::middleware::{self, RequestSource};
use crate::rest::request_context::RequestContext;
use crate::rest::socket::HttpSocket;
use crate::rest::{HttpFrontend, HttpOptions, ServerState};
use axum::body::Body;
use axum::response::Response;
use http::{Request, Uri, Version};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};

/// A poll with these headers whose response takes `time`.
fn poll(parking: &ParkingSlot, headers: &[(&'static str, &'static str)], time: Duration) -> ParkedFuture {
    let context = RequestContext::new(Some(parking.clone()), HERE, Uri::from_static("/v1/events%3Apoll"));
    let mut request = Request::get("/v1/events:poll").extension(context);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = async move {
        sleep_until(Instant::now() + time).await;
        Ok(Response::new(Body::from("here")))
    };
    WaitingRequest::new(request.body(()).unwrap().into_parts().0, AddressLimiter::new(1, 1)).wait(response)
}

/// The parked request, if the poll is parked within `time`.
async fn parked_within(parking: &ParkingSlot, poll: ParkedFuture, time: Duration) -> Option<ParkedRequest> {
    assert!(timeout(time, poll).await.is_err(), "the poll must still wait");
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
async fn a_poll_is_parked_at_once_or_after_a_while_if_the_last_one_was_quick() {
    let (mut socket, _peer) = socket().await;
    let parking = ParkingSlot::new(None);
    for (time, next_stays) in
        [(QUICK_RESPONSE / 2, true), (QUICK_RESPONSE * 2, false), (QUICK_RESPONSE, false), (QUICK_RESPONSE / 10, true)]
    {
        parking.set_was_quick(false);
        let parked =
            parked_within(&parking, poll(&parking, &[], time), Duration::ZERO).await.expect("the poll must be parked");
        let head = parked.wait(&mut socket, &parking).await.expect("the peer is connected");
        assert!(head.starts_with(b"GET /v1/events%3Apoll HTTP/1.1\r\n"), "the head must be the original one");
        assert!(poll(&parking, &[], LONG).await.is_ok(), "the response must be there");
        assert!(parking.take_response().is_none(), "another request would receive the response");
        let next = parked_within(&parking, poll(&parking, &[], LONG), QUICK_RESPONSE / 2).await;
        assert_eq!(next.is_none(), next_stays, "after {time:?}");
    }
    let last = parked_within(&parking, poll(&parking, &[], LONG), QUICK_RESPONSE + STAGGER_STEP * STAGGER_STEPS).await;
    let parked = last.expect("the poll must be parked");
    assert!(parked.wait(&mut socket, &parking).await.is_some());
    parking.clear();
    assert!(
        parked_within(&parking, poll(&parking, &[], LONG), Duration::ZERO).await.is_some(),
        "the last poll was not quick"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_body_is_not_parked() {
    let parking = ParkingSlot::new(None);
    for headers in [&[("content-length", "2")], &[("transfer-encoding", "chunked")]] {
        let left = parked_within(&parking, poll(&parking, headers, LONG), LONG / 2).await;
        assert!(left.is_none(), "{headers:?}");
    }
}

#[tokio::test]
async fn a_request_refused_by_the_middleware_clears_the_slot() {
    let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
    let common = ServerState::new(Arc::new(BrokerSlot::new(broker)), HttpOptions::default(), None);
    let (frontend, parking) = (Arc::new(HttpFrontend::new(common)), ParkingSlot::new(None));
    parking.store_response(Ok(Response::new(Body::from("another caller's"))));
    let shared = parking.clone();
    let service = service_fn(move |request| {
        let source = RequestSource { peer: here(), parking: Some(shared.clone()), reading: None, refusal: None };
        middleware::handle(Arc::clone(&frontend), source, request)
    });
    let (mut peer, served) = tokio::io::duplex(64 * 1024);
    peer.write_all(b"GET /v1/events:poll HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").await.unwrap();
    http1::Builder::new().serve_connection(TokioIo::new(served), service).await.unwrap();
    let mut response = String::new();
    peer.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
    assert!(parking.take_response().is_none(), "another request would receive the response");
}

#[test]
fn a_head_is_encoded_as_it_was_received() {
    let request = Request::get("/v1/events:poll?topic=a%20b&timeout=30").version(Version::HTTP_10);
    let request =
        request.header("Host", "here").header("X-Twice", "1").header("X-Twice", "2").header("X-Odd", "\u{e9}");
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let query = "GET /v1/events:poll?topic=a%20b&timeout=30 HTTP/1.0\r\nhost: here\r\nx-twice: 1\r\nx-twice: 2\r\nx-odd: \u{e9}\r\n\r\n";
    assert_eq!(String::from_utf8(encode_head(&parts)).unwrap(), query);
}
