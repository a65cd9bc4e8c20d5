//! Receivers that misbehave in many ways, with the real program: each is contained, and each attempt records what
//! happened. A well-behaved receiver beside them gets every event before the first of them is given up.

use crate::http::{CREATED, Server, TOPIC, event};
use axum::Router;
use axum::routing::post;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;

/// Fewer events than open a circuit breaker.
const EVENTS: usize = 5;
const TIMEOUT_SECONDS: u64 = 5;
const GIGABYTE: usize = 1 << 30;
/// The maximum growth of the broker's memory while each of two receivers sends it a gigabyte five times.
const GROWTH_MAX: u64 = 128 * 1024 * 1024;

/// A receiver with the given behaviour on every connection; returns its address.
async fn raw<F: Future<Output = ()> + Send + 'static>(
    behaviour: impl Fn(TcpStream) -> F + Send + 'static,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(behaviour(socket));
        }
    });
    address
}

/// Reads the head of a request, and any part of the body that arrives with it.
async fn take(socket: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

async fn hangs(mut socket: TcpStream) {
    take(&mut socket).await;
    std::future::pending::<()>().await;
}

async fn drips(mut socket: TcpStream) {
    take(&mut socket).await;
    let mut sent = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n").await;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    while sent.is_ok() {
        tick.tick().await;
        sent = socket.write_all(b"x").await;
    }
}

async fn floods(mut socket: TcpStream, status: &'static str) {
    take(&mut socket).await;
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {GIGABYTE}\r\n\r\n");
    let mut sent = socket.write_all(head.as_bytes()).await;
    let mut left = GIGABYTE;
    while sent.is_ok() && left > 0 {
        left -= 65_536;
        sent = socket.write_all(&[b'x'; 65_536]).await;
    }
}

/// A receiver whose certificate no trusted authority has signed.
async fn untrusted() -> std::net::SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    raw(move |socket| {
        let acceptor = acceptor.clone();
        async move { drop(acceptor.accept(socket).await) }
    })
    .await
}

/// Redirects to `place`.
async fn redirects(place: String) -> std::net::SocketAddr {
    raw(move |mut socket| {
        let place = place.clone();
        async move {
            take(&mut socket).await;
            let answer = format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n");
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    })
    .await
}

/// An address without a listener.
async fn deserted() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A well-behaved receiver that counts requests.
async fn well_behaved() -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (count, counted) = watch::channel(0);
    let router = Router::new().route("/", post(async move || count.send_modify(|count| *count += 1)));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, counted)
}

async fn subscribe(server: &Server, code: &str, target: &str) {
    let new = json!({
        "code": code, "topic": TOPIC, "target": target, "maxAttempts": 1, "timeoutSeconds": TIMEOUT_SECONDS,
    });
    let (status, made) = server.post("/v1/subscriptions", &new).await;
    assert_eq!(status, 201, "{made}");
}

async fn publish(server: &Server) {
    for number in 0..EVENTS {
        let (status, stored) = server.post("/v1/events", &event(CREATED, &number.to_string())).await;
        assert_eq!(status, 201, "{stored}");
    }
}

/// The jobs of a subscription once all of them have this status, each as its own resource shows it.
async fn jobs(server: &Server, code: &str, status: &str) -> Vec<Value> {
    let listed = loop {
        let path = format!("/v1/dispatch-jobs?subscription={code}&status={status}");
        let (_, page) = server.get(&path).await;
        let items = page["items"].as_array().unwrap().clone();
        // A job and its dead letter are one append, and become visible one after the other.
        let are_whole = status != "ERROR" || items.iter().all(|job| job["deadLetter"].is_string());
        if items.len() == EVENTS && are_whole {
            break items;
        }
        tokio::task::yield_now().await;
    };
    let mut shown = Vec::new();
    for job in listed {
        let (status, job) = server.get(&format!("/v1/dispatch-jobs/{}", job["id"].as_str().unwrap())).await;
        assert_eq!(status, 200, "{job}");
        shown.push(job);
    }
    shown
}

/// Checks that the only attempt of each job has this error class and status.
async fn expect_attempts(server: &Server, code: &str, class: &str, status: Option<u16>) -> Vec<Value> {
    let jobs = jobs(server, code, "ERROR").await;
    for job in &jobs {
        let attempts = job["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{code}: {job}");
        let attempt = &attempts[0];
        assert_eq!(attempt["error"]["class"], class, "{code}: {job}");
        assert_eq!(attempt["status"].as_u64(), status.map(u64::from), "{code}: {job}");
        assert!(attempt["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{code}: {job}");
        assert!(attempt["at"].is_string() && attempt["durationMs"].is_u64() && job["deadLetter"].is_string());
    }
    jobs
}

/// The peak and the current memory of a process, in bytes.
fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let bytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    (bytes("VmHWM"), bytes("VmRSS"))
}

/// An address that must receive no call, and the number of calls it received.
async fn spy() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let spied = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&spied);
    let count = move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    (raw(count).await, spied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_receivers_are_contained_each_with_its_record_and_others_get_everything_meanwhile() {
    let server = Server::start_with(&[("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true")], &[]);
    server.register(CREATED).await;
    let (spy, spied) = spy().await;
    let (good, mut counted) = well_behaved().await;
    for (code, target) in [
        ("hangs", format!("http://{}/", raw(hangs).await)),
        ("drips", format!("http://{}/", raw(drips).await)),
        ("floods", format!("http://{}/", raw(|socket| floods(socket, "500 Internal Server Error")).await)),
        ("floods-well", format!("http://{}/", raw(|socket| floods(socket, "200 OK")).await)),
        ("untrusted", format!("https://localhost:{}/", untrusted().await.port())),
        ("redirects", format!("http://{}/", redirects(format!("http://{spy}/")).await)),
        ("redirects-inside", format!("http://{}/", redirects("http://169.254.169.254/".to_owned()).await)),
        ("deserted", format!("http://{}/", deserted().await)),
        ("good", good),
    ] {
        subscribe(&server, code, &target).await;
    }
    let (_, before) = memory(server.pid());
    publish(&server).await;
    counted.wait_for(|count| *count == EVENTS).await.unwrap();
    jobs(&server, "hangs", "IN_PROGRESS").await;
    jobs(&server, "good", "COMPLETED").await;

    for job in expect_attempts(&server, "hangs", "timeout", None).await {
        let lasted = job["attempts"][0]["durationMs"].as_u64().unwrap();
        assert!((TIMEOUT_SECONDS * 1000..TIMEOUT_SECONDS * 4000).contains(&lasted), "{job}");
    }
    expect_attempts(&server, "drips", "timeout", Some(200)).await;
    for job in expect_attempts(&server, "floods", "http_5xx", Some(500)).await {
        let response = job["attempts"][0]["response"].as_str().unwrap();
        assert!(response.starts_with("xx") && response.len() <= 4096, "{job}");
    }
    for job in jobs(&server, "floods-well", "COMPLETED").await {
        assert_eq!(
            (&job["attempts"][0]["status"], job["attempts"].as_array().unwrap().len()),
            (&json!(200), 1),
            "{job}"
        );
    }
    expect_attempts(&server, "untrusted", "tls", None).await;
    expect_attempts(&server, "redirects", "http_3xx", Some(302)).await;
    expect_attempts(&server, "redirects-inside", "http_3xx", Some(302)).await;
    expect_attempts(&server, "deserted", "connect", None).await;
    assert_eq!(spied.load(Ordering::SeqCst), 0, "a redirect was followed");
    let (peak, _) = memory(server.pid());
    assert!(peak < before + GROWTH_MAX, "the memory grew from {before} to {peak} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_inside_are_refused_when_they_are_named_and_when_a_name_leads_there() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let (spy, spied) = spy().await;
    let port = spy.port();
    for inside in ["127.0.0.1", "169.254.169.254", "2130706433", "0xa9fea9fe", "[::1]", "[::ffff:169.254.169.254]"] {
        let new = json!({"code": "inside", "topic": TOPIC, "target": format!("http://{inside}:{port}/")});
        let (status, problem) = server.post("/v1/subscriptions", &new).await;
        assert_eq!(
            (status.as_u16(), &problem["errors"][0]["pointer"]),
            (422, &json!("/target")),
            "{inside}: {problem}"
        );
    }
    drop(server);
    // A target that was allowed at registration, and is not allowed any more, is refused at delivery.
    let server = Server::start_with(&[("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true")], &[]);
    server.register(CREATED).await;
    let targets = [("named", "localhost"), ("address", "127.0.0.1"), ("metadata", "169.254.169.254")];
    for (code, host) in targets {
        subscribe(&server, code, &format!("http://{host}:{port}/")).await;
    }
    let server = Server::start_in(server.kill(), &[]);
    publish(&server).await;
    for (code, _) in targets {
        expect_attempts(&server, code, "target_refused", None).await;
    }
    assert_eq!(spied.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_asked_to_stop_waits_for_what_is_under_way_and_sends_none_of_it_again() {
    let variables = [("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true")];
    let server = Server::start_with(&variables, &[]);
    server.register(CREATED).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (arrived, mut counted) = watch::channel(0);
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let take = async move || {
        arrived.send_modify(|count| *count += 1);
        waiting.notified().await;
    };
    let router = Router::new().route("/", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    subscribe(&server, "slow", &url).await;
    publish(&server).await;
    counted.wait_for(|count| *count == EVENTS).await.unwrap();
    server.terminate();
    while !server.logged().contains("draining") {
        tokio::task::yield_now().await;
    }
    go.notify_waiters();
    let (status, folder) = tokio::task::spawn_blocking(|| server.wait()).await.unwrap();
    assert!(status.success());
    let server = Server::start_again_with(folder, &variables);
    jobs(&server, "slow", "COMPLETED").await;
    assert_eq!(*counted.borrow(), EVENTS, "an acknowledged delivery was sent again");
}
